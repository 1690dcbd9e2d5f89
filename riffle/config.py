"""The configuration of a run: a small tree of frozen dataclasses, and recipes that fill it in.

Typed overrides of a configuration by dotted names, and configurations from JSON.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Precision = Literal["fp32", "tf32", "bf16"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What is trained."""

    kind: str = "shuffle-exchange"
    """An entry of riffle.models.build.MODELS; for passages of READERS."""
    features: int = 192
    """Feature maps per cell (m in the paper), features per position."""
    blocks: int = 1
    """Beneš blocks."""
    sharing: Literal["block", "minimal", "full"] = "block"
    """Which layers share their weights."""
    unit: Literal["gated", "no-swap", "no-residual", "no-benes", "swap-gate", "two-fc", "two-fc-gate"] = "gated"
    """The switch unit: the paper's, or one of its ablations."""
    dropout: float = 0.1
    """Dropout on every switch layer's output, divided by the layer's address bits; in other models as it is."""
    noise: float = 0.0
    """Multiplicative Gaussian noise in place of dropout."""
    backend: Literal["auto", "reference", "fused"] = "auto"
    """Which kernels compute the switch layers."""
    recompute: bool = False
    """Whether the backward pass of the fused kernels forms the gates again: a fifth of the memory, for long inputs."""
    layers: int | None = None
    """Layers of a transformer (6) or a recurrent network (2), steps of a Universal Transformer (6, 12 with halting)."""
    heads: int | None = None
    """Attention heads; as many as have 64 features by default."""
    halting: bool = False
    """Whether the positions of a Universal Transformer decide by themselves when they are done."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What it is trained on."""

    bins: tuple[int, ...] = (8, 16, 32, 64)
    """Lengths the network is instantiated for; an example trains in the smallest bin that holds it."""
    batch: int = 64
    """Examples of every bin in one step."""
    shorter: float = 0.05
    """Share of a bin's examples that would fit a smaller bin."""
    full: float = 0.0
    """Share of a bin's examples that are as long as the bin."""
    worst: float = 0.0
    """Share of a bin's examples that are worst cases of the task, all of them alike."""


