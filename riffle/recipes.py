"""Recipes: functions that fill in the configuration of a run, by the name of its task.

A package adds its own to :data:`RECIPES`; the recipe of another model is part of its entry in
:data:`riffle.config.MODELS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from riffle.config import MODELS, DataConfig, LambadaRunConfig, ModelConfig, PassageDataConfig, RunConfig, TrainConfig
from riffle.registry import Registry


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


SUMS = ("add", "add-base4", "add-decimal")
MOVES = ("reverse", "rev2", "duplicate", "rotate")
"""Tasks that move symbols by a distance that depends on the length of the input, and do not change them."""


def robust(task: str) -> RunConfig:
    """Inputs of every structure and every length up to 64, so that a network learns to be right on all of them.

    Half of the examples are structured, a third is shorter than its bin, and one bin is wider than any input. The
    learning rate is high and constant, and of the averaged weights the best at and between powers of two are kept, on
    uniform and structured inputs.

    Sums have two blocks of 128 maps instead of one of 192, three quarters of the parameters: digits of equal rank
    first meet in the middle of a block, and the half that is left goes from distant cells to near ones, while a carry
    is found by going from near cells to distant ones. Where symbols move by a distance that has to be found first, a
    third of the inputs start at a random cell, and many are a little longer than a power of two. A third of the rows to
    duplicate leave too little room for their copy, which shows twice as many distances in as many cells, and blanks
    count less in their loss. Sorting has the swap gate, a lower rate with linear decay and a strong weight decay, and
    keeps its last weights. Multiplication, which is hard at its trained lengths already, has Muon and no dropout.
    """
    model = ModelConfig()
    data = DataConfig(bins=(8, 16, 32, 64, 128), longest=64, batch=32, full=0.3, shorter=0.3, structure=0.5)
    train = TrainConfig(
        steps=6_000,
        learning_rate=0.01,
        schedule="constant",
        weight_decay=0.1,
        average=0.999,
        keep="best",
        evaluate_lengths=(1024, 973, 614, 512, 282, 205),
    )
    if task == "multiply":
        model = ModelConfig(features=384, blocks=2, dropout=0.0)
        data = replace(data, longest=0, shorter=DataConfig.shorter)
        train = replace(train, steps=28_000, optimizer="muon", learning_rate=0.0025)
    if task == "sort":
        model = ModelConfig(unit="swap-gate")
        data = replace(data, bins=(8, 16, 32, 64), batch=64, full=0.5, shorter=0.2, structure=0.6)
        train = replace(train, steps=10_000, learning_rate=0.0025, schedule="linear", weight_decay=0.5, keep="last")
    if task in (*SUMS, *MOVES):
        model = ModelConfig(features=128, blocks=2)
    if task in SUMS:
        train = replace(train, steps=8_000)
    if task in MOVES:
        data = replace(data, full=0.2, shorter=0.2, above=0.3, offset=0.3)
    if task == "duplicate":
        data = replace(data, cropped=0.3)
        train = replace(train, steps=12_000, learning_rate=0.005, blank_weight=0.1)
    return RunConfig(task=task, model=model, data=data, train=train)


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
    """The most accurate reader: the residual unit over 96 positions, with counts of mentions and renamed words."""
    config = paper_reader()
    return replace(
        config,
        model=ModelConfig(features=384, blocks=2, unit="residual", pad="even"),
        data=replace(config.data, bins=(96,), within=0.6, rename=0.2, mentions=True),
        train=replace(config.train, steps=25_500),
    )


RECIPES: Registry[Callable[[str], RunConfig]] = Registry("recipe", {"paper": paper, "robust": robust, "small": small})
"""The recipes of ``riffle train --recipe``, by name."""


def with_model(config: RunConfig, kind: str | None) -> RunConfig:
    """The same run with a model of the given kind and the settings of its recipe; None changes nothing."""
    if kind in (None, config.model.kind):
        return config
    entry = MODELS[kind]
    if not entry.symbols and not isinstance(config, LambadaRunConfig):
        raise ValueError(f"the model {kind!r} reads passages only: riffle lambada train --model {kind}")
    if entry.recipe is None:
        return replace(config, model=entry.config(kind=kind, features=config.model.features))
    return entry.recipe(config)
