"""Recipes: functions that fill in the configuration of a run, for this network and for every baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from riffle.config import DataConfig, LambadaRunConfig, ModelConfig, PassageDataConfig, RunConfig, TrainConfig


def paper(task: str) -> RunConfig:
    """The paper's configuration: one block of 192 maps; two of 384 and lengths to 128 for multiplication."""
    config = RunConfig(task=task)
    if task in ("reverse", "duplicate"):
        # Routing alone generalises further when nothing is dropped on the way.
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
    """The configuration of the paper's released code: its own RAdam, and dropout wherever it does not reverse."""
    config = paper(task)
    if task == "duplicate":
        config = replace(config, model=ModelConfig())
    return replace(config, train=replace(config.train, optimizer="radam"))


def long(task: str) -> RunConfig:
    """The paper's network, trained to run far beyond its lengths.

    A high learning rate that does not fall, and weights averaged over steps, of which those are kept that do best at
    length 1024. Sorting has a lower rate that does fall, more steps, more examples of full length, a strong decay of
    the matrices, and keeps the last weights: before the rate has fallen they are blurred at trained lengths. Products,
    which are hard enough at their trained lengths, have Muon, smaller batches and no dropout.
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


def small(task: str) -> RunConfig:
    """A network that learns the easy tasks on a CPU within two minutes.

    A high learning rate that does not fall, and weights averaged over steps, are what lets so small a network run far
    beyond the lengths it saw.
    """
    return RunConfig(
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


def lambada() -> LambadaRunConfig:
    """The paper's network for LAMBADA, two blocks of 384 maps over 128 positions, as it is best trained on novels."""
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


RECIPES: dict[str, Callable[[str], RunConfig]] = {
    "paper": paper,
    "released": released,
    "long": long,
    "small": small,
}


def dngpu(config: RunConfig) -> RunConfig:
    """The Neural GPU with diagonal gates as its authors trained it, on the tasks and lengths of an experiment."""
    adding = config.task == "add"
    model = ModelConfig(
        kind="dngpu",
        features=min(config.model.features, 48 if adding else 96),
        dropout=0.5 if adding else 0.1,
    )
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


def _standard(kind: str) -> Callable[[RunConfig], RunConfig]:
    """A model as it is usually trained: a rise of the learning rate first, and gradients of a limited norm."""

    def rival(config: RunConfig) -> RunConfig:
        model = ModelConfig(kind=kind, features=min(config.model.features, 192))
        steps = config.train.steps
        train = replace(
            config.train,
            optimizer="adamw",
            learning_rate=min(config.train.learning_rate, 0.0025),
            schedule="linear",
            weight_decay=0.01,
            warmup=min(1000, steps // 10),
            clip=1.0,
            average=0.0,
            keep="last",
        )
        return replace(config, model=model, train=train)

    return rival


BASELINES: dict[str, Callable[[RunConfig], RunConfig]] = {
    "dngpu": dngpu,
    "universal-transformer": _standard("universal-transformer"),
    "transformer": _standard("transformer"),
    "lstm": _standard("lstm"),
    "gru": _standard("gru"),
}
"""Every other model: from an experiment with ours to one with it, trained as suits it."""
LAMBADA_BASELINES: dict[str, Callable[[RunConfig], RunConfig]] = {
    **BASELINES,
    "gated-attention-reader": _standard("gated-attention-reader"),
    "universal-reader": _standard("universal-reader"),
}
"""The same for runs on passages, for which some were made."""


def with_model(config: RunConfig, kind: str) -> RunConfig:
    """An experiment with a model of the given kind in place of ours."""
    ours = ModelConfig().kind
    if kind == ours:
        return config
    rivals = LAMBADA_BASELINES if isinstance(config, LambadaRunConfig) else BASELINES
    if kind not in rivals:
        raise ValueError(f"unknown model {kind!r}; choose one of {', '.join([ours, *rivals])}")
    return rivals[kind](config)
