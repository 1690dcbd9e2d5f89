"""Layers: the Switch Unit, its ablated variants, the residual unit and the whole network."""

from __future__ import annotations

from riffle.nn.network import ShuffleExchange
from riffle.nn.switch import UNITS, ResidualUnit, SwitchUnit

__all__ = ["UNITS", "ResidualUnit", "ShuffleExchange", "SwitchUnit"]
