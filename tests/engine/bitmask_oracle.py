"""The bitmask operations once more, in plain NumPy: what every kernel is compared with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from engine.grammar.kernels import ApplyKernel

WIDTHS = (1, 31, 32, 33, 1000, 32_001)
_LARGE = 10_000
_CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def pack(allowed: npt.NDArray[np.bool_], num_words: int) -> npt.NDArray[np.int32]:
    """Pack a table of booleans `(rows, columns)`; bits past the columns are set, since no kernel may look at them."""
    missing = num_words * 32 - allowed.shape[1]
    wide = np.pad(allowed, ((0, 0), (0, missing)), constant_values=True)
    return np.packbits(wide, axis=1, bitorder="little").view("<i4").astype(np.int32)


def check_kernel(
    kernel: ApplyKernel,
    *,
    widths: tuple[int, ...] = WIDTHS,
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    device: torch.device = _CPU,
) -> int:
    """Compare a kernel with NumPy over widths, types, scattered, empty and full rows, and heads wider than the mask.

    Returns:
        How many tables were compared.
    """
    rng = np.random.default_rng(7)
    count = 0
    for vocab_size in widths:
        for dtype in dtypes:
            for rows in ([4, 0, 2], [1], [], [0, 1, 2, 3, 4])[: 1 if vocab_size > _LARGE else 4]:
                for mask_size in (vocab_size, max(1, vocab_size - 40)):
                    density = rng.choice([0.0, 0.01, 0.5, 1.0], size=(len(rows), 1))
                    allowed = rng.random((len(rows), mask_size)) < density
                    check_once(kernel, allowed, rows, vocab_size, dtype, rng, device)
                    count += 1
    return count


def check_once(
    kernel: ApplyKernel,
    allowed: npt.NDArray[np.bool_],
    rows: list[int],
    vocab_size: int,
    dtype: torch.dtype,
    rng: np.random.Generator,
    device: torch.device,
) -> None:
    """Compare one table; bits are compared, so that NaN, zeros with a sign and infinities count, too."""
    before = torch.tensor(rng.normal(size=(5, vocab_size + 3)), dtype=torch.float32).to(dtype)
    before[:, 0] = float("nan")
    before[1::2, vocab_size // 2] = -0.0
    num_words = (allowed.shape[1] + 31) // 32
    bitmask = torch.from_numpy(pack(allowed, num_words)).reshape(len(rows), num_words)
    # A view of a wider table, as padded logits are.
    table = before.clone().to(device)
    kernel(table[:, :vocab_size], bitmask.to(device), torch.tensor(rows, dtype=torch.int64, device=device))
    expected = before.float().numpy().copy()
    for index, row in enumerate(rows):
        width = min(vocab_size, num_words * 32)
        keep = np.zeros(vocab_size, dtype=bool)
        keep[:width] = np.pad(allowed[index], (0, num_words * 32 - allowed.shape[1]), constant_values=True)[:width]
        expected[row, :vocab_size] = np.where(keep, expected[row, :vocab_size], -np.inf)
    found = table.cpu().float().numpy()
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32)), (vocab_size, dtype, rows, allowed.shape)
