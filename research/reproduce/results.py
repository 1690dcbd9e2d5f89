"""Result files of runs, one JSON file each: read, selected by configuration, averaged over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from riffle.config import Count, Share, run_config_from_dict, training_differences
from riffle.files import read_checked, read_json
from riffle.schema import decode

Result = dict[str, Any]


class ScoreEntry(TypedDict):
    """A score in a result, see :class:`riffle.train.evaluate.Score`."""

    length: Count
    split: str
    symbol_accuracy: Share
    sequence_accuracy: Share


class RunResult(TypedDict):
    """What a result file holds at least."""

    run: str
    group: str
    seed: int
    steps: Count
    command: str
    commit: str | None
    hardware: str
    versions: dict[str, Any]
    config: dict[str, Any]
    metrics: list[dict[str, float]]
    scores: NotRequired[list[ScoreEntry]]
    kept_scores: NotRequired[list[ScoreEntry]]
    accuracy: NotRequired[dict[str, Any]]


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
        configs = [run_config_from_dict(run["config"]) for run in runs]
        if any(training_differences(configs[0], config).keys() - {"train.seed"} for config in configs):
            names = ", ".join(run["run"] for run in runs)
            raise ValueError(f"the runs of {group!r} are of different configurations, so they have no mean: {names}")
    return results


def read_result(path: Path) -> Result | None:
    """The result in a file, None where it holds something else."""
    remedy = "remove it, and the run is measured again"
    content = read_json(path, what="result of a run", remedy=remedy)
    if not isinstance(content, dict) or not {"group", "config", "metrics"} <= content.keys():
        return None

    def check() -> Result:
        run_config_from_dict(content["config"])
        result: Result = decode(RunResult, content)
        return result

    return read_checked(path, check, "result of a run", remedy)


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


def accuracies(
    results: Iterable[Result], length: int, metric: str = "symbol_accuracy", *, scores: str = "scores"
) -> tuple[float, ...]:
    """Accuracy on uniform examples of a length, of the runs that were tested there."""
    return tuple(
        score[metric]
        for result in results
        for score in result.get(scores, [])
        if score["length"] == length and score["split"] == "uniform"
    )


def over_length(results: Sequence[Result]) -> list[Point]:
    """Accuracy over the lengths that all runs were tested at, so that every mean is one of the same runs."""
    tested = [{score["length"] for score in result["scores"]} for result in results]
    lengths = sorted(set.intersection(*tested)) if tested else []
    return [_point(length, accuracies(results, length)) for length in lengths]


def over_steps(results: Sequence[Result], length: int | None = None) -> list[Point]:
    """Accuracy over the steps at which all runs were evaluated: at a length, by default the longest one evaluated."""
    curves = [_curve(result, length) for result in results]
    steps = sorted(set.intersection(*map(set, curves))) if curves else []
    return [_point(step, [curve[step] for curve in curves]) for step in steps]


def accuracies_by(results: Iterable[Result], step: int, length: int) -> tuple[float, ...]:
    """Accuracy at the last evaluation up to a step, of the runs that were evaluated by then."""
    curves = [_curve(result, length) for result in results]
    found = [max((each for each in curve if each <= step), default=None) for curve in curves]
    return tuple(curve[last] for curve, last in zip(curves, found, strict=True) if last is not None)


def _curve(result: Result, length: int | None) -> dict[int, float]:
    """Accuracy by step."""
    name = f"accuracy/{length or max(result['config']['train']['evaluate_lengths'])}"
    return {line["step"]: line[name] for line in result["metrics"] if name in line}


def _point(x: int, values: Sequence[float]) -> Point:
    return Point(x, statistics.mean(values), min(values), max(values))
