"""All-to-alls with gradients: the exchange of cells between layers, and the redistribution of rows of several lengths.

A row runs at the smallest power of two that holds it, whatever it is batched with. In the input a rank holds as many
cells of every row, so a short row lies on the first ranks alone. Before it runs it is redistributed:

    at least P * P cells   spread: an equal part of consecutive cells on each of the P ranks, so that they can exchange
    fewer                  whole: all of it on one rank, the rows of one group on the ranks in turn

Cells past the end of a row are not sent. They are zeros where the row runs, and zeros in the output.
"""

# B = batch, N = cells on a rank, D = features per cell, P = ranks, R = N // P cells for each rank
# C = cells of this rank, of all its rows, one after the other
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from riffle.shuffle import bits


def exchange(x_BND: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Swap the bits that number the ranks with the highest bits of the place on a rank; its own inverse.

    Part j of rank i becomes part i of rank j, so all but one of the P parts travel: ``B N D (1 - 1 / P)`` numbers leave
    each rank and as many arrive. Every rank of the group must call it, in the backward pass as well.
    """
    result: Tensor = _Exchange.apply(x_BND, group)
    return result


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BND: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        sent_PBRD = x_BND.unflatten(1, (dist.get_world_size(group), -1)).transpose(0, 1).contiguous()
        received_PBRD = torch.empty_like(sent_PBRD)
        dist.all_to_all_single(received_PBRD, sent_PBRD, group=group)
        return received_PBRD.transpose(0, 1).flatten(1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        # A permutation that is its own inverse: the gradient goes back the way the cells came.
        return _Exchange.apply(grads[0], ctx.group), None


@dataclass(frozen=True, eq=False)
class Redistribution:
    """Which cells a rank sends to every rank, and where those that arrive belong; no cell is sent twice."""

    send_indices: Tensor
    """The indices of the cells that are sent, those for rank 0 first."""
    send_counts: list[int]
    receive_indices: Tensor
    """The indices of the cells that arrive, those from rank 0 first."""
    receive_counts: list[int]
    cells_before: int
    cells_after: int
    communicates: bool
    """Whether any cell of any rank changes its rank."""

    def inverse(self) -> Redistribution:
        """The way back."""
        sent, received = (self.send_indices, self.send_counts), (self.receive_indices, self.receive_counts)
        return Redistribution(*received, *sent, self.cells_after, self.cells_before, self.communicates)


def redistribute(x_CD: Tensor, moves: Redistribution, group: dist.ProcessGroup) -> Tensor:
    """The cells that arrive, zeros in all other places. Every rank must call it, in the backward pass as well."""
    result: Tensor = _Redistribute.apply(x_CD, moves, group)
    return result


class _Redistribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_CD: Tensor, moves: Redistribution, group: dist.ProcessGroup) -> Tensor:
        ctx.moves, ctx.group = moves, group
        received_CD = sent_CD = x_CD[moves.send_indices]
        if moves.communicates:
            received_CD = x_CD.new_empty(len(moves.receive_indices), x_CD.shape[1])
            dist.all_to_all_single(received_CD, sent_CD, moves.receive_counts, moves.send_counts, group=group)
        out_CD = x_CD.new_zeros(moves.cells_after, x_CD.shape[1])
        out_CD[moves.receive_indices] = received_CD
        return out_CD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        # No cell is sent twice, so its gradient is sent once, the way back.
        return _Redistribute.apply(grads[0], ctx.moves.inverse(), ctx.group), None, None


@dataclass(frozen=True)
class RowGroup:
    """The rows of a batch that run at one power of two."""

    k: int
    """They run at ``2**k`` cells."""
    rows: tuple[int, ...]
    ranks: int

    @property
    def spread(self) -> bool:
        """Whether every rank holds a part of every row; else a rank holds whole rows."""
        return 2**self.k >= self.ranks**2

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and cells of each that a rank holds.

        Where whole rows do not go round, some ranks hold a row of zeros: all take the same steps and have gradients.
        """
        if self.spread:
            return len(self.rows), 2**self.k // self.ranks
        return math.ceil(len(self.rows) / self.ranks), 2**self.k


def group_rows(sizes: Sequence[int], ranks: int) -> list[RowGroup]:
    """The rows of these lengths in groups of one power, the shortest first.

    >>> for group in group_rows([3, 64, 50, 4], ranks=4):
    ...     print(group.rows, group.shape)
    (0, 3) (1, 4)
    (1, 2) (2, 16)
    """
    powers = [bits(size) for size in sizes]
    return [RowGroup(k, tuple(row for row, power in enumerate(powers) if power == k), ranks) for k in sorted({*powers})]


class RowSegment(NamedTuple):
    """Consecutive cells of a row that a rank holds."""

    addresses: range
    """Which cells of the row."""
    start: int
    """The index of the first of them among all cells of the rank."""


def make_redistribution(sizes: list[int], cells: int, rank: int, ranks: int, device: torch.device) -> Redistribution:
    """From the input, with ``cells`` of every row on a rank, to where the groups run: one group after the other."""
    groups = group_rows(sizes, ranks)
    held = [range(each * cells, (each + 1) * cells) for each in range(ranks)]
    before = [{row: RowSegment(addresses, row * cells) for row in range(len(sizes))} for addresses in held]
    after = [_group_segments(groups, each) for each in range(ranks)]
    sent = [_shared_cells(before[rank], other, sizes) for other in after]
    received = [_shared_cells(after[rank], other, sizes) for other in before]
    return Redistribution(
        send_indices=_indices(sent, device),
        send_counts=[sum(map(len, pieces)) for pieces in sent],
        receive_indices=_indices(received, device),
        receive_counts=[sum(map(len, pieces)) for pieces in received],
        cells_before=len(sizes) * cells,
        cells_after=sum(math.prod(group.shape) for group in groups),
        communicates=any(2**group.k != cells * ranks for group in groups),
    )


def _group_segments(groups: list[RowGroup], rank: int) -> dict[int, RowSegment]:
    """By row, the cells of a rank where the rows run."""
    segments, start = {}, 0
    for group in groups:
        count, width = group.shape
        first = rank * width if group.spread else 0
        for index, row in enumerate(group.rows if group.spread else group.rows[rank :: group.ranks]):
            segments[row] = RowSegment(range(first, first + width), start + index * width)
        start += count * width
    return segments


def _shared_cells(mine: dict[int, RowSegment], other: dict[int, RowSegment], sizes: Sequence[int]) -> list[range]:
    """My indices of the cells that two ranks both hold, row after row: both list the same cells in the same order."""
    pieces = []
    for row in sorted(mine.keys() & other.keys()):
        held, wanted = mine[row].addresses, other[row].addresses
        shift = mine[row].start - held.start
        start, stop = max(held.start, wanted.start), min(held.stop, wanted.stop, sizes[row])
        pieces.append(range(start + shift, stop + shift))
    return pieces


def _indices(by_rank: list[list[range]], device: torch.device) -> Tensor:
    pieces = [torch.arange(piece.start, piece.stop) for pieces in by_rank for piece in pieces if piece]
    return torch.cat([torch.empty(0, dtype=torch.int64), *pieces]).to(device)
