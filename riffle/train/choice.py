"""The weights a run is known by: those that did best in an evaluation, or the last ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from riffle.train.checkpoint import below

PREFIX = "best."


class Choice:
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
