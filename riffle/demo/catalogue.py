"""The trained models the page offers: those below a folder, and those that come with the package."""

from __future__ import annotations

import contextlib
from functools import cached_property
from pathlib import Path

import torch

from riffle.models.base import SymbolModel
from riffle.tasks import TASKS, get_task
from riffle.train.run import Run
from riffle.train.shipped import SHIPPED


class Trained(Run):
    """A run whose model is read once, on the CPU, and then kept."""

    @cached_property
    def _kept(self) -> SymbolModel:
        return super().model()

    def model(self, device: str | torch.device = "cpu") -> SymbolModel:
        assert str(device) == "cpu", "the page computes on the CPU"
        return self._kept

    @property
    def trained_length(self) -> int:
        """The longest input the model saw in training."""
        return max(self.experiment.data.bins)


class Catalogue:
    """Models by the name under which the page offers them, the newest first and the shipped ones last."""

    def __init__(self, runs: Path, shipped: Path = SHIPPED) -> None:
        self.models: dict[str, Trained] = {}
        for root in (runs, shipped):
            for run in _below(root):
                name = f"{run.experiment.task} (shipped)" if root == shipped else str(run.folder)
                self.models[name] = run
        if not self.models:
            raise ValueError(f"no trained model below {runs}: train one with `riffle train reverse --recipe small`")

    @property
    def tasks(self) -> list[str]:
        """The tasks that have a model, in the order of the list of tasks."""
        trained = {run.experiment.task for run in self.models.values()}
        return [name for name in TASKS if name in trained]

    def names(self, task: str) -> list[str]:
        """The models of a task."""
        return [name for name, run in self.models.items() if run.experiment.task == task]

    def get(self, name: str) -> Trained:
        """The model of that name; an unknown one is answered with those that exist."""
        if name not in self.models:
            raise ValueError(f"there is no model {name!r}; models are {', '.join(self.models)}")
        return self.models[name]


def _below(root: Path) -> list[Trained]:
    """The runs directly below a folder that can be used, the most recently trained first."""
    checkpoints = sorted(root.glob("*/checkpoint.safetensors"), key=lambda path: path.stat().st_mtime, reverse=True)
    runs = []
    for path in checkpoints:
        with contextlib.suppress(OSError, ValueError):  # a damaged run is no reason to give up
            run = Trained(path.parent)
            get_task(run.experiment.task)
            runs.append(run)
    return runs
