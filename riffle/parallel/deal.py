"""Dealing cells to the ranks that run them and back: one all-to-all along a route, with gradients."""

# C = cells of this rank, of all its rows, one after the other, D = features per cell
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Route:
    """Which cells a rank sends to every rank, and where those that arrive belong; no cell twice."""

    take: Tensor
    """The places of the cells that are sent, those for rank 0 first."""
    sent: list[int]
    """How many go to each rank."""
    put: Tensor
    """The places of the cells that arrive, those from rank 0 first."""
    received: list[int]
    """How many come from each rank."""
    before: int
    """How many places there are to leave from."""
    after: int
    """How many places there are to arrive at."""
    travels: bool
    """Whether any cell of any rank changes its rank."""

    def back(self) -> Route:
        """The way back."""
        return Route(self.put, self.received, self.take, self.sent, self.after, self.before, self.travels)


def deal(x_CD: Tensor, route: Route, group: dist.ProcessGroup) -> Tensor:
    """The cells that arrive, zeros in all other places. Every rank must call it, in the backward pass as well.

    Args:
        x_CD: The cells of this rank.
        route: This rank's part of a route on which all ranks agree.
        group: The ranks.
    """
    result: Tensor = _Deal.apply(x_CD, route, group)
    return result


class _Deal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_CD: Tensor, route: Route, group: dist.ProcessGroup) -> Tensor:
        ctx.route, ctx.group = route, group
        arrived_CD = sent_CD = x_CD[route.take]
        if route.travels:
            arrived_CD = x_CD.new_empty(len(route.put), x_CD.shape[1])
            dist.all_to_all_single(arrived_CD, sent_CD, route.received, route.sent, group=group)
        dealt_CD = x_CD.new_zeros(route.after, x_CD.shape[1])
        dealt_CD[route.put] = arrived_CD
        return dealt_CD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        # No cell travels twice, so its gradient travels once, the way back.
        return _Deal.apply(grads[0], ctx.route.back(), ctx.group), None, None
