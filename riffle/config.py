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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

from riffle.quantities import MAX_COUNT, quote
from riffle.registry import Registry
from riffle.schema import Range, decode, parse

Precision = Literal["auto", "fp32", "tf32", "bf16"]
Count = Annotated[int, Range(ge=1, le=MAX_COUNT)]
"""Steps, examples, cells: at least one."""
CountOrZero = Annotated[int, Range(ge=0, le=MAX_COUNT)]
Width = Annotated[int, Range(ge=1, le=65_536)]
"""Feature maps, heads."""
Depth = Annotated[int, Range(ge=1, le=1024)]
"""Blocks, layers."""
Share = Annotated[float, Range(ge=0, le=1)]
Positive = Annotated[float, Range(gt=0, le=1e37)]
NotNegative = Annotated[float, Range(ge=0, le=1e37)]


@dataclass(frozen=True, kw_only=True)
class BaseModelConfig:
    """What the configuration of every model has; a registered model brings a subclass of its own."""

    kind: str
    """The model, an entry of riffle.config.MODELS."""
    features: Width = 192
    """Feature maps per cell (m in the paper); features per position in other models."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # the fields of subclasses

    def arguments(self, task: Any) -> dict[str, Any]:
        """The arguments of the model for a task, besides alphabets, device and dtype: by default all fields."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "kind"}


@dataclass(frozen=True, kw_only=True)
class ModelConfig(BaseModelConfig):
    """A shuffle-exchange network."""

    kind: str = "shuffle-exchange"
    """The model, an entry of riffle.config.MODELS."""
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
    """Dropout rate of a switch layer's output, divided by the number of address bits."""
    noise: NotNegative = 0.0
    """Standard deviation of multiplicative Gaussian noise, which takes the place of dropout."""
    pad: Literal["power", "even"] = "power"
    """To which length a sequence is padded inside the network: the next power of two, or the next even number."""
    backend: Literal["auto", "reference", "fused"] = "auto"
    """Which kernels compute the switch layers."""

    def arguments(self, task: Any) -> dict[str, Any]:
        return {**super().arguments(task), "recompute": False}  # training keeps the gates, which is faster


@dataclass(frozen=True, kw_only=True)
class CausalConfig(BaseModelConfig):
    """A causal shuffle-exchange network."""

    kind: str = "causal"
    """The model, an entry of riffle.config.MODELS."""
    blocks: Depth = 1
    """Blocks of layers at the distances 1, 2, 4 ... and back."""
    sharing: Literal["block", "minimal", "full", "none"] = "block"
    """Which layers share their weights; none gives every distance a unit of its own, up to that of length."""
    unit: Literal["gated", "residual"] = "residual"
    """The unit: the later half of the paper's, or one that adds to a cell."""
    dropout: Share = 0.1
    """Dropout rate of a layer's output, divided by the number of distances."""
    length: Count = 1024
    """With sharing none, the length whose distances have units of their own."""

    def arguments(self, task: Any) -> dict[str, Any]:
        return {**super().arguments(task), "length": self.length if self.sharing == "none" else None}


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
    """Fraction of a bin's examples whose length exceeds a power of two by a log-uniform number."""
    cropped: Share = 0.0
    """Fraction of a bin's examples whose answer is longer than the bin and is cropped, where answers can be longer."""
    longest: CountOrZero = 0
    """Longest input; larger bins hold inputs of all lengths up to it. 0 for the largest bin."""
    structure: Share = 0.0
    """Fraction of a bin's examples whose structure is drawn at random, see riffle.tasks.structure."""
    offset: Share = 0.0
    """Fraction of a bin's examples that start at a random cell, their answers with them, where there is room."""

    examples: CountOrZero = 0
    """Examples of a bin that are drawn once and used in all steps, in research only; 0 for fresh ones every step."""

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
    """Not used for passages, like full, above, cropped, longest, structure, offset and examples."""
    corpus: str = "data/lambada"
    """Folder of a prepared corpus."""
    share: Share = 1.0
    """Fraction of the training passages that is used, from the first books on."""
    words: Count = 60_000
    """Vocabulary size, the most common words; other words get an id of their own within a passage."""
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
    mentions: bool = False
    """Whether the network is told how often each word occurs in the passage, before its place and after."""


