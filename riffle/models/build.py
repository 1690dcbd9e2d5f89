"""From configuration to model: the registry of models, and the only file that knows both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from riffle.config import ModelConfig
from riffle.models.base import CellModel, SymbolModel
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


MODELS: dict[str, ModelEntry] = {
    "shuffle-exchange": ModelEntry(
        SequenceModel,
        SHUFFLE_EXCHANGE,
        lambda config, task: {name: getattr(config, name) for name in (*SHUFFLE_EXCHANGE, "backend")},
    ),
}
"""Every model that can be trained, by the name of its kind."""


def symbol_models() -> tuple[str, ...]:
    """The kinds that map symbols to symbols."""
    return tuple(kind for kind, model in MODELS.items() if model.symbols)


def build(config: ModelConfig, task: Alphabets, **factory: Any) -> SymbolModel:
    """The model of a configuration for a task; it maps ``[B, N]`` symbols to ``[B, N, classes]`` scores."""
    return cast(SymbolModel, _build(symbol_models(), config, task, factory))


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
