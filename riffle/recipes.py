"""Recipes: functions that fill in the configuration of a run, by the name of its task.

A package adds its own to :data:`RECIPES`; the recipe of another model is part of its entry in
:data:`riffle.config.MODELS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from riffle.config import (
    MODELS,
    CausalConfig,
    DataConfig,
    LambadaRunConfig,
    ModelConfig,
    PassageDataConfig,
    RunConfig,
    TextRunConfig,
    TrainConfig,
    override,
)
from riffle.registry import Registry
from riffle.tasks import get_task


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


def default(task: str) -> RunConfig:
    """What a task is best learned with: inputs of every structure and length up to 64, and weights that carry over.

    Half of the examples are structured, a third or less is shorter than its bin, and one bin is wider than any input.
    Of the averaged weights the best at, below and beyond the trained length are kept.

    Three blocks and Muon learn what has to be ordered, matched or looked up, and what moves; a tenth or two of the
    inputs start at a random cell or are a little longer than a power of two. The rate falls at the end, but not where
    symbols only move by a distance that has to be found (``Task.moves``): that costs lengths beyond the trained ones.
    Sums (``Task.carries``) are right between powers of two sooner, and by more seeds, with two blocks and AdamW at a
    high, constant rate. Where an answer is longer than its input (``Task.reach``), some are cropped. ``Task.settings``
    are what a task sets otherwise.
    """
    about = get_task(task)
    model = ModelConfig(features=128, blocks=3)
    data = DataConfig(
        bins=(8, 16, 32, 64, 128), longest=64, batch=32, structure=0.5, full=0.25, shorter=0.25, above=0.15,
        offset=0.15, cropped=0.3,
    )  # fmt: skip
    train = TrainConfig(
        steps=12_000,
        optimizer="muon",
        learning_rate=0.005,
        schedule="constant" if about.moves else "stable-decay",
        weight_decay=0.1,
        average=0.999,
        keep="best",
        evaluate_lengths=(64, 51, 205, 282, 512, 614, 1024),
    )
    if about.carries:
        model = replace(model, blocks=2)
        data = replace(data, full=0.3, shorter=0.3, above=0.0, offset=0.0)
        train = replace(train, steps=8_000, optimizer="adamw", learning_rate=0.01, schedule="constant")
    return override(RunConfig(task=task, model=model, data=data, train=train), about.settings)


def small(task: str) -> RunConfig:
    """A network that learns the easy tasks on a CPU within two minutes.

    A high, constant learning rate and averaged weights let so small a network generalise to longer inputs. Where
    symbols move by a distance that has to be found, it has two narrower blocks and inputs placed as in ``default``, for
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
    if not get_task(task).moves:
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


def text() -> TextRunConfig:
    """A causal network of residual units, one for every distance, on windows of 512 bytes."""
    return TextRunConfig(
        model=CausalConfig(features=256, blocks=2, sharing="none", unit="residual", dropout=0.0, length=512),
        train=TrainConfig(
            steps=10_000,
            learning_rate=0.0016,
            warmup=100,
            weight_decay=0.1,
            clip=1.0,
            evaluate_lengths=(),
        ),
    )


RECIPES: Registry[Callable[[str], RunConfig]] = Registry("recipe", {"default": default, "small": small, "paper": paper})
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
