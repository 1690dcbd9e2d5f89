"""Learning rate schedules. Their state stays on the device, so that a CUDA graph can hold a whole training step."""

from __future__ import annotations

import torch
from torch import Tensor

from riffle.config import TrainConfig

PLATEAU_FACTOR = 0.7
"""What the learning rate is multiplied by on a plateau."""
HIGH_LOSS = 1e6
"""An average in place of one that is not there: no loss is above it."""


class LinearDecay:
    """A learning rate that falls linearly from ``base`` to zero, after a warm-up of ``train.warmup`` steps."""

    def __init__(self, base: float, train: TrainConfig, device: torch.device) -> None:
        self.base, self.train = base, train
        self.rate = torch.tensor(base, device=device)
        """The learning rate of the current step; the optimiser reads this very tensor."""

    def before_step(self, step: Tensor) -> None:
        """Set the learning rate of a step, given the number of steps before it."""
        rate = self.decayed(step)
        if self.train.warmup:
            rate = rate * ((step + 1) / self.train.warmup).clamp(max=1)
        self.rate.copy_(rate)

    def decayed(self, step: Tensor) -> Tensor:
        """The learning rate without warm-up."""
        return self.base * (1 - step / self.train.steps)

    def after_step(self, loss: Tensor) -> None:
        """Record the loss of a step, for schedules that depend on it."""

    def state(self) -> dict[str, Tensor]:
        """What the learning rate depends on besides the number of steps, by name."""
        return {}


class Constant(LinearDecay):
    """A learning rate that does not decay; an average of the weights then converges instead of the weights."""

    def decayed(self, step: Tensor) -> Tensor:
        return torch.full_like(self.rate, self.base)


class Plateau(LinearDecay):
    """A learning rate that is multiplied by 0.7, down to ``train.floor`` of the first one, on a plateau of the loss.

    The loss is averaged over periods of 200 steps. It is on a plateau if both of the last two averages are above the
    one before them. This is the rule of the Neural GPU's code.
    """

    period = 200
    """Steps over which a loss is averaged before it is compared with earlier averages."""
    patience = 2
    """Averages that must all be above the one before them."""
    forgets = False
    """Whether averages from before a plateau are not compared with later ones."""

    def __init__(self, base: float, train: TrainConfig, device: torch.device) -> None:
        super().__init__(base, train, device)
        self.own = torch.tensor(base, device=device)
        self.sum = torch.zeros((), dtype=torch.float64, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        # The last averages, the oldest first; at first any loss is progress.
        self.averages = torch.full((self.patience,), HIGH_LOSS, dtype=torch.float64, device=device)

    def decayed(self, step: Tensor) -> Tensor:
        return self.own

    def after_step(self, loss: Tensor) -> None:
        self.sum += loss
        self.count += 1
        over = self.count >= self.period
        recent = torch.cat([self.averages[1:], (self.sum / self.period).view(1)])
        stuck = over & (recent.amin() > self.averages[0])
        reduced = (self.own * PLATEAU_FACTOR).clamp(min=self.base * self.train.floor)
        self.own.copy_(torch.where(stuck, reduced, self.own))
        if self.forgets:
            recent = torch.where(stuck, HIGH_LOSS, recent)
        self.averages.copy_(torch.where(over, recent, self.averages))
        self.sum.mul_(~over)
        self.count.mul_(~over)

    def state(self) -> dict[str, Tensor]:
        return {"own": self.own, "sum": self.sum, "count": self.count, "averages": self.averages}


class ShortPlateau(Plateau):
    """The rule of the code of the preprint: averages over 100 steps, three of them above the one before, start anew."""

    period, patience, forgets = 100, 3, True


LR_SCHEDULES: dict[str, type[LinearDecay]] = {
    "linear": LinearDecay,
    "constant": Constant,
    "plateau": Plateau,
    "short-plateau": ShortPlateau,
}
"""The schedules of ``train.schedule``, by name."""
