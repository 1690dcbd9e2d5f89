"""What a figure consists of: the runs or series it needs, its drawing, its claims; where its results are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from research.bench.over_length import Series, limit_memory, measure_series, points, slope
from research.bench.record import refuse_other_setup
from research.files import command_line, write_result
from research.reproduce.charts import Row, points_figure, title
from research.reproduce.results import Result, read_results
from research.reproduce.specs import RunSpec, shrink, with_train
from research.reproduce.verdicts import Claim, Wanted
from riffle.environment import environment
from riffle.files import read_json
from riffle.plots import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TimingResult(TypedDict):
    """What a result file of a timing figure holds at least."""

    experiment: str
    commit: str | None
    device: str
    versions: dict[str, Any]
    commands: list[dict[str, str]]
    series: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class LearningFigure:
    """A figure of trained networks; every run leaves one result file."""

    name: str
    """Its name on the command line; the drawing goes to the results folder of this name."""
    networks: Callable[[], Sequence[RunSpec]]
    """Makes the runs of every network with seed 0; called when they are needed, as it looks up models and tasks."""
    folders: tuple[str, ...]
    """Result folders of which every run on the figure's tasks is shown; of other folders, only the listed groups."""
    draw: Callable[[Sequence[Result]], Figure] | None = None
    """None where a table says it all."""
    claims: Callable[[Sequence[Result]], list[Claim]] = lambda results: []
    beside: tuple[str, ...] = ()
    """Result folders of other figures that are drawn, too."""
    runs: int = 1
    """Seeds of every network."""
    shrink: Callable[[RunSpec], RunSpec] = shrink
    """Makes a run tiny for ``--quick``."""

    @cached_property
    def base_specs(self) -> Sequence[RunSpec]:
        """Every network once, with seed 0."""
        return self.networks()

    def specs(self, *, quick: bool = False, runs: int | None = None) -> list[RunSpec]:
        """Every network with each of its seeds; all networks of the first seed come first, should time run out."""
        base = [self.shrink(spec) for spec in self.base_specs] if quick else self.base_specs
        seeds = range(runs or (1 if quick else self.runs))
        return [
            replace(spec, config=with_train(spec.config, seed=seed))
            for seed in seeds
            for spec in base
            if spec.runs is None or seed < spec.runs
        ]

    def read(self, root: Path) -> list[Result]:
        """The results below the folder of all results, in the order of :attr:`base_specs`."""
        tasks = {spec.config.task for spec in self.base_specs}
        folder_of_group = {spec.group: spec.folder for spec in self.base_specs}
        shared = read_results(root, sorted(set(folder_of_group.values()) - set(self.folders)))
        results = [
            *(result for result in read_results(root, self.folders) if result["config"]["task"] in tasks),
            *(result for result in shared if result["group"] in folder_of_group),
            *read_results(root, self.beside),
        ]
        order = {group: index for index, group in enumerate(folder_of_group)}
        return sorted(results, key=lambda result: order.get(result["group"], len(order)))

    def save(self, root: Path) -> tuple[Path, ...]:
        """Draw the figure from the results below a folder."""
        return () if self.draw is None else _save(self.draw(self.read(root)), root / self.name, "figure")


Values = dict[str, dict[str, tuple[float, ...]]]
"""The accuracy of every run, by panel and row."""
Pair = tuple[str, str, str, Wanted]
"""A panel, a row, the row it is beside, and what the paper says of it."""
Papers = Mapping[str, Mapping[str, float]]


