"""What a run learns: the one thing the training loop asks of symbols and passages alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from riffle.config import Experiment, ModelConfig, Reading
from riffle.models.base import Trainable
from riffle.train.distributed import ALONE, World

Count = Callable[[], tuple[Tensor, Tensor]]
"""Counts the right answers of a step, and all answers."""


class Subject(Protocol):
    """Examples, their loss, and how well a model does on examples it was not trained on."""

    def build(self, config: ModelConfig, **factory: Any) -> Trainable:
        """A fresh model for it."""
        ...

    def loss(self, model: Any, generator: torch.Generator) -> tuple[Tensor, Count]:
        """The loss of fresh examples; runs inside a captured step, so it must not wait for the device."""
        ...

    def evaluate(self, model: Any) -> dict[str, float]:
        """Accuracy on held-out examples, by what is shown beside it."""
        ...


def subject_of(
    experiment: Experiment, folder: Path | None = None, device: Any = "cpu", world: World = ALONE
) -> Subject:
    """The subject of an experiment.

    Args:
        experiment: The configuration.
        folder: The run's folder, where a subject may keep what its model needs, such as a table of words.
        device: Where examples are drawn.
        world: The processes that train together.
    """
    if isinstance(experiment, Reading):
        from riffle.train.reading import Passages

        return Passages(experiment, folder, device, world)
    from riffle.train.symbols import Symbols

    return Symbols(experiment, world)
