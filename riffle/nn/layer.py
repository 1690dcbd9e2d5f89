"""One switch layer on adjacent pairs of cells and the shuffle after it, by the reference or by the fused kernels."""

# B = batch, N = cells, C = cells of all groups, one after the other, D = features per cell
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from riffle.kernels import resolve
from riffle.nn.forms import SHUFFLES, Units, perturb
from riffle.nn.merge import Groups, MergedSwitch, cut, join
from riffle.nn.switch import FUSED_UNITS, SwitchUnit

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange


class Switch(Protocol):
    """A switch layer of the named unit, dropout or noise, and the shuffle ``turn`` of the cells after it."""

    def __call__(self, x_BND: Tensor, unit: str, turn: int, skip_BND: Tensor | None) -> Tensor: ...


def switch_of(network: ShuffleExchange, x_BND: Tensor, k: int) -> Switch:
    """The layers of a network on ``2**k`` cells by the kernels that serve ``x_BND``."""
    return one_group(merged_switch_of(network, x_BND), network.dropout / k if network.training else 0.0)


def merged_switch_of(network: ShuffleExchange, x_BND: Tensor) -> MergedSwitch:
    """The layers of a network for several groups at once, by the kernels that serve ``x_BND``."""
    units: Any = network.units
    noise = network.noise if network.training else 0.0
    if is_fused(network, x_BND):
        return fused_switch(units, compute_dtype(x_BND), noise, network.recompute)
    return reference_switch(units, noise)


def is_fused(network: ShuffleExchange, x_BND: Tensor) -> bool:
    """Whether the layers run on the fused kernels."""
    return network.unit in FUSED_UNITS and resolve(network.backend, x_BND) == "fused"


def compute_dtype(x_BND: Tensor) -> torch.dtype:
    """The dtype in which the fused kernels compute: that of the cells, or autocast's."""
    device = x_BND.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x_BND.dtype


def one_group(switch: MergedSwitch, dropout: float) -> Switch:
    """The layer for sequences of one length."""

    def of_one_group(x_BND: Tensor, unit: str, turn: int, skip_BND: Tensor | None) -> Tensor:
        skip_CD = None if skip_BND is None else skip_BND.flatten(0, 1)
        groups = Groups([x_BND.shape[0]], [x_BND.shape[1]], [dropout])
        return switch(x_BND.flatten(0, 1), unit, turn, skip_CD, groups).reshape(x_BND.shape)

    return of_one_group


def reference_switch(units: Units, noise: float) -> MergedSwitch:
    """The layer as the units define it."""

    def switch(x_CD: Tensor, unit: str, turn: int, skip_CD: Tensor | None, groups: Groups) -> Tensor:
        # A unit looks at pairs, so that the longer sequences may come to it cut to the shortest ones' length.
        shape = (-1, groups.cells[-1])
        skip_BND = None if skip_CD is None else skip_CD.unflatten(0, shape)
        y_CD = units[unit](x_CD.unflatten(0, shape), skip_BND).flatten(0, 1)
        parts = zip(cut(y_CD, groups.sizes()), groups.cells, strict=True)
        ys_BND = [part_CD.unflatten(0, (-1, cells)) for part_CD, cells in parts]
        ys_BND = [perturb(y_BND, rate, noise) for y_BND, rate in zip(ys_BND, groups.dropout, strict=True)]
        return join([SHUFFLES[turn](y_BND).flatten(0, 1) for y_BND in ys_BND])

    return switch


def fused_switch(units: Units, compute: torch.dtype, noise: float, recompute: bool) -> MergedSwitch:
    """The layer on the fused kernels, in the dtype ``compute``."""
    from riffle.kernels.fused import Prepared, prepare, switch_and_shuffle

    prepared: dict[str, Prepared] = {}

    def switch(x_CD: Tensor, unit: str, turn: int, skip_CD: Tensor | None, groups: Groups) -> Tensor:
        if unit not in prepared:
            parameters = units[unit]
            assert isinstance(parameters, SwitchUnit)
            prepared[unit] = prepare(parameters.weights(), parameters.skip_scale, compute)
        y_CD = switch_and_shuffle(
            x_CD.to(compute),
            prepared[unit],
            sequences=groups.sequences,
            cells=groups.cells,
            turn=turn,
            swap=bool(units[unit].swap),
            skip_CD=None if skip_CD is None else skip_CD.to(compute),
            dropout=groups.dropout,
            recompute=recompute,
        )
        return perturb(y_CD, 0.0, noise)

    return switch
