"""Specification of a run: its configuration, the folder of its result, and what is measured after training."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from riffle.config import DataConfig, RunConfig
from riffle.tasks import get_task
from riffle.train.checkpoint import read_checkpoint
from riffle.train.evaluate import evaluate
from riffle.train.objective import set_matrix_precision
from riffle.train.run import Run

Measure = Callable[[Run, torch.device], dict[str, Any]]
"""Measures a trained run; its entries become part of the run's result."""


@dataclass(frozen=True)
class EvaluationSpec:
    """Lengths to test, and the number of examples at each."""

    lengths: tuple[int, ...]
    examples: int


PAPER_LENGTHS = EvaluationSpec((8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096), 1024)
"""The lengths of the paper's figures, with the paper's number of examples."""


def accuracy_at(*tests: EvaluationSpec, last: bool = False) -> Measure:
    """Measures accuracy over length, in float32 whatever precision the run was trained in.

    With ``last``, that of the last weights is ``scores``, and that of the kept ones ``kept_scores``.
    """
    return partial(_measure_accuracy, tests=tests, last=last)


def _measure_accuracy(run: Run, device: torch.device, *, tests: Sequence[EvaluationSpec], last: bool) -> dict[str, Any]:
    set_matrix_precision("fp32")
    model, task, trained = run.model(device), get_task(run.config.task), run.config.data.longest_input

    def score() -> list[dict[str, Any]]:
        return [
            asdict(score)
            for test in tests
            for score in evaluate(model, task, test.lengths, examples=test.examples, trained_length=trained)
        ]

    kept = score()
    if not last:
        return {"scores": kept}
    model.load_state_dict(read_checkpoint(run.checkpoint, "model."))
    return {"scores": score(), "kept_scores": kept}


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run of a figure."""

    folder: str
    """Folder of its result below ``results/``; figures that list the same run share it, so it is trained once."""
    group: str
    """Runs of one group differ only in their seed."""
    config: RunConfig
    measure: Measure
    """What is measured after training."""
    runs: int | None = None
    """Seeds at most, where a figure has more."""

    @property
    def name(self) -> str:
        """Stem of the run's files.

        >>> RunSpec(folder="maps", group="add, 96 maps", config=RunConfig(task="add"), measure=accuracy_at()).name
        'add-96-maps-seed0'
        """
        return f"{re.sub(r'[^A-Za-z0-9]+', '-', self.group)}-seed{self.config.train.seed}"


def with_train(config: RunConfig, **changes: Any) -> RunConfig:
    """A configuration with some fields of ``train`` changed."""
    return replace(config, train=replace(config.train, **changes))


def with_model_fields(config: RunConfig, **changes: Any) -> RunConfig:
    """A configuration with some fields of ``model`` changed."""
    return replace(config, model=replace(config.model, **changes))


def shrink(spec: RunSpec) -> RunSpec:
    """The same run with a tiny network and ten steps, for ``--quick``: seconds on a CPU, nothing is learned."""
    config = with_train(
        with_model_fields(spec.config, features=2 * (spec.config.model.features // 24)),
        steps=10,
        log_every=2,
        evaluate_every=5,
        evaluate_lengths=(16,),
        checkpoint_every=5,
    )
    config = replace(config, data=DataConfig(bins=(4, 8), batch=4))
    return replace(spec, config=config, measure=accuracy_at(EvaluationSpec((8, 16), 4)))
