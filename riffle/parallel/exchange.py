"""The exchange of cells between ranks: an all-to-all that swaps address bits, with gradients."""

# B = batch, N = cells on a rank, D = features per cell, P = ranks, R = N // P cells for each rank
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(x_BND: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Swap the bits that number the ranks with the highest bits of the place on a rank; its own inverse.

    Part j of rank i becomes part i of rank j, so all but one of the P parts travel: ``B N D (1 - 1 / P)`` numbers leave
    each rank and as many arrive. Every rank of the group must call it, in the backward pass as well.

    Args:
        x_BND: The cells of this rank; N is a multiple of the number of ranks.
        group: The ranks.
    """
    result: Tensor = _Exchange.apply(x_BND, group)
    return result


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BND: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _all_to_all(x_BND, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        # A permutation that is its own inverse: the gradient goes back the way the cells came.
        return _Exchange.apply(grads[0], ctx.group), None


def _all_to_all(x_BND: Tensor, group: dist.ProcessGroup) -> Tensor:
    ranks = dist.get_world_size(group)
    sent_PBRD = x_BND.unflatten(1, (ranks, -1)).transpose(0, 1).contiguous()
    received_PBRD = torch.empty_like(sent_PBRD)
    dist.all_to_all_single(received_PBRD, sent_PBRD, group=group)
    return received_PBRD.transpose(0, 1).flatten(1, 2)
