"""From configuration to model: the only file that knows both."""

from __future__ import annotations

from typing import Any, Protocol, cast

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from riffle.config import MODELS, BaseModelConfig
from riffle.models.base import CellModel, SymbolModel
from riffle.registry import load


class WithoutValues(TorchFunctionMode):
    """Leaves initial weights undrawn, for models on the device "meta": drawing there would load torch's compiler."""

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


def build(config: BaseModelConfig, task: Alphabets, **factory: Any) -> SymbolModel:
    """The model of a configuration for a task; it maps ``[B, N]`` symbols to ``[B, N, classes]`` scores."""
    if not MODELS[config.kind].symbols:
        raise ValueError(f"the model {config.kind!r} reads passages only; for tasks take {', '.join(symbol_models())}")
    return cast(SymbolModel, build_reader(config, task, **factory))


def build_reader(config: BaseModelConfig, task: Alphabets, **factory: Any) -> CellModel:
    """The model of a configuration for passages, to be used by :meth:`~riffle.models.base.CellModel.forward_cells`."""
    entry = MODELS[config.kind]
    if not isinstance(config, entry.config):
        raise ValueError(f"{config.kind!r} is configured by {entry.config.__name__}, not by {type(config).__name__}")
    alphabets = (task.symbols, task.classes) if entry.symbols else (task.symbols,)
    model: CellModel = load(entry.model)(*alphabets, **config.arguments(task), **factory)
    return model


def symbol_models() -> tuple[str, ...]:
    """The kinds that map symbols to symbols."""
    return tuple(kind for kind, entry in MODELS.items() if entry.symbols)
