"""Two equivalent ways to run a schedule: shuffled, as the paper defines it, and fused, on a GPU.

Shuffled, a layer joins adjacent cells and a physical shuffle follows. Fused, a kernel computes a layer and stores every
cell where the shuffle would bring it, for sequences of several lengths at once. The third way, in place, is in
:mod:`riffle.nn.in_place`.
"""

# B = batch, N = 2**k cells, D = features per cell
from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from riffle.nn.merge import Cells, cut, join, merge
from riffle.nn.switch import PairUnit, SwitchUnit
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
        x_BND = SHUFFLES[layer.turn](_perturb(units[layer.unit](x_BND, skip_BND), dropout, noise))
    return x_BND


def fused(
    xs_BND: Sequence[Tensor],
    schedules: Sequence[tuple[Layer, ...]],
    units: Units,
    dropout: Sequence[float],
    noise: float,
    recompute: bool,
) -> list[Tensor]:
    """Run several batches on the fused kernels, layers that share a unit together, in their dtype or autocast's."""
    from riffle.kernels.fused import prepare, switch_and_shuffle

    dtype, device = xs_BND[0].dtype, xs_BND[0].device.type
    compute = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else dtype
    # Batches of one length make a group; longer ones come first, as the kernels want it.
    lengths = sorted({x_BND.shape[1] for x_BND in xs_BND}, reverse=True)
    groups = [[index for index, x_BND in enumerate(xs_BND) if x_BND.shape[1] == length] for length in lengths]
    sequences = [sum(xs_BND[index].shape[0] for index in group) for group in groups]
    rates = [dropout[group[0]] for group in groups]
    plan = merge([schedules[group[0]] for group in groups])
    prepared = {}
    for name in dict.fromkeys(layer.unit for layer in plan):
        unit = units[name]
        assert isinstance(unit, SwitchUnit)
        prepared[name] = prepare(unit.weights(), unit.skip_scale, compute)
    cells = Cells([join([xs_BND[index].to(compute).flatten(0, 1) for index in group]) for group in groups])
    last_use = {skip: index for index, layer in enumerate(plan) for skip in layer.skip or ()}
    kept: dict[int, Tensor] = {}
    for index, layer in enumerate(plan):
        x_CD = cells.take(layer.first, layer.end)
        if index in last_use:
            kept[index] = x_CD
        x_CD = switch_and_shuffle(
            x_CD,
            prepared[layer.unit],
            sequences=sequences[layer.first : layer.end],
            cells=lengths[layer.first : layer.end],
            turn=layer.turn,
            swap=bool(units[layer.unit].swap),
            skip_CD=cells.skipped(layer, plan, kept),
            dropout=rates[layer.first : layer.end],
            recompute=recompute,
        )
        cells.put(layer.first, layer.end, _perturb(x_CD, 0.0, noise))
        kept = {skip: skip_CD for skip, skip_CD in kept.items() if last_use[skip] > index}
    y_CD = cells.take(0, len(groups)).to(dtype)
    order = [index for group in groups for index in group]
    parts = cut(y_CD, [xs_BND[index].shape[0] * xs_BND[index].shape[1] for index in order])
    ys_BND = {index: part_CD.view_as(xs_BND[index]) for index, part_CD in zip(order, parts, strict=True)}
    return [ys_BND[index] for index in range(len(xs_BND))]


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
