"""Routing: any permutation as switch settings of one Beneš block.

The wiring is that of :func:`riffle.shuffle.schedule` with one block: ``2 * k - 1`` layers of ``n / 2`` switches on
``n = 2**k`` cells, the first ``k - 1`` followed by an unriffle, the next ``k - 1`` by a riffle. Switch ``q`` of a layer
joins positions ``2 * q`` and ``2 * q + 1``; its setting is True if it exchanges the two. The message that enters at
``i`` comes out at ``permutation[i]``. :func:`route` finds the settings by the looping algorithm.

``examples/permutation_network.py`` is a network that obeys such settings. Nothing here needs torch: ``riffle route`` is
quick.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from operator import index
from typing import TypeVar, cast

from riffle.quantities import whole_number

Item = TypeVar("Item")
Settings = tuple[tuple[bool, ...], ...]
"""A setting for every switch of every layer: ``settings[layer][switch]``, True if it exchanges its pair."""
MAX_DRAWN = 64
"""Messages up to which a route is drawn; the lines of more cannot be distinguished."""


def route(permutation: Sequence[int]) -> Settings:
    """The switch settings that carry out a permutation of ``2**k`` messages, in O(n log n).

    The first and the last layer both join the cells that differ in address bit 0. Between them are two networks of half
    the size, one on the even and one on the odd cells. The two messages of a first switch have to take different ones
    of these, and so have the two messages that meet in a last switch. :func:`_split` finds such a division; it sets
    both layers and leaves one smaller permutation for each network. All networks of one size are split together, so
    there is no recursion.

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
        splits = [_split(part) for part in parts]
        outward.append(tuple(setting for first, _, _, _ in splits for setting in first))
        inward.append(tuple(setting for _, last, _, _ in splits for setting in last))
        # The unriffle moves the even cells of all networks before the odd ones, so switches stay in this order.
        parts = [even for _, _, even, _ in splits] + [odd for _, _, _, odd in splits]
    middle = tuple(part[0] == 1 for part in parts)
    return (*outward, middle, *reversed(inward))


def apply(settings: Sequence[Sequence[bool]], items: Sequence[Item]) -> list[Item]:
    """Send items through the network with these settings, shuffles included.

    >>> apply([[True]], "ab")
    ['b', 'a']
    """
    return deque(wire_contents(settings, items), maxlen=1)[0]  # one state at a time in memory


def wire_contents(settings: Sequence[Sequence[bool]], items: Sequence[Item]) -> Iterator[list[Item]]:
    """The items on the wires before every layer, and finally those that come out.

    >>> for wires in wire_contents(route([3, 1, 0, 2]), "abcd"):
    ...     print(*wires)
    a b c d
    a c b d
    c b a d
    c b d a
    """
    wires = list(items)
    _check_length(len(wires))
    layers, half = 2 * len(wires).bit_length() - 3, len(wires) // 2
    widths = [len(layer) for layer in settings]
    if widths != [half] * layers:
        sizes = " and ".join(map(str, sorted(set(widths)))) or "none"
        raise ValueError(f"{len(wires)} items need {layers} layers of {half} settings, got {len(widths)} of {sizes}")
    yield wires.copy()
    for number, layer in enumerate(settings):
        for q, exchange in enumerate(layer):
            if exchange:
                wires[2 * q], wires[2 * q + 1] = wires[2 * q + 1], wires[2 * q]
        if number < layers // 2:  # unriffle
            wires = wires[::2] + wires[1::2]
        elif number < layers - 1:  # riffle
            wires[::2], wires[1::2] = wires[:half], wires[half:]
        yield wires.copy()


def message_positions(settings: Sequence[Sequence[bool]]) -> list[list[int]]:
    """The path of every message: element ``[layer][i]`` is the wire of message ``i`` before that layer.

    The last row, after all layers, is the permutation.

    >>> message_positions(route([3, 1, 0, 2]))
    [[0, 1, 2, 3], [0, 2, 1, 3], [2, 1, 0, 3], [3, 1, 0, 2]]
    """
    cells = 2 * len(settings[0]) if settings else 0
    return [inverse(wires) for wires in wire_contents(settings, range(cells))]


def permutation_of(settings: Sequence[Sequence[bool]]) -> list[int]:
    """The permutation that these settings carry out, the inverse of :func:`route`.

    >>> permutation_of(route([3, 1, 0, 2]))
    [3, 1, 0, 2]
    """
    return message_positions(settings)[-1]


def inverse(permutation: Sequence[int]) -> list[int]:
    """The permutation that undoes another: where the message that comes out at ``i`` entered.

    >>> inverse([3, 1, 0, 2])
    [2, 1, 3, 0]
    """
    entered = [0] * len(permutation)
    for start, end in enumerate(permutation):
        entered[end] = start
    return entered


def parse_permutation(text: str) -> list[int]:
    """The numbers of a typed permutation; :func:`route` checks whether they are one.

    >>> parse_permutation("3, 1 0 2")
    [3, 1, 0, 2]
    """
    words = text.replace(",", " ").split()
    numbers = [whole_number(word) for word in words]
    if None in numbers:
        wrong = words[numbers.index(None)]
        raise ValueError(f"a permutation consists of whole numbers from 0, got {wrong!r}: for example 3 1 0 2")
    return cast("list[int]", numbers)


def _split(permutation: list[int]) -> tuple[list[bool], list[bool], list[int], list[int]]:
    """The looping algorithm: settings of the first and last layer, and the permutations of the even and odd network.

    Start at a first switch and send its upper message through the even network, the lower one through the odd one. The
    lower one arrives at some last switch from the odd network, so the message it meets there has to take the even one,
    and that message's neighbour in the first layer the odd one again. Continue until the loop closes, then start the
    next loop at a switch that is not yet set.
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
            first[upper >> 1] = upper & 1 == 1  # exchanged if the message for the even network enters below
            last[down >> 1] = down & 1 == 0  # and if the message from the odd network is to come out above
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
