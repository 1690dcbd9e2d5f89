"""Any length on a network of powers of two: pad and crop, and rows of different length side by side."""

# B = batch, N = length, R = rows of one group, W = 2**k the width they are run at
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from riffle.shuffle import bits

Run = Callable[[list[Tensor]], list[Tensor]]
"""Maps batches of sequences, each batch of one power of two, to as many results."""


def pad_to(x_BN: Tensor, width: int) -> Tensor:
    """Append zeros along the sequence until it has ``width`` cells."""
    missing = width - x_BN.shape[1]
    if missing == 0:
        return x_BN
    return F.pad(x_BN, (0, 0) * (x_BN.dim() - 2) + (0, missing))


def at_powers_of_two(run: Run, xs_BN: Sequence[Tensor]) -> list[Tensor]:
    """Run each batch on the smallest power of two that holds its sequences, and crop the results back."""
    results = run([pad_to(x_BN, 2 ** bits(x_BN.shape[1])) for x_BN in xs_BN])
    return [result[:, : x_BN.shape[1]] for result, x_BN in zip(results, xs_BN, strict=True)]


def at_own_power_of_two(run: Run, x_BN: Tensor, lengths: Tensor | Sequence[int]) -> Tensor:
    """Run every row at the smallest power of two that holds *it*; cells past a row's length are zero, in and out.

    Rows are grouped by that power, so a row's result depends on the row alone.
    """
    batch, longest = x_BN.shape[:2]
    sizes = checked_lengths(lengths, batch, longest)
    masks, parts, order = [], [], []
    for k in sorted({bits(size) for size in sizes}):
        rows = [row for row, size in enumerate(sizes) if bits(size) == k]
        width = 2**k
        ends = torch.tensor([sizes[row] for row in rows], device=x_BN.device)
        masks.append(torch.arange(width, device=x_BN.device) < ends[:, None])
        parts.append(_only(masks[-1], pad_to(x_BN[rows, :width], width)))
        order += rows
    results = [_only(inside_RW, result) for inside_RW, result in zip(masks, run(parts), strict=True)]
    back = torch.tensor(order, device=x_BN.device).argsort()
    return torch.cat([pad_to(result[:, :longest], longest) for result in results])[back]


def _only(inside_RW: Tensor, x_RW: Tensor) -> Tensor:
    """``x_RW``, whatever dimensions it has beyond these two, with zeros where it is not inside."""
    return torch.where(inside_RW.view(*inside_RW.shape, *[1] * (x_RW.dim() - 2)), x_RW, 0)


def checked_lengths(lengths: Tensor | Sequence[int], batch: int, longest: int) -> list[int]:
    """The lengths of a batch's rows as numbers, each within 1..longest."""
    sizes = torch.as_tensor(lengths)
    if sizes.shape != (batch,):
        raise ValueError(f"lengths must hold one length per row, {batch} of them, got shape {tuple(sizes.shape)}")
    if sizes.is_floating_point() or sizes.dtype == torch.bool:
        raise ValueError(f"lengths must be integers, got {sizes.dtype}")
    wrong = [size for size in sizes.tolist() if not 1 <= size <= longest]
    if wrong:
        raise ValueError(f"lengths must lie in 1..{longest}, the length of the input, got {wrong[0]}")
    return [int(size) for size in sizes.tolist()]
