"""Run a timing experiment: measure its series, keep the JSON whole all along, draw the figure from it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from riffle.bench.over_length import Series, limit_memory, measure_series, points, slope
from riffle.environment import environment
from riffle.files import write_json
from riffle.plots import save_figure


def measure_figure(
    name: str,
    series: Sequence[Series],
    folder: Path,
    device: torch.device,
    *,
    memory: float | None = None,
    budget: float = 10.0,
    quick: bool = False,
    commit: str | None = None,
    add: bool = False,
    on_point: Callable[[Series, dict[str, Any]], None] = lambda series, point: None,
    on_series: Callable[[Series, dict[str, Any]], None] = lambda series, found: None,
) -> None:
    """Measure series of an experiment into a file.

    Args:
        name: The experiment's name.
        series: What to measure.
        folder: Where the results go; with a limit of memory, the file's name says it.
        device: Where to measure.
        memory: Gigabytes of the GPU that may be used, None for all.
        budget: Seconds that one call may take; longer lengths are left out.
        quick: Whether to measure small models in seconds.
        commit: The commit of the code, None to ask git.
        add: Whether to keep the other series of the file, which have to be of the same commit, device and versions.
        on_point: Called after every length.
        on_series: Called after every series.
    """
    facts = environment(device)
    ground: dict[str, Any] = {
        "experiment": name,
        "commit": commit or facts["commit"],
        "device": facts["device"],
        "versions": facts["versions"] | {"cuda": torch.version.cuda},
        "dtype": "bfloat16" if device.type == "cuda" else "float32",
        "batch": 1,
        "memory": memory,
        "budget_seconds": budget,
        "quick": quick,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = results_path(folder, memory)
    results = _begun(path, ground) if add and path.exists() else {**ground, "commands": [], "series": []}
    results["commands"].append({"command": shlex.join(["riffle", *sys.argv[1:]]), "started": facts["started"]})
    limit_memory(memory, device)
    try:
        for each in series:

            def told(point: dict[str, Any], each: Series = each) -> None:
                on_point(each, point)

            found = measure_series(each, device, budget=budget, memory=memory, quick=quick, on_point=told)
            others = [s for s in results["series"] if (s["model"], s["work"]) != (each.model, each.work)]
            results["series"] = [*others, found]
            found["slope"] = slope(points(results, each.model, each.work))
            on_series(each, found)
            write_json(path, results)
    finally:
        limit_memory(None, device)


def selected(series: Sequence[Series], texts: Sequence[str]) -> list[Series]:
    """The series with one of the texts in their name; all without a text."""
    chosen = [each for each in series if not texts or any(text in each.name for text in texts)]
    if not chosen:
        raise ValueError(f"--only {','.join(texts)} leaves no series of {'; '.join(each.name for each in series)}")
    return chosen


def _begun(path: Path, ground: dict[str, Any]) -> dict[str, Any]:
    """The results in a file that are to be added to."""
    results = read_timing(path)
    for name, value in ground.items():
        if results.get(name) != value:
            raise ValueError(
                f"{path} holds measurements of {name} {results.get(name)}, this is {value}: "
                "give another --out, or remove the file"
            )
    return results


def read_timing(path: Path) -> dict[str, Any]:
    """The results in a file."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        return content
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist: nothing has been measured yet") from None


def results_path(folder: Path, memory: float | None) -> Path:
    """The file of results in a folder."""
    return folder / ("results.json" if memory is None else f"results-{memory:g}GB.json")


def draw_timing(figure: ModuleType, path: Path) -> tuple[Path, Path]:
    """Draw the figure of a file of results beside it."""
    results = read_timing(path)
    stem = path.stem.replace("results", "figure")
    paths = path.with_name(f"{stem}.svg"), path.with_name(f"{stem}.png")
    save_figure(figure.figure(results), *paths)
    return paths
