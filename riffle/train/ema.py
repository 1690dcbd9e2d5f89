"""The average of a model's weights over the steps of its training, which wanders less than they do.

The weights a run is known by: those that did best in an evaluation, or the last ones.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from riffle.models.base import Trainable
from riffle.train.checkpoint import below


class EMA:
    """A second model, whose weights follow those of the one in training.

    Args:
        model: The model in training.
        decay: How much of the average is left after a step; before ``1 / (1 - decay)`` steps it is that of all of them.
    """

    def __init__(self, model: Trainable, decay: float) -> None:
        self.decay = decay
        self.source, self.model = model, copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, step: Tensor) -> None:
        """Take the weights after a step into the average; ``step`` counts those before it."""
        share = (1 / (step + 1)).clamp(min=1 - self.decay)
        ours: list[Tensor] = list(self.model.parameters())
        theirs: list[Tensor] = list(self.source.parameters())
        way = torch._foreach_sub(theirs, ours)
        torch._foreach_mul_(way, share)
        torch._foreach_add_(ours, way)
        for ours_buffer, their_buffer in zip(self.model.buffers(), self.source.buffers(), strict=True):
            ours_buffer.copy_(their_buffer)


PREFIX = "best."


class BestWeights:
    """The best weights so far, by the accuracy that an evaluation gives first; of equal ones, the last."""

    def __init__(self) -> None:
        self.accuracy, self.step, self.weights = -math.inf, 0, dict[str, Tensor]()

    def note(self, step: int, accuracy: Mapping[str, float], model: nn.Module) -> None:
        """Take note of an evaluation after a step."""
        first = next(iter(accuracy.values()), 0.0)
        if first >= self.accuracy:
            self.accuracy, self.step = first, step
            self.weights = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}

    def state(self) -> dict[str, Tensor]:
        """The best weights, and of what step and how good they were, as named tensors."""
        if not self.weights:
            return {}
        tensors = {"step": torch.tensor(self.step), "accuracy": torch.tensor(self.accuracy, dtype=torch.float64)}
        weights = {f"model.{name}": tensor for name, tensor in self.weights.items()}
        return {f"{PREFIX}{name}": tensor for name, tensor in (tensors | weights).items()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up where :meth:`state` was taken."""
        own = below(PREFIX, tensors)
        if own:
            self.step, self.accuracy, self.weights = int(own["step"]), float(own["accuracy"]), below("model.", own)