@dataclass(frozen=True, kw_only=True)
class TextDataConfig(DataConfig):
    """The training examples of a run on a text."""

    bins: tuple[Count, ...] = (512,)
    """Bytes of a window, one number."""
    batch: Count = 32
    """Windows per step."""
    shorter: Share = 0.0
    """Not used for text, like full, above, cropped, longest, structure, offset and examples."""
    file: str = ""
    """The file of text, of which the last twentieth is held out."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Optimisation, evaluation and checkpoints."""

    steps: Count = 20_000
    """Optimiser steps."""
    start: str = ""
    """Folder of a run of the same model, to start with its trained weights; empty for random ones."""
    learning_rate: Positive = 0.00125
    """Learning rate at 96 features; scaled by sqrt(96 / features)."""
    optimizer: str = "adamw"
    """An entry of riffle.train.optim.OPTIMIZERS: adamw, or muon (for switch matrices, Adam for the rest)."""
    schedule: str = "linear"
    """An entry of riffle.train.schedule.SCHEDULES: linear (decay to 0), constant, or stable-decay."""
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
    """Which weights are the result: the last, or those of the evaluation with the best score."""
    precision: Precision = "auto"
    """Precision of the matrix products: fp32, tf32, bf16 (autocast), or auto: bf16 where the GPU has it, else fp32."""
    seed: int = 0
    """Seed of the initial weights, the examples and dropout."""
    log_every: Count = 50
    """Steps between lines of metrics.jsonl."""
    evaluate_every: CountOrZero = 1000
    """Steps between evaluations on held-out examples; 0 for none."""
    evaluate_lengths: tuple[Count, ...] = (64, 512)
    """Input lengths of these evaluations; with data.structure, also of structured inputs."""
    checkpoint_every: Count = 1000
    """Steps between checkpoints; one is also written after the last step and before every evaluation."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The configuration of a run on one of the tasks."""

    task: str
    """An entry of riffle.tasks.TASKS, or "package.module:Name" for a task of one's own."""
    model: BaseModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True, kw_only=True)
class LambadaRunConfig(RunConfig):
    """The configuration of a run on LAMBADA."""

    task: str = "lambada"
    """The name of the task in files and messages."""
    data: PassageDataConfig = field(default_factory=PassageDataConfig)


@dataclass(frozen=True, kw_only=True)
class TextRunConfig(RunConfig):
    """The configuration of a run on a file of text."""

    task: str = "text"
    """The name of the task in files and messages."""
    model: BaseModelConfig = field(default_factory=CausalConfig)
    data: TextDataConfig = field(default_factory=TextDataConfig)


@dataclass(frozen=True)
class ModelEntry:
    """A model that can be trained."""

    config: type[BaseModelConfig]
    """The class of its configuration, whose ``arguments`` build the model."""
    model: Callable[..., Any] | str
    """Its class, a :class:`riffle.models.base.CellModel`, or "package.module:Class", which is imported when needed."""
    symbols: bool = True
    """Whether it maps symbols to symbols and can be trained on tasks."""
    causal: bool = False
    """Whether no score depends on a later symbol, so that it can learn a text."""
    recipe: Callable[[RunConfig], RunConfig] | None = None
    """Makes of a run of ours one of this model; by default only the model is another one."""
    passage_objective: Callable[..., Any] | str | None = "riffle.lambada.train:PointerObjective"
    """What it learns from passages, or "package.module:Class"; by default to point at a word; None nothing."""


