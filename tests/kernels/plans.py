"""The plan of a training step, and a driver without a device, for tests that compile kernels without launching any."""

from __future__ import annotations

from typing import Any

import torch

from research.bench.kernel_resources import NoDevice
from riffle import ShuffleExchange
from riffle.kernels.plan import KEEP_GATES, NetworkPlan, NetworkSpec, plan_network


class NoLauncher(NoDevice):
    """A driver that names a target and launches nothing."""

    def launcher_cls(self, source: Any, metadata: Any) -> None:
        """Compile no launcher."""


def training_plan(features: int, blocks: int, batch: int, length: int) -> NetworkPlan:
    """The plan of a training step in bfloat16."""
    net = ShuffleExchange(features, blocks)
    units: Any = net.units.values()
    form = NetworkSpec(
        net.blocks, net.sharing, net.benes, net.skips, tuple(net.units.keys()),
        tuple(unit.swap for unit in units), tuple(unit.skip_scale is not None for unit in units),
    )  # fmt: skip
    shape = ((batch,), (length,), features)
    return plan_network(
        *shape, torch.float32, torch.device("cpu"), form, torch.bfloat16, 0.0, 0.0, KEEP_GATES, eager=True
    )  # fmt: skip
