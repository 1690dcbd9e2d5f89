"""Learning rates over a run: they fall linearly, when the loss no longer does, or never. All stays on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from riffle.config import TrainConfig

PERIOD = 200
"""Steps over which a loss is averaged before it is compared with earlier ones."""
FALL = 0.7
"""What the learning rate is multiplied by without progress."""
FLOOR = 1 / 60
"""The smallest share of the first learning rate."""


class Schedule:
    """A learning rate that falls linearly to zero, after a rise over ``train.warmup`` steps.

    Args:
        base: The learning rate without rise and fall.
        train: How the run is trained.
        device: Where the steps are made.
    """

    def __init__(self, base: float, train: TrainConfig, device: torch.device) -> None:
        self.base, self.train = base, train
        self.rate = torch.tensor(base, device=device)
        """The learning rate of the current step; the optimiser reads this very tensor."""

    def begin(self, step: Tensor) -> None:
        """Set the learning rate of a step, given the number of steps made before it."""
        rate = self.share(step)
        if self.train.warmup:
            rate = rate * ((step + 1) / self.train.warmup).clamp(max=1)
        self.rate.copy_(rate)

    def share(self, step: Tensor) -> Tensor:
        """The learning rate apart from the rise."""
        return self.base * (1 - step / self.train.steps)

    def end(self, loss: Tensor) -> None:
        """Take note of the loss of a step."""

    def state(self) -> dict[str, Tensor]:
        """What the learning rate depends on besides the number of steps, by name."""
        return {}


class Constant(Schedule):
    """A learning rate that does not fall; an average of the weights then comes to rest in place of the weights."""

    def share(self, step: Tensor) -> Tensor:
        return torch.full_like(self.rate, self.base)


class Plateau(Schedule):
    """A learning rate that falls by 0.7, down to a sixtieth, when the loss makes no progress.

    Losses are averaged over 200 steps. There is no progress when both of the last two averages are above the one
    before them.
    """

    def __init__(self, base: float, train: TrainConfig, device: torch.device) -> None:
        super().__init__(base, train, device)
        self.own = torch.tensor(base, device=device)
        self.sum = torch.zeros((), dtype=torch.float64, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        # The last average but one and the last; at first any loss is progress.
        self.averages = torch.full((2,), 1e6, dtype=torch.float64, device=device)

    def share(self, step: Tensor) -> Tensor:
        return self.own

    def end(self, loss: Tensor) -> None:
        self.sum += loss
        self.count += 1
        over = self.count >= PERIOD
        average = self.sum / PERIOD
        stuck = over & (torch.minimum(average, self.averages[1]) > self.averages[0])
        self.own.copy_(torch.where(stuck, (self.own * FALL).clamp(min=self.base * FLOOR), self.own))
        self.averages.copy_(torch.where(over, torch.stack([self.averages[1], average]), self.averages))
        self.sum.mul_(~over)
        self.count.mul_(~over)

    def state(self) -> dict[str, Tensor]:
        return {"own": self.own, "sum": self.sum, "count": self.count, "averages": self.averages}


SCHEDULES: dict[str, type[Schedule]] = {"linear": Schedule, "constant": Constant, "plateau": Plateau}
