"""Layers: the Switch Unit, its ablated variants and the whole network."""

from __future__ import annotations

from riffle.nn.graphed import Graphed
from riffle.nn.network import ShuffleExchange
from riffle.nn.switch import UNITS, SwitchUnit

__all__ = ["UNITS", "Graphed", "ShuffleExchange", "SwitchUnit"]
