"""From configuration to model: the registry of models, and the only file that knows both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from riffle.config import ModelConfig
from riffle.models.base import CellModel, SymbolModel
from riffle.models.baselines import (
    GatedAttentionReader,
    NeuralGPU,
    PreprintNetwork,
    Recurrent,
    Transformer,
    UniversalReader,
    UniversalTransformer,
)
from riffle.models.sequence import SequenceModel


class WithoutValues(TorchFunctionMode):
    """Where models are built on the device "meta": drawing numbers there would load all of torch's compiler."""

    draws = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.uniform_)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.draws:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


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

    model: Callable[..., CellModel]
    """Its class."""
    fields: tuple[str, ...] = ()
    """The fields of a configuration that it has and not all models have."""
    arguments: Callable[[ModelConfig, Alphabets], dict[str, Any]] = lambda config, task: {}
    """Its arguments besides those of all models: alphabets, features, dropout, device and dtype."""
    symbols: bool = True
    """Whether it maps symbols to symbols and can be trained on tasks; every model can be trained on passages."""


SHUFFLE_EXCHANGE = ("blocks", "sharing", "unit", "norm", "noise", "pad", "recompute")


def _universal(config: ModelConfig, task: Alphabets) -> dict[str, Any]:
    steps = config.layers or (12 if config.halting else 6)
    return {"heads": config.heads, "steps": steps, "halting": config.halting}


def _recurrent(config: ModelConfig, task: Alphabets) -> dict[str, Any]:
    return {"cell": config.kind, "layers": config.layers or 2, "reads_first": config.reads_first}


MODELS: dict[str, ModelEntry] = {
    "shuffle-exchange": ModelEntry(
        SequenceModel,
        SHUFFLE_EXCHANGE,
        lambda config, task: {name: getattr(config, name) for name in (*SHUFFLE_EXCHANGE, "backend")},
    ),
    "dngpu": ModelEntry(NeuralGPU, (), lambda config, task: {"reach": task.reach, "backend": config.backend}),
    "preprint": ModelEntry(
        PreprintNetwork,
        ("blocks", "noise"),
        lambda config, task: {"blocks": config.blocks, "noise": config.noise, "backend": config.backend},
    ),
    "universal-transformer": ModelEntry(UniversalTransformer, ("layers", "heads", "halting"), _universal),
    "transformer": ModelEntry(
        Transformer,
        ("layers", "heads", "positions", "reads_first", "post_norm"),
        lambda config, task: {
            "layers": config.layers or 6,
            "heads": config.heads,
            "positions": config.positions,
            "reads_first": config.reads_first,
            "post_norm": config.post_norm,
        },
    ),
    "lstm": ModelEntry(Recurrent, ("layers", "reads_first"), _recurrent),
    "gru": ModelEntry(Recurrent, ("layers", "reads_first"), _recurrent),
    "gated-attention-reader": ModelEntry(
        GatedAttentionReader, ("layers",), lambda config, task: {"hops": config.layers or 3}, symbols=False
    ),
    "universal-reader": ModelEntry(
        UniversalReader,
        ("layers", "heads", "halting"),
        lambda config, task: {"classes": task.classes, **_universal(config, task)},
        symbols=False,
    ),
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
    entry = MODELS[config.kind]
    for name in dict.fromkeys(name for other in MODELS.values() for name in other.fields):
        if name not in entry.fields and getattr(config, name) != getattr(ModelConfig(), name):
            known = ", ".join(["features", "dropout", *entry.fields])
            raise ValueError(f"model.{name} means nothing to {config.kind!r}, which has {known}")
    alphabets = (task.symbols, task.classes) if entry.symbols else (task.symbols,)
    own = entry.arguments(config, task)
    return entry.model(*alphabets, features=config.features, dropout=config.dropout, **own, **factory)
