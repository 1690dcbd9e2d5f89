"""Recipes that are rerun: those of the authors' codes, of earlier results, and of the models we compare with."""

from __future__ import annotations

from dataclasses import replace

from research.baselines.configs import NeuralGPUConfig, PreprintConfig
from riffle.config import MODELS, DataConfig, ModelConfig, PassageDataConfig, RunConfig, TrainConfig
from riffle.recipes import paper
from riffle.tasks import get_task


def network(config: RunConfig) -> ModelConfig:
    """The shuffle-exchange network of a run."""
    assert isinstance(config.model, ModelConfig)
    return config.model


def released(task: str) -> RunConfig:
    """The configuration of the paper's released code: its own RAdam, and dropout for every task but reversal."""
    config = paper(task)
    if task == "duplicate":
        config = replace(config, model=ModelConfig())
    return replace(config, train=replace(config.train, optimizer="radam"))


def preprint(task: str) -> RunConfig:
    """The paper's network with the training settings of the code at the time of the preprint.

    Twice the learning rate of the released code, falling on plateaus of the loss, a tenth of its weight decay, half of
    its batch, and noise instead of dropout.
    """
    config = paper(task)
    train = replace(config.train, learning_rate=0.0025, schedule="short-plateau", weight_decay=0.001)
    model = replace(network(config), dropout=0.0, noise=0.001)
    return replace(config, model=model, data=replace(config.data, batch=32), train=train)


def long(task: str) -> RunConfig:
    """The paper's network, trained to generalise far beyond its training lengths.

    A high, constant learning rate and an exponential moving average of the weights; the most accurate weights at length
    1024 are kept. Sorting has a lower rate with linear decay, more steps, more examples of full length, a strong weight
    decay, and keeps the last weights: before the decay they are inaccurate at trained lengths. Multiplication, which is
    hard at its trained lengths already, has Muon, smaller batches and no dropout.
    """
    config = paper(task)
    model, data = replace(network(config), dropout=0.1, noise=0.0), replace(config.data, full=0.3)
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


def residual(task: str) -> RunConfig:
    """The residual unit of Draguns et al.; gradients are clipped, since at a high learning rate it can diverge late."""
    config = long(task)
    train = replace(
        config.train, steps=6_000, learning_rate=0.005, schedule="linear", clip=1.0, weight_decay=0.1, keep="last"
    )
    return replace(config, model=replace(network(config), unit="residual"), train=train)


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
    start at random cells instead, and many are a little longer than a power of two, as in the recipe ``default``.
    Examples are drawn once, which takes less time than drawing some in every step.
    """
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


def neural_gpu(config: RunConfig) -> RunConfig:
    """The Neural GPU with diagonal gates and its authors' training settings, on the same task and lengths."""
    features, dropout = (48, 0.5) if config.task == "add" else (96, 0.1)
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
    model = NeuralGPUConfig(features=min(config.model.features, features), dropout=dropout)
    return replace(config, model=model, train=train)


def preprint_network(config: RunConfig) -> RunConfig:
    """The network of the authors' code at the time of the preprint: 96 maps where the paper's has one block of 192.

    The training is that of the recipe; with the recipe ``preprint`` both are of that time.
    """
    ours = network(config)
    features = min(ours.features, 96) if ours.blocks == 1 else ours.features
    model = PreprintConfig(features=features, blocks=ours.blocks, dropout=ours.dropout, noise=ours.noise)
    return replace(config, model=model)


def baseline(config: RunConfig, kind: str) -> RunConfig:
    """A baseline with the usual settings: AdamW, learning rate warm-up, linear decay and gradient clipping.

    A reader of passages has as many features as our network has maps. At 384 features the highest learning rate is
    0.00125; the Universal Transformer's authors have 2 / sqrt(384 * 8000), 0.0011. Recurrent networks train in TF32:
    under autocast cuDNN computes them in float16, whatever type is asked for, and small gradients would become zero.
    The Gated-Attention Reader has no words dropped, since it takes the last cell that is not zero for the place of the
    answer; the inputs of its GRUs have a dropout of their own.
    """
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
    if kind in ("lstm", "gru", "gated-attention-reader") and train.precision in ("auto", "bf16"):
        train = replace(train, precision="tf32")
    data, features = config.data, min(config.model.features, 192)
    if isinstance(data, PassageDataConfig):
        features = config.model.features
        if kind == "gated-attention-reader":
            data = replace(data, word_dropout=0.0)
    return replace(config, model=MODELS[kind].config(kind=kind, features=features), data=data, train=train)
