"""A network to train for a figure: its configuration, where it is kept, and what is measured in the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from riffle.config import DataConfig, RunConfig, override
from riffle.tasks import get_task
from riffle.train.evaluate import evaluate
from riffle.train.objective import set_matrix_precision
from riffle.train.run import Run

Measure = Callable[[Run, torch.device], dict[str, Any]]
"""Measures a trained run; its entries become part of the run's result."""


@dataclass(frozen=True)
class EvaluationSpec:
    """Lengths to test, and how many examples of each."""

    lengths: tuple[int, ...]
    examples: int


PAPERS = (EvaluationSpec((8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096), 1024),)
"""The paper's lengths, with as many examples."""
BEYOND = (*PAPERS, EvaluationSpec((8192, 16384, 32768, 65536), 64))
"""And up to 64K, where there are many symbols in an example."""


def over_lengths(run: Run, device: torch.device, *, tests: Sequence[EvaluationSpec]) -> dict[str, Any]:
    """Accuracy over lengths, in full precision however the run was trained."""
    set_matrix_precision("fp32")
    model, task, trained = run.model(device), get_task(run.config.task), max(run.config.data.bins)
    found = [evaluate(model, task, test.lengths, examples=test.examples, trained_length=trained) for test in tests]
    return {"scores": [asdict(score) for scores in found for score in scores]}


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run of an experiment."""

    folder: str
    """The experiment that keeps it, which others may share: a network is not trained twice for two figures."""
    group: str
    """Runs of a group differ by their seed alone."""
    config: RunConfig
    """How it is trained."""
    measure: Measure
    """What is measured in the end."""

    @property
    def name(self) -> str:
        """The run's name, under which its files are found.

        >>> Learner(folder="maps", group="add, 96 maps", experiment=Experiment(task="add"), measure=over_lengths).name
        'add-96-maps-seed0'
        """
        return f"{re.sub(r'[^A-Za-z0-9]+', '-', self.group)}-seed{self.config.train.seed}"


def with_train(config: RunConfig, **changes: Any) -> RunConfig:
    """An experiment with some fields of its training changed."""
    return replace(config, train=replace(config.train, **changes))


def with_model_fields(config: RunConfig, **changes: Any) -> RunConfig:
    """An experiment with some fields of its model changed."""
    return replace(config, model=replace(config.model, **changes))


def seeded(learners: Sequence[RunSpec], runs: int, quick: bool) -> list[RunSpec]:
    """Every learner with so many seeds, small where it has to be quick.

    The first seed of all comes first, should time run out.
    """
    chosen = [make_quick(each) for each in learners] if quick else learners
    return [replace(each, config=with_train(each.config, seed=seed)) for seed in range(runs) for each in chosen]


def with_overrides(learner: RunSpec, changes: Sequence[str]) -> RunSpec:
    """A learner with fields of its configuration set, as ``riffle train --set`` does."""
    return replace(learner, config=override(learner.config, changes))


def make_quick(learner: RunSpec) -> RunSpec:
    """A learner that takes seconds on a CPU and learns nothing."""
    config = learner.config
    small = replace(
        with_model_fields(config, features=config.model.features // 12),
        data=DataConfig(bins=(4, 8), batch=4),
        train=replace(
            config.train, steps=10, log_every=2, evaluate_every=5, evaluate_lengths=(16,), checkpoint_every=5
        ),
    )
    return replace(learner, config=small, measure=partial(over_lengths, tests=(EvaluationSpec((8, 16), 4),)))
