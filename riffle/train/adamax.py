"""AdaMax as the Neural GPU's authors trained with it: gradients clipped by their own past, a decay rate that slows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from riffle.train.foreach import Foreach

BETA = 0.9
"""Decay of the mean of gradients."""
EPSILON = 1e-8
CLIP, CLIP_FLOOR = 1.2, 1e-4
"""An element of a gradient is clipped to this many times its largest size so far, and a little."""
FAST, SLOW, HALVING = 0.01, 0.0005, 2000
"""The norm decays by the first per step, by half of that after as many steps, and never by less than the second."""


class AdaMax(Foreach):
    r"""Divide a running mean of gradients by a decaying maximum of their sizes, element by element.

    .. math::
        \begin{aligned}
            g'_t &= \mathrm{clip}(g_t, \pm(1.2\, v_{t-1} + 10^{-4})), \qquad m_t = 0.9\, m_{t-1} + 0.1\, g'_t \\
            v_t &= \max(\beta_t v_{t-1}, |g'_t|), \qquad
            w_t = w_{t-1} - \eta\, m_t / (v_t + 10^{-8}), \qquad
            \beta_t = 1 - \max(0.0005, 0.01 \cdot 2^{-t / 2000})
        \end{aligned}

    :class:`torch.optim.Adamax` neither clips nor changes its decay, and corrects a bias that this one leaves.

    Args:
        params: The parameters, or groups of them.
        lr: The learning rate, a tensor that the caller changes in place.

    Examples::

        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = AdaMax([weight], lr=torch.tensor(0.1))
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight.data
        tensor([0.9900, 0.9900])
    """

    buffers = ("mean", "norm")

    def __init__(self, params: Iterable[Any], lr: Tensor) -> None:
        super().__init__(params, {"lr": lr})

    def move(self, weights: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        count = self.state[weights[0]]["count"]
        means, norms = self.kept("mean", weights), self.kept("norm", weights)
        keep = 1 - (FAST * 0.5 ** (count / HALVING)).clamp(min=SLOW)

        limits = torch._foreach_mul(norms, CLIP)
        torch._foreach_add_(limits, CLIP_FLOOR)
        clipped = torch._foreach_minimum(gradients, list(limits))
        torch._foreach_neg_(limits)
        torch._foreach_maximum_(clipped, list(limits))
        torch._foreach_mul_(means, BETA)
        torch._foreach_add_(means, clipped, alpha=1 - BETA)
        torch._foreach_mul_(norms, keep)
        torch._foreach_abs_(clipped)
        torch._foreach_maximum_(norms, clipped)
        changes = torch._foreach_div(means, torch._foreach_add(norms, EPSILON))
        torch._foreach_mul_(changes, group["lr"])
        torch._foreach_sub_(weights, changes)
