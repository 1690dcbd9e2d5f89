"""Results of runs that nobody made, as good as one likes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from riffle.files import write_json
from riffle.reproduce import paper
from riffle.reproduce.specs import RunSpec

Accuracy = Callable[[RunSpec, int], float]


def accurate(learner: RunSpec, length: int) -> float:
    """As accurate as in the paper, wherever it has a number; more maps and blocks are a little better."""
    config = learner.config
    if learner.folder in ("generalization", "rivals"):
        return paper.GENERALIZATION[config.model.kind][config.task].get(length, 0.5)
    if learner.folder == "multiplication":
        return paper.MULTIPLICATION
    if learner.folder in ("ablation", "sharing", "products"):
        return paper.ABLATION[config.task][config.model.unit]
    return 0.5 + config.model.features * config.model.blocks / 1000


def result(learner: RunSpec, accuracy: Accuracy) -> dict[str, Any]:
    """A result as a run would leave it, its accuracy reached at step 500 and kept."""
    train = learner.config.train
    lengths = sorted({64, 128, 512, 1024, 4096, *train.evaluate_lengths})
    scores = [
        {
            "length": length,
            "split": "uniform",
            "symbol_accuracy": accuracy(learner, length),
            "sequence_accuracy": accuracy(learner, length) / 2,
        }
        for length in lengths
    ]
    reached = {f"accuracy/{length}": accuracy(learner, length) for length in train.evaluate_lengths}
    return {
        "run": learner.name,
        "group": learner.group,
        "seed": train.seed,
        "steps": train.steps,
        "seconds": 1.0,
        "command": "riffle reproduce something",
        "commit": "abc",
        "quick": False,
        "hardware": "Some GPU",
        "versions": {"torch": "2.11"},
        "config": asdict(learner.config),
        "metrics": [{"step": step, **reached} for step in (500, train.steps)],
        "scores": scores,
    }


def write(root: Path, learners: Iterable[RunSpec], accuracy: Accuracy) -> None:
    """Write the results of learners where they belong."""
    for learner in learners:
        (root / learner.folder).mkdir(parents=True, exist_ok=True)
        write_json(root / learner.folder / f"{learner.name}.json", result(learner, accuracy))
