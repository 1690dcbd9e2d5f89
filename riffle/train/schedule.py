"""Learning rate schedules. Their state stays on the device, so that a CUDA graph can hold a whole training step."""

from __future__ import annotations

import torch
from torch import Tensor

from riffle.config import TrainConfig
from riffle.registry import Registry


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


class StableDecay(LinearDecay):
    """A learning rate that stays at ``base`` and falls linearly to zero over the last three tenths of the steps."""

    def decayed(self, step: Tensor) -> Tensor:
        return self.base * ((1 - step / self.train.steps) / 0.3).clamp(max=1)


SCHEDULES: Registry[type[LinearDecay]] = Registry(
    "schedule", {"linear": LinearDecay, "constant": Constant, "stable-decay": StableDecay}
)
"""The schedules of ``train.schedule``, by name; each is a :class:`LinearDecay` with another course."""
