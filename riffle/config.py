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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from riffle.quantities import MAX_COUNT, quote
from riffle.schema import Range, decode, parse

Precision = Literal["fp32", "tf32", "bf16"]
Count = Annotated[int, Range(ge=1, le=MAX_COUNT)]
"""Steps, examples, cells: at least one."""
CountOrZero = Annotated[int, Range(ge=0, le=MAX_COUNT)]
Width = Annotated[int, Range(ge=1, le=65_536)]
"""Feature maps, heads."""
Depth = Annotated[int, Range(ge=1, le=1024)]
"""Blocks, layers."""
Share = Annotated[float, Range(ge=0, le=1)]
Positive = Annotated[float, Range(gt=0)]
NotNegative = Annotated[float, Range(ge=0)]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The model."""

    kind: str = "shuffle-exchange"
    """An entry of riffle.models.build.MODELS."""
    features: Width = 192
    """Feature maps per cell (m in the paper); features per position in other models."""
    blocks: Depth = 1
    """Beneš blocks."""
    sharing: Literal["block", "minimal", "full"] = "block"
    """Which layers share their weights."""
    unit: Literal["gated", "no-swap", "no-residual", "no-benes", "swap-gate", "two-fc", "two-fc-gate", "residual"] = (
        "gated"
    )
    """The switch unit: the paper's, one of its ablations, or the residual unit of the authors' later paper."""
    norm: Literal["sequence", "features"] = "features"
    """What the residual unit normalises over: the features of a pair, or as released the pairs of a sequence."""
    dropout: Share = 0.1
    """Dropout rate of a switch layer's output, divided by the number of address bits; undivided in other models."""
    noise: NotNegative = 0.0
    """Standard deviation of multiplicative Gaussian noise, which takes the place of dropout."""
    pad: Literal["power", "even"] = "power"
    """To which length a sequence is padded inside the network: the next power of two, or the next even number."""
    backend: Literal["auto", "reference", "fused"] = "auto"
    """Which kernels compute the switch layers."""
    recompute: bool = False
    """Whether the fused kernels recompute the gates in the backward pass: a fifth of the memory, for long inputs."""
    layers: Depth | None = None
    """Layers of a transformer (6) or a recurrent network (2), steps of a Universal Transformer (6, 12 with halting)."""
    reads_first: bool = False
    """Whether a transformer, or a recurrent network in one direction, answers at blanks after the input it has read."""
    heads: Width | None = None
    """Attention heads; by default one for every 64 features."""
    positions: Literal["none", "sinusoidal", "rotary", "alibi", "relative"] = "rotary"
    """Position codes of a transformer."""
    post_norm: bool = False
    """Whether a transformer normalises sums, with ReLU, as first published, and not what each sublayer reads."""
    halting: bool = False
    """Whether a Universal Transformer uses adaptive computation time: each position decides when it halts."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The training examples."""

    bins: tuple[Count, ...] = (8, 16, 32, 64)
    """Padded lengths; an example is padded to the smallest bin that holds it."""
    batch: Count = 64
    """Examples per bin in one step."""
    shorter: Share = 0.05
    """Fraction of a bin's examples that are short enough for a smaller bin."""
    full: Share = 0.0
    """Fraction of a bin's examples that are exactly as long as the bin."""
    above: Share = 0.0
    """Fraction of a bin's examples that are longer than a power of two by a number of every order, most often a few."""
    cropped: Share = 0.0
    """Fraction of a bin's examples whose answer has no room in the bin and is cropped, where a task has such ones."""
    worst: Share = 0.0
    """Fraction of a bin's examples that are worst cases of the task, each kind equally often."""
    longest: CountOrZero = 0
    """Longest input; larger bins hold inputs of all lengths up to it. 0 for the largest bin."""
    structure: Share = 0.0
    """Fraction of a bin's examples whose structure is drawn at random, see riffle.tasks.structure."""
    offset: Share = 0.0
    """Fraction of a bin's examples that start at a random cell, their answers with them, where there is room."""

    examples: CountOrZero = 0
    """Examples of a bin that are drawn once and used in all steps; 0 for fresh ones in every step."""

    @property
    def longest_input(self) -> int:
        """The longest input that training draws."""
        return self.longest or max(self.bins)


