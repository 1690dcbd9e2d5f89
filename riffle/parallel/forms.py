"""Two ways to run a schedule on the cells of one rank, after the two of :mod:`riffle.nn.forms`.

Shuffled, with gradients: a layer joins adjacent cells, and a shuffle of the rank's own cells brings the next bit of the
place to the bottom; the fused kernels store every cell where that shuffle would bring it. In place, without gradients:
cells stay, and one buffer serves the whole network but for the exchanges.
"""

# B = batch, N = cells on this rank, D = features per cell
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from riffle.nn.forms import rotate
from riffle.nn.in_place import overwrite_layer, slots_of
from riffle.nn.layer import Switch
from riffle.parallel.layout import ShardedLayer

Exchange = Callable[[Tensor], Tensor]
"""Swaps the bits that number the ranks with the highest bits of the place."""


def shuffled(x_BND: Tensor, layers: tuple[ShardedLayer, ...], switch: Switch, exchange: Exchange) -> Tensor:
    """Run the layers with gradients."""
    width = x_BND.shape[1].bit_length() - 1  # bits of a place
    last_use = {layer.skip: index for index, layer in enumerate(layers) if layer.skip is not None}
    kept: dict[int, Tensor] = {}
    bottom = 0  # the bit of the place in which adjacent cells differ now
    for index, layer in enumerate(layers):
        if layer.exchange:
            x_BND, bottom = exchange(rotate(x_BND, -bottom, width)), 0
        x_BND = rotate(x_BND, layer.bit - bottom, width)
        if index in last_use:
            kept[index] = x_BND
        x_BND = switch(x_BND, layer.unit, layer.turn, None if layer.skip is None else kept[layer.skip])
        bottom = layer.bit + layer.turn
        kept = {skip: skip_BND for skip, skip_BND in kept.items() if last_use[skip] > index}
    return rotate(x_BND, -bottom, width)


def in_place(x_BND: Tensor, layers: tuple[ShardedLayer, ...], switch: Switch, exchange: Exchange) -> Tensor:
    """Run the layers on one copy of the input that they overwrite; no gradients."""
    slots = slots_of(layers)
    kept: dict[int, Tensor] = {}
    state_BND = x_BND.clone(memory_format=torch.contiguous_format)
    for index, layer in enumerate(layers):
        if layer.exchange:
            state_BND.copy_(exchange(state_BND))
        if index in slots and layer.skip is None:
            kept[slots[index]] = torch.empty_like(state_BND)
        skip_BND = None if layer.skip is None else kept[slots[layer.skip]]
        keep_BND = kept[slots[index]] if index in slots else None
        overwrite_layer(state_BND, layer.bit, layer.unit, switch, skip_BND, keep_BND)
    return state_BND
