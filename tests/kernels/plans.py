"""The plan of a training step, and a driver without a device, for tests that compile kernels without launching any."""

from __future__ import annotations

from typing import Any

import torch

from research.bench.kernel_resources import NoDevice
from riffle import ShuffleExchange
from riffle.kernels.plan import KEEP_GATES, NetworkPlan, plan_network


class NoLauncher(NoDevice):
    """A driver that names a target and launches nothing."""

    def launcher_cls(self, source: Any, metadata: Any) -> None:
        """Compile no launcher."""


def training_plan(features: int, blocks: int, batch: int, length: int) -> NetworkPlan:
    """The plan of a training step in bfloat16."""
    spec = ShuffleExchange(features, blocks).spec
    assert spec is not None
    shape = ((batch,), (length,), features)
    return plan_network(
        *shape, torch.float32, torch.device("cpu"), spec, torch.bfloat16, 0.0, 0.0, KEEP_GATES, eager=True
    )