@dataclass(frozen=True, kw_only=True)
class PassageDataConfig(DataConfig):
    """The training examples of LAMBADA."""

    bins: tuple[Count, ...] = (128,)
    """Positions of the network, one number; a longer passage is cut to its last tokens."""
    batch: Count = 512
    """Passages per step."""
    shorter: Share = 0.0
    """Not used for passages, like full, above, cropped, worst, longest, structure, offset and examples."""
    corpus: str = "data/lambada"
    """Folder that riffle lambada prepare wrote."""
    share: Share = 1.0
    """Fraction of the training passages that is used, from the first books on."""
    table: Literal["frozen", "learned"] = "frozen"
    """Word embeddings: the corpus's pretrained vectors, frozen, or vectors that are learned."""
    words: Count = 60_000
    """Vocabulary size, the most common words; other words get an id of their own within a passage."""
    rank: CountOrZero = 0
    """Rank of a learned correction to the frozen vectors of the 4,096 most common words; 0 for none."""
    word_dropout: Share = 0.05
    """Fraction of the words that are blanked in training."""
    forget: Share = 0.0
    """Fraction of a passage's rarer words that are treated as unknown in training."""
    rename: Share = 0.0
    """Fraction of a passage's rarer words that are replaced by words of similar vectors in training."""
    within: Share = 0.0
    """Fraction of the examples that end inside a sentence instead of at its end."""
    label: Literal["even", "sum"] = "even"
    """Training target: probability spread evenly over the answer's occurrences, or only their sum."""
    flatten: Share = 0.0
    """How much frequent answers are sampled less: 0 by their frequency, 1 all equally often."""
    match: Share = 0.0
    """How far passages are sampled as the development set's classes of them occur: 0 not at all, 1 fully."""
    likeness: Share = 0.0
    """How far passages are sampled by the likeness of their words to LAMBADA's own novels."""
    mentions: bool = False
    """Whether the network is told how often each word occurs in the passage, before its place and after."""
    consistency: NotNegative = 0.0
    """Weight of the divergence between two placements of each passage; with 0, each passage is placed once."""
    distillation: Share = 0.0
    """How far the label is the teacher's answer, averaged over two placements of each passage; the rest is its own."""
    teacher: str = ""
    """Folder of the trained run that is distilled; it must know the same words."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Optimisation, evaluation and checkpoints."""

    steps: Count = 20_000
    """Optimiser steps."""
    start: str = ""
    """Folder of a run of the same model, to start with its trained weights; empty for random ones."""
    learning_rate: Positive = 0.00125
    """Learning rate at 96 features; scaled by sqrt(96 / features), for adamax by 96 / features."""
    optimizer: Literal["adamw", "radam", "muon", "adamax"] = "adamw"
    """AdamW, RAdam of the paper's code, Muon (for switch matrices, Adam for the rest), or the Neural GPU's AdaMax."""
    schedule: Literal["linear", "constant", "plateau", "short-plateau"] = "linear"
    """Linear decay to 0, constant, or times 0.7 on a plateau of the loss: the Neural GPU's rule, or the preprint's."""
    floor: Share = 1 / 60
    """The lowest learning rate that plateaus lead to, as a share of the first one."""
    warmup: CountOrZero = 0
    """Steps of linear learning rate warm-up."""
    weight_decay: NotNegative = 0.01
    """Decoupled weight decay of the matrices."""
    clip: NotNegative = 0.0
    """Largest global norm of the gradients, clipped above; 0 for no clipping."""
    gradient_noise: NotNegative = 0.0
    """Standard deviation of Gaussian gradient noise, as a multiple of the learning rate."""
    label_smoothing: Share = 0.0
    """Label smoothing: the probability that is spread over all classes."""
    blank_weight: Share = 1.0
    """Weight in the loss of cells whose target is blank, others have 1; small where most of an answer is blank."""
    average: Annotated[float, Range(ge=0, lt=1)] = 0.0
    """Decay of an exponential moving average of the weights, which is evaluated and kept; 0 for none."""
    keep: Literal["last", "best"] = "last"
    """Which weights are the result: the last, or the most accurate at the first of evaluate_lengths."""
    precision: Precision = "fp32"
    """Precision of the matrix products: fp32, tf32 or bf16 (autocast)."""
    compile: bool = False
    """Whether torch.compile fuses the step that the Neural GPU repeats; others have nothing to compile."""
    seed: int = 0
    """Seed of the initial weights, the examples and dropout."""
    log_every: Count = 50
    """Steps between lines of metrics.jsonl."""
    evaluate_every: CountOrZero = 1000
    """Steps between evaluations on held-out examples; 0 for none."""
    evaluate_lengths: tuple[Count, ...] = (64, 512)
    """Input lengths of these evaluations; with data.structure, also of structured inputs, the mean of all first."""
    checkpoint_every: Count = 1000
    """Steps between checkpoints; one is also written after the last step and before every evaluation."""


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
OBSERVING = ("train.log_every", "train.evaluate_every", "train.evaluate_lengths", "train.checkpoint_every")
"""Fields that change what is recorded of a training and not the training, see :func:`training_differences`."""
T = TypeVar("T")


