"""Two equivalent ways to run a schedule: shuffled, as the paper defines it, and in place, as a butterfly.

Shuffled, a layer joins adjacent cells and a physical shuffle follows. In place, cells stay where they are and a layer
joins the cells that differ in its address bit; one buffer serves the whole network.
"""

# B = batch, N = 2**k cells, D = features per cell, H = pairs' high address bits, L = their low ones
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat

import torch
from torch import Tensor

from riffle.nn.switch import PairUnit
from riffle.shuffle import Layer, riffle, rotation, unriffle

Units = Mapping[str, PairUnit]
Perturb = Callable[[Tensor], Tensor]

SHUFFLES = {1: unriffle, -1: riffle, 0: lambda x_BND: x_BND}
CHUNK_PAIRS = {"cpu": 1024}
"""Pairs that go through a unit at once in the in-place form, so that a CPU's cache holds what they need."""
CHUNK_PAIRS_DEVICE = 2**18
"""The same on any other device: enough to fill it, little beside the sequences that need it."""


def shuffled(x_BND: Tensor, layers: tuple[Layer, ...], units: Units, perturb: Perturb) -> Tensor:
    """Run the layers as the paper draws them, with dropout or noise (``perturb``) after every switch layer."""
    skips = _skipped(layers)
    kept: dict[int, Tensor] = {}
    for index, layer in enumerate(layers):
        if index in skips:
            kept[index] = x_BND
        skip_BND = None if layer.skip is None else kept[layer.skip]
        x_BND = SHUFFLES[layer.turn](perturb(units[layer.unit](x_BND, skip_BND)))
    return x_BND


def in_place(x_BND: Tensor, layers: tuple[Layer, ...], units: Units, perturb: Perturb) -> Tensor:
    """Run the layers on one copy of the input that they overwrite; no gradients."""
    skips = _skipped(layers)
    kept: dict[int, Tensor] = {}
    k = x_BND.shape[1].bit_length() - 1
    state_BND = x_BND.clone(memory_format=torch.contiguous_format)
    for index, layer in enumerate(layers):
        if index in skips:
            kept[index] = state_BND.clone()
        skipped: Iterator[Tensor | None] = repeat(None)
        if layer.skip is not None:
            # Without the mirrored half, blocks end rotated: the skipped cells are elsewhere now.
            skip_BND = rotate(kept[layer.skip], layers[layer.skip].bit - layer.bit, k)
            skipped = (pairs_HL2D.flatten(0, 2) for pairs_HL2D in _chunks(skip_BND, layer.bit))
        unit = units[layer.unit]
        for pairs_HL2D, skip_ND in zip(_chunks(state_BND, layer.bit), skipped, strict=False):
            pairs_HL2D.copy_(perturb(unit(pairs_HL2D.flatten(0, 2), skip_ND)).view_as(pairs_HL2D))
    return rotate(state_BND, rotation(layers), k)


def rotate(x_BND: Tensor, turns: int, k: int) -> Tensor:
    """Unriffle ``turns`` times (riffle, where negative) in one step."""
    if turns % k == 0:
        return x_BND
    return x_BND.unflatten(1, (-1, 2 ** (turns % k))).transpose(1, 2).flatten(1, 2)


def _skipped(layers: tuple[Layer, ...]) -> set[int]:
    return {layer.skip for layer in layers if layer.skip is not None}


def _chunks(x_BND: Tensor, bit: int) -> Iterator[Tensor]:
    """Views ``[H, L, 2, D]`` of the pairs that differ in address bit ``bit``, a cacheful at a time."""
    size = CHUNK_PAIRS.get(x_BND.device.type, CHUNK_PAIRS_DEVICE)
    low = 1 << bit
    pairs_HL2D = x_BND.view(-1, 2, low, x_BND.shape[-1]).transpose(1, 2)
    for high_part in pairs_HL2D.split(max(1, size // low)):
        yield from high_part.split(min(size, low), dim=1)
