"""The results of runs, a JSON file each: read, chosen by their configuration, averaged.

What an experiment of learning has found so far: its results read, its figure drawn.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from riffle.config import RUN_CONFIGS, RunConfig, fields, from_dict
from riffle.plots import save_figure
from riffle.reproduce import get_figure

Result = dict[str, Any]


class Point(NamedTuple):
    """An accuracy over the runs of a group."""

    x: int
    """A step, or a length."""
    mean: float
    low: float
    high: float


def read_results(root: Path, folders: Iterable[str]) -> list[Result]:
    """Every run below ``root`` in the folders of some experiments; other files there are no runs."""
    found = []
    for folder in folders:
        for path in sorted((root / folder).glob("*.json")):
            result = read_result(path)
            if result is not None:
                found.append(result)
    for group, runs in by_group(found).items():
        if any(_apart_from_seed(run) != _apart_from_seed(runs[0]) for run in runs):
            names = ", ".join(run["run"] for run in runs)
            raise ValueError(f"the runs of {group!r} are of different configurations, so they have no mean: {names}")
    return found


def read_result(path: Path) -> Result | None:
    """The result in a file, None where it holds something else."""
    try:
        content = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}): remove it, and the run is measured again") from None
    return content if isinstance(content, dict) and {"group", "config", "metrics"} <= content.keys() else None


def _apart_from_seed(result: Result) -> dict[str, Any]:
    """The configuration; a field that was not there yet has its default."""
    config = from_dict(RUN_CONFIGS.get(result["config"]["task"], RunConfig), result["config"])
    return {name: value for name, (value, _) in fields(config).items() if name != "train.seed"}


def select(results: Iterable[Result], task: str, **model: Any) -> list[Result]:
    """The runs of a task whose models have the given values in their configuration."""
    return [
        result
        for result in results
        if result["config"]["task"] == task
        and all(result["config"]["model"][name] == value for name, value in model.items())
    ]


def by_group(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The runs by their group."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result["group"], []).append(result)
    return found


def accuracies(results: Iterable[Result], length: int, number: str = "symbol_accuracy") -> list[float]:
    """Accuracy at a length, of the runs that were tested there."""
    return [
        score[number]
        for result in results
        for score in result["scores"]
        if score["length"] == length and score["split"] == "uniform"
    ]


def over_length(results: Sequence[Result]) -> list[Point]:
    """Accuracy over the lengths that any of the runs was tested at."""
    lengths = sorted({score["length"] for result in results for score in result["scores"]})
    return [_point(length, accuracies(results, length)) for length in lengths]


def over_steps(results: Sequence[Result], length: int | None = None) -> list[Point]:
    """Accuracy over steps where all runs have one: at a length, or the longest of the evaluations in training."""
    curves = [_curve(result, length) for result in results]
    steps = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    return [_point(step, [curve[step] for curve in curves]) for step in steps]


def _curve(result: Result, length: int | None) -> dict[int, float]:
    name = f"accuracy/{length or max(result['config']['train']['evaluate_lengths'])}"
    return {line["step"]: line[name] for line in result["metrics"] if name in line}


def _point(x: int, values: Sequence[float]) -> Point:
    return Point(x, statistics.mean(values), min(values), max(values))


def read_figure_results(name: str, root: Path) -> list[Result]:
    """The results of an experiment below the folder of all results, in the order in which it lists its runs.

    All of its own folders' runs on its tasks are its results, and of other experiments' those that it lists as well.
    """
    figure = get_figure(name)
    learners = figure.configs()
    tasks = {learner.figure.task for learner in learners}
    groups = {learner.group: learner.folder for learner in learners}
    borrowed = read_results(root, sorted(set(groups.values()) - set(figure.FOLDERS)))
    results = [
        *(result for result in read_results(root, figure.FOLDERS) if result["config"]["task"] in tasks),
        *(result for result in borrowed if result["group"] in groups),
    ]
    order = {group: place for place, group in enumerate(groups)}
    return sorted(results, key=lambda result: order.get(result["group"], len(order)))


def draw_figure(name: str, root: Path) -> tuple[Path, Path]:
    """Draw an experiment's figure from its results."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "figure.svg", folder / "figure.png"
    save_figure(get_figure(name).figure(read_figure_results(name, root)), *paths)
    return paths
