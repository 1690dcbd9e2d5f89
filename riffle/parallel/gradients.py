"""Gradients of weights that every rank holds a copy of."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn


def sum_gradients(module: nn.Module, group: dist.ProcessGroup) -> None:
    """Add up every parameter's gradient over the ranks of a sequence group.

    After ``backward`` a rank's gradient is what its own cells contribute to the sum of all ranks' losses. The sum over
    ranks is the gradient that one device would have for that sum. Where each rank's loss is a mean over its cells and
    the mean over all cells is wanted, ``DistributedDataParallel`` does the same with the mean over ranks.

    Args:
        module: The module whose gradients to add up; parameters without one are skipped, on all ranks alike.
        group: The ranks.
    """
    for parameter in module.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, group=group)
