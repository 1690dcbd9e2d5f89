"""Run an experiment: measure every line of its figure, keep the JSON whole all along, draw the figure from it."""

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
from riffle.experiments.kind import Entry, OnProgress, Settings
from riffle.train.checkpoint import write_json
from riffle.train.record import environment


def run(
    name: str,
    experiment: ModuleType,
    folder: Path,
    device: torch.device,
    settings: Settings,
    *,
    on_progress: OnProgress = lambda what, lines: None,
    on_line: Callable[[Entry], None] = lambda found: None,
) -> dict[str, Any]:
    """Measure an experiment and leave results and figure in a folder.

    Args:
        name: The experiment's name.
        experiment: Its module.
        folder: Where results.json, figure.svg and figure.png go; with a limit of memory, their names say it.
        device: Where to measure.
        settings: How to measure.
        on_progress: Called with what is measured just now, and how many lines of the figure are done.
        on_line: Called after every line of the figure.
    """
    facts = environment(device)
    results: dict[str, Any] = {
        "experiment": name,
        "command": shlex.join(["riffle", *sys.argv[1:]]),
        "commit": facts["commit"],
        "device": facts["device"],
        "versions": facts["versions"] | {"cuda": torch.version.cuda},
        "started": facts["started"],
        **experiment.KIND.about(settings, device),
        "quick": settings.quick,
        "series": [],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = results_path(folder, settings.memory)
    for done, line in enumerate(experiment.configs(quick=settings.quick)):

        def told(what: str, share: float, done: int = done) -> None:
            on_progress(what, done + share)

        found = experiment.KIND.measure(line, device, settings, told)
        results["series"].append(found)
        on_line(found)
        write_json(path, results)
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
