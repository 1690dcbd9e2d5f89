"""Sequences of any length on a network of powers of two, or of even lengths: padding, rows of different lengths."""

# B = batch, N = length, R = rows of one group, C = cells of several groups
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from riffle.shuffle import Pad, bits, padded_length

RunBatches = Callable[[list[Tensor]], list[Tensor]]
"""Maps batches of sequences, each batch of one padded length, to as many results."""


def pad_to(x_BN: Tensor, width: int) -> Tensor:
    """Append zeros along the sequence, or remove what is too much, until it has ``width`` cells."""
    missing = width - x_BN.shape[1]
    # A compiler asks nothing of the length here, so that its graph serves every length of one depth.
    if not torch.compiler.is_compiling() and missing <= 0:
        return x_BN[:, :width] if missing else x_BN
    return F.pad(x_BN, (0, 0) * (x_BN.dim() - 2) + (0, missing))


def masked(mask_BN: Tensor, x_BN: Tensor, other: Tensor | float = 0.0) -> Tensor:
    """``x_BN``, which may have further dimensions, with ``other`` where the mask is False."""
    return torch.where(mask_BN.view(*mask_BN.shape, *[1] * (x_BN.dim() - 2)), x_BN, other)


def is_before(ends_B1: Tensor | int, x_BN: Tensor) -> Tensor:
    """Which cells are before the ends of their rows."""
    return torch.arange(x_BN.shape[1], device=x_BN.device) < ends_B1


def at_padded_lengths(
    run: RunBatches, xs_BN: Sequence[Tensor], pad: Pad, padding_D: Tensor | None = None
) -> list[Tensor]:
    """Run each batch on the smallest number of cells that holds its sequences, and crop the results.

    ``padding_D`` is the cell that fills a sequence up, zeros where None.
    """
    widen = _widened if torch.compiler.is_exporting() else pad_to
    padded = [widen(x_BN, padded_length(x_BN.shape[1], pad)) for x_BN in xs_BN]
    if padding_D is not None:
        padded = [
            wide if wide is x_BN else masked(is_before(x_BN.shape[1], wide), wide, padding_D.to(x_BN.dtype))
            for wide, x_BN in zip(padded, xs_BN, strict=True)
        ]
    return [pad_to(result, x_BN.shape[1]) for result, x_BN in zip(run(padded), xs_BN, strict=True)]


def at_own_padded_length(
    run: RunBatches, x_BND: Tensor, lengths: Tensor | Sequence[int], pad: Pad, padding_D: Tensor | None = None
) -> Tensor:
    """Run every row on the smallest number of cells that holds *it*; cells past a row's length are zero in the result.

    Rows are grouped by that number, so a row's result depends on the row alone. A row of length 0 is all zeros.
    """
    if torch.compiler.is_exporting() and isinstance(lengths, Tensor):
        return _at_every_length(run, x_BND, lengths, pad, padding_D)
    batch, longest = x_BND.shape[:2]
    starts = range(0, batch * longest, longest)
    sizes = checked_lengths(lengths, batch, longest)
    return _at_own_padded_length(run, x_BND.flatten(0, 1), starts, sizes, pad, padding_D).view_as(x_BND)


def packed_at_own_padded_length(
    run: RunBatches, x_CD: Tensor, cu_seqlens: Tensor | Sequence[int], pad: Pad, padding_D: Tensor | None = None
) -> Tensor:
    """The same for rows that lie one after the other: ``cu_seqlens`` has where each begins, and the number of cells."""
    ends = cu_seqlens.tolist() if isinstance(cu_seqlens, Tensor) else list(cu_seqlens)
    cells, whole = x_CD.shape[0], all(isinstance(end, int) for end in ends)
    if x_CD.dim() != 2 or not whole or ends[:1] != [0] or ends[-1:] != [cells] or ends != sorted(ends):
        raise ValueError(
            f"packed rows are [cells, features] with whole cu_seqlens that rise from 0 to the {cells} cells, got "
            f"{list(x_CD.shape)} and cu_seqlens {ends[:2]} ... {ends[-2:]}"
        )
    sizes = [end - start for start, end in pairwise(ends)]
    return _at_own_padded_length(run, x_CD, ends[:-1], sizes, pad, padding_D)


def _at_own_padded_length(
    run: RunBatches, x_CD: Tensor, starts: Sequence[int], sizes: Sequence[int], pad: Pad, padding_D: Tensor | None
) -> Tensor:
    """Rows that begin at ``starts`` in ``x_CD`` and have ``sizes`` cells; others are zero in the result."""
    cells, device = x_CD.shape[0], x_CD.device
    if not cells:
        return x_CD
    groups: dict[int, list[int]] = {}
    for row, size in enumerate(sizes):
        groups.setdefault(padded_length(max(1, size), pad), []).append(row)
    padding = 0.0 if padding_D is None else padding_D.to(x_CD.dtype)
    padded, moves, total = [], [0] * len(sizes), 0
    for width, rows in sorted(groups.items()):
        starts_R1, sizes_R1 = torch.tensor([[starts[row], sizes[row]] for row in rows], device=device).T.unsqueeze(-1)
        place_RW = (starts_R1 + torch.arange(width, device=device)).clamp(max=cells - 1)
        x_RWD = x_CD.index_select(0, place_RW.flatten()).unflatten(0, place_RW.shape)
        padded.append(masked(is_before(sizes_R1, x_RWD), x_RWD, padding))
        for row in rows:
            moves[row] = total - starts[row]
            total += width
    y_CD = concatenate([y_RWD.flatten(0, 1) for y_RWD in run(padded)])
    spans = torch.tensor([end - start for start, end in pairwise([*starts, cells])])
    ends = [start + size for start, size in zip(starts, sizes, strict=True)]
    moves_C, ends_C = torch.tensor([moves, ends]).repeat_interleave(spans, dim=1, output_size=cells).to(device)
    place_C = torch.arange(cells, device=device)
    y_CD = y_CD.index_select(0, (place_C + moves_C).clamp(max=total - 1))
    return torch.where((place_C < ends_C).unsqueeze(-1), y_CD, 0)


