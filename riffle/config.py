"""The configuration of a run: frozen dataclasses, typed overrides by dotted names, and their form as JSON.

Field names are the keys of ``config.json``; the string beneath a field is what ``riffle train --show`` prints.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import textwrap
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Precision = Literal["fp32", "tf32", "bf16"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The model."""

    kind: str = "shuffle-exchange"
    """An entry of riffle.models.build.MODELS."""
    features: int = 192
    """Feature maps per cell (m in the paper); features per position in other models."""
    blocks: int = 1
    """Beneš blocks."""
    sharing: Literal["block", "minimal", "full"] = "block"
    """Which layers share their weights."""
    unit: Literal["gated", "no-swap", "no-residual", "no-benes", "swap-gate", "two-fc", "two-fc-gate"] = "gated"
    """The switch unit: the paper's, or one of its ablations."""
    dropout: float = 0.1
    """Dropout rate of a switch layer's output, divided by the number of address bits; undivided in other models."""
    noise: float = 0.0
    """Standard deviation of multiplicative Gaussian noise, which takes the place of dropout."""
    backend: Literal["auto", "reference", "fused"] = "auto"
    """Which kernels compute the switch layers."""
    recompute: bool = False
    """Whether the fused kernels recompute the gates in the backward pass: a fifth of the memory, for long inputs."""
    layers: int | None = None
    """Layers of a transformer (6) or a recurrent network (2), steps of a Universal Transformer (6, 12 with halting)."""
    heads: int | None = None
    """Attention heads; by default one for every 64 features."""
    halting: bool = False
    """Whether a Universal Transformer uses adaptive computation time: each position decides when it halts."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The training examples."""

    bins: tuple[int, ...] = (8, 16, 32, 64)
    """Padded lengths; an example is padded to the smallest bin that holds it."""
    batch: int = 64
    """Examples per bin in one step."""
    shorter: float = 0.05
    """Fraction of a bin's examples that are short enough for a smaller bin."""
    full: float = 0.0
    """Fraction of a bin's examples that are exactly as long as the bin."""
    worst: float = 0.0
    """Fraction of a bin's examples that are worst cases of the task, each kind equally often."""
    longest: int = 0
    """Longest input; larger bins hold inputs of all lengths up to it. 0 for the largest bin."""
    structure: float = 0.0
    """Fraction of a bin's examples whose structure is drawn at random, see riffle.tasks.structure."""
    offset: float = 0.0
    """Fraction of a bin's examples that start at a random cell, their answers with them, where there is room."""

    @property
    def longest_input(self) -> int:
        """The longest input that training draws."""
        return self.longest or max(self.bins)


