"""What an experiment of learning has found so far: its results read, its figure drawn."""

from __future__ import annotations

from pathlib import Path

from riffle.experiments import get_experiment
from riffle.experiments.chart import save
from riffle.experiments.results import Result, read_results


def read(name: str, root: Path) -> list[Result]:
    """The results of an experiment below the folder of all results."""
    return read_results(root, get_experiment(name).FOLDERS)


def draw(name: str, root: Path) -> tuple[Path, Path]:
    """Draw an experiment's figure from its results."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "figure.svg", folder / "figure.png"
    save(get_experiment(name).figure(read(name, root)), *paths)
    return paths