def _at_every_length(run: RunBatches, x_BND: Tensor, lengths_B: Tensor, pad: Pad, padding_D: Tensor | None) -> Tensor:
    """The same in a program, which cannot look at the lengths: all rows at all powers of two, and of each row the
    result at its own. That costs twice what the longest does.
    """
    if pad != "power":
        raise ValueError('rows of several lengths are exported with pad="power" alone, or by riffle.export_onnx')
    longest = x_BND.shape[1]
    widths = [2**bit for bit in range(1, bits(longest) + 1)]
    # Each length is looked up among the possible ones: what is none of them is an error in every runtime.
    possible = torch.arange(longest + 1, device=x_BND.device)
    ends_B1 = possible.index_select(0, torch.where(lengths_B < 0, longest + 1, lengths_B)).unsqueeze(1)
    padding = 0.0 if padding_D is None else padding_D.to(x_BND.dtype)
    wide_BND = _widened(x_BND, widths[-1])
    xs_BND = [pad_to(wide_BND, width) for width in widths]
    ys_BND = run([masked(is_before(ends_B1, x_BND), x_BND, padding) for x_BND in xs_BND])
    y_BND = pad_to(ys_BND[0], longest)
    for width, wider_BND in zip(widths[1:], ys_BND[1:], strict=True):
        y_BND = torch.where(ends_B1.unsqueeze(-1) > width // 2, pad_to(wider_BND, longest), y_BND)
    return masked(is_before(ends_B1, y_BND), y_BND)


def _widened(x_BND: Tensor, width: int) -> Tensor:
    """What :func:`pad_to` gives, in a program, which has the layers of one depth: lengths of others are an error there.

    torch refuses them by itself; other runtimes look for a zero where there is none.
    """
    if isinstance(x_BND.shape[1], int):  # which all runtimes check
        return pad_to(x_BND, width)
    length, most = torch.full((1,), x_BND.shape[1], device=x_BND.device), 2 ** bits(width)
    wrong = (length > most) | (2 * length <= most)
    zero = x_BND.new_zeros(1).index_select(0, wrong.long())
    wide_BND = pad_to(x_BND, width)
    return masked(is_before(length, wide_BND), wide_BND, zero)


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
    if not can_enter(x_BND, dtype):
        raise ValueError(f"the input is {x_BND.dtype}, the network {dtype}: convert one with .to(...)")


def can_enter(x: Tensor, dtype: torch.dtype) -> bool:
    """Whether weights of a dtype take such an input: of their own dtype, or of another that autocast converts."""
    return x.dtype == dtype or (x.is_floating_point() and torch.is_autocast_enabled(x.device.type))


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
    if torch.compiler.is_exporting():
        return torch.where(wrong_B, shape[1] + 1, lengths_B)  # a length that is refused in the graph
    if wrong_B.any():
        raise ValueError(
            f"row {int(wrong_B.int().argmax())} of key_padding_mask has padding before a cell: pad at the end of a row "
            "(a tokenizer's padding_side='right'), since a cell's address decides which cells it meets"
        )
    return lengths_B


def collate(rows: Sequence[Sequence[Any]], ignored: int = -100) -> list[Any]:
    """A batch of rows of different length, for ``DataLoader(collate_fn=riffle.collate)``: columns, then the lengths.

    Each row is the inputs of a sequence and what else belongs to it. Columns of sequences are padded with zeros at
    their ends, further ones of integers, as tags are, with ``ignored``, which a cross-entropy leaves out.

    >>> collate([(torch.tensor([5, 6]), torch.tensor([1, 0])), (torch.tensor([7]), torch.tensor([1]))])
    [tensor([[5, 6],
            [7, 0]]), tensor([[   1,    0],
            [   1, -100]]), [2, 1]]
    """
    if not rows or not all(isinstance(row, (tuple, list)) and len(row) == len(rows[0]) for row in rows):
        raise ValueError("each row must be a tuple, alike in number: (inputs,), or the inputs and what belongs to them")
    columns = [[torch.as_tensor(value) for value in column] for column in zip(*rows, strict=True)]
    batch = []
    for number, column in enumerate(columns):
        padding = ignored if number and not column[0].is_floating_point() else 0
        batch.append(pad_sequence(column, True, padding) if column[0].dim() else torch.stack(column))
    return [*batch, [len(inputs) for inputs in columns[0]]]


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
