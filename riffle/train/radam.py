"""RAdam as the paper's released code has it: gradients are divided by their size before they are averaged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from riffle.train.foreach import Foreach

BETA, BETA_SQUARE = 0.9, 0.999
"""Decay of the mean, and of the mean square."""
EPSILON = 1e-5
LONGEST = 2 / (1 - BETA_SQUARE) - 1
"""Over how many steps the mean square averages in the end."""
ENOUGH = 5
"""Over how many it has to, for its variance to be finite."""


class RAdam(Foreach):
    r"""Adam whose steps grow as the mean square of the gradients becomes reliable, in the order of LaProp.

    .. math::
        \begin{aligned}
            v_t &= 0.999\, v_{t-1} + 0.001\, g_t^2, \qquad
            m_t = 0.9\, m_{t-1} + 0.1\, \frac{g_t}{\sqrt{v_t / (1 - 0.999^t)} + 10^{-5}}, \\
            w_t &= (1 - \eta \lambda)\, w_{t-1} - \eta\, r_t\, \frac{m_t}{1 - 0.9^t}, \qquad
            \rho_t = \rho - \frac{2 t\, 0.999^t}{1 - 0.999^t}, \qquad
            r_t = \sqrt{\frac{(\rho_t - 4) (\rho_t - 2)\, \rho}{(\rho - 4) (\rho - 2)\, \rho_t}}
        \end{aligned}

    where :math:`\rho = 1999`, and :math:`r_t = 1` in the first five steps, in which :math:`\rho_t < 5`. The factor is
    0.2 after 100 steps and 0.65 after 1,000: a slow start. In a group with ``sparse`` gradients are averaged first and
    divided then, in the first five steps not at all, as the released code treats its embedding.
    :class:`torch.optim.RAdam` divides all of them last.

    Args:
        params: Groups of parameters with ``weight_decay`` and ``sparse``.
        lr: The learning rate, a tensor that the caller changes in place.

    Examples::

        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = RAdam([weight], lr=torch.tensor(0.1))
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight.data
        tensor([0.9000, 0.9000])
    """

    buffers = ("mean", "square")

    def __init__(self, params: Iterable[Any], lr: Tensor) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0, "sparse": False})

    def move(self, weights: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        count = self.state[weights[0]]["count"] + 1
        means, squares = self.kept("mean", weights), self.kept("square", weights)
        power = BETA_SQUARE**count
        length = LONGEST - 2 * count * power / (1 - power)
        reliable = length >= ENOUGH
        ratio = (length - 4) * (length - 2) * LONGEST / ((LONGEST - 4) * (LONGEST - 2) * length)
        factor = torch.where(reliable, ratio.clamp(min=0).sqrt(), 1.0) / (1 - BETA**count)

        torch._foreach_mul_(squares, BETA_SQUARE)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - BETA_SQUARE)
        sizes = torch._foreach_div(squares, 1 - power)
        torch._foreach_sqrt_(sizes)
        torch._foreach_add_(sizes, EPSILON)
        if group["sparse"]:
            torch._foreach_lerp_(means, gradients, 1 - BETA)
            directions = [torch.where(reliable, mean / size, mean) for mean, size in zip(means, sizes, strict=True)]
        else:
            torch._foreach_lerp_(means, torch._foreach_div(gradients, sizes), 1 - BETA)
            directions = means
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_sub_(weights, torch._foreach_mul(directions, group["lr"] * factor))
