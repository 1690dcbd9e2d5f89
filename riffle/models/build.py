"""From configuration to model: the registry of models, and the only file that knows both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

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


class Alphabets(Protocol):
    """The sizes of its alphabets and its reach: what a model has to know of a :class:`~riffle.tasks.Task`."""

    @property
    def symbols(self) -> int: ...
    @property
    def classes(self) -> int: ...
    @property
    def reach(self) -> int: ...


@dataclass(frozen=True)
class ModelEntry:
    """A model of the registry."""

    build: Callable[..., CellModel]
    """Makes it from a configuration, a task and the arguments of all models: features, dropout, device and dtype."""
    fields: tuple[str, ...] = ()
    """The fields of a configuration that it has and not all models have."""
    symbols: bool = True
    """Whether it maps symbols to symbols and can be trained on tasks; every model can be trained on passages."""


def shuffle_exchange(config: ModelConfig, task: Alphabets, **common: Any) -> CellModel:
    """The paper's model."""
    own = {name: getattr(config, name) for name in (*MODELS["shuffle-exchange"].fields, "backend")}
    return SequenceModel(task.symbols, task.classes, **own, **common)


def dngpu(config: ModelConfig, task: Alphabets, **common: Any) -> CellModel:
    """The Neural GPU with diagonal gates."""
    return NeuralGPU(task.symbols, task.classes, reach=task.reach, **common)


def universal_transformer(config: ModelConfig, task: Alphabets, **common: Any) -> CellModel:
    """The encoder of a Universal Transformer."""
    return UniversalTransformer(task.symbols, task.classes, **_universal(config), **common)


def universal_reader(config: ModelConfig, task: Alphabets, **common: Any) -> CellModel:
    """The Universal Transformer with its decoder, which scores every class once."""
    return UniversalReader(task.symbols, classes=task.classes, **_universal(config), **common)


def _universal(config: ModelConfig) -> dict[str, Any]:
    steps = config.layers or (12 if config.halting else 6)
    return {"heads": config.heads, "steps": steps, "halting": config.halting}


def transformer(config: ModelConfig, task: Alphabets, **common: Any) -> CellModel:
    """A transformer encoder."""
    return Transformer(task.symbols, task.classes, layers=config.layers or 6, heads=config.heads, **common)


def recurrent(config: ModelConfig, task: Alphabets, **common: Any) -> CellModel:
    """A bidirectional LSTM or GRU, whichever the kind names."""
    return Recurrent(
        task.symbols, task.classes, cell="lstm" if config.kind == "lstm" else "gru", layers=config.layers or 2, **common
    )


def gated_attention_reader(config: ModelConfig, task: Alphabets, **common: Any) -> CellModel:
    """The Gated-Attention Reader, whose one class is a position's score."""
    return GatedAttentionReader(task.symbols, hops=config.layers or 3, **common)


MODELS: dict[str, ModelEntry] = {
    "shuffle-exchange": ModelEntry(shuffle_exchange, ("blocks", "sharing", "unit", "noise", "recompute")),
    "dngpu": ModelEntry(dngpu),
    "universal-transformer": ModelEntry(universal_transformer, ("layers", "heads", "halting")),
    "transformer": ModelEntry(transformer, ("layers", "heads")),
    "lstm": ModelEntry(recurrent, ("layers",)),
    "gru": ModelEntry(recurrent, ("layers",)),
    "gated-attention-reader": ModelEntry(gated_attention_reader, ("layers",), symbols=False),
    "universal-reader": ModelEntry(universal_reader, ("layers", "heads", "halting"), symbols=False),
}
"""Every model that can be trained, by the name of its kind."""
SYMBOL_MODELS = tuple(kind for kind, model in MODELS.items() if model.symbols)
"""The kinds that map symbols to symbols."""


def build(config: ModelConfig, task: Alphabets, **factory: Any) -> SymbolModel:
    """The model of a configuration for a task; it maps ``[B, N]`` symbols to ``[B, N, classes]`` scores."""
    return cast(SymbolModel, _build(SYMBOL_MODELS, config, task, factory))


def build_reader(config: ModelConfig, task: Alphabets, **factory: Any) -> CellModel:
    """The model of a configuration for passages, to be used by :meth:`~riffle.models.base.CellModel.forward_cells`."""
    return _build(tuple(MODELS), config, task, factory)


def _build(kinds: tuple[str, ...], config: ModelConfig, task: Alphabets, factory: dict[str, Any]) -> CellModel:
    if config.kind not in kinds:
        raise ValueError(f"unknown model {config.kind!r}; choose one of {', '.join(kinds)}")
    model = MODELS[config.kind]
    for name in dict.fromkeys(name for other in MODELS.values() for name in other.fields):
        if name not in model.fields and getattr(config, name) != getattr(ModelConfig(), name):
            known = ", ".join(["features", "dropout", *model.fields])
            raise ValueError(f"model.{name} means nothing to {config.kind!r}, which has {known}")
    return model.build(config, task, features=config.features, dropout=config.dropout, **factory)
