"""A network that carries out every permutation: its weights are set by hand, the routing comes in with the messages.

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

from collections.abc import Sequence

import torch
from torch import Tensor

from riffle.nn.network import ShuffleExchange
from riffle.nn.switch import SwitchUnit
from riffle.routing import route, trace

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
