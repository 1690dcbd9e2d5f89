"""Result files of runs, one JSON file each: read, selected by configuration, averaged over seeds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from riffle.config import RUN_CONFIGS, RunConfig, fields, from_dict

Result = dict[str, Any]
OBSERVING = ("train.log_every", "train.evaluate_every", "train.evaluate_lengths", "train.checkpoint_every")
"""Fields that change what is recorded of a training and not the training."""


class Point(NamedTuple):
    """Mean and range of an accuracy over the runs of a group, at a step or a length ``x``."""

    x: int
    mean: float
    low: float
    high: float


def read_results(root: Path, folders: Iterable[str]) -> list[Result]:
    """The result of every run in some folders below ``root``; other JSON files there are skipped."""
    paths = [path for folder in folders for path in sorted((root / folder).glob("*.json"))]
    results = [result for path in paths if (result := read_result(path)) is not None]
    for group, runs in by_group(results).items():
        if any(_training_config(run) != _training_config(runs[0]) for run in runs):
            names = ", ".join(run["run"] for run in runs)
            raise ValueError(f"the runs of {group!r} are of different configurations, so they have no mean: {names}")
    return results


def read_result(path: Path) -> Result | None:
    """The result in a file, None where it holds something else."""
    try:
        content = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}): remove it, and the run is measured again") from None
    return content if isinstance(content, dict) and {"group", "config", "metrics"} <= content.keys() else None


def _training_config(result: Result) -> dict[str, Any]:
    """What the runs of a group share: all fields but the seed and those that only observe the training."""
    config = from_dict(RUN_CONFIGS.get(result["config"]["task"], RunConfig), result["config"])
    # Where the best weights are kept, evaluations choose them.
    ignored = {"train.seed"} if config.train.keep == "best" else {"train.seed", *OBSERVING}
    return {name: value for name, (value, _) in fields(config).items() if name not in ignored}


def select(results: Iterable[Result], task: str, **model: Any) -> list[Result]:
    """The runs of a task whose model configuration has the given values."""
    return [
        result
        for result in results
        if result["config"]["task"] == task
        and all(result["config"]["model"][name] == value for name, value in model.items())
    ]


def by_group(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The runs by their group."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result["group"], []).append(result)
    return groups


def accuracies(results: Iterable[Result], length: int, metric: str = "symbol_accuracy") -> list[float]:
    """Accuracy on uniform examples of a length, of the runs that were tested there."""
    return [
        score[metric]
        for result in results
        for score in result["scores"]
        if score["length"] == length and score["split"] == "uniform"
    ]


def over_length(results: Sequence[Result]) -> list[Point]:
    """Accuracy over the lengths that any of the runs was tested at."""
    lengths = sorted({score["length"] for result in results for score in result["scores"]})
    return [_point(length, accuracies(results, length)) for length in lengths]


def over_steps(results: Sequence[Result], length: int | None = None) -> list[Point]:
    """Accuracy over the steps at which all runs were evaluated: at a length, by default the longest one evaluated."""
    curves = []
    for result in results:
        name = f"accuracy/{length or max(result['config']['train']['evaluate_lengths'])}"
        curves.append({line["step"]: line[name] for line in result["metrics"] if name in line})
    steps = sorted(set.intersection(*map(set, curves))) if curves else []
    return [_point(step, [curve[step] for curve in curves]) for step in steps]


def _point(x: int, values: Sequence[float]) -> Point:
    return Point(x, statistics.mean(values), min(values), max(values))