def override(config: T, assignments: Iterable[str]) -> T:
    """A copy of ``config`` with fields changed, each given as ``section.field=value``.

    >>> override(RunConfig(task="sort"), ["train.steps=100", "data.bins=8,16"]).data.bins
    (8, 16)
    """
    for assignment in assignments:
        name, sign, text = assignment.partition("=")
        if not sign:
            raise ValueError(f"{quote(assignment)} is no assignment: write it as train.steps=1000")
        known = fields(config)
        name = name.strip()
        if name not in known:
            by_last = {each.split(".")[-1]: each for each in known}
            near = difflib.get_close_matches(name, known, n=1)
            near = near or [by_last[last] for last in difflib.get_close_matches(name.split(".")[-1], by_last, n=1)]
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"unknown option {quote(name)}; {hint}options are {', '.join(known)}")
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
    """A configuration from its :func:`dataclasses.asdict` form, as read from JSON; what does not fit is refused."""
    config: T = decode(cls, values)
    return config


def run_config_from_dict(values: Any) -> RunConfig:
    """The configuration of a run on any task."""
    task = values.get("task") if isinstance(values, dict) else None
    return from_dict(RUN_CONFIGS.get(task, RunConfig) if isinstance(task, str) else RunConfig, values)


def training_differences(old: RunConfig, new: RunConfig, *, evaluated: bool = True) -> dict[str, tuple[Any, Any]]:
    """The fields in which two configurations differ and that change what is trained or which weights are kept.

    ``evaluated`` is False where no evaluation has chosen weights yet.
    """
    ignored = set(OBSERVING)
    if evaluated and old.train.keep == "best":
        # Evaluations choose the weights: with data.structure by the mean of all lengths, else by the first.
        ignored.discard("train.evaluate_every")
        if old.data.structure or old.train.evaluate_lengths[:1] != new.train.evaluate_lengths[:1]:
            ignored.discard("train.evaluate_lengths")
    return {name: values for name, values in differences(old, new).items() if name not in ignored}


def _replace(config: T, name: str, text: str, prefix: str = "") -> T:
    head, _, rest = name.partition(".")
    hint = get_type_hints(type(config), include_extras=True)[head]
    if rest:
        value = _replace(getattr(config, head), rest, text, f"{prefix}{head}.")
    else:
        value = parse(hint, text, prefix + name)
    return dataclasses.replace(config, **{head: value})  # type: ignore[type-var]


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
