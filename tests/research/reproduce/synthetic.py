"""Results of runs that nobody trained, with any accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from research.reproduce import paper
from research.reproduce.specs import RunSpec
from riffle.files import write_json

Accuracy = Callable[[RunSpec, int], float]


def paper_accuracy(spec: RunSpec, length: int) -> float:
    """The paper's accuracy where it has one; otherwise more maps and blocks are a little better."""
    config = spec.config
    if spec.folder in ("generalization", "convergence", "rivals"):
        curve = paper.NEURAL_GPU if config.model.kind == paper.NEURAL_GPU else paper.OURS
        return paper.GENERALIZATION[curve][config.task].get(length, 0.5)
    if spec.folder == "multiplication":
        return paper.MULTIPLICATION
    if spec.folder in ("ablation", "sharing", "products", "variants"):
        worse = config.model.kind == "variant" and config.model.variant in ("one-reset", "two-relu")
        return paper.ABLATION[config.task][config.model.unit] - 0.2 * worse
    return min(1.0, 0.5 + config.model.features * config.model.blocks / 1000)


def synthetic_result(spec: RunSpec, accuracy: Accuracy) -> dict[str, Any]:
    """A result as a run would leave it, with its final accuracy from step 500 on."""
    train = spec.config.train
    lengths = sorted({64, 128, 256, 512, 1024, 4096, *train.evaluate_lengths})
    scores = [
        {
            "length": length,
            "split": "uniform",
            "symbol_accuracy": accuracy(spec, length),
            "sequence_accuracy": accuracy(spec, length) / 2,
        }
        for length in lengths
    ]
    evaluation = {f"accuracy/{length}": accuracy(spec, length) for length in train.evaluate_lengths}
    return {
        "run": spec.name,
        "group": spec.group,
        "seed": train.seed,
        "steps": train.steps,
        "seconds": 1.0,
        "command": "riffle reproduce something",
        "commit": "abc",
        "quick": False,
        "hardware": "Some GPU",
        "versions": {"torch": "2.11"},
        "config": asdict(spec.config),
        "metrics": [{"step": step, **evaluation} for step in (500, train.steps)],
        "scores": scores,
    }


def write_results(root: Path, specs: Iterable[RunSpec], accuracy: Accuracy) -> None:
    """Write a result of each run to its folder."""
    for spec in specs:
        (root / spec.folder).mkdir(parents=True, exist_ok=True)
        write_json(root / spec.folder / f"{spec.name}.json", synthetic_result(spec, accuracy))
