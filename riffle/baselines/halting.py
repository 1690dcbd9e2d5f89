"""Adaptive computation time: every position decides after how many steps it is done."""

# B = batch, N = length, D = features
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

HALTING_BIAS = 1.0
"""Where the bias of the halting probability starts: sigmoid(1) = 0.73, so positions stop early at first."""
EPSILON = 0.01
"""A position has halted when its probabilities add up to 1 less this."""


class Halting(nn.Module):
    r"""Weigh the states of a position over steps by its probabilities of halting.

    Before each step a position at state :math:`s` halts with probability :math:`p = \sigma(w \cdot s + b)`. When its
    probabilities reach :math:`1 - \epsilon`, the position has halted, and its last step weighs the remainder to 1. With
    the weight :math:`w_t` of step :math:`t` and the state :math:`s_t` it made, the result is
    :math:`y_t = w_t s_t + (1 - w_t) y_{t-1}`. :attr:`ponder` is the mean of steps and remainder over all positions.

    All steps are computed whoever has halted, so shapes and kernels do not depend on the data.

    Args:
        features: Features per position.

    Examples::

        >>> halting = Halting(4).start(torch.zeros(2, 3, 4))
        >>> for _ in range(3):
        ...     halting.weigh(torch.zeros(2, 3, 4))
        ...     halting.mix(torch.ones(2, 3, 4))
        >>> halting.steps_BN.tolist()
        [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]
    """

    def __init__(self, features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.probability = nn.Linear(features, 1, device=device, dtype=dtype)
        nn.init.xavier_uniform_(self.probability.weight)
        nn.init.constant_(self.probability.bias, HALTING_BIAS)

    def start(self, x_BND: Tensor) -> Halting:
        """Begin anew with states of this shape."""
        zero_BN = torch.zeros_like(x_BND[..., 0])
        self.spent_BN, self.remainder_BN, self.steps_BN, self.weight_BN = zero_BN, zero_BN, zero_BN, zero_BN
        self.result_BND = torch.zeros_like(x_BND)
        return self

    def weigh(self, s_BND: Tensor) -> None:
        """Decide, from the states before a step, how much it counts at every position."""
        p_BN = torch.sigmoid(self.probability(s_BND)[..., 0].to(self.spent_BN.dtype))
        running_BN = self.spent_BN < 1
        halts_BN = running_BN & (self.spent_BN + p_BN > 1 - EPSILON)
        rest_BN = 1 - self.spent_BN
        self.weight_BN = torch.where(halts_BN, rest_BN, torch.where(running_BN, p_BN, 0))
        self.remainder_BN = torch.where(halts_BN, rest_BN, self.remainder_BN)
        self.spent_BN = torch.where(halts_BN, 1, self.spent_BN + self.weight_BN)
        self.steps_BN = self.steps_BN + running_BN

    def mix(self, s_BND: Tensor) -> None:
        """Add the states after the step to the result."""
        self.result_BND = torch.lerp(self.result_BND, s_BND, self.weight_BN[..., None])

    @property
    def ponder(self) -> Tensor:
        """Steps and remainder, averaged over all positions; what training should keep small."""
        return (self.steps_BN + self.remainder_BN).mean()
