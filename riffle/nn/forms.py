"""The schedule as the paper defines it: a layer joins adjacent cells and a physical shuffle follows.

Two equivalent ways are in :mod:`riffle.nn.merge`, for sequences of several lengths at once, and in
:mod:`riffle.nn.in_place`, where no cell moves.
"""

# B = batch, N = 2**k cells, D = features per cell
from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from riffle.nn.switch import PairUnit
from riffle.shuffle import Layer, riffle, unriffle

Units = Mapping[str, PairUnit]

SHUFFLES = {1: unriffle, -1: riffle, 0: lambda x_BND: x_BND}


def shuffled(x_BND: Tensor, layers: tuple[Layer, ...], units: Units, dropout: float, noise: float) -> Tensor:
    """Run the layers as the paper draws them, with dropout or noise after every switch layer."""
    skips = _skipped(layers)
    kept: dict[int, Tensor] = {}
    for index, layer in enumerate(layers):
        if index in skips:
            kept[index] = x_BND
        skip_BND = None if layer.skip is None else kept[layer.skip]
        x_BND = SHUFFLES[layer.turn](perturb(units[layer.unit](x_BND, skip_BND), dropout, noise))
    return x_BND


def rotate(x_BND: Tensor, turns: int, k: int) -> Tensor:
    """Unriffle ``turns`` times (riffle, where negative) in one step."""
    if turns % k == 0:
        return x_BND
    return x_BND.unflatten(1, (-1, 2 ** (turns % k))).transpose(1, 2).flatten(1, 2)


def perturb(y_BND: Tensor, dropout: float, noise: float) -> Tensor:
    """A layer's output with dropout, or else with noise."""
    if dropout:
        return F.dropout(y_BND, dropout)
    return y_BND * (1 + noise * torch.randn_like(y_BND)) if noise else y_BND


def _skipped(layers: tuple[Layer, ...]) -> set[int]:
    return {layer.skip for layer in layers if layer.skip is not None}
