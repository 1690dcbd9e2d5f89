"""Measure the series of a timing figure into its result file, which is complete after every series."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from riffle.bench.over_length import Series, limit_memory, measure_series, points, slope
from riffle.environment import environment
from riffle.files import write_json
from riffle.reproduce.figure import TimingFigure, read_timing


def select_series(series: Sequence[Series], texts: Sequence[str]) -> list[Series]:
    """The series with one of the texts in their name; all without a text."""
    selected = [each for each in series if not texts or any(text in each.name for text in texts)]
    if not selected:
        raise ValueError(f"--only {','.join(texts)} leaves no series of {'; '.join(each.name for each in series)}")
    return selected


def measure_figure(
    figure: TimingFigure,
    series: Sequence[Series],
    root: Path,
    device: torch.device,
    *,
    memory: float | None = None,
    budget: float = 10.0,
    quick: bool = False,
    commit: str | None = None,
    keep_others: bool = False,
    on_point: Callable[[Series, dict[str, Any]], None] = lambda series, point: None,
    on_series: Callable[[Series, dict[str, Any]], None] = lambda series, measured: None,
) -> None:
    """Measure series of a figure.

    Args:
        figure: The figure.
        series: Those of its series that are measured.
        root: The folder of all results.
        device: Where to measure.
        memory: Gigabytes of the GPU that may be used, None for all.
        budget: Seconds that one call may take; longer lengths are left out.
        quick: Whether the models are tiny, with fewer repeats.
        commit: The commit of the code, None to ask git.
        keep_others: Whether to keep the file's other series, which must be of the same commit, device and versions.
        on_point: Called after every length.
        on_series: Called after every series.
    """
    facts = environment(device)
    conditions: dict[str, Any] = {
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
    path = figure.results_path(root, memory)
    path.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {**conditions, "commands": [], "series": []}
    if keep_others and path.exists():
        results = read_timing(path)
        for name, value in conditions.items():
            if results.get(name) != value:
                raise ValueError(
                    f"{path} holds measurements of {name} {results.get(name)}, this is {value}: "
                    "give another --out, or remove the file"
                )
    results["commands"].append({"command": shlex.join(["riffle", *sys.argv[1:]]), "started": facts["started"]})
    limit_memory(memory, device)
    try:
        for each in series:
            measured = measure_series(
                each,
                device,
                budget=budget,
                memory=memory,
                quick=quick,
                on_point=lambda point, each=each: on_point(each, point),  # type: ignore[misc]
            )
            others = [s for s in results["series"] if (s["model"], s["work"]) != (each.model, each.work)]
            results["series"] = [*others, measured]
            measured["slope"] = slope(points(results, each.model, each.work))
            on_series(each, measured)
            write_json(path, results)
    finally:
        limit_memory(None, device)
