"""Recipes: functions that fill in the configuration of a run, for this network and for every baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from riffle.config import DataConfig, LambadaRunConfig, ModelConfig, PassageDataConfig, RunConfig, TrainConfig


def paper(task: str) -> RunConfig:
    """The paper's network and optimiser, with the data and the learning rates of its released code.

    One block of 192 maps; two of 384 and lengths to 128 for multiplication. All differences: docs/deviations.md.
    """
    config = RunConfig(task=task)
    if task in ("reverse", "duplicate"):
        # The released code has no dropout for reversal either; duplication generalises further with it.
        config = replace(config, model=ModelConfig(dropout=0.0, noise=0.001))
    if task == "multiply":
        config = replace(
            config,
            model=ModelConfig(features=384, blocks=2),
            data=DataConfig(bins=(8, 16, 32, 64, 128)),
            train=TrainConfig(steps=50_000, evaluate_lengths=(128,)),
        )
    return config


def released(task: str) -> RunConfig:
    """The configuration of the paper's released code: its own RAdam, and dropout for every task but reversal."""
    config = paper(task)
    if task == "duplicate":
        config = replace(config, model=ModelConfig())
    return replace(config, train=replace(config.train, optimizer="radam"))


def preprint(task: str) -> RunConfig:
    """The paper's network with the training settings of the code at the time of the preprint.

    Twice the learning rate of the released code, falling on plateaus of the loss, a tenth of its weight decay, half of
    its batch, and noise in place of dropout.
    """
    config = paper(task)
    train = replace(config.train, learning_rate=0.0025, schedule="short-plateau", floor=1 / 40, weight_decay=0.001)
    model = replace(config.model, dropout=0.0, noise=0.001)
    return replace(config, model=model, data=replace(config.data, batch=32), train=train)


