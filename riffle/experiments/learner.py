"""A network to train for a figure: its configuration, where it is kept, and what is measured in the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from riffle.config import DataConfig, Experiment
from riffle.overrides import override
from riffle.tasks import get_task
from riffle.train.evaluate import evaluate
from riffle.train.precision import set_matrix_precision
from riffle.train.run import Run

Measure = Callable[[Run, torch.device], dict[str, Any]]
"""Measures a trained run; its entries become part of the run's result."""


@dataclass(frozen=True)
class Test:
    """Lengths to test, and how many examples of each."""

    lengths: tuple[int, ...]
    examples: int


PAPERS = (Test((8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096), 1024),)
"""The paper's lengths, with as many examples."""
BEYOND = (*PAPERS, Test((8192, 16384, 32768, 65536), 64))
"""And up to 64K, where there are many symbols in an example."""


def over_lengths(run: Run, device: torch.device, *, tests: Sequence[Test]) -> dict[str, Any]:
    """Accuracy over lengths, in full precision however the run was trained."""
    set_matrix_precision("fp32")
    model, task, trained = run.model(device), get_task(run.experiment.task), max(run.experiment.data.bins)
    found = [evaluate(model, task, test.lengths, examples=test.examples, trained_length=trained) for test in tests]
    return {"scores": [asdict(score) for scores in found for score in scores]}


@dataclass(frozen=True, kw_only=True)
class Learner:
    """One run of an experiment."""

    folder: str
    """The experiment that keeps it, which others may share: a network is not trained twice for two figures."""
    group: str
    """Runs of a group differ by their seed alone."""
    experiment: Experiment
    """How it is trained."""
    measure: Measure
    """What is measured in the end."""

    @property
    def name(self) -> str:
        """The run's name, under which its files are found.

        >>> Learner(folder="maps", group="add, 96 maps", experiment=Experiment(task="add"), measure=over_lengths).name
        'add-96-maps-seed0'
        """
        return f"{re.sub(r'[^A-Za-z0-9]+', '-', self.group)}-seed{self.experiment.train.seed}"


def trained(experiment: Experiment, **changes: Any) -> Experiment:
    """An experiment with some fields of its training changed."""
    return replace(experiment, train=replace(experiment.train, **changes))


def varied(experiment: Experiment, **changes: Any) -> Experiment:
    """An experiment with some fields of its model changed."""
    return replace(experiment, model=replace(experiment.model, **changes))


def seeded(learners: Sequence[Learner], runs: int, quick: bool) -> list[Learner]:
    """Every learner with so many seeds, small where it has to be quick.

    The first seed of all comes first, should time run out.
    """
    chosen = [quickened(each) for each in learners] if quick else learners
    return [replace(each, experiment=trained(each.experiment, seed=seed)) for seed in range(runs) for each in chosen]


def changed(learner: Learner, changes: Sequence[str]) -> Learner:
    """A learner with fields of its configuration set, as ``riffle train --set`` does."""
    return replace(learner, experiment=override(learner.experiment, changes))


def quickened(learner: Learner) -> Learner:
    """A learner that takes seconds on a CPU and learns nothing."""
    experiment = learner.experiment
    small = replace(
        varied(experiment, features=experiment.model.features // 12),
        data=DataConfig(bins=(4, 8), batch=4),
        train=replace(
            experiment.train, steps=10, log_every=2, evaluate_every=5, evaluate_lengths=(16,), checkpoint_every=5
        ),
    )
    return replace(learner, experiment=small, measure=partial(over_lengths, tests=(Test((8, 16), 4),)))
