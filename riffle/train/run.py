"""A run's folder: config.json, environment.json, metrics.jsonl, checkpoint.safetensors, tensorboard/."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from riffle.config import EXPERIMENTS, Experiment
from riffle.overrides import differences, from_dict
from riffle.tasks.base import BLANK
from riffle.train.check import check
from riffle.train.checkpoint import below, read_checkpoint, write_checkpoint, write_json
from riffle.train.int8 import restore

if TYPE_CHECKING:
    from riffle.train.step import TrainStep

KEPT = ("best.model.", "average.", "model.")
"""Weights in a checkpoint by the beginning of their names; the first that are there are the trained model's."""


class Run:
    """A trained or half-trained model in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise FileNotFoundError(
                f"there is no run folder {self.folder}; train one with: riffle train TASK --out {self.folder}"
            )
        if not self.config.is_file():
            raise FileNotFoundError(f"{self.folder} is no run folder: it has no config.json")

    @property
    def config(self) -> Path:
        """The configuration."""
        return self.folder / "config.json"

    @property
    def checkpoint(self) -> Path:
        """Weights and training state."""
        return self.folder / "checkpoint.safetensors"

    @cached_property
    def experiment(self) -> Experiment:
        """The run's configuration."""
        try:
            values = json.loads(self.config.read_text())
            return from_dict(EXPERIMENTS.get(values["task"], Experiment), values)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{self.config} is no configuration of a run: {error}") from None

    @classmethod
    def create(cls, folder: Path, experiment: Experiment) -> Run:
        """A new run in a new or empty folder."""
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(
                f"{folder} exists already: continue it with --resume, or choose another folder with --out"
            )
        check(experiment)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", asdict(experiment))
        return cls(folder)

    @classmethod
    def resume(cls, folder: Path, experiment: Experiment) -> Run:
        """The run in a folder, which has to be of the same configuration."""
        run = cls(folder)
        changed = differences(run.experiment, experiment)
        if changed:
            lines = "; ".join(f"{name} is {old!r} there and {new!r} here" for name, (old, new) in changed.items())
            raise ValueError(f"{folder} belongs to another configuration: {lines}")
        for unfinished in run.folder.glob(f".{run.checkpoint.name}.*"):
            unfinished.unlink()  # a write that was killed
        return run

    def saved_step(self) -> int:
        """The step of the checkpoint; 0 without one."""
        return int(read_checkpoint(self.checkpoint, "step").get("", 0)) if self.checkpoint.exists() else 0

    def kept_step(self) -> int:
        """The step after which the trained model's weights were taken: the last one, or the best."""
        return int(read_checkpoint(self.checkpoint, "best.step").get("", self.saved_step()))

    def save(self, model: nn.Module, step: TrainStep) -> None:
        """Write the checkpoint; all ranks take part, and rank 0 writes."""
        weights = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        tensors = {**weights, **step.state()}
        if step.world.leads:
            write_checkpoint(self.checkpoint, tensors)

    def load(self, model: nn.Module, step: TrainStep) -> int:
        """Read the checkpoint into a model and its training state; gives the step."""
        tensors = read_checkpoint(self.checkpoint)
        self._load_weights(model, below("model.", tensors), self)
        try:
            step.load_state(tensors)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{self.checkpoint} lacks training state ({error}); restore it or train again") from None
        return int(step.step)

    def model(self, device: str | torch.device = "cpu") -> Any:
        """The trained model, ready to be used."""
        from riffle.train.subject import subject_of

        config = replace(self.experiment.model, backend="auto")  # weights serve every kernel
        model = subject_of(self.experiment, self.folder, device).build(config, device=device)
        self.give(model, self)
        return model.eval()

    def give(self, model: nn.Module, run: Run) -> None:
        """Copy the trained weights into a model, which is that of the given run."""
        found = (read_checkpoint(self.checkpoint, prefix) for prefix in KEPT)
        weights = restore(next((weights for weights in found if weights), {}))
        self._load_weights(model, weights, run)

    def padded(self, symbols: list[int]) -> list[int]:
        """An input as the model saw it in training, where inputs shorter than the smallest bin have blanks after them.

        Networks of fewer cells share the weights, but were never trained.
        """
        return symbols + [BLANK] * (min(self.experiment.data.bins) - len(symbols))

    def _load_weights(self, model: nn.Module, weights: dict[str, torch.Tensor], run: Run) -> None:
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            reason = " ".join(str(error).split())  # torch lists them line by line
            raise ValueError(f"{self.checkpoint} does not fit the model in {run.config}: {reason}") from None


def find_run(task: str, root: Path) -> Run | None:
    """The most recently trained run of a task below ``root``."""
    checkpoints = sorted(root.glob("*/checkpoint.safetensors"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in checkpoints:
        with contextlib.suppress(FileNotFoundError, ValueError):  # a damaged run is no reason to give up
            run = Run(path.parent)
            if run.experiment.task == task:
                return run
    return None
