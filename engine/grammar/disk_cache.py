"""Compiled grammars on disk, for those that took so long to compile that loading them pays.

A file per grammar: a line of JSON (format, key, checksum), then the compressed text that the backend serialised. Nothing is
unpickled. Files are written under another name and renamed, so that readers, in this process or another, see whole ones only;
what is damaged or belongs to another version is removed and compiled again. A disk that is full or cannot be written costs a line
in the log, never a request. The folder must be ours alone: who can write to it can feed the loader.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
import tempfile
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path

from .spec import GrammarSpec

logger = logging.getLogger(__name__)

FORMAT = 1
SUFFIX = ".grammar"
TEMPORARY_SUFFIX = ".partial"
MIN_COMPILE_S = 1.0
"""Below that, a restart costs less than the disk space."""
MIN_GAIN = 3.0
"""Loading must be this much quicker than compiling."""
MAX_TEXT_BYTES = 256 * 2**20
ABANDONED_S = 3600.0


def default_folder() -> Path:
    """Give `$XDG_CACHE_HOME/thinkgate/grammars`, or `~/.cache/thinkgate/grammars`."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "thinkgate" / "grammars"


class DiskCache:
    """Serialised grammars of one backend and vocabulary within a byte cap; safe for several threads and processes.

    Args:
        folder: Made if needed, for its owner only. Other vocabularies, backends and engines may share it, and share the cap.
        max_bytes: Cap of all files together; the ones read longest ago go first.
        identity: Names the backend, its version and the vocabulary; a grammar of another identity is never given.
    """

    def __init__(self, folder: Path, *, max_bytes: int, identity: str) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._identity = identity
        self._is_usable = self._prepare()

    def __contains__(self, spec: GrammarSpec) -> bool:
        return self._is_usable and self._path(spec).exists()

    def get(self, spec: GrammarSpec) -> str | None:
        """Give the text of a grammar, or None; a damaged file is removed."""
        if not self._is_usable:
            return None
        path = self._path(spec)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("the grammar cache cannot read %s: %s", path, error)
            return None
        text = _unpack(data, self._key(spec))
        if text is None:
            logger.warning("the grammar cache drops %s, which is damaged or foreign", path)
            self.remove(spec)
            return None
        with contextlib.suppress(OSError):  # a folder that is read-only: then nothing is removed from it either
            os.utime(path)
        return text

    def offer(self, spec: GrammarSpec, text: str, *, compile_s: float, load_s: float) -> bool:
        """Keep a grammar if that pays; whether it was kept."""
        if not self._is_usable or compile_s < MIN_COMPILE_S or load_s * MIN_GAIN > compile_s or len(text) > MAX_TEXT_BYTES:
            return False
        data = _pack(text, self._key(spec))
        if len(data) > self._max_bytes:
            return False
        try:
            _write(self._path(spec), data)
            self._trim()
        except OSError as error:
            logger.warning("the grammar cache cannot write to %s: %s", self._folder, error)
            return False
        return True

    def remove(self, spec: GrammarSpec) -> None:
        """Forget a grammar."""
        with contextlib.suppress(OSError):
            self._path(spec).unlink()

    def _prepare(self) -> bool:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self._folder.stat()
        except OSError as error:
            logger.warning("the grammar cache cannot use %s: %s", self._folder, error)
            return False
        if os.name == "posix" and (status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022):
            logger.warning("the grammar cache does not use %s: others may write to it", self._folder)
            return False
        return True

    def _key(self, spec: GrammarSpec) -> str:
        # What is asked for, by whom it was made and how: our own code shapes the grammar before the backend sees it.
        parts = [repr(replace(spec, backend="", strict=False)), self._identity, _code_digest()]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def _path(self, spec: GrammarSpec) -> Path:
        return self._folder / (self._key(spec) + SUFFIX)

    def _trim(self) -> None:
        files: list[tuple[float, int, Path]] = []
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):  # another process was quicker
                status = path.stat()
                if path.suffix == SUFFIX:
                    files.append((status.st_mtime, status.st_size, path))
                elif path.suffix == TEMPORARY_SUFFIX and _now(self._folder) - status.st_mtime > ABANDONED_S:
                    path.unlink()
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._max_bytes:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


def _pack(text: str, key: str) -> bytes:
    body = zlib.compress(text.encode(), level=1)
    header = {
        "thinkgate_grammar": FORMAT,
        "key": key,
        "sha256": hashlib.sha256(body).hexdigest(),
        "text_bytes": len(text.encode()),
    }
    return json.dumps(header).encode() + b"\n" + body


def _unpack(data: bytes, key: str) -> str | None:
    line, _, body = data.partition(b"\n")
    try:
        header = json.loads(line)
        if header["thinkgate_grammar"] != FORMAT or header["key"] != key or header["sha256"] != hashlib.sha256(body).hexdigest():
            return None
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(body, MAX_TEXT_BYTES)
        return text.decode() if unpacker.eof and len(text) == header["text_bytes"] else None
    except (ValueError, KeyError, TypeError, zlib.error):
        return None


def _write(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(suffix=TEMPORARY_SUFFIX, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _now(folder: Path) -> float:
    # The file system's clock, which need not be ours.
    return folder.stat().st_mtime


@cache
def _code_digest() -> str:
    """Digest of the code that makes grammars of specs."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
