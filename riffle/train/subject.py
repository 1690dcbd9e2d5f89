"""What a run learns: the one thing the training loop asks of symbols and passages alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from riffle.config import Experiment, ModelConfig, Reading
from riffle.models.base import Trainable
from riffle.train.distributed import ALONE, World

if TYPE_CHECKING:
    from riffle.train.reading import Passages

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
        return reading_of(experiment, folder, device, world)
    from riffle.train.symbols import Symbols

    return Symbols(experiment, world)


def reading_of(experiment: Reading, folder: Path | None = None, device: Any = "cpu", world: World = ALONE) -> Passages:
    """The subject of an experiment on passages: most models point at a word of the passage, others name any word."""
    from riffle.train.naming import NAMING, Naming
    from riffle.train.reading import Passages

    kind = Naming if experiment.model.kind in NAMING else Passages
    return kind(experiment, folder, device, world)
