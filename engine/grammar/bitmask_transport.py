"""Bitmasks as bytes, for another process: cheaper than pickled tensors, and checked when they are read."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

from ..errors import InvalidRequestError
from .bitmask import bitmask_width

_MAGIC = b"TGBM"
_VERSION = 1
# Magic, version, rows, vocabulary size, checksum of the words; little-endian throughout.
_HEADER = struct.Struct("<4sHIII")
MAX_BYTES = 2**31


def to_bytes(bitmask: npt.NDArray[np.int32], vocab_size: int) -> bytes:
    """Write a table, int32 `(rows, ceil(vocab_size / 32))`.

    Raises:
        InvalidRequestError: The table does not fit the vocabulary.
    """
    if bitmask.dtype != np.int32 or bitmask.ndim != 2 or bitmask.shape[1] != bitmask_width(vocab_size):
        wanted = f"int32 (rows, {bitmask_width(vocab_size)})"
        raise InvalidRequestError(
            f"a bitmask for {vocab_size} tokens is {wanted}, not {bitmask.dtype} {bitmask.shape}", param="bitmask"
        )
    body = np.ascontiguousarray(bitmask, dtype="<i4").tobytes()
    return _HEADER.pack(_MAGIC, _VERSION, len(bitmask), vocab_size, zlib.crc32(body)) + body


def from_bytes(data: bytes | bytearray | memoryview) -> tuple[npt.NDArray[np.int32], int]:
    """Read a table and its vocabulary size; the table is a view of `data`, read-only where that is.

    Raises:
        InvalidRequestError: Not a table, of another version, cut off, or damaged.
    """
    view = memoryview(data).cast("B")
    if len(view) < _HEADER.size:
        raise _damaged("it is shorter than its header")
    magic, version, num_rows, vocab_size, checksum = _HEADER.unpack_from(view)
    if magic != _MAGIC or version != _VERSION:
        raise _damaged("it begins with something else, or is of another version")
    body = view[_HEADER.size :]
    shape = (num_rows, bitmask_width(vocab_size))
    if len(body) > MAX_BYTES or len(body) != shape[0] * shape[1] * 4:
        raise _damaged(f"{len(body)} bytes are not {shape[0]} rows of {shape[1]} words")
    if zlib.crc32(body) != checksum:
        raise _damaged("its checksum is another")
    return np.frombuffer(body, dtype="<i4").reshape(shape), vocab_size


def _damaged(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"these bytes are no bitmask: {why}", param="data")
