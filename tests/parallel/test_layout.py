"""The schedule of a rank, followed cell by cell, is the schedule of the whole network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riffle.parallel import shard_schedule
from riffle.shuffle import SHARINGS, Sharing, schedule


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


@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_exchanges_do_not_depend_on_the_length(p: int, blocks: int) -> None:
    for k in (2 * p, 2 * p + 1, 20, 36):
        assert sum(layer.exchange for layer in shard_schedule(schedule(k, blocks), k, p)) == 2 * blocks
