"""The configuration of a run: a small tree of frozen dataclasses, and recipes that fill it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

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
class PassageConfig(DataConfig):
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
class Experiment:
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
class Reading(Experiment):
    """A whole run on passages: LAMBADA."""

    task: str = "lambada"
    """What such runs are known by."""
    data: PassageConfig = field(default_factory=PassageConfig)
    """What it is trained on."""


EXPERIMENTS: dict[str, type[Experiment]] = {"lambada": Reading}
"""Configurations by their task, where they are not plain ones."""


def paper(task: str) -> Experiment:
    """The paper's configuration: one block of 192 maps; two of 384 and lengths to 128 for multiplication."""
    experiment = Experiment(task=task)
    if task in ("reverse", "duplicate"):
        # Routing alone generalises further when nothing is dropped on the way.
        experiment = replace(experiment, model=ModelConfig(dropout=0.0, noise=0.001))
    if task == "multiply":
        experiment = replace(
            experiment,
            model=ModelConfig(features=384, blocks=2),
            data=DataConfig(bins=(8, 16, 32, 64, 128)),
            train=TrainConfig(steps=50_000, evaluate_lengths=(128,)),
        )
    return experiment


def released(task: str) -> Experiment:
    """The configuration of the paper's released code: its own RAdam, and dropout wherever it does not reverse."""
    experiment = paper(task)
    if task == "duplicate":
        experiment = replace(experiment, model=ModelConfig())
    return replace(experiment, train=replace(experiment.train, optimizer="radam"))


def long(task: str) -> Experiment:
    """The paper's network, trained to run far beyond its lengths.

    A high learning rate that does not fall, and weights averaged over steps, of which those are kept that do best at
    length 1024. Sorting has a lower rate that does fall, more steps, more examples of full length, a strong decay of
    the matrices, and keeps the last weights: before the rate has fallen they are blurred at trained lengths. Products,
    which are hard enough at their trained lengths, have Muon, smaller batches and no dropout.
    """
    experiment = paper(task)
    model, data = replace(experiment.model, dropout=0.1, noise=0.0), replace(experiment.data, full=0.3)
    train = replace(
        experiment.train,
        steps=8_000,
        learning_rate=0.01,
        schedule="constant",
        weight_decay=0.1,
        average=0.999,
        keep="best",
        evaluate_every=500,
        evaluate_lengths=(1024, 512),
    )
    if task == "sort":
        data = replace(data, full=0.6)
        train = replace(train, steps=24_000, learning_rate=0.0025, schedule="linear", weight_decay=0.5, keep="last")
    if task == "multiply":
        model, data = replace(model, dropout=0.0), replace(data, batch=32)
        train = replace(train, steps=28_000, optimizer="muon", learning_rate=0.0025, evaluate_lengths=(128,))
    return replace(experiment, model=model, data=data, train=train)


def small(task: str) -> Experiment:
    """A network that learns the easy tasks on a CPU within two minutes.

    A high learning rate that does not fall, and weights averaged over steps, are what lets so small a network run far
    beyond the lengths it saw.
    """
    return Experiment(
        task=task,
        model=ModelConfig(features=48),
        data=DataConfig(bins=(8, 16, 32), batch=32, full=0.3),
        train=TrainConfig(
            steps=1000,
            learning_rate=0.01,
            schedule="constant",
            weight_decay=0.1,
            average=0.99,
            log_every=20,
            evaluate_every=500,
            evaluate_lengths=(32, 256),
            checkpoint_every=500,
        ),
    )


def reading() -> Reading:
    """The paper's network for LAMBADA, two blocks of 384 maps over 128 positions, as it is best trained on novels."""
    return Reading(
        model=ModelConfig(features=384, blocks=2),
        data=PassageConfig(words=75_000, forget=0.1, within=0.3, flatten=0.5),
        train=TrainConfig(
            steps=10_500,
            optimizer="muon",
            learning_rate=0.0064,
            warmup=500,
            weight_decay=0.1,
            clip=1.0,
            label_smoothing=0.1,
            precision="bf16",
            evaluate_every=2000,
            evaluate_lengths=(),
            checkpoint_every=2000,
        ),
    )


RECIPES: dict[str, Callable[[str], Experiment]] = {
    "paper": paper,
    "released": released,
    "long": long,
    "small": small,
}


def dngpu(experiment: Experiment) -> Experiment:
    """The Neural GPU with diagonal gates as its authors trained it, on the tasks and lengths of an experiment."""
    adding = experiment.task == "add"
    model = ModelConfig(
        kind="dngpu",
        features=min(experiment.model.features, 48 if adding else 96),
        dropout=0.5 if adding else 0.1,
    )
    train = replace(
        experiment.train,
        optimizer="adamax",
        learning_rate=0.005,
        schedule="plateau",
        weight_decay=0.0,
        gradient_noise=1e-4,
        average=0.0,
        keep="last",
    )
    return replace(experiment, model=model, train=train)


def _usual(kind: str) -> Callable[[Experiment], Experiment]:
    """A model as it is usually trained: a rise of the learning rate first, and gradients of a limited norm."""

    def rival(experiment: Experiment) -> Experiment:
        model = ModelConfig(kind=kind, features=min(experiment.model.features, 192))
        steps = experiment.train.steps
        train = replace(
            experiment.train,
            optimizer="adamw",
            learning_rate=min(experiment.train.learning_rate, 0.0025),
            schedule="linear",
            weight_decay=0.01,
            warmup=min(1000, steps // 10),
            clip=1.0,
            average=0.0,
            keep="last",
        )
        return replace(experiment, model=model, train=train)

    return rival


RIVALS: dict[str, Callable[[Experiment], Experiment]] = {
    "dngpu": dngpu,
    "universal-transformer": _usual("universal-transformer"),
    "transformer": _usual("transformer"),
    "lstm": _usual("lstm"),
    "gru": _usual("gru"),
}
"""Every other model: from an experiment with ours to one with it, trained as suits it."""

READING_RIVALS: dict[str, Callable[[Experiment], Experiment]] = {
    **RIVALS,
    "gated-attention-reader": _usual("gated-attention-reader"),
    "universal-reader": _usual("universal-reader"),
}
"""The same for runs on passages, for which some were made."""


def with_model(experiment: Experiment, kind: str) -> Experiment:
    """An experiment with a model of the given kind in place of ours."""
    ours = ModelConfig().kind
    if kind == ours:
        return experiment
    rivals = READING_RIVALS if isinstance(experiment, Reading) else RIVALS
    if kind not in rivals:
        raise ValueError(f"unknown model {kind!r}; choose one of {', '.join([ours, *rivals])}")
    return rivals[kind](experiment)