@dataclass(frozen=True, kw_only=True)
class PassageDataConfig(DataConfig):
    """What it is trained on where it reads passages."""

    bins: tuple[int, ...] = (128,)
    """Positions the network reads; a longer passage keeps its last ones."""
    batch: int = 512
    """Passages in one step."""
    shorter: float = 0.0
    """Not used, like full and worst: passages are what they are."""
    corpus: str = "data/lambada"
    """Folder that riffle lambada prepare made."""
    share: float = 1.0
    """Share of the passages to learn from that are used: those of the first books."""
    table: Literal["frozen", "learned"] = "frozen"
    """Whether words have the corpus's pretrained vectors, which stay as they are, or vectors that are learned."""
    words: int = 60_000
    """Words that have a vector, the most common ones; the others are told apart within a passage."""
    word_dropout: float = 0.05
    """Share of the words that are left out in training."""
    forget: float = 0.0
    """Share of a passage's rarer words that are taken as unknown in training."""
    within: float = 0.0
    """Share of the examples that end inside a sentence, not at its end."""
    label: Literal["even", "sum"] = "even"
    """Whether the occurrences of an answer are all to be pointed at alike, or together, however they share it."""
    flatten: float = 0.0
    """How far answers that occur often are drawn less: 0 as they occur, 1 all alike."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How it is trained."""

    steps: int = 20_000
    """Optimiser steps."""
    start: str = ""
    """Folder of a run of the same model whose weights it starts with; random ones without."""
    learning_rate: float = 0.00125
    """At 96 features; scaled by sqrt(96 / features) for adamw, radam and muon, by 96 / features for adamax."""
    optimizer: Literal["adamw", "radam", "muon", "adamax"] = "adamw"
    """Adam with decoupled decay; RAdam as the paper's released code has it; Muon for the matrices of switches; AdaMax
    as the Neural GPU's authors have it."""
    schedule: Literal["linear", "constant", "plateau"] = "linear"
    """Whether the learning rate falls linearly to 0, not at all, or by 0.7 whenever the loss makes no progress."""
    warmup: int = 0
    """Steps over which the learning rate rises at first."""
    weight_decay: float = 0.01
    """Decoupled decay of the matrices."""
    clip: float = 0.0
    """Largest norm of all gradients together; 0 for any."""
    gradient_noise: float = 0.0
    """Normal noise on the gradients, as a multiple of the learning rate."""
    label_smoothing: float = 0.0
    """Probability spread over all classes."""
    average: float = 0.0
    """Decay of an average of the weights over steps, which is evaluated and kept in their place; 0 for none."""
    keep: Literal["last", "best"] = "last"
    """Whether the weights after the last step are kept, or the best ones by the first of evaluate_lengths."""
    precision: Precision = "fp32"
    """Arithmetic of the matrix products: fp32, tf32 or bf16 (autocast)."""
    seed: int = 0
    """Seed of weights, examples and dropout."""
    log_every: int = 50
    """Steps between two lines of metrics.jsonl."""
    evaluate_every: int = 1000
    """Steps between two evaluations on held-out examples; 0 for none."""
    evaluate_lengths: tuple[int, ...] = (64, 512)
    """Lengths of those evaluations."""
    checkpoint_every: int = 1000
    """Steps between two checkpoints; one is always written at the end."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole run."""

    task: str
    """An entry of riffle.tasks.TASKS."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """What is trained."""
    data: DataConfig = field(default_factory=DataConfig)
    """What it is trained on."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """How it is trained."""


@dataclass(frozen=True, kw_only=True)
class LambadaRunConfig(RunConfig):
    """A whole run on passages: LAMBADA."""

    task: str = "lambada"
    """What such runs are known by."""
    data: PassageDataConfig = field(default_factory=PassageDataConfig)
    """What it is trained on."""


RUN_CONFIGS: dict[str, type[RunConfig]] = {"lambada": LambadaRunConfig}
"""Configurations by their task, where they are not plain ones."""
T = TypeVar("T")


def override(config: T, assignments: Iterable[str]) -> T:
    """A copy of ``config`` with fields changed, each given as ``section.field=value``.

    >>> from riffle.config import RunConfig
    >>> override(RunConfig(task="sort"), ["train.steps=100", "data.bins=8,16"]).data.bins
    (8, 16)
    """
    for assignment in assignments:
        name, sign, text = assignment.partition("=")
        if not sign:
            raise ValueError(f"{assignment!r} is no assignment: write it as train.steps=1000")
        known = fields(config)
        name = name.strip()
        if name not in known:
            by_last = {each.split(".")[-1]: each for each in known}
            near = difflib.get_close_matches(name, known, n=1) or [
                by_last[last] for last in difflib.get_close_matches(name.split(".")[-1], by_last, n=1)
            ]
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"unknown option {name!r}; {hint}options are {', '.join(known)}")
        config = _replace(config, name, text.strip())
    return config


def fields(config: Any, prefix: str = "") -> dict[str, tuple[Any, str]]:
    """Every field by its dotted name: its value and its documentation."""
    out: dict[str, tuple[Any, str]] = {}
    told = _documentation(type(config))  # type: ignore[arg-type]  # to mypy, the type of anything has no hash
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if dataclasses.is_dataclass(value):
            out |= fields(value, f"{prefix}{each.name}.")
        else:
            out[prefix + each.name] = (value, told.get(each.name, ""))
    return out


def differences(old: Any, new: Any) -> dict[str, tuple[Any, Any]]:
    """The dotted names under which two configurations differ, with both values."""
    before, after = fields(old), fields(new)
    return {name: (before[name][0], after[name][0]) for name in before if before[name][0] != after[name][0]}


def from_dict(cls: type[T], values: Mapping[str, Any]) -> T:
    """A configuration from what :func:`dataclasses.asdict` and JSON made of it."""
    hints = get_type_hints(cls)
    unknown = set(values) - set(hints)
    if unknown:
        raise ValueError(f"unknown field {sorted(unknown)[0]!r}; {cls.__name__} has {', '.join(hints)}")
    arguments = {}
    for name, value in values.items():
        kind = hints[name]
        if dataclasses.is_dataclass(kind):
            value = from_dict(kind, value)  # type: ignore[arg-type]
        elif get_origin(kind) is tuple:
            value = tuple(value)
        arguments[name] = value
    return cls(**arguments)


def _replace(config: T, name: str, text: str, prefix: str = "") -> T:
    head, _, rest = name.partition(".")
    kind = get_type_hints(type(config))[head]
    if rest:
        value = _replace(getattr(config, head), rest, text, f"{prefix}{head}.")
    else:
        value = _parse(kind, text, prefix + name)
    return dataclasses.replace(config, **{head: value})  # type: ignore[type-var]


def _parse(kind: Any, text: str, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        if text not in arguments:
            raise ValueError(f"{name} must be one of {', '.join(arguments)}, got {text!r}")
        return text
    if origin is tuple:
        return tuple(_parse(arguments[0], part, name) for part in text.strip("()").split(",") if part.strip())
    if origin in (Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if text.lower() == "none" else _parse(inner, text, name)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, got {text!r}")
        return text.lower() == "true"
    try:
        return kind(text.replace("_", "")) if kind in (int, float) else kind(text)
    except ValueError:
        raise ValueError(f"{name} must be {'a whole number' if kind is int else 'a number'}, got {text!r}") from None


@functools.cache
def _documentation(cls: type) -> dict[str, str]:
    """The string beneath every field of a dataclass."""
    import ast
    import inspect
    import textwrap

    out: dict[str, str] = {}
    for each in reversed([each for each in cls.__mro__ if dataclasses.is_dataclass(each)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, following in zip(body.body, body.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
                assert isinstance(statement.target, ast.Name)
                assert isinstance(following.value, ast.Constant)
                out[statement.target.id] = str(following.value.value)
    return out
