"""From configuration to model: the only file that knows both."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from riffle.config import MODELS, BaseModelConfig
from riffle.models.base import CellModel, SymbolModel
from riffle.registry import load
from riffle.tasks.task import Task


class WithoutValues(TorchFunctionMode):
    """Leaves initial weights undrawn, for models on the device "meta": drawing there would load torch's compiler."""

    draws = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.uniform_)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.draws:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


class Alphabets(NamedTuple):
    """What a model has to know of its task; by default of passages, which are cells and have a score per position."""

    symbols: int = 1
    classes: int = 1
    reach: int = 1


def build(config: BaseModelConfig, task: Task | Alphabets, **factory: Any) -> SymbolModel:
    """The model of a configuration for a task; it maps ``[B, N]`` symbols to ``[B, N, classes]`` scores."""
    if not MODELS[config.kind].symbols:
        raise ValueError(f"the model {config.kind!r} reads passages only; for tasks take {', '.join(symbol_models())}")
    return cast(SymbolModel, build_reader(config, task, **factory))


def build_reader(config: BaseModelConfig, task: Task | Alphabets, **factory: Any) -> CellModel:
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
