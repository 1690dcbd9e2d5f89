"""From configuration to model: the only file that knows both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from riffle.config import ModelConfig
from riffle.models.sequence import SequenceModel
from riffle.tasks.base import Task


def shuffle_exchange(config: ModelConfig, task: Task, **factory: Any) -> nn.Module:
    """The paper's model for a task."""
    return SequenceModel(
        task.symbols,
        task.classes,
        config.features,
        config.blocks,
        sharing=config.sharing,
        unit=config.unit,
        dropout=config.dropout,
        noise=config.noise,
        backend=config.backend,
        **factory,
    )


MODELS: dict[str, Callable[..., nn.Module]] = {"shuffle-exchange": shuffle_exchange}
"""Every model that can be trained: a function of its configuration and its task."""


def build(config: ModelConfig, task: Task, **factory: Any) -> nn.Module:
    """The model a configuration asks for; it maps ``[B, N]`` symbols to ``[B, N, classes]`` scores."""
    if config.kind not in MODELS:
        raise ValueError(f"unknown model {config.kind!r}; choose one of {', '.join(MODELS)}")
    return MODELS[config.kind](config, task, **factory)
