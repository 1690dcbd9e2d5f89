"""Sequences of any length on a network of powers of two, or of even lengths: padding, rows of different lengths."""

# B = batch, N = length, R = rows of one group, C = cells of several groups
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from riffle.shuffle import Pad, padded_length

RunBatches = Callable[[list[Tensor]], list[Tensor]]
"""Maps batches of sequences, each batch of one padded length, to as many results."""


def pad_to(x_BN: Tensor, width: int) -> Tensor:
    """Append zeros along the sequence, or remove what is too much, until it has ``width`` cells."""
    missing = width - x_BN.shape[1]
    # A compiler asks nothing of the length here, so that its graph serves every length of one depth.
    if not torch.compiler.is_compiling() and missing <= 0:
        return x_BN[:, :width] if missing else x_BN
    return F.pad(x_BN, (0, 0) * (x_BN.dim() - 2) + (0, missing))


def at_padded_lengths(run: RunBatches, xs_BN: Sequence[Tensor], pad: Pad) -> list[Tensor]:
    """Run each batch on the smallest number of cells that holds its sequences, and crop the results."""
    results = run([pad_to(x_BN, padded_length(x_BN.shape[1], pad)) for x_BN in xs_BN])
    return [pad_to(result, x_BN.shape[1]) for result, x_BN in zip(results, xs_BN, strict=True)]


def at_own_padded_length(run: RunBatches, x_BN: Tensor, lengths: Tensor | Sequence[int], pad: Pad) -> Tensor:
    """Run every row on the smallest number of cells that holds *it*; cells past a row's length are zero, in and out.

    Rows are grouped by that number, so a row's result depends on the row alone. A row of length 0 is all zeros.
    """
    batch, longest = x_BN.shape[:2]
    if batch == 0:
        return at_padded_lengths(run, [x_BN], pad)[0]
    sizes = checked_lengths(lengths, batch, longest)
    widths = [padded_length(max(1, size), pad) for size in sizes]
    groups = sorted(set(widths))
    counts = [sum(other == width for other in widths) for width in groups]
    order = sorted(range(batch), key=lambda row: widths[row])
    ends_B, order_B = torch.tensor([sizes, order], device=x_BN.device)
    mask_BN = torch.arange(longest, device=x_BN.device) < ends_B[:, None]
    sorted_BN = pad_to(masked(mask_BN, x_BN), groups[-1])[order_B]
    results = run([rows_RN[:, :width] for rows_RN, width in zip(sorted_BN.split(counts), groups, strict=True)])
    return masked(mask_BN, torch.cat([pad_to(result, longest) for result in results])[order_B.argsort()])


def masked(mask_BN: Tensor, x_BN: Tensor) -> Tensor:
    """``x_BN``, which may have further dimensions, with zeros where the mask is False."""
    return torch.where(mask_BN.view(*mask_BN.shape, *[1] * (x_BN.dim() - 2)), x_BN, 0)


def check_cells(x_BND: Tensor, features: int, dtype: torch.dtype) -> None:
    """Refuse cells that are not of a network's shape or dtype."""
    if x_BND.dim() != 3:
        raise ValueError(f"the input must be [batch, length, features], got shape {tuple(x_BND.shape)}")
    if x_BND.shape[2] != features:
        raise ValueError(f"this network has {features} features per cell, the input has {x_BND.shape[2]}")
    if x_BND.shape[1] < 1:
        raise ValueError("the input has no cells: its length must be at least 1")
    if not dtype.is_floating_point:
        raise ValueError(f"the network is {dtype}, and its layers are of real numbers: convert it by .to(...)")
    if x_BND.dtype != dtype and not torch.is_autocast_enabled(x_BND.device.type):
        raise ValueError(f"the input is {x_BND.dtype}, the network {dtype}: convert one with .to(...)")


def check_device(x_BND: Tensor, device: torch.device) -> None:
    """Refuse cells that are not where a network is."""
    if x_BND.device != device:
        raise ValueError(f"the input is on {x_BND.device}, the network on {device}: move one with .to(...)")


def lengths_of_mask(key_padding_mask_BN: Tensor, shape: tuple[int, int]) -> Tensor:
    """The lengths of rows whose padding a mask marks, ``[B]``; refuses padding before or between the cells of a row.

    >>> lengths_of_mask(torch.tensor([[False, False, True], [False, True, True]]), (2, 3)).tolist()
    [2, 1]
    """
    mask_BN = key_padding_mask_BN
    if mask_BN.dtype != torch.bool or mask_BN.shape != shape:
        raise ValueError(
            f"key_padding_mask must be boolean, [batch, length] = {list(shape)}, True where a cell is padding, got "
            f"{mask_BN.dtype} {list(mask_BN.shape)}; of an attention_mask, give attention_mask == 0"
        )
    lengths_B = (~mask_BN).sum(dim=1)
    wrong_B = (mask_BN != (torch.arange(shape[1], device=mask_BN.device) >= lengths_B[:, None])).any(dim=1)
    if wrong_B.any():
        raise ValueError(
            f"row {int(wrong_B.int().argmax())} of key_padding_mask has padding before a cell: pad at the end of a row "
            "(a tokenizer's padding_side='right'), since a cell's address decides which cells it meets"
        )
    return lengths_B


def checked_lengths(lengths: Tensor | Sequence[int], batch: int, longest: int) -> list[int]:
    """The lengths of a batch's rows as integers, each within 0..longest."""
    if isinstance(lengths, (list, tuple)) and all(type(size) is int for size in lengths):
        sizes = list(lengths)  # a compiler follows integers, but not the values of a tensor
    else:
        tensor = torch.as_tensor(lengths)
        if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
            raise ValueError(f"lengths must be integers, got {tensor.dtype}")
        sizes = tensor.tolist() if tensor.dim() == 1 else []
    if len(sizes) != batch:
        shape = tuple(torch.as_tensor(lengths).shape)
        raise ValueError(f"lengths must hold one length per row, {batch} of them, got shape {shape}")
    for size in sizes:
        if not 0 <= size <= longest:
            raise ValueError(f"lengths must lie in 0..{longest}, the length of the input, got {size}")
    return sizes


class LengthGroups(NamedTuple):
    """Sequences of several lengths, those of one length next to each other and longer ones first."""

    sequences: list[int]
    """How many sequences each group has."""
    cells: list[int]
    """How many cells each of a group's sequences has."""
    dropout: list[float]
    """The dropout rate after each of a group's layers."""

    def sizes(self) -> list[int]:
        """The cells of each group."""
        return [sequences * cells for sequences, cells in zip(self.sequences, self.cells, strict=True)]

    def select(self, first: int, end: int) -> LengthGroups:
        """The groups ``first`` to ``end - 1``."""
        return LengthGroups(self.sequences[first:end], self.cells[first:end], self.dropout[first:end])


def concatenate(parts: Sequence[Tensor]) -> Tensor:
    """The parts one after the other; a single one as it is, not copied."""
    return torch.cat(list(parts)) if len(parts) > 1 else parts[0]


def split(x_CD: Tensor, sizes: list[int]) -> Sequence[Tensor]:
    """The inverse of :func:`concatenate`; one split for all parts, so that its gradient is one concatenation."""
    return x_CD.split(sizes) if len(sizes) > 1 else [x_CD]
