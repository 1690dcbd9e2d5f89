"""A network with weights set by hand that carries out every permutation: python examples/permutation_network.py

A cell holds values of -1 and 1: the bits of a message and then, slot by slot, the settings of the switches on that
message's path, 1 for exchange. Two messages that meet in a switch bring the same setting for it, in slot 0. In a layer

- the reset gates read slot 0: each candidate reads only its own cell of the pair if the setting is -1, and only the
  other cell if it is 1;
- the candidates copy message bit to message bit and slot j + 1 to slot j, so that the next switch finds its setting in
  slot 0; the saturated tanh gives exactly -1 or 1, so errors do not accumulate;
- the update gate is closed: the candidates are the output.

Only the number of slots depends on the longest sequence.
"""

import random

import torch

from riffle import ShuffleExchange, SwitchUnit
from riffle.routing import message_positions, route

MESSAGE_BITS = 16  # the first features of a cell, lowest bit first: a message is a whole number below 65536
SATURATED = 40.0  # sigmoid(-40) is below half a unit of float64 rounding: gates are exactly open or closed


def permutation_network(k: int) -> ShuffleExchange:
    """A network that carries out any permutation of up to 2**k messages, given in its input by `encode`."""
    net = ShuffleExchange(MESSAGE_BITS + 2 * k).eval().requires_grad_(False)
    for unit in net.units.values():
        assert isinstance(unit, SwitchUnit)
        set_weights(unit)
    return net


def set_weights(unit: SwitchUnit) -> None:
    """Weights by which a unit obeys the setting in slot 0."""
    features = unit.features
    for parameter in unit.parameters():
        parameter.zero_()
    resets, update = slice(0, 4 * features), slice(4 * features, 6 * features)
    slot_0 = [MESSAGE_BITS, features + MESSAGE_BITS]
    # For each candidate a row: how the setting, read from both cells, opens the gates on the first and second cell.
    opens = torch.tensor([[-0.5, 0.5], [0.5, -0.5]]).repeat_interleave(features).view(-1, 1)
    unit.gates.weight[resets, slot_0] = SATURATED * opens
    unit.gates.bias[update] = -SATURATED
    sources = [*range(MESSAGE_BITS), *range(MESSAGE_BITS + 1, features)]
    for target, source in enumerate(sources):
        unit.candidates_weight[:, target, [source, features + source]] = SATURATED
    unit.candidates_bias[:, -1] = -SATURATED  # the slot behind the last setting gets "straight"


def encode(items: list[int], permutation: list[int], k: int) -> torch.Tensor:
    """Messages with the settings that bring each to its exit, as cells for the network of `k`."""
    settings = route(permutation)
    # Whether the switch that a message passes in a layer exchanges; the last row of positions is after all layers.
    positions = message_positions(settings)[:-1]
    exchanges = [[layer[wire // 2] for wire in wires] for layer, wires in zip(settings, positions, strict=True)]
    on = torch.zeros(len(items), MESSAGE_BITS + 2 * k, dtype=torch.bool)
    on[:, :MESSAGE_BITS] = (torch.tensor(items).unsqueeze(1) >> torch.arange(MESSAGE_BITS)) & 1
    on[:, MESSAGE_BITS : MESSAGE_BITS + len(settings)] = torch.tensor(exchanges).T
    return torch.where(on, 1.0, -1.0).unsqueeze(0)


def decode(y: torch.Tensor) -> list[int]:
    """The messages in the order in which they come out, from the output for one sequence."""
    return ((y[0, :, :MESSAGE_BITS] > 0) << torch.arange(MESSAGE_BITS)).sum(-1).tolist()


def main(messages: int = 8) -> float:
    """Carry out a random permutation, and return how many messages come out at a wrong place."""
    permutation = random.Random(0).sample(range(messages), messages)
    k = messages.bit_length() - 1
    came_out = decode(permutation_network(k)(encode(list(range(messages)), permutation, k)))
    print(f"message i is to come out at {permutation}; the network gives {came_out}")
    return float(sum(came_out[end] != message for message, end in enumerate(permutation)))


if __name__ == "__main__":
    main()
