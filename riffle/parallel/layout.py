"""Which cells a rank holds while a layer runs, and where the ranks exchange them.

Number the ``2**k`` cells in binary and spread them over ``2**p`` ranks in order: the high ``p`` address bits are the
rank, the low ``k - p`` the place on it. A rank can run a layer alone where it holds both cells of every pair, so where
the layer's bit is one of the low ones. For the others the ranks exchange cells: the bits of the rank change places with
the highest ``p`` bits of the place, and then they are local:

    at home   | rank: k-1 ... k-p     | place: k-p-1 ... k-2p, k-2p-1 ... 0
    away      | rank: k-p-1 ... k-2p  | place: k-1   ... k-p,  k-2p-1 ... 0

A Beneš block climbs from bit 0 to k - 1 and comes down again, so it goes away once and comes home once: two exchanges a
block, however long the sequence. It takes ``k >= 2 p``: at least as many cells on a rank as there are ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from riffle.shuffle import Layer


@dataclass(frozen=True)
class ShardedLayer:
    """One switch layer as a rank runs it on the cells it holds."""

    unit: str
    """Which switch unit."""
    bit: int
    """The bit of the place, not of the address, in which the two cells of a pair differ."""
    turn: int
    """The shuffle that follows within the rank: +1 unriffle, -1 riffle, 0 none."""
    skip: int | None
    """The layer whose input is added, scaled, to this layer's input; it had the same bit and the same cells."""
    exchange: bool
    """Whether the ranks exchange cells before this layer."""


def shard_schedule(layers: tuple[Layer, ...], k: int, p: int) -> tuple[ShardedLayer, ...]:
    """The layers of a schedule of Beneš blocks on ``2**k`` cells as each of ``2**p`` ranks runs them.

    Args:
        layers: What :func:`riffle.shuffle.schedule` gives.
        k: Address bits of the whole sequence.
        p: Those that number the ranks, at most half of them.

    >>> from riffle.shuffle import schedule
    >>> [("exchange " if layer.exchange else "") + str(layer.bit) for layer in shard_schedule(schedule(5), 5, 2)]
    ['0', '1', '2', 'exchange 1', '2', '1', 'exchange 2', '1', '0']
    """
    assert k >= 2 * p, "a rank needs as many cells as there are ranks"
    sharded = []
    was_home = True
    for layer in layers:
        home = layer.bit < k - p
        bit = layer.bit if home else layer.bit - p
        sharded.append(ShardedLayer(layer.unit, bit, layer.turn, layer.skip, home != was_home))
        was_home = home
        if layer.skip is not None:
            assert layers[layer.skip].bit == layer.bit, "a skip connection does not cross the ranks"
    assert was_home, "the last layer is at bit 0"
    return tuple(sharded)
