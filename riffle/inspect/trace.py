"""What every switch layer does to one input: state, gates, candidates."""

# B = batch, N = length, W cells the network runs on, D = features per cell, P = pairs, E = 2 * D
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from riffle.models.sequence import EMBEDDING_SCALE, SequenceModel
from riffle.nn.execute import walk
from riffle.nn.lengths import pad_to
from riffle.nn.network import ShuffleExchange
from riffle.nn.switch import PairUnit
from riffle.shuffle import SHUFFLES, Layer, bits, padded_length, rotate


@dataclass(frozen=True)
class LayerTrace:
    """What happens in one switch layer; a gate that the unit does not have is None."""

    layer: Layer
    """The layer's entry in the schedule: unit, address bit, shuffle, skip connection."""
    state: Tensor
    """What enters, ``[B, W, D]``, without the skip connection."""
    reset: Tensor | None
    """``[B, W, 2, D]``: how much of the pair's first and second cell the candidate of each cell reads."""
    update: Tensor | None
    """``[B, W, D]``: how much of each cell is copied rather than computed."""
    candidate: Tensor
    """``[B, W, D]``: the newly computed value."""
    swap: Tensor | None
    """``[B, W, D]``, of the ablation "swap-gate" alone: how much is copied straight rather than crosswise."""
    out: Tensor
    """What leaves, ``[B, W, D]``, before the shuffle."""


@dataclass(frozen=True)
class Trace:
    """What happens in a network, layer by layer."""

    layers: tuple[LayerTrace, ...]
    """In the order of the schedule."""
    length: int
    """Length of the input; cells from here on are padding."""
    order: str
    """"in-place", by original addresses, or "shuffled", as the paper draws it; see :func:`trace`."""
    output: Tensor
    """The network's output, ``[B, N, D]``."""


@torch.no_grad()
def trace(net: nn.Module, x: Tensor, *, order: str = "in-place") -> Trace:
    """Run a network as in evaluation mode and keep gates, candidates and state of every layer; it is left unchanged.

    Args:
        net: A :class:`~riffle.ShuffleExchange`, or a :class:`~riffle.SequenceModel` for the network inside it.
        x: Its input: cells ``[B, N, D]``, or symbols ``[B, N]``.
        order: "in-place" puts every cell at its original address, so that the pictures of layers line up;
            "shuffled" at the place where the shuffles have brought it, so that the cells of a pair are neighbours.
            Networks made by ``from_official`` are traced with their features in the paper's order.
    """
    if order not in ("in-place", "shuffled"):
        raise ValueError(f"unknown order {order!r}; choose one of in-place, shuffled")
    network, cells_BWD = network_input(net, x)
    length, k = x.shape[1], bits(x.shape[1])
    traced: list[LayerTrace] = []

    def run_layer(index: int, layer: Layer, x_BWD: Tensor, skip_BWD: Tensor | None) -> tuple[Tensor, Tensor]:
        unit = network[layer.unit]
        out_BWD = unit(x_BWD, skip_BWD)
        seen = {"state": x_BWD, **_gates(unit, x_BWD, skip_BWD), "out": out_BWD}
        if order == "in-place":
            seen = {name: value if value is None else rotate(value, -layer.bit, k) for name, value in seen.items()}
        traced.append(LayerTrace(layer=layer, **seen))
        return SHUFFLES[layer.shuffle](out_BWD), x_BWD

    out_BWD = walk(network.layers(k), cells_BWD, run_layer)
    return Trace(tuple(traced), length, order, network.relabel(out_BWD)[:, :length])


def network_input(net: nn.Module, x: Tensor) -> tuple[ShuffleExchange, Tensor]:
    """The network, and what enters its first layer."""
    if isinstance(net, SequenceModel):
        if x.dim() != 2 or x.shape[1] < 1:
            raise ValueError(f"the input must be [batch, length] symbols, got shape {tuple(x.shape)}")
        network = net.network
        x = torch.tanh(EMBEDDING_SCALE * net.embedding(pad_to(x, padded_length(x.shape[1], network.pad))))
    elif isinstance(net, ShuffleExchange):
        network = net
        network.check_input(x)
        x = pad_to(x, padded_length(x.shape[1], network.pad))
    else:
        raise ValueError(f"only a ShuffleExchange or a SequenceModel can be looked into, not a {type(net).__name__}")
    return network, network.relabel(x)


def _gates(unit: PairUnit, state_BWD: Tensor, skip_BWD: Tensor | None) -> dict[str, Tensor | None]:
    """Gates and candidates of a unit, by their names in :class:`LayerTrace`."""
    read_BWD = state_BWD
    if skip_BWD is not None:
        assert unit.skip_scale is not None
        read_BWD = state_BWD + skip_BWD * unit.skip_scale
    values = unit.gate_values(read_BWD.unflatten(1, (-1, 2)).flatten(2))._asdict()
    return {name: None if gate is None else gate.unflatten(-1, (2, -1)).flatten(1, 2) for name, gate in values.items()}
