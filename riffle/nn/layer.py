"""One switch layer on adjacent pairs of cells and the shuffle after it, by the reference or by the fused kernels."""

# B = batch, N = cells, D = features per cell
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from riffle.kernels import resolve
from riffle.nn.forms import SHUFFLES, Units, _perturb
from riffle.nn.switch import FUSED_UNITS, SwitchUnit

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange


class Switch(Protocol):
    """A switch layer of the named unit, dropout or noise, and the shuffle ``turn`` of the cells after it."""

    def __call__(self, x_BND: Tensor, unit: str, turn: int, skip_BND: Tensor | None) -> Tensor: ...


def switch_of(network: ShuffleExchange, x_BND: Tensor, k: int) -> Switch:
    """The layers of a network on ``2**k`` cells by the kernels that serve ``x_BND``."""
    dropout = network.dropout / k if network.training else 0.0
    noise = network.noise if network.training else 0.0
    units: Any = network.units
    if network.unit in FUSED_UNITS and resolve(network.backend, x_BND) == "fused":
        return fused_switch(units, compute_dtype(x_BND), dropout, noise, network.recompute)
    return reference_switch(units, dropout, noise)


def compute_dtype(x_BND: Tensor) -> torch.dtype:
    """The dtype in which the fused kernels compute: that of the cells, or autocast's."""
    device = x_BND.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x_BND.dtype


def reference_switch(units: Units, dropout: float, noise: float) -> Switch:
    """The layer as the units define it."""

    def switch(x_BND: Tensor, unit: str, turn: int, skip_BND: Tensor | None) -> Tensor:
        return SHUFFLES[turn](_perturb(units[unit](x_BND, skip_BND), dropout, noise))

    return switch


def fused_switch(units: Units, compute: torch.dtype, dropout: float, noise: float, recompute: bool) -> Switch:
    """The layer on the fused kernels, in the dtype ``compute``."""
    from riffle.kernels.fused import Prepared, prepare, switch_and_shuffle

    prepared: dict[str, Prepared] = {}
    for name, unit in units.items():
        assert isinstance(unit, SwitchUnit)
        prepared[name] = prepare(unit.weights(), unit.skip_scale, compute)

    def switch(x_BND: Tensor, unit: str, turn: int, skip_BND: Tensor | None) -> Tensor:
        y_CD = switch_and_shuffle(
            x_BND.flatten(0, 1).to(compute),
            prepared[unit],
            sequences=[x_BND.shape[0]],
            cells=[x_BND.shape[1]],
            turn=turn,
            swap=bool(units[unit].swap),
            skip_CD=None if skip_BND is None else skip_BND.flatten(0, 1).to(compute),
            dropout=[dropout],
            recompute=recompute,
        )
        return _perturb(y_CD, 0.0, noise).view(x_BND.shape)

    return switch
