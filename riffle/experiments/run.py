"""Run an experiment: measure every series, keep the JSON whole all along, draw the figure from it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from riffle.experiments.chart import save
from riffle.experiments.series import Series, points, slope
from riffle.experiments.timing import limit_memory, measure
from riffle.train.checkpoint import write_json
from riffle.train.record import environment


def run(
    name: str,
    experiment: ModuleType,
    folder: Path,
    device: torch.device,
    *,
    memory: float | None = None,
    budget: float = 10.0,
    quick: bool = False,
    on_point: Callable[[Series, dict[str, Any]], None] = lambda series, point: None,
    on_series: Callable[[Series, dict[str, Any]], None] = lambda series, found: None,
) -> dict[str, Any]:
    """Measure an experiment and leave results and figure in a folder.

    Args:
        name: The experiment's name.
        experiment: Its module.
        folder: Where results.json, figure.svg and figure.png go; with a limit of memory, their names say it.
        device: Where to measure.
        memory: Gigabytes of the GPU that may be used, None for all.
        budget: Seconds that one call may take; longer lengths are left out.
        quick: Whether to measure small models in seconds.
        on_point: Called after every length.
        on_series: Called after every series.
    """
    facts = environment(device)
    results: dict[str, Any] = {
        "experiment": name,
        "command": shlex.join(["riffle", *sys.argv[1:]]),
        "commit": facts["commit"],
        "device": facts["device"],
        "versions": facts["versions"] | {"cuda": torch.version.cuda},
        "started": facts["started"],
        "dtype": "bfloat16" if device.type == "cuda" else "float32",
        "batch": 1,
        "memory": memory,
        "budget_seconds": budget,
        "quick": quick,
        "series": [],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = results_path(folder, memory)
    limit_memory(memory, device)
    try:
        for series in experiment.configs(quick=quick):

            def told(point: dict[str, Any], series: Series = series) -> None:
                on_point(series, point)

            found = measure(series, device, budget=budget, memory=memory, quick=quick, on_point=told)
            results["series"].append(found)
            found["slope"] = slope(points(results, series.model, series.work))
            on_series(series, found)
            write_json(path, results)
    finally:
        limit_memory(None, device)
    results["claims"] = [claim._asdict() for claim in experiment.claims(results)]
    write_json(path, results)
    draw(experiment, path)
    return results


def results_path(folder: Path, memory: float | None) -> Path:
    """The file of results in a folder."""
    return folder / ("results.json" if memory is None else f"results-{memory:g}GB.json")


def draw(experiment: ModuleType, path: Path) -> tuple[Path, Path]:
    """Draw the figure of a file of results beside it."""
    results = json.loads(path.read_text())
    stem = path.stem.replace("results", "figure")
    paths = path.with_name(f"{stem}.svg"), path.with_name(f"{stem}.png")
    save(experiment.figure(results), *paths)
    return paths
