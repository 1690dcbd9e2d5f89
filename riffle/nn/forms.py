"""Equivalent ways to run a schedule: shuffled, as the paper defines it; in place, as a butterfly; fused, on a GPU.

Shuffled, a layer joins adjacent cells and a physical shuffle follows. In place, cells stay where they are and a layer
joins the cells that differ in its address bit; one buffer serves the whole network. Fused, a kernel computes a layer
and stores every cell where the shuffle would bring it.
"""

# B = batch, N = 2**k cells, D = features per cell, H = pairs' high address bits, L = their low ones
from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat

import torch
from torch import Tensor
from torch.nn import functional as F

from riffle.nn.switch import PairUnit, SwitchUnit
from riffle.shuffle import Layer, riffle, rotation, unriffle

Units = Mapping[str, PairUnit]

SHUFFLES = {1: unriffle, -1: riffle, 0: lambda x_BND: x_BND}
CHUNK_PAIRS = {"cpu": 4096}
"""Pairs that go through a unit at once in the in-place form, so that a CPU's cache holds what they need."""
CHUNK_PAIRS_DEVICE = 2**18
"""The same on any other device: enough to fill it, little beside the sequences that need it."""


def shuffled(x_BND: Tensor, layers: tuple[Layer, ...], units: Units, dropout: float, noise: float) -> Tensor:
    """Run the layers as the paper draws them, with dropout or noise after every switch layer."""
    skips = _skipped(layers)
    kept: dict[int, Tensor] = {}
    for index, layer in enumerate(layers):
        if index in skips:
            kept[index] = x_BND
        skip_BND = None if layer.skip is None else kept[layer.skip]
        x_BND = SHUFFLES[layer.turn](_perturb(units[layer.unit](x_BND, skip_BND), dropout, noise))
    return x_BND


def fused(x_BND: Tensor, layers: tuple[Layer, ...], units: Units, dropout: float, noise: float) -> Tensor:
    """Run the layers on the fused kernels, in the dtype of the cells or of autocast."""
    from riffle.kernels.fused import prepare, switch_and_shuffle

    dtype, device = x_BND.dtype, x_BND.device.type
    if torch.is_autocast_enabled(device):
        x_BND = x_BND.to(torch.get_autocast_dtype(device))
    prepared = {}
    for name in {layer.unit for layer in layers}:
        unit = units[name]
        assert isinstance(unit, SwitchUnit)
        prepared[name] = prepare(unit.weights(), unit.skip_scale, x_BND.dtype)
    skips = _skipped(layers)
    kept: dict[int, Tensor] = {}
    for index, layer in enumerate(layers):
        if index in skips:
            kept[index] = x_BND
        skip_BND = None if layer.skip is None else kept[layer.skip]
        swap = bool(units[layer.unit].swap)
        x_BND = switch_and_shuffle(
            x_BND, prepared[layer.unit], turn=layer.turn, swap=swap, skip_BND=skip_BND, dropout=dropout
        )
        x_BND = _perturb(x_BND, 0.0, noise)
    return x_BND.to(dtype)


def in_place(x_BND: Tensor, layers: tuple[Layer, ...], units: Units, dropout: float, noise: float) -> Tensor:
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
            out_ND = _perturb(unit(pairs_HL2D.flatten(0, 2), skip_ND), dropout, noise)
            pairs_HL2D.copy_(out_ND.view_as(pairs_HL2D))
    return rotate(state_BND, rotation(layers), k)


def rotate(x_BND: Tensor, turns: int, k: int) -> Tensor:
    """Unriffle ``turns`` times (riffle, where negative) in one step."""
    if turns % k == 0:
        return x_BND
    return x_BND.unflatten(1, (-1, 2 ** (turns % k))).transpose(1, 2).flatten(1, 2)


def _perturb(y_BND: Tensor, dropout: float, noise: float) -> Tensor:
    if dropout:
        return F.dropout(y_BND, dropout)
    return y_BND * (1 + noise * torch.randn_like(y_BND)) if noise else y_BND


def _skipped(layers: tuple[Layer, ...]) -> set[int]:
    return {layer.skip for layer in layers if layer.skip is not None}


def _chunks(x_BND: Tensor, bit: int) -> Iterator[Tensor]:
    """Views ``[H, L, 2, D]`` of the pairs that differ in address bit ``bit``, a cacheful at a time."""
    size = CHUNK_PAIRS.get(x_BND.device.type, CHUNK_PAIRS_DEVICE)
    low = 1 << bit
    pairs_HL2D = x_BND.view(-1, 2, low, x_BND.shape[-1]).transpose(1, 2)
    for high_part in pairs_HL2D.split(max(1, size // low)):
        yield from high_part.split(min(size, low), dim=1)