MODELS = Registry(
    "model",
    {
        "shuffle-exchange": ModelEntry(ModelConfig, "riffle.models.sequence:SequenceModel"),
        "causal": ModelEntry(CausalConfig, "riffle.models.causal:CausalModel", causal=True, passage_objective=None),
    },
)
"""Every model that can be trained, by its kind."""
RUN_CONFIGS: dict[str, type[RunConfig]] = {"lambada": LambadaRunConfig, "text": TextRunConfig}
"""The class of a configuration by its task, where it is not :class:`RunConfig`."""
RETIRED = {
    "model": (
        *("blocks", "sharing", "unit", "norm", "noise", "pad", "backend", "recompute"),
        *("layers", "heads", "positions", "reads_first", "post_norm", "halting"),
    ),
    "data": ("worst", "table", "rank", "match", "likeness", "consistency", "distillation", "teacher"),
    "train": ("compile", "floor"),
}
"""Fields that configurations once had and that :func:`run_config_from_dict` leaves out.

Those of ``model`` were fields of all models and are left out where a model has no such field. Those of ``data`` are
trials that taught readers nothing; a few committed results set them, and their runs cannot be trained again. The floor
belongs to a schedule now.
"""
OBSERVING = ("train.log_every", "train.evaluate_every", "train.evaluate_lengths", "train.checkpoint_every")
"""Fields that change what is logged and evaluated but not what is trained, see :func:`training_differences`."""
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
            section = [each for each in known if each.startswith(f"{name.partition('.')[0]}.")]
            raise ValueError(f"unknown option {quote(name)}; {hint}options are {', '.join(section or known)}")
        config = _with_kind(config, text.strip()) if name == "model.kind" else _replace(config, name, text.strip())
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
    absent = (None, "")
    pairs = {name: (before.get(name, absent)[0], after.get(name, absent)[0]) for name in before | after}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def run_config_from_dict(values: Any) -> RunConfig:
    """The configuration of a run on any task, with any registered model; fields in :data:`RETIRED` are left out."""
    values = decode(dict[str, Any], values)
    model = decode(dict[str, Any], values.get("model", {}), "model")
    kind = decode(str, model.get("kind", ModelConfig.kind), "model.kind")
    task = values.get("task")
    cls = RUN_CONFIGS.get(task, RunConfig) if isinstance(task, str) else RunConfig
    default = cls(task="", model=MODELS[kind].config(kind=kind))
    kept = {name: _without_retired(getattr(default, name, None), name, value) for name, value in values.items()}
    own_model = decode(type(default.model), kept.pop("model", {}), "model")
    return dataclasses.replace(decode(cls, kept), model=own_model)


def _without_retired(default: Any, section: str, values: Any) -> Any:
    """A section without the retired fields that a configuration does not have, or whose null stands for a default."""
    if not (section in RETIRED and isinstance(values, dict)):
        return values
    retired = {name for name in RETIRED[section] if not hasattr(default, name) or values.get(name) is None}
    return {name: value for name, value in values.items() if name not in retired}


def training_differences(old: RunConfig, new: RunConfig, *, evaluated: bool = True) -> dict[str, tuple[Any, Any]]:
    """The fields in which two configurations differ and that change what is trained or which weights are kept.

    ``evaluated`` is False where no evaluation has chosen weights yet.
    """
    ignored = set(OBSERVING)
    if evaluated and old.train.keep == "best":
        ignored -= {"train.evaluate_every", "train.evaluate_lengths"}  # evaluations choose the weights
    return {name: values for name, values in differences(old, new).items() if name not in ignored}


def _with_kind(config: Any, kind: str) -> Any:
    """The configuration with a model of another kind and as many features."""
    cls = MODELS[kind].config
    same = type(config.model) is cls
    model = dataclasses.replace(config.model, kind=kind) if same else cls(kind=kind, features=config.model.features)
    return dataclasses.replace(config, model=model)


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
