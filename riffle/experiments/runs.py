"""The runs of an experiment: which are finished, which are begun, what is left to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from riffle.config import Experiment
from riffle.experiments.job import Order
from riffle.experiments.learner import Learner
from riffle.experiments.results import read_result
from riffle.overrides import differences, from_dict
from riffle.train.record import read_metrics
from riffle.train.run import Run


class Planned(NamedTuple):
    """A run that is not finished."""

    order: Order
    step: int
    """Steps made so far."""
    rate: float | None
    """Its speed when it was last trained, in steps a second."""


def planned(learners: Sequence[Learner], results: Path, work: Path, about: Mapping[str, Any]) -> list[Planned]:
    """The runs that have no result yet; refuses results and run folders of another configuration.

    Args:
        learners: All runs of an experiment.
        results: The folder of all results.
        work: The folder of all run folders.
        about: What each result is to say of its origin.
    """
    found = []
    for learner in learners:
        result, folder = (root / learner.folder / learner.name for root in (results, work))
        result = result.with_name(f"{learner.name}.json")
        if result.exists():
            _refuse_other(result, learner)
            continue
        step, rate = 0, None
        if (folder / "config.json").exists():
            run = Run.resume(folder, learner.experiment)
            step = run.saved_step()
            rate = next((line["steps_per_second"] for line in reversed(read_metrics(folder)) if "loss" in line), None)
        found.append(Planned(Order(learner=learner, folder=folder, result=result, about=about), step, rate))
    return found


def _refuse_other(path: Path, learner: Learner) -> None:
    content = read_result(path)
    if content is None:
        raise ValueError(f"{path} is no result of a run: remove it, or choose another folder with --out")
    kept = from_dict(type(learner.experiment), content["config"])
    assert isinstance(kept, Experiment)
    other = differences(kept, learner.experiment)
    if other:
        lines = "; ".join(f"{name} is {old!r} there and {new!r} here" for name, (old, new) in other.items())
        raise ValueError(
            f"{path} is the result of another configuration: {lines}; remove it, or choose another folder with --out"
        )