@dataclass(frozen=True, kw_only=True)
class PassageDataConfig(DataConfig):
    """The training examples of LAMBADA."""

    bins: tuple[int, ...] = (128,)
    """Positions of the network, one number; a longer passage is cut to its last tokens."""
    batch: int = 512
    """Passages per step."""
    shorter: float = 0.0
    """Not used for passages, like full, worst, longest, structure and offset."""
    corpus: str = "data/lambada"
    """Folder that riffle lambada prepare wrote."""
    share: float = 1.0
    """Fraction of the training passages that is used, from the first books on."""
    table: Literal["frozen", "learned"] = "frozen"
    """Word embeddings: the corpus's pretrained vectors, frozen, or vectors that are learned."""
    words: int = 60_000
    """Vocabulary size, the most common words; other words get an id of their own within a passage."""
    word_dropout: float = 0.05
    """Fraction of the words that are blanked in training."""
    forget: float = 0.0
    """Fraction of a passage's rarer words that are treated as unknown in training."""
    within: float = 0.0
    """Fraction of the examples that end inside a sentence instead of at its end."""
    label: Literal["even", "sum"] = "even"
    """Training target: probability spread evenly over the answer's occurrences, or only their sum."""
    flatten: float = 0.0
    """How much frequent answers are sampled less: 0 by their frequency, 1 all equally often."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Optimisation, evaluation and checkpoints."""

    steps: int = 20_000
    """Optimiser steps."""
    start: str = ""
    """Folder of a run of the same model, to start with its trained weights; empty for random ones."""
    learning_rate: float = 0.00125
    """Learning rate at 96 features; scaled by sqrt(96 / features), for adamax by 96 / features."""
    optimizer: Literal["adamw", "radam", "muon", "adamax"] = "adamw"
    """AdamW, RAdam of the paper's code, Muon (for switch matrices, Adam for the rest), or the Neural GPU's AdaMax."""
    schedule: Literal["linear", "constant", "plateau"] = "linear"
    """Learning rate schedule: linear decay to 0, constant, or times 0.7 on a plateau of the loss."""
    warmup: int = 0
    """Steps of linear learning rate warm-up."""
    weight_decay: float = 0.01
    """Decoupled weight decay of the matrices."""
    clip: float = 0.0
    """Largest global norm of the gradients, clipped above; 0 for no clipping."""
    gradient_noise: float = 0.0
    """Standard deviation of Gaussian gradient noise, as a multiple of the learning rate."""
    label_smoothing: float = 0.0
    """Label smoothing: the probability that is spread over all classes."""
    average: float = 0.0
    """Decay of an exponential moving average of the weights, which is evaluated and kept; 0 for none."""
    keep: Literal["last", "best"] = "last"
    """Which weights are the result: the last, or the most accurate at the first of evaluate_lengths."""
    precision: Precision = "fp32"
    """Precision of the matrix products: fp32, tf32 or bf16 (autocast)."""
    seed: int = 0
    """Seed of the initial weights, the examples and dropout."""
    log_every: int = 50
    """Steps between lines of metrics.jsonl."""
    evaluate_every: int = 1000
    """Steps between evaluations on held-out examples; 0 for none."""
    evaluate_lengths: tuple[int, ...] = (64, 512)
    """Input lengths of these evaluations; with data.structure, also of structured inputs, the mean of all first."""
    checkpoint_every: int = 1000
    """Steps between checkpoints; the last step always writes one."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The configuration of a run on one of the tasks."""

    task: str
    """An entry of riffle.tasks.TASKS."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True, kw_only=True)
class LambadaRunConfig(RunConfig):
    """The configuration of a run on LAMBADA."""

    task: str = "lambada"
    """The name of the task in files and messages."""
    data: PassageDataConfig = field(default_factory=PassageDataConfig)


RUN_CONFIGS: dict[str, type[RunConfig]] = {"lambada": LambadaRunConfig}
"""The class of a configuration by its task, where it is not :class:`RunConfig`."""
T = TypeVar("T")


def override(config: T, assignments: Iterable[str]) -> T:
    """A copy of ``config`` with fields changed, each given as ``section.field=value``.

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
            near = difflib.get_close_matches(name, known, n=1)
            near = near or [by_last[last] for last in difflib.get_close_matches(name.split(".")[-1], by_last, n=1)]
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"unknown option {name!r}; {hint}options are {', '.join(known)}")
        config = _replace(config, name, text.strip())
    return config


def fields(config: Any, prefix: str = "") -> dict[str, tuple[Any, str]]:
    """Every field by its dotted name: its value and the string beneath it."""
    out: dict[str, tuple[Any, str]] = {}
    documentation = _documentation(type(config))  # type: ignore[arg-type]  # to mypy, the type of anything has no hash
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if dataclasses.is_dataclass(value):
            out |= fields(value, f"{prefix}{each.name}.")
        else:
            out[prefix + each.name] = (value, documentation.get(each.name, ""))
    return out


def differences(old: Any, new: Any) -> dict[str, tuple[Any, Any]]:
    """The fields in which two configurations differ, by their dotted names, with both values."""
    before, after = fields(old), fields(new)
    return {name: (before[name][0], after[name][0]) for name in before if before[name][0] != after[name][0]}


def from_dict(cls: type[T], values: Mapping[str, Any]) -> T:
    """A configuration from its :func:`dataclasses.asdict` form, as read from JSON."""
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
    """The string beneath every field of a dataclass, its base classes included."""
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
