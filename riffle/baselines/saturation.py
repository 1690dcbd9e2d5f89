"""The Neural GPU's cost of saturation, and the weight it adapts as training goes on."""

# L = cells in one line, D = feature maps
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LIMIT = 0.9
"""Arguments beyond this, either way, are saturated."""
FIRST_WEIGHT = 1e-3
WEIGHTS = (1e-20, 1e-3)
"""The weight of the cost stays between these."""
PERIOD = 200
"""Steps after which the weight is adapted."""


class Saturation(nn.Module):
    r"""Collects :math:`\sum \max(|x| - 0.9, 0)` over the arguments :math:`x` of clipped nonlinearities.

    The sum of a batch of :math:`B` rows of :math:`n` cells is divided by :math:`n^2 B`. Every 200 steps its weight
    becomes the learning rate times the mean loss over the mean cost, within 1e-20..1e-3. Weight and means are tensors
    that stay on their device, and buffers, so that a checkpoint holds them.

    Examples::

        >>> saturation = Saturation()
        >>> saturation.begin([(1, 2)]).add(torch.tensor([[1.0], [-0.5], [9.0]]))
        >>> saturation.finish()
        >>> f"{saturation.cost():.3f}"
        '0.025'
    """

    weight: Tensor
    period: Tensor

    def __init__(self, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor(FIRST_WEIGHT, device=device, dtype=dtype))
        # Sum of losses, sum of costs and steps since the weight was adapted.
        self.register_buffer("period", torch.zeros(3, device=device, dtype=dtype))
        self._shapes: list[tuple[int, ...]] = []
        self._cells_L: Tensor | None = None
        self._sum: Tensor | None = None

    def begin(self, shapes: Sequence[tuple[int, ...]]) -> Saturation:
        """Begin anew with batches of these shapes; each row has one more cell, which does not count."""
        self._shapes, self._cells_L, self._sum = list(shapes), None, None
        self._share = 1 / len(shapes)
        return self

    def add(self, x_LD: Tensor) -> None:
        """Add the arguments of a nonlinearity."""
        cost_L = torch.linalg.vector_norm(F.softshrink(x_LD, LIMIT), ord=1, dim=-1)
        self._cells_L = cost_L if self._cells_L is None else self._cells_L + cost_L

    def add_input(self, x_LD: Tensor) -> None:
        """Add the arguments of the input's nonlinearity, which count once for each step that follows."""
        steps = [x_LD.new_full((batch * (width + 1),), width) for batch, width in self._shapes]
        self._cells_L = torch.cat(steps) * torch.linalg.vector_norm(F.softshrink(x_LD, LIMIT), ord=1, dim=-1)

    def finish(self) -> None:
        """Add the first batch up; its cells leave the line."""
        assert self._cells_L is not None, "nothing was added"
        batch, width = self._shapes.pop(0)
        cells = batch * (width + 1)
        own = self._cells_L[:cells].unflatten(0, (batch, width + 1))[:, :width].sum()
        cost = own * (self._share / (width**2 * batch))
        self._sum = cost if self._sum is None else self._sum + cost
        self._cells_L = self._cells_L[cells:]

    def cost(self) -> Tensor:
        """The cost of the batches that are finished, averaged over them; zero before."""
        return torch.zeros_like(self.weight) if self._sum is None else self._sum

    def loss(self) -> Tensor:
        """The cost times its weight."""
        return self.weight * self.cost()

    @torch.no_grad()
    def adapt(self, loss: Tensor, learning_rate: Tensor) -> None:
        """Note a step's loss and cost, and adapt the weight when the period is over."""
        self.period += torch.stack([loss.detach(), self.cost().detach(), torch.ones_like(loss)]).to(self.period)
        over = self.period[2] >= PERIOD
        # The weight was part of the cost that the authors average, so it takes no part in its own next value.
        adapted = (learning_rate * self.period[0] / (self.period[1] + 1e-20)).clamp(*WEIGHTS).to(self.weight)
        self.weight.copy_(torch.where(over, adapted, self.weight))
        self.period.mul_(~over)
        self._sum = None  # it holds on to the step's graph
