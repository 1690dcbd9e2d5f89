"""Any length on a network of powers of two: pad and crop, and rows of different length side by side."""

# B = batch, N = length, R = rows of one group, W = 2**k the width they are run at
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

Run = Callable[[Tensor], Tensor]


def bits(length: int) -> int:
    """Address bits of the smallest network that holds ``length`` cells; at least one, since a switch takes two.

    >>> [bits(length) for length in (1, 2, 3, 4, 5, 64, 65)]
    [1, 1, 2, 2, 3, 6, 7]
    """
    return max(1, (length - 1).bit_length())


def pad_to(x_BN: Tensor, width: int) -> Tensor:
    """Append zeros along the sequence until it has ``width`` cells."""
    missing = width - x_BN.shape[1]
    if missing == 0:
        return x_BN
    return F.pad(x_BN, (0, 0) * (x_BN.dim() - 2) + (0, missing))


def at_power_of_two(run: Run, x_BN: Tensor) -> Tensor:
    """Run on the smallest power of two that holds the sequence, and crop the result back."""
    length = x_BN.shape[1]
    return run(pad_to(x_BN, 2 ** bits(length)))[:, :length]


def at_own_power_of_two(run: Run, x_BN: Tensor, lengths: Tensor | Sequence[int]) -> Tensor:
    """Run every row at the smallest power of two that holds *it*; cells past a row's length are zero, in and out.

    Rows are grouped by that power, so a row's result depends on the row alone.
    """
    batch, longest = x_BN.shape[:2]
    sizes = _checked(lengths, batch, longest)
    parts, order = [], []
    for k in sorted({bits(size) for size in sizes}):
        rows = [row for row, size in enumerate(sizes) if bits(size) == k]
        width = 2**k
        part = pad_to(x_BN[rows, :width], width)
        ends = torch.tensor([sizes[row] for row in rows], device=x_BN.device)
        inside_RW = torch.arange(width, device=x_BN.device) < ends[:, None]
        result = _only(inside_RW, run(_only(inside_RW, part)))
        parts.append(pad_to(result[:, :longest], longest))
        order += rows
    back = torch.tensor(order, device=x_BN.device).argsort()
    return torch.cat(parts)[back]


def _only(inside_RW: Tensor, x_RW: Tensor) -> Tensor:
    """``x_RW``, whatever dimensions it has beyond these two, with zeros where it is not inside."""
    return torch.where(inside_RW.view(*inside_RW.shape, *[1] * (x_RW.dim() - 2)), x_RW, 0)


def _checked(lengths: Tensor | Sequence[int], batch: int, longest: int) -> list[int]:
    sizes = torch.as_tensor(lengths)
    if sizes.shape != (batch,):
        raise ValueError(f"lengths must hold one length per row, {batch} of them, got shape {tuple(sizes.shape)}")
    if sizes.is_floating_point() or sizes.dtype == torch.bool:
        raise ValueError(f"lengths must be integers, got {sizes.dtype}")
    wrong = [size for size in sizes.tolist() if not 1 <= size <= longest]
    if wrong:
        raise ValueError(f"lengths must lie in 1..{longest}, the length of the input, got {wrong[0]}")
    return [int(size) for size in sizes.tolist()]
