"""The average of a model's weights over the steps of its training, which wanders less than they do."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from riffle.models.base import Trainable


class Average:
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