def comparison(
    *,
    heading: str,
    values: Callable[[Sequence[Result]], Values],
    pairs: Sequence[Pair],
    judged: Papers | None = None,
    drawn: Papers | None = None,
    **fields: Any,
) -> LearningFigure:
    """A figure of final accuracies, some beside one another, some beside the paper's by panel and row.

    Those that are no more than ``drawn`` are of other lengths or another set.
    """
    judged, read = judged or {}, {**(judged or {}), **(drawn or {})}

    def draw(results: Sequence[Result]) -> Figure:
        panels = {
            panel: [Row(name, runs, read.get(panel, {}).get(name)) for name, runs in rows.items()]
            for panel, rows in values(results).items()
        }
        return points_figure(title(heading, results), panels)

    def claims(results: Sequence[Result]) -> list[Claim]:
        by = values(results)

        def runs(panel: str, name: str) -> tuple[float, ...]:
            return by.get(panel, {}).get(name, ())

        reached = [
            Claim(f"{panel}: {name}", runs(panel, name), accuracy, "reached")
            for panel, rows in judged.items()
            for name, accuracy in rows.items()
        ]
        compared = [
            Claim(f"{panel}: {name} beside {other}", runs(panel, name), runs(panel, other), wanted)
            for panel, name, other, wanted in pairs
        ]
        return reached + compared

    return LearningFigure(draw=draw, claims=claims, **fields)


@dataclass(frozen=True, kw_only=True)
class TimingFigure:
    """A figure of time and memory over length; all of its series are in one result file."""

    name: str
    series: Callable[[bool], list[Series]]
    """What is measured; with True, tiny models that take seconds on a CPU."""
    draw: Callable[[Mapping[str, Any]], Figure]
    claims: Callable[[Mapping[str, Any]], list[Claim]]

    def results_path(self, root: Path, memory: float | None) -> Path:
        """The result file of a limit of GPU memory in gigabytes, None for no limit."""
        return root / self.name / ("results.json" if memory is None else f"results-{memory:g}GB.json")

    def save(self, path: Path) -> tuple[Path, Path]:
        """Draw the figure beside a result file."""
        return _save(self.draw(read_timing(path)), path.parent, path.stem.replace("results", "figure"))


def measure_timing(
    figure: TimingFigure,
    selected: Sequence[Series],
    root: Path,
    device: torch.device,
    *,
    memory: float | None,
    budget: float,
    quick: bool,
    commit: str | None,
    keep_others: bool,
    on_point: Callable[[Series, dict[str, Any]], None],
) -> Iterator[tuple[Series, dict[str, Any]]]:
    """Measure series of a figure, in place of earlier measurements; yields each after the result file is written.

    ``keep_others`` keeps the other series of the file, which must be of the same commit, device and versions.
    """
    facts, path = environment(device), figure.results_path(root, memory)
    setup: dict[str, Any] = {
        "experiment": figure.name,
        "commit": commit or facts["commit"],
        "device": facts["device"],
        "versions": facts["versions"] | {"cuda": torch.version.cuda},
        "dtype": "bfloat16" if device.type == "cuda" else "float32",
        "batch": 1,
        "memory": memory,
        "budget_seconds": budget,
        "quick": quick,
    }
    content = {**setup, "commands": [], "series": []}
    if keep_others and path.exists():
        content = read_timing(path)
        refuse_other_setup(path, content, setup)
    content["commands"].append({"command": command_line(), "started": facts["started"]})
    path.parent.mkdir(parents=True, exist_ok=True)
    for series in selected:
        limit_memory(memory, device)
        try:
            measured = measure_series(
                series, device, budget=budget, memory=memory, quick=quick, on_point=partial(on_point, series)
            )
        finally:
            limit_memory(None, device)
        others = [s for s in content["series"] if (s["model"], s["work"]) != (series.model, series.work)]
        content["series"] = [*others, measured]
        measured["slope"] = slope(points(content, series.model, series.work))
        write_result(path, content)
        yield series, measured


def read_timing(path: Path) -> dict[str, Any]:
    """A result file of a timing figure."""
    content: dict[str, Any] | None = read_json(
        path, TimingResult, what="result of a timing figure", remedy="remove it, and it is measured again"
    )
    if content is None:
        raise FileNotFoundError(f"{path} does not exist: nothing has been measured yet")
    return content


def _save(figure: Figure, folder: Path, stem: str) -> tuple[Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{stem}.svg", folder / f"{stem}.png"
    save_figure(figure, *paths)
    return paths
