"""Routing: switch settings that make one Beneš block carry out any permutation, found by the looping algorithm.

The wiring is that of :func:`riffle.shuffle.schedule` with one block: ``2 * k - 1`` layers of ``n / 2`` switches on
``n = 2**k`` cells, the first ``k - 1`` of them followed by an unriffle, the next ``k - 1`` by a riffle. Switch ``q`` of
a layer joins positions ``2 * q`` and ``2 * q + 1``; its setting is True where it exchanges the two. Pure Python.

A permutation says where messages go: the message that enters at ``i`` comes out at ``permutation[i]``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from operator import index
from typing import TypeVar

Item = TypeVar("Item")
Settings = tuple[tuple[bool, ...], ...]
"""A setting for every switch of every layer: ``settings[layer][switch]``, True where it exchanges its pair."""


def route(permutation: Sequence[int]) -> Settings:
    """The switch settings that carry out a permutation of ``2**k`` messages, in O(n log n).

    Peel off the first and the last layer, which both join the cells that differ in address bit 0. What lies between
    them are two networks of half the size, one on the even and one on the odd cells. The two messages of a first
    switch have to go through different ones of these, and so have the two messages that meet in a last switch.
    :func:`_split` finds such a division; it sets both layers, and what remains is one smaller permutation for each of
    the two networks. Level by level, all networks of one size at a time, there is no recursion.

    Args:
        permutation: ``permutation[i]`` is where the message that enters at ``i`` comes out; 2, 4, 8, ... of them.

    >>> route([3, 1, 0, 2])
    ((False, False), (True, False), (False, True))
    >>> apply(route([3, 1, 0, 2]), "abcd")
    ['c', 'b', 'd', 'a']
    """
    parts = [_checked(permutation)]
    outward: list[tuple[bool, ...]] = []
    inward: list[tuple[bool, ...]] = []
    while len(parts[0]) > 2:
        first: list[bool] = []
        last: list[bool] = []
        halves: tuple[list[list[int]], list[list[int]]] = ([], [])
        for part in parts:
            part_first, part_last, even, odd = _split(part)
            first += part_first
            last += part_last
            halves[0].append(even)
            halves[1].append(odd)
        outward.append(tuple(first))
        inward.append(tuple(last))
        # The unriffle brings the even cells of all networks before the odd ones, so that switches stay in this order.
        parts = halves[0] + halves[1]
    middle = tuple(part[0] == 1 for part in parts)
    return (*outward, middle, *reversed(inward))


def apply(settings: Sequence[Sequence[bool]], items: Sequence[Item]) -> list[Item]:
    """Send items through the network, set like this, with every shuffle in between.

    >>> apply([[True]], "ab")
    ['b', 'a']
    """
    return deque(states(settings, items), maxlen=1)[0]


def states(settings: Sequence[Sequence[bool]], items: Sequence[Item]) -> Iterator[list[Item]]:
    """What stands on the wires before every layer, and at last what comes out.

    >>> for wires in states(route([3, 1, 0, 2]), "abcd"):
    ...     print(*wires)
    a b c d
    a c b d
    c b a d
    c b d a
    """
    layers, wires = len(settings), list(items)
    _check_settings(settings, len(wires))
    yield wires.copy()
    for number, layer in enumerate(settings):
        for q, exchange in enumerate(layer):
            if exchange:
                wires[2 * q], wires[2 * q + 1] = wires[2 * q + 1], wires[2 * q]
        if number < layers // 2:  # unriffle
            wires = wires[::2] + wires[1::2]
        elif number < layers - 1:  # riffle
            half = len(wires) // 2
            wires[::2], wires[1::2] = wires[:half], wires[half:]
        yield wires.copy()


def trace(settings: Sequence[Sequence[bool]]) -> list[list[int]]:
    """The way of every message: ``trace(settings)[layer][i]`` is where message ``i`` stands before that layer.

    One more row at the end says where the messages come out, which is the permutation.

    >>> trace(route([3, 1, 0, 2]))
    [[0, 1, 2, 3], [0, 2, 1, 3], [2, 1, 0, 3], [3, 1, 0, 2]]
    """
    cells = 2 * len(settings[0]) if settings else 0
    return [inverse(wires) for wires in states(settings, range(cells))]


def permutation_of(settings: Sequence[Sequence[bool]]) -> list[int]:
    """The permutation that switches set like this carry out, the inverse of :func:`route`.

    >>> permutation_of(route([3, 1, 0, 2]))
    [3, 1, 0, 2]
    """
    return trace(settings)[-1]


def inverse(permutation: Sequence[int]) -> list[int]:
    """The permutation that undoes another: where the message that comes out at ``i`` entered.

    >>> inverse([3, 1, 0, 2])
    [2, 1, 3, 0]
    """
    entered = [0] * len(permutation)
    for start, end in enumerate(permutation):
        entered[end] = start
    return entered


def _split(permutation: list[int]) -> tuple[list[bool], list[bool], list[int], list[int]]:
    """The looping algorithm: settings of the first and the last layer, and what is left for the even and odd network.

    Start at a first switch and send its upper message through the even network, the lower one through the odd one. The
    lower one arrives at some last switch by the odd network, so the message it meets there has to take the even one,
    and its neighbour in the first layer the odd one again. Go on until the loop is back where it started, then start
    the next loop at a switch that is not yet set.
    """
    cells = len(permutation)
    entered = inverse(permutation)
    first, last = [False] * (cells // 2), [False] * (cells // 2)
    even, odd = [-1] * (cells // 2), [-1] * (cells // 2)
    for start in range(0, cells, 2):
        upper = start
        while even[upper >> 1] < 0:
            lower = upper ^ 1
            up, down = permutation[upper], permutation[lower]
            even[upper >> 1], odd[lower >> 1] = up >> 1, down >> 1
            first[upper >> 1] = upper & 1 == 1  # exchanged, where the message for the even network comes in below
            last[down >> 1] = down & 1 == 0  # and where the one from the odd network is to come out above
            upper = entered[down ^ 1]
    return first, last, even, odd


def _checked(permutation: Sequence[int]) -> list[int]:
    try:
        ends = [index(end) for end in permutation]
    except TypeError as error:
        raise ValueError(f"a permutation consists of whole numbers: {error}") from None
    cells = len(ends)
    _check_length(cells)
    outside = sorted({end for end in ends if not 0 <= end < cells})
    if outside:
        raise ValueError(f"a permutation of {cells} messages consists of 0..{cells - 1}, but this one has {outside[0]}")
    twice = [end for end, count in Counter(ends).items() if count > 1]
    if twice:
        raise ValueError(f"a permutation has each of 0..{cells - 1} once, but this one has {min(twice)} more than once")
    return ends


def _check_length(cells: int) -> None:
    if cells < 2 or cells & (cells - 1):
        wider = max(2, 1 << cells.bit_length())
        remedy = f"; add messages that stay where they are, up to {wider}" if cells > 2 else ""
        raise ValueError(f"a Beneš network routes 2, 4, 8, ... messages, got {cells}{remedy}")


def _check_settings(settings: Sequence[Sequence[bool]], cells: int) -> None:
    _check_length(cells)
    layers = 2 * (cells.bit_length() - 1) - 1
    widths = [len(layer) for layer in settings]
    if widths != [cells // 2] * layers:
        sizes = sorted(set(widths))
        raise ValueError(
            f"{cells} items need {layers} layers of {cells // 2} settings, "
            f"got {len(widths)} of {' and '.join(map(str, sizes)) or 'none'}"
        )
