"""Products that are compiled on the user's machine: `tiles.cpp` for bfloat16, a few rows of `kernels.cpp` for float32."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from .huge_pages import Span
from .linear import MakeProduct, Product, TorchProduct, make_torch_product
from .native import load_library

TILES_SOURCE = Path(__file__).with_name("tiles.cpp")
TILE_WAYS = ("amx", "avx512")
"""Ways to multiply over the order of `tiles.cpp`, the fastest first."""
SIZE_UNIT = 32
"""Inputs come in whole tiles, and outputs are padded to as many."""


def make_native_product(kernels: ctypes.CDLL) -> MakeProduct:
    """Give a choice among the products that are compiled and what PyTorch has.

    Args:
        kernels: `kernels.cpp`.
    """
    tiles = load_library(TILES_SOURCE)
    ways = [] if tiles is None else [way for way in TILE_WAYS if tiles[f"may_use_{way}"]()]

    def make_product(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
        if tiles is not None and ways and TileProduct.takes(weight):
            return TileProduct(tiles, ways[0], weight, bias)
        if FewRowsProduct.takes(weight):
            return FewRowsProduct(kernels, weight, bias)
        return make_torch_product(weight, bias)

    return make_product


class TileProduct:
    """bfloat16 over weights in the order in which AMX or AVX-512 read them, which is as fast as memory with few rows.

    Beside oneDNN's blocks, SmolLM2's products took 0.3 to 0.5 of the time with up to 16 rows and as long with 512.

    Args:
        library: `tiles.cpp`.
        way: One of `TILE_WAYS`.
        weight: That `takes` takes; copied.
        bias: Of any dtype, or None.

    Attributes:
        places: Addresses of the weight and of the bias, for `function`, the address of the kernel.
        size: Inputs.
        outputs: Outputs.
    """

    holds_weight = False

    def __init__(self, library: ctypes.CDLL, way: str, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        pointer, number, count = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
        self.outputs, self.size = weight.shape
        self._packed = torch.zeros(-(-self.outputs // SIZE_UNIT) * SIZE_UNIT, self.size, dtype=torch.bfloat16)
        self._bias = None if bias is None else bias.float()
        pack = library["pack_weight"]
        pack.argtypes, pack.restype = [pointer] * 2 + [number] * 2, None
        source = weight.contiguous()
        pack(source.data_ptr(), self._packed.data_ptr(), self.outputs, self.size)
        self._multiply = library[f"multiply_{way}"]
        self._multiply.argtypes, self._multiply.restype = [pointer] * 4 + [number] * 3 + [count], None
        self.places = self._packed.data_ptr(), None if self._bias is None else self._bias.data_ptr()
        self.function = ctypes.cast(self._multiply, ctypes.c_void_p).value

    @staticmethod
    def takes(weight: torch.Tensor) -> bool:
        """Whether this weight can be laid out so."""
        return weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and weight.shape[1] % SIZE_UNIT == 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """As `Product.__call__`."""
        x = x.contiguous()
        rows = x.shape[0]
        out = torch.empty(rows, self.outputs, dtype=torch.bfloat16)
        place = x.data_ptr(), *self.places, out.data_ptr()
        self._multiply(*place, rows, self.size, self.outputs, torch.get_num_threads())
        return out

    def memory(self) -> Span:
        """As `Product.memory`."""
        return Span(self._packed.data_ptr(), self._packed.nbytes)


class FewRowsProduct(TorchProduct):
    """float32, a few rows at once, as drafts and small batches make them; PyTorch's own products are better below and above.

    Args:
        library: `kernels.cpp`.
        weight: That `takes` takes.
        bias: float32, or None.
    """

    MIN_ROWS, MAX_ROWS = 4, 13

    def __init__(self, library: ctypes.CDLL, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__(weight, bias)
        self._multiply = library["multiply_float32"]
        self._multiply.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 3 + [ctypes.c_int]
        self._multiply.restype = None
        self._places = weight.data_ptr(), None if bias is None else bias.data_ptr()

    @staticmethod
    def takes(weight: torch.Tensor) -> bool:
        """Whether the kernel can read this weight."""
        return weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.is_contiguous()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """As `Product.__call__`."""
        if not (self.MIN_ROWS <= x.shape[0] <= self.MAX_ROWS and x.is_contiguous()):
            return super().__call__(x)
        outputs = self._weight.shape[0]
        out = torch.empty(x.shape[0], outputs)
        self._multiply(x.data_ptr(), *self._places, out.data_ptr(), *x.shape, outputs, torch.get_num_threads())
        return out
