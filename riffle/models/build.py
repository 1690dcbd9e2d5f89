"""From configuration to model: the only file that knows both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from riffle.config import ModelConfig
from riffle.models.base import CellModel, SymbolModel
from riffle.models.baselines import (
    GatedAttentionReader,
    NeuralGPU,
    Recurrent,
    Transformer,
    UniversalReader,
    UniversalTransformer,
)
from riffle.models.sequence import SequenceModel

Model = TypeVar("Model")


class Alphabets(Protocol):
    """What a model has to know of a task; every :class:`~riffle.tasks.Task` has it."""

    @property
    def symbols(self) -> int:
        """Size of the input alphabet."""
        ...

    @property
    def classes(self) -> int:
        """Size of the output alphabet."""
        ...

    @property
    def reach(self) -> int:
        """How many times as many cells as its input an answer can take."""
        ...


def shuffle_exchange(config: ModelConfig, task: Alphabets, **factory: Any) -> SymbolModel:
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
        recompute=config.recompute,
        **factory,
    )


def dngpu(config: ModelConfig, task: Alphabets, **factory: Any) -> SymbolModel:
    """The Neural GPU with diagonal gates."""
    return NeuralGPU(task.symbols, task.classes, config.features, dropout=config.dropout, reach=task.reach, **factory)


def universal_transformer(config: ModelConfig, task: Alphabets, **factory: Any) -> SymbolModel:
    """The encoder of a Universal Transformer."""
    return UniversalTransformer(
        task.symbols,
        task.classes,
        config.features,
        heads=config.heads,
        steps=config.layers or (12 if config.halting else 6),
        halting=config.halting,
        dropout=config.dropout,
        **factory,
    )


def transformer(config: ModelConfig, task: Alphabets, **factory: Any) -> SymbolModel:
    """A transformer encoder."""
    return Transformer(
        task.symbols,
        task.classes,
        config.features,
        layers=config.layers or 6,
        heads=config.heads,
        dropout=config.dropout,
        **factory,
    )


def recurrent(config: ModelConfig, task: Alphabets, **factory: Any) -> SymbolModel:
    """A bidirectional LSTM or GRU, after the kind."""
    return Recurrent(
        task.symbols,
        task.classes,
        config.features,
        cell="lstm" if config.kind == "lstm" else "gru",
        layers=config.layers or 2,
        dropout=config.dropout,
        **factory,
    )


def gated_attention_reader(config: ModelConfig, task: Alphabets, **factory: Any) -> CellModel:
    """The Gated-Attention Reader, whose one class is a position's score."""
    return GatedAttentionReader(
        task.symbols, config.features, hops=config.layers or 3, dropout=config.dropout, **factory
    )


def universal_reader(config: ModelConfig, task: Alphabets, **factory: Any) -> CellModel:
    """The Universal Transformer with its decoder, which scores every class once."""
    return UniversalReader(
        task.symbols,
        config.features,
        classes=task.classes,
        heads=config.heads,
        steps=config.layers or (12 if config.halting else 6),
        halting=config.halting,
        dropout=config.dropout,
        **factory,
    )


MODELS: dict[str, Callable[..., SymbolModel]] = {
    "shuffle-exchange": shuffle_exchange,
    "dngpu": dngpu,
    "universal-transformer": universal_transformer,
    "transformer": transformer,
    "lstm": recurrent,
    "gru": recurrent,
}
"""Every model that can be trained: a function of its configuration and its task."""
READERS: dict[str, Callable[..., CellModel]] = {
    **MODELS,
    "gated-attention-reader": gated_attention_reader,
    "universal-reader": universal_reader,
}
"""Every model that can be trained to read passages."""
OWN_FIELDS: dict[str, tuple[str, ...]] = {
    "shuffle-exchange": ("blocks", "sharing", "unit", "noise", "recompute"),
    "dngpu": (),
    "universal-transformer": ("layers", "heads", "halting"),
    "transformer": ("layers", "heads"),
    "lstm": ("layers",),
    "gru": ("layers",),
    "gated-attention-reader": ("layers",),
    "universal-reader": ("layers", "heads", "halting"),
}
"""The fields of a configuration that mean something to a kind of model and not to all."""


def build(config: ModelConfig, task: Alphabets, **factory: Any) -> SymbolModel:
    """The model a configuration asks for; it maps ``[B, N]`` symbols to ``[B, N, classes]`` scores."""
    return _choose(MODELS, config)(config, task, **factory)


def build_reader(config: ModelConfig, task: Alphabets, **factory: Any) -> CellModel:
    """The reader a configuration asks for; its :meth:`~riffle.models.base.CellModel.read` is what counts."""
    return _choose(READERS, config)(config, task, **factory)


def _choose(models: Mapping[str, Callable[..., Model]], config: ModelConfig) -> Callable[..., Model]:
    if config.kind not in models:
        raise ValueError(f"unknown model {config.kind!r}; choose one of {', '.join(models)}")
    own = OWN_FIELDS[config.kind]
    for name in dict.fromkeys(name for names in OWN_FIELDS.values() for name in names):
        if name not in own and getattr(config, name) != getattr(ModelConfig(), name):
            known = ", ".join(["features", "dropout", *own])
            raise ValueError(f"model.{name} means nothing to {config.kind!r}, which has {known}")
    return models[config.kind]
