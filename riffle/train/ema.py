"""Which weights a run keeps: their exponential moving average, and the best ones of all evaluations."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from riffle.models.base import Trainable
from riffle.train.checkpoint import add_prefix, select_prefix

BEST_PREFIX = "best."


class EMA:
    """A copy of a model whose weights are the exponential moving average of those in training.

    Over the first ``1 / (1 - decay)`` steps it is the plain mean.
    """

    def __init__(self, model: Trainable, decay: float) -> None:
        self.decay = decay
        self.source, self.model = model, copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, step: Tensor) -> None:
        """Add the weights after a step to the average; ``step`` is the number of steps before it."""
        share = (1 / (step + 1)).clamp(min=1 - self.decay)
        averages: list[Tensor] = list(self.model.parameters())
        changes = torch._foreach_sub(list(self.source.parameters()), averages)
        torch._foreach_mul_(changes, share)
        torch._foreach_add_(averages, changes)
        for buffer, source_buffer in zip(self.model.buffers(), self.source.buffers(), strict=True):
            buffer.copy_(source_buffer)


class BestWeights:
    """The weights of the best evaluation so far, by its first number, a score; of equal ones, the last."""

    def __init__(self) -> None:
        self.accuracy, self.step, self.weights = -math.inf, 0, dict[str, Tensor]()

    def update(self, step: int, accuracy: Mapping[str, float], model: nn.Module) -> None:
        """Copy the model's weights if its evaluation after ``step`` is the best so far."""
        first = next(iter(accuracy.values()), 0.0)
        if first >= self.accuracy:
            self.accuracy, self.step = first, step
            self.weights = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}

    def state(self) -> dict[str, Tensor]:
        """The best weights, their step and accuracy, as named tensors; empty before the first evaluation."""
        if not self.weights:
            return {}
        numbers = {"step": torch.tensor(self.step), "accuracy": torch.tensor(self.accuracy, dtype=torch.float64)}
        return add_prefix(numbers | add_prefix(self.weights, "model."), BEST_PREFIX)

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned."""
        best = select_prefix(tensors, BEST_PREFIX)
        if best:
            self.step, self.accuracy = int(best["step"]), float(best["accuracy"])
            self.weights = select_prefix(best, "model.")
