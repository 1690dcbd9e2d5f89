"""Routing: switch settings that make one Beneš block carry out any permutation, found by the looping algorithm.

The wiring is that of :func:`riffle.shuffle.schedule` with one block: ``2 * k - 1`` layers of ``n / 2`` switches on
``n = 2**k`` cells, the first ``k - 1`` of them followed by an unriffle, the next ``k - 1`` by a riffle. Switch ``q`` of
a layer joins positions ``2 * q`` and ``2 * q + 1``; its setting is True where it exchanges the two. Pure Python.

A permutation says where messages go: the message that enters at ``i`` comes out at ``permutation[i]``.

A network that carries out every permutation: its weights are set by hand, the routing comes in with the messages.

This is the proof in code that a neural shuffle-exchange network contains every permutation. A cell holds numbers that
are -1 or 1: :data:`MESSAGE_BITS` bits of a message and then, slot by slot, the settings of the switches on that
message's way through the network, 1 where the switch exchanges. Two messages that meet in a switch bring the same
setting for it, in slot 0. The unit does three things:

- the *reset gates* read slot 0. Each candidate reads only its own cell of the pair where the setting is -1, and only
  the other cell where it is 1;
- the *candidates* copy what is let through: message bit to message bit, slot ``j + 1`` to slot ``j``. The tanh makes a
  whole -1 or 1 of it again, so that errors die out in every layer, and the next switch finds its setting in slot 0;
- the *update gate* is shut, so that the candidates are the output.

All layers do the same, whatever the length, so one unit serves the whole network, in sharing "block" as three equal
copies. Only the number of slots depends on the longest sequence.
"""

# B = batch, N = 2**k messages, D = MESSAGE_BITS + 2 * k features per cell, E = 2 * D, L = 2 * k - 1 layers
from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from operator import index
from typing import TypeVar

import torch
from torch import Tensor

from riffle.nn.network import ShuffleExchange
from riffle.nn.switch import SwitchUnit

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


MESSAGE_BITS = 16
"""The first features of a cell, lowest bit first: a message is a whole number below 65536."""
SATURATED = 40.0
"""The size of the weights: sigmoid(-40) is less than half a float64's rounding, so gates are open or shut exactly."""


def permutation_network(k: int) -> ShuffleExchange:
    """A network that carries out any permutation of up to ``2**k`` messages, given in its input by :func:`encode`.

    The result is exact, not close: a saturated unit maps cells of -1 and 1 to cells of -1 and 1.

    Args:
        k: The longest sequence has ``2**k`` messages; shorter ones run on the same weights.

    >>> net = permutation_network(3)
    >>> decode(net(encode([10, 20, 30, 40], [3, 1, 0, 2], k=3)))
    [30, 20, 40, 10]
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, for two messages, got {k}")
    net = ShuffleExchange(MESSAGE_BITS + 2 * k)
    for unit in net.units.values():
        assert isinstance(unit, SwitchUnit)
        _set_by_hand(unit)
    return net.eval().requires_grad_(False)


def encode(items: Sequence[int], permutation: Sequence[int], k: int | None = None) -> Tensor:
    """Messages together with the settings that bring each to its place, as cells of :func:`permutation_network`.

    Args:
        items: The messages, whole numbers from 0 to 65535, 2, 4, 8, ... of them.
        permutation: Message ``i`` is to come out at ``permutation[i]``.
        k: The network's ``k``, where it is made for longer sequences than this one.

    Returns:
        ``[1, N, D]``
    """
    settings = route(permutation)
    if len(items) != len(permutation):
        raise ValueError(f"{len(items)} items cannot be permuted by a permutation of {len(permutation)}")
    if not all(0 <= item < 2**MESSAGE_BITS for item in items):
        raise ValueError(f"an item is a whole number from 0 to {2**MESSAGE_BITS - 1}")
    needed = len(permutation).bit_length() - 1
    if k is not None and k < needed:
        raise ValueError(f"a network of k={k} permutes up to {2**k} messages, got {len(permutation)}")
    # Whether the switch that a message passes in a layer exchanges; the last row of the trace is behind all layers.
    exchanges_LN = [[layer[wire // 2] for wire in way] for layer, way in zip(settings, trace(settings), strict=False)]
    on_ND = torch.zeros(len(items), MESSAGE_BITS + 2 * (k or needed), dtype=torch.bool)
    on_ND[:, :MESSAGE_BITS] = (torch.tensor(items).unsqueeze(1) >> torch.arange(MESSAGE_BITS)) & 1
    on_ND[:, MESSAGE_BITS : MESSAGE_BITS + len(settings)] = torch.tensor(exchanges_LN).T
    return torch.where(on_ND, 1.0, -1.0).unsqueeze(0)


def decode(y_BND: Tensor) -> list[int]:
    """The messages in the order in which they come out, from the output for one sequence."""
    if y_BND.dim() != 3 or len(y_BND) != 1:
        raise ValueError(f"decode reads the output for one sequence, [1, N, D], got {list(y_BND.shape)}")
    return read_messages(y_BND)[0].tolist()


def read_messages(y_BND: Tensor) -> Tensor:
    """The messages of many sequences, ``[B, N]``."""
    return ((y_BND[..., :MESSAGE_BITS] > 0) << torch.arange(MESSAGE_BITS, device=y_BND.device)).sum(-1)


@torch.no_grad()
def _set_by_hand(unit: SwitchUnit) -> None:
    features = unit.features
    for parameter in unit.parameters():
        parameter.zero_()
    resets, update = slice(0, 4 * features), slice(4 * features, 6 * features)
    slot_0 = [MESSAGE_BITS, features + MESSAGE_BITS]
    # A row for each candidate: how the setting, read from both cells, opens the gates on the first and second cell.
    opens = torch.tensor([[-0.5, 0.5], [0.5, -0.5]]).repeat_interleave(features).view(-1, 1)
    unit.gates.weight[resets, slot_0] = SATURATED * opens
    unit.gates.bias[update] = -SATURATED
    sources = [*range(MESSAGE_BITS), *range(MESSAGE_BITS + 1, features)]
    for target, source in enumerate(sources):
        unit.candidates_weight[:, target, [source, features + source]] = SATURATED
    unit.candidates_bias[:, -1] = -SATURATED  # behind the last setting comes another "straight"
