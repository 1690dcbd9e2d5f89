"""What ranks run and send, followed cell by cell: the schedule of a rank, and rows of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from riffle.parallel import shard_schedule
from riffle.parallel.exchange import Redistribution, RowGroup, group_rows, make_redistribution
from riffle.shuffle import SHARINGS, Sharing, schedule

CPU = torch.device("cpu")


Cells = list[tuple[int, int] | None]
"""Row and address of the cell in every place of a rank; None where it is empty."""


def followed(held: Sequence[Sequence[tuple[int, int] | None]], plans: list[Redistribution]) -> list[Cells]:
    """What every rank holds afterwards."""
    messages = []
    for cells, plan in zip(held, plans, strict=True):
        sent = iter([cells[place] for place in plan.send_indices.tolist()])
        messages.append([list(islice(sent, count)) for count in plan.send_counts])
    moved: list[Cells] = [[None] * plan.cells_after for plan in plans]
    for rank, plan in enumerate(plans):
        arrived = [message[rank] for message in messages]
        assert [len(cells) for cells in arrived] == plan.receive_counts
        for place, cell in zip(plan.receive_indices.tolist(), chain(*arrived), strict=True):
            assert moved[rank][place] is None, "two cells in one place"
            moved[rank][place] = cell
    return moved


def running(group: RowGroup, rank: int) -> list[tuple[int, int]]:
    """Row and address of every place of a group on a rank, cells past the end and rows that are not there included."""
    count, width = group.shape
    if group.spread:
        return [(row, cell) for row in group.rows for cell in range(rank * width, (rank + 1) * width)]
    rows = [*group.rows, *[-1] * (count * group.ranks - len(group.rows))]
    return [(row, cell) for row in rows[rank :: group.ranks] for cell in range(width)]


@given(st.data())
def test_cells_arrive_where_their_row_runs_and_come_home(data: st.DataObject) -> None:
    p = data.draw(st.integers(1, 3))
    ranks, cells = 2**p, 2 ** data.draw(st.integers(p, p + 3))
    sizes = data.draw(st.lists(st.integers(1, ranks * cells), min_size=1, max_size=2 * ranks + 1))

    def within(places: list[tuple[int, int]]) -> Cells:
        return [(row, cell) if row >= 0 and cell < sizes[row] else None for row, cell in places]

    every = range(ranks)
    home = [list(product(range(len(sizes)), range(rank * cells, (rank + 1) * cells))) for rank in every]
    plans = [make_redistribution(sizes, cells, rank, ranks, CPU) for rank in every]
    moved = followed(home, plans)
    groups = group_rows(sizes, ranks)
    assert sorted(row for group in groups for row in group.rows) == list(range(len(sizes)))
    assert moved == [within([place for group in groups for place in running(group, rank)]) for rank in every]
    assert followed(moved, [plan.inverse() for plan in plans]) == [within(places) for places in home]


@pytest.mark.parametrize(("sizes", "communicates"), [([64, 33], False), ([64, 32], True), ([32], True)])
def test_rows_of_the_longest_power_stay(sizes: list[int], communicates: bool) -> None:
    for rank in range(4):
        plan = make_redistribution(sizes, 16, rank, 4, CPU)
        assert plan.communicates == communicates
        if not communicates:
            assert plan.send_counts[rank] == len(plan.send_indices) == len(plan.receive_indices)


# The schedule of a rank is the schedule of the whole network


def swapped(address: int, k: int, p: int) -> int:
    """The address with its highest ``p`` bits and the next ``p`` exchanged."""
    bits = [(address >> bit) & 1 for bit in range(k)]
    low, middle, high = bits[: k - 2 * p], bits[k - 2 * p : k - p], bits[k - p :]
    return sum(bit << place for place, bit in enumerate(low + high + middle))


@given(st.data())
def test_pairs_are_those_of_the_whole_network(data: st.DataObject) -> None:
    p = data.draw(st.integers(0, 4))
    k = data.draw(st.integers(max(1, 2 * p), max(1, 2 * p) + 4))
    blocks = data.draw(st.integers(1, 3))
    sharing: Sharing = data.draw(st.sampled_from(SHARINGS))
    layers = schedule(k, blocks, sharing)
    held = list(range(2**k))  # the original address of the cell in every place of every rank
    for layer, local in zip(layers, shard_schedule(layers, k, p), strict=True):
        if local.exchange:
            held = [held[swapped(place, k, p)] for place in range(2**k)]
        assert 0 <= local.bit < max(1, k - p), "the pair crosses ranks"
        for place in range(2**k):
            assert held[place] ^ held[place ^ 1 << local.bit] == 1 << layer.bit
        assert (local.unit, local.shuffle, local.skip) == (layer.unit, layer.shuffle, layer.skip)
    assert held == list(range(2**k))
