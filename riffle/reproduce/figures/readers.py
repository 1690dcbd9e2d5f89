"""A network to train on passages for a figure, and how readers are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from riffle.config import LambadaRunConfig, PassageDataConfig, TrainConfig
from riffle.lambada.evaluate import TrainedReader, read_splits
from riffle.quantities import format_percent
from riffle.recipes import lambada
from riffle.reproduce.claims import Claim, at_least_as_good
from riffle.reproduce.results import Result, by_group
from riffle.reproduce.specs import RunSpec, with_train
from riffle.reproduce.synthetic import prepare_synthetic_corpus
from riffle.train.run import Run

SPLIT = "development"
"""What accuracy is measured on; the test set is for the one network that is chosen."""
BASELINE = "192 maps, 2 blocks"
RIDDLES = Path("runs/quick/riddles")
"""Where the made-up corpus of quick runs is kept."""


def over_passages(run: Run, device: torch.device) -> dict[str, Any]:
    """Accuracy on the development set."""
    reader = TrainedReader(run, device)
    passages = read_splits([SPLIT], Path(reader.objective.config.data.corpus))[SPLIT]
    parameters = sum(parameter.numel() for parameter in reader.model.parameters())
    return {"parameters": parameters, "accuracy": reader.evaluate(passages)["passages"]}


def reader(
    folder: str, group: str, *, data: Mapping[str, Any] = {}, train: Mapping[str, Any] = {}, **model: Any
) -> RunSpec:
    """The paper's network for LAMBADA with some fields changed."""
    base = lambada()
    config: LambadaRunConfig = replace(
        base,
        model=replace(base.model, **model),
        data=replace(base.data, **data),
        train=replace(base.train, **train),
    )
    return RunSpec(folder=folder, group=group, config=config, measure=over_passages)


def compared(folder: str, group: str, *, train: Mapping[str, Any] = {}, **model: Any) -> RunSpec:
    """A network of a comparison: half the maps of the paper's, so that all can be trained within half an hour of a GPU.

    By Adam, as the paper compared them: Muon hides what makes one network easier to train than another.
    """
    usual = {"optimizer": "adamw", "steps": 3000, "warmup": 300, "evaluate_every": 500}
    return reader(folder, group, train={**usual, **train}, **{"features": 192, **model})


def baseline() -> RunSpec:
    """The network of all comparisons."""
    return compared("lambada-maps", BASELINE)


def seeded_readers(learners: Sequence[RunSpec], runs: int, quick: bool) -> list[RunSpec]:
    """Every reader with so many seeds, small and on riddles where it has to be quick."""
    chosen = [_quickened(each) for each in learners] if quick else learners
    return [replace(each, config=with_train(each.config, seed=seed)) for seed in range(runs) for each in chosen]


def accuracies(results: Sequence[Result], group: str) -> list[float]:
    """Accuracy by position of the runs of a group."""
    return [run["accuracy"]["all"]["position"] for run in by_group(results).get(group, [])]


def rises(results: Sequence[Result], names: Sequence[str]) -> list[Claim]:
    """Whether each group reads at least as well as the one before."""
    return [
        at_least_as_good(f"{more} read as well as {less}", accuracies(results, more), accuracies(results, less))
        for less, more in pairwise(names)
    ]


def alike(results: Sequence[Result], names: Sequence[str], points: float) -> Claim:
    """Whether groups are within so many points of one another."""
    found = {name: max(runs) for name in names if (runs := accuracies(results, name))}
    statement = f"{'; '.join(names)}: within {points:g} points"
    if len(found) < len(names):
        return Claim(statement, None, f"{len(found)} of {len(names)} were measured")
    low, high = min(found.values()), max(found.values())
    evidence = f"{100 * (high - low):.2f} points from {format_percent(low)} to {format_percent(high)}"
    return Claim(statement, 100 * (high - low) <= points, evidence)


def _quickened(learner: RunSpec) -> RunSpec:
    """A reader that takes seconds on a CPU."""
    config = learner.config
    assert isinstance(config, LambadaRunConfig)
    corpus = RIDDLES / "corpus" if RIDDLES.exists() else prepare_synthetic_corpus(RIDDLES)
    model = replace(config.model, features=config.model.features // 24, dropout=0.0)
    data = PassageDataConfig(bins=(32,), batch=8, corpus=str(corpus))
    few = TrainConfig(steps=4, log_every=2, evaluate_every=2, evaluate_lengths=(), checkpoint_every=2)
    return replace(learner, config=replace(config, model=model, data=data, train=few))