def long(task: str) -> RunConfig:
    """The paper's network, trained to generalise far beyond its training lengths.

    A high, constant learning rate and an exponential moving average of the weights; the most accurate weights at length
    1024 are kept. Sorting has a lower rate with linear decay, more steps, more examples of full length, a strong weight
    decay, and keeps the last weights: before the decay they are inaccurate at trained lengths. Multiplication, which is
    hard at its trained lengths already, has Muon, smaller batches and no dropout.
    """
    config = paper(task)
    model, data = replace(config.model, dropout=0.1, noise=0.0), replace(config.data, full=0.3)
    train = replace(
        config.train,
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
    return replace(config, model=model, data=data, train=train)


SUMS = ("add", "add-base4", "add-decimal")
MOVES = ("reverse", "rev2", "duplicate", "rotate")
"""Tasks that move symbols by a distance that depends on the length of the input, and do not change them."""


def robust(task: str) -> RunConfig:
    """Inputs of every structure and every length up to 64, so that a network learns to be right on all of them.

    Half of the examples are structured, a third is shorter than its bin, and one bin is wider than any input. The
    averaged weights that are kept are the best at and between powers of two, on uniform and structured inputs.

    Sums have two blocks of 128 maps in place of one of 192, three quarters of the parameters: digits of equal rank
    first meet in the middle of a block, and the half that is left goes from distant cells to near ones, while a carry
    is found by going from near cells to distant ones. Where symbols move by a distance that has to be found first, a
    third of the inputs start at a random cell, and many are a little longer than a power of two. A third of the rows to
    duplicate leave too little room for their copy, which shows twice as many distances in as many cells, and blanks
    count less in their loss. Sorting has the swap gate and keeps its last weights.
    """
    config = long(task)
    model, data = config.model, replace(config.data, structure=0.5)
    train = replace(config.train, evaluate_every=1000, evaluate_lengths=(1024, 973, 614, 512, 282, 205))
    if task != "multiply":
        data = replace(data, bins=(8, 16, 32, 64, 128), longest=64, batch=32, full=0.3, shorter=0.3)
        train = replace(train, steps=6_000)
    if task == "sort":
        model, train = replace(model, unit="swap-gate"), replace(train, steps=10_000)
        data = replace(data, bins=(8, 16, 32, 64), batch=64, full=0.5, shorter=0.2, structure=0.6)
    if task in (*SUMS, *MOVES):
        model = replace(model, features=128, blocks=2)
    if task in SUMS:
        train = replace(train, steps=8_000)
    if task in MOVES:
        data = replace(data, full=0.2, shorter=0.2, above=0.3, offset=0.3)
    if task == "duplicate":
        data = replace(data, cropped=0.3)
        train = replace(train, steps=12_000, learning_rate=0.005, blank_weight=0.1)
    return replace(config, model=model, data=data, train=train)


def residual(task: str) -> RunConfig:
    """The residual unit of Draguns et al.; gradients are clipped, since at a high learning rate it can diverge late."""
    config = long(task)
    train = replace(
        config.train, steps=6_000, learning_rate=0.005, schedule="linear", clip=1.0, weight_decay=0.1, keep="last"
    )
    return replace(config, model=replace(config.model, unit="residual"), train=train)


TRAINED_LENGTH = 40
"""Longest training input of the fifteen tasks of Delétang et al."""
CHOMSKY_STEPS = {
    **dict.fromkeys(("even-pairs", "parity", "cycle", "missing-duplicate"), 2_000),
    **dict.fromkeys(("odds-first", "multiply-unequal", "square-root"), 3_000),
    **dict.fromkeys(("reverse-bits", "duplicate-bits", "add-unequal", "bucket-sort"), 4_000),
    **dict.fromkeys(("modular-arithmetic", "stack", "modular-brackets", "equation"), 5_000),
}
"""Steps of the recipe ``chomsky``; other tasks have the most of these."""


def chomsky(task: str) -> RunConfig:
    """Inputs of length 1 to 40 at every share of their network, to be tested at lengths up to 500.

    Two blocks, since one is right between powers of two or far beyond the trained lengths, seldom both; one bin is
    wider than any input. Strings that are written twice take twice the cells. Cells whose target is blank hardly count
    in the loss, since a class is one cell of many. Half of the inputs are structured: uniform ones of length 40 seldom
    have the sums, runs and carries of those of length 500. Where symbols move by a distance that has to be found, they
    start at random cells instead, and many are a little longer than a power of two, as in ``robust``. Examples are
    drawn once, which takes less time than drawing some in every step.
    """
    from riffle.tasks import get_task  # imports torch

    cells = TRAINED_LENGTH * get_task(task).reach
    data = DataConfig(bins=(8, 16, 32, 64, 128), longest=cells, batch=32, shorter=0.3, examples=2**17)
    if task in ("stack", "reverse-bits", "duplicate-bits", "missing-duplicate", "odds-first"):
        data = replace(data, full=0.2, shorter=0.2, above=0.3, offset=0.3)
    else:
        data = replace(data, structure=0.2 if task == "modular-arithmetic" else 0.5)
    if task == "duplicate-bits":
        data = replace(data, cropped=0.3)
    train = TrainConfig(
        steps=CHOMSKY_STEPS.get(task, max(CHOMSKY_STEPS.values())),
        learning_rate=0.005,
        schedule="constant",
        weight_decay=0.1,
        blank_weight=0.01,
        average=0.998,
        precision="bf16",
        evaluate_every=0,
        checkpoint_every=2000,
    )
    return RunConfig(task=task, model=ModelConfig(features=128, blocks=2), data=data, train=train)


def small(task: str) -> RunConfig:
    """A network that learns the easy tasks on a CPU within two minutes.

    A high, constant learning rate and averaged weights let so small a network generalise to longer inputs. Where
    symbols move by a distance that has to be found, it has two narrower blocks and inputs placed as in ``robust``, for
    lengths between powers of two.
    """
    config = RunConfig(
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
    if task not in MOVES:
        return config
    data = DataConfig(bins=(8, 16, 32, 64), longest=32, batch=16, full=0.2, shorter=0.2, above=0.3, offset=0.3)
    return replace(config, model=ModelConfig(features=32, blocks=2), data=data)


def paper_reader() -> LambadaRunConfig:
    """The paper's network for LAMBADA, two blocks of 384 maps over 128 positions, with training settings of our own."""
    return LambadaRunConfig(
        model=ModelConfig(features=384, blocks=2),
        data=PassageDataConfig(words=75_000, forget=0.1, within=0.3, flatten=0.5),
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


def lambada() -> LambadaRunConfig:
    """The most accurate reader: the residual unit over 96 positions, told of mentions, trained with renamed words."""
    config = paper_reader()
    return replace(
        config,
        model=replace(config.model, unit="residual", pad="even"),
        data=replace(config.data, bins=(96,), within=0.6, rename=0.2, mentions=True),
        train=replace(config.train, steps=25_500),
    )


RECIPES: dict[str, Callable[[str], RunConfig]] = {
    "paper": paper,
    "released": released,
    "preprint": preprint,
    "long": long,
    "robust": robust,
    "residual": residual,
    "chomsky": chomsky,
    "small": small,
}
"""The recipes of ``riffle train --recipe``, by name."""


def dngpu(config: RunConfig) -> RunConfig:
    """The Neural GPU with diagonal gates and its authors' training settings, on the same task and lengths."""
    features, dropout = (48, 0.5) if config.task == "add" else (96, 0.1)
    model = ModelConfig(kind="dngpu", features=min(config.model.features, features), dropout=dropout)
    train = replace(
        config.train,
        optimizer="adamax",
        learning_rate=0.005,
        schedule="plateau",
        weight_decay=0.0,
        gradient_noise=1e-4,
        average=0.0,
        keep="last",
    )
    return replace(config, model=model, train=train)


def preprint_network(config: RunConfig) -> RunConfig:
    """The network of the authors' code at the time of the preprint: 96 maps where the paper's has one block of 192.

    The training is that of the recipe; with the recipe ``preprint`` both are of that time.
    """
    model = config.model
    features = min(model.features, 96) if model.blocks == 1 else model.features
    network = ModelConfig(
        kind="preprint", features=features, blocks=model.blocks, dropout=model.dropout, noise=model.noise
    )
    return replace(config, model=network)


def _standard(kind: str, config: RunConfig) -> RunConfig:
    """A baseline with the usual settings: AdamW, learning rate warm-up, linear decay and gradient clipping."""
    train = replace(
        config.train,
        optimizer="adamw",
        learning_rate=min(config.train.learning_rate, 0.0025),
        schedule="linear",
        weight_decay=0.01,
        warmup=min(1000, config.train.steps // 10),
        clip=1.0,
        average=0.0,
        keep="last",
    )
    return replace(config, model=ModelConfig(kind=kind, features=min(config.model.features, 192)), train=train)


Baselines = dict[str, Callable[[RunConfig], RunConfig]]
BASELINES: Baselines = {
    "dngpu": dngpu,
    "preprint": preprint_network,
    **{kind: partial(_standard, kind) for kind in ("universal-transformer", "transformer", "lstm", "gru")},
}
"""Baseline recipes by model kind: each turns a run of our model into one of the baseline."""
READERS = ("universal-transformer", "transformer", "lstm", "gru", "gated-attention-reader", "universal-reader")
RECURRENT = ("lstm", "gru", "gated-attention-reader")


def _reader(kind: str, config: RunConfig) -> RunConfig:
    """A baseline that reads passages: the usual settings, and as many features as our network has maps.

    At 384 features the highest learning rate is 0.00125; the Universal Transformer's authors have 2 / sqrt(384 * 8000),
    0.0011. Recurrent networks train in TF32: under autocast cuDNN computes them in float16, whatever type is asked for,
    and small gradients would become zero. The Gated-Attention Reader has no words dropped, since it takes the last cell
    that is not zero for the place of the answer; the inputs of its GRUs have a dropout of their own.
    """
    standard = _standard(kind, config)
    data, train = standard.data, standard.train
    if kind in RECURRENT and train.precision == "bf16":
        train = replace(train, precision="tf32")
    if kind == "gated-attention-reader" and isinstance(data, PassageDataConfig):
        data = replace(data, word_dropout=0.0)
    return replace(standard, model=replace(standard.model, features=config.model.features), data=data, train=train)


LAMBADA_BASELINES: Baselines = {**BASELINES, **{kind: partial(_reader, kind) for kind in READERS}}
"""The baseline recipes for LAMBADA, some of which only read passages."""


def with_model(config: RunConfig, kind: str | None) -> RunConfig:
    """The same run with a model of the given kind, ours or a baseline; None changes nothing."""
    ours = ModelConfig().kind
    if kind in (None, ours):
        return config
    baselines = LAMBADA_BASELINES if isinstance(config, LambadaRunConfig) else BASELINES
    if kind not in baselines:
        raise ValueError(f"unknown model {kind!r}; choose one of {', '.join([ours, *baselines])}")
    return baselines[kind](config)
