"""Two ways to run a schedule on the cells of one rank, after the two of :mod:`riffle.nn.forms`.

Shuffled, with gradients: a layer joins adjacent cells, and a shuffle of the rank's own cells brings the next bit of the
place to the bottom; the fused kernels store every cell where that shuffle would bring it. In place, without gradients:
cells stay, and one buffer serves the whole network but for the exchanges.
"""

# B = batch, N = cells on this rank, D = features per cell
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import Protocol

import torch
from torch import Tensor

from riffle.nn.forms import SHUFFLES, Units, _chunks, _perturb, rotate
from riffle.nn.switch import SwitchUnit
from riffle.parallel.layout import ShardedLayer

Exchange = Callable[[Tensor], Tensor]
"""Swaps the bits that number the ranks with the highest bits of the place."""


class Switch(Protocol):
    """A switch layer on adjacent pairs, dropout or noise, and the shuffle of the rank's cells after it."""

    def __call__(self, x_BND: Tensor, layer: ShardedLayer, skip_BND: Tensor | None) -> Tensor: ...


def shuffled(x_BND: Tensor, layers: tuple[ShardedLayer, ...], switch: Switch, exchange: Exchange) -> Tensor:
    """Run the layers with gradients."""
    width = x_BND.shape[1].bit_length() - 1  # bits of a place
    last_use = _last_use(layers)
    kept: dict[int, Tensor] = {}
    bottom = 0  # the bit of the place in which adjacent cells differ now
    for index, layer in enumerate(layers):
        if layer.exchange:
            x_BND, bottom = exchange(rotate(x_BND, -bottom, width)), 0
        x_BND = rotate(x_BND, layer.bit - bottom, width)
        if index in last_use:
            kept[index] = x_BND
        x_BND = switch(x_BND, layer, None if layer.skip is None else kept[layer.skip])
        bottom = layer.bit + layer.turn
        kept = {skip: skip_BND for skip, skip_BND in kept.items() if last_use[skip] > index}
    return rotate(x_BND, -bottom, width)


def reference_switch(units: Units, dropout: float, noise: float) -> Switch:
    """The layer as the units define it."""

    def switch(x_BND: Tensor, layer: ShardedLayer, skip_BND: Tensor | None) -> Tensor:
        return SHUFFLES[layer.turn](_perturb(units[layer.unit](x_BND, skip_BND), dropout, noise))

    return switch


def fused_switch(units: Units, compute: torch.dtype, dropout: float, noise: float, recompute: bool) -> Switch:
    """The layer on the fused kernels, in the dtype ``compute``."""
    from riffle.kernels.fused import Prepared, prepare, switch_and_shuffle

    prepared: dict[str, Prepared] = {}

    def switch(x_BND: Tensor, layer: ShardedLayer, skip_BND: Tensor | None) -> Tensor:
        unit = units[layer.unit]
        assert isinstance(unit, SwitchUnit)
        if layer.unit not in prepared:
            prepared[layer.unit] = prepare(unit.weights(), unit.skip_scale, compute)
        y_CD = switch_and_shuffle(
            x_BND.flatten(0, 1),
            prepared[layer.unit],
            sequences=[x_BND.shape[0]],
            cells=[x_BND.shape[1]],
            turn=layer.turn,
            swap=unit.swap,
            skip_CD=None if skip_BND is None else skip_BND.flatten(0, 1),
            dropout=[dropout],
            recompute=recompute,
        )
        return _perturb(y_CD, 0.0, noise).view_as(x_BND)

    return switch


def in_place(
    x_BND: Tensor, layers: tuple[ShardedLayer, ...], units: Units, exchange: Exchange, dropout: float, noise: float
) -> Tensor:
    """Run the layers on one copy of the input that they overwrite; no gradients."""
    last_use = _last_use(layers)
    kept: dict[int, Tensor] = {}
    state_BND = x_BND.clone(memory_format=torch.contiguous_format)
    perturb = partial(_perturb, dropout=dropout, noise=noise)
    for index, layer in enumerate(layers):
        if layer.exchange:
            state_BND.copy_(exchange(state_BND))
        if index in last_use:
            kept[index] = state_BND.clone()
        skipped: Iterator[Tensor | None] = repeat(None)
        if layer.skip is not None:
            skipped = (pairs_HL2D.flatten(0, 2) for pairs_HL2D in _chunks(kept[layer.skip], layer.bit))
        for pairs_HL2D, skip_ND in zip(_chunks(state_BND, layer.bit), skipped, strict=False):
            out_ND = perturb(units[layer.unit](pairs_HL2D.flatten(0, 2), skip_ND))
            pairs_HL2D.copy_(out_ND.view_as(pairs_HL2D))
        kept = {skip: skip_BND for skip, skip_BND in kept.items() if last_use[skip] > index}
    return state_BND


def _last_use(layers: tuple[ShardedLayer, ...]) -> dict[int, int]:
    return {layer.skip: index for index, layer in enumerate(layers) if layer.skip is not None}
