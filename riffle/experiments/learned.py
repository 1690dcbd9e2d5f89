"""What an experiment of learning has found so far: its results read, its figure drawn."""

from __future__ import annotations

from pathlib import Path

from riffle.experiments import get_experiment
from riffle.experiments.chart import save
from riffle.experiments.results import Result, read_results


def read(name: str, root: Path) -> list[Result]:
    """The results of an experiment below the folder of all results, in the order in which it lists its runs.

    All of its own folders' runs on its tasks are its results, and of other experiments' those that it lists as well.
    """
    experiment = get_experiment(name)
    learners = experiment.configs()
    tasks = {learner.experiment.task for learner in learners}
    groups = {learner.group: learner.folder for learner in learners}
    borrowed = read_results(root, sorted(set(groups.values()) - set(experiment.FOLDERS)))
    results = [
        *(result for result in read_results(root, experiment.FOLDERS) if result["config"]["task"] in tasks),
        *(result for result in borrowed if result["group"] in groups),
    ]
    order = {group: place for place, group in enumerate(groups)}
    return sorted(results, key=lambda result: order.get(result["group"], len(order)))


def draw(name: str, root: Path) -> tuple[Path, Path]:
    """Draw an experiment's figure from its results."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "figure.svg", folder / "figure.png"
    save(get_experiment(name).figure(read(name, root)), *paths)
    return paths
