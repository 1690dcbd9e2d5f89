"""The exchange of cells between ranks: an all-to-all that swaps address bits, with gradients.

Dealing cells to the ranks that run them and back: one all-to-all along a route, with gradients.

Rows of different lengths over ranks: where each row runs, and the route its cells take there.

A row runs at the smallest power of two that holds it, whatever it is batched with. At home a rank holds as many cells
of every row, so a short row lies on the first ranks alone, and it is dealt anew before it runs:

    at least P * P cells   spread: an equal part of consecutive cells on each of the P ranks, so that they can exchange
    fewer                  whole: all of it on one rank, the rows of one group on the ranks in turn

Cells past the end of a row do not travel. They are zeros where the row runs, and zeros at home afterwards.
"""

# B = batch, N = cells on a rank, D = features per cell, P = ranks, R = N // P cells for each rank
# C = cells of this rank, of all its rows, one after the other, D = features per cell
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

    Args:
        x_BND: The cells of this rank; N is a multiple of the number of ranks.
        group: The ranks.
    """
    result: Tensor = _Exchange.apply(x_BND, group)
    return result


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BND: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _all_to_all(x_BND, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        # A permutation that is its own inverse: the gradient goes back the way the cells came.
        return _Exchange.apply(grads[0], ctx.group), None


def _all_to_all(x_BND: Tensor, group: dist.ProcessGroup) -> Tensor:
    ranks = dist.get_world_size(group)
    sent_PBRD = x_BND.unflatten(1, (ranks, -1)).transpose(0, 1).contiguous()
    received_PBRD = torch.empty_like(sent_PBRD)
    dist.all_to_all_single(received_PBRD, sent_PBRD, group=group)
    return received_PBRD.transpose(0, 1).flatten(1, 2)


@dataclass(frozen=True, eq=False)
class Redistribution:
    """Which cells a rank sends to every rank, and where those that arrive belong; no cell twice."""

    take: Tensor
    """The places of the cells that are sent, those for rank 0 first."""
    sent: list[int]
    """How many go to each rank."""
    put: Tensor
    """The places of the cells that arrive, those from rank 0 first."""
    received: list[int]
    """How many come from each rank."""
    before: int
    """How many places there are to leave from."""
    after: int
    """How many places there are to arrive at."""
    travels: bool
    """Whether any cell of any rank changes its rank."""

    def back(self) -> Redistribution:
        """The way back."""
        return Redistribution(self.put, self.received, self.take, self.sent, self.after, self.before, self.travels)


def redistribute(x_CD: Tensor, route: Redistribution, group: dist.ProcessGroup) -> Tensor:
    """The cells that arrive, zeros in all other places. Every rank must call it, in the backward pass as well.

    Args:
        x_CD: The cells of this rank.
        route: This rank's part of a route on which all ranks agree.
        group: The ranks.
    """
    result: Tensor = _Deal.apply(x_CD, route, group)
    return result


class _Deal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_CD: Tensor, route: Redistribution, group: dist.ProcessGroup) -> Tensor:
        ctx.route, ctx.group = route, group
        arrived_CD = sent_CD = x_CD[route.take]
        if route.travels:
            arrived_CD = x_CD.new_empty(len(route.put), x_CD.shape[1])
            dist.all_to_all_single(arrived_CD, sent_CD, route.received, route.sent, group=group)
        dealt_CD = x_CD.new_zeros(route.after, x_CD.shape[1])
        dealt_CD[route.put] = arrived_CD
        return dealt_CD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        # No cell travels twice, so its gradient travels once, the way back.
        return _Deal.apply(grads[0], ctx.route.back(), ctx.group), None, None


@dataclass(frozen=True)
class RowGroup:
    """The rows of a batch that run at one power of two."""

    k: int
    """They run at ``2**k`` cells."""
    rows: tuple[int, ...]
    """Their places in the batch."""
    ranks: int
    """The ranks of the sequence group."""

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


class RowSegment(NamedTuple):
    """Consecutive cells of a row, as a rank holds them."""

    addresses: range
    """Where they are in the row."""
    place: int
    """Where the first of them is among all cells of the rank."""


def group_rows(sizes: Sequence[int], ranks: int) -> list[RowGroup]:
    """The rows of these lengths in groups of one power, the shortest first.

    >>> for group in group_rows([3, 64, 50, 4], ranks=4):
    ...     print(group.rows, group.shape)
    (0, 3) (1, 4)
    (1, 2) (2, 16)
    """
    powers = [bits(size) for size in sizes]
    return [RowGroup(k, tuple(row for row, power in enumerate(powers) if power == k), ranks) for k in sorted({*powers})]


def plan_redistribution(
    sizes: Sequence[int], cells: int, rank: int, ranks: int, device: torch.device
) -> Redistribution:
    """From home to where the groups run: there a rank's cells lie group after group, in the groups' shapes.

    Args:
        sizes: The length of every row.
        cells: Cells of every row on a rank at home.
        rank: The rank whose part of the route is wanted.
        ranks: The ranks of the sequence group.
        device: Where the cells are.
    """
    groups = group_rows(sizes, ranks)
    every = range(ranks)
    home, away = [_home(sizes, cells, each) for each in every], [_away(groups, each) for each in every]
    sent = [_shared(home[rank], away[other], sizes) for other in every]
    received = [_shared(away[rank], home[other], sizes) for other in every]
    return Redistribution(
        take=_joined(sent, device),
        sent=[sum(map(len, places)) for places in sent],
        put=_joined(received, device),
        received=[sum(map(len, places)) for places in received],
        before=len(sizes) * cells,
        after=sum(math.prod(group.shape) for group in groups),
        travels=any(2**group.k != cells * ranks for group in groups),
    )


def _home(sizes: Sequence[int], cells: int, rank: int) -> dict[int, RowSegment]:
    """By row, the cells of a rank at home."""
    return {row: RowSegment(range(rank * cells, (rank + 1) * cells), row * cells) for row in range(len(sizes))}


def _away(groups: list[RowGroup], rank: int) -> dict[int, RowSegment]:
    """By row, the cells of a rank where the rows run."""
    seats, place = {}, 0
    for group in groups:
        count, width = group.shape
        first = rank * width if group.spread else 0
        mine = group.rows if group.spread else group.rows[rank :: group.ranks]
        for index, row in enumerate(mine):
            seats[row] = RowSegment(range(first, first + width), place + index * width)
        place += count * width
    return seats


def _shared(mine: dict[int, RowSegment], theirs: dict[int, RowSegment], sizes: Sequence[int]) -> list[range]:
    """My places of the cells that two ranks both hold, row after row: both list the same cells in the same order."""
    places = []
    for row in sorted(mine.keys() & theirs.keys()):
        own, other = mine[row].addresses, theirs[row].addresses
        shift = mine[row].place - own.start
        start, stop = max(own.start, other.start), min(own.stop, other.stop, sizes[row])
        places.append(range(start + shift, stop + shift))
    return places


def _joined(places: list[list[range]], device: torch.device) -> torch.Tensor:
    pieces = [torch.arange(piece.start, piece.stop) for others in places for piece in others if piece]
    return torch.cat([torch.empty(0, dtype=torch.int64), *pieces]).to(device)
