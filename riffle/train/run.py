"""A run's folder: config.json, environment.json, metrics.jsonl, tensorboard/ and checkpoint.safetensors."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Container, Iterator
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from riffle.config import RUN_CONFIGS, PassageDataConfig, RunConfig, differences, fields, from_dict
from riffle.files import read_json, write_atomically, write_json
from riffle.shuffle import bits
from riffle.tasks import TASKS, get_task
from riffle.tasks.task import BLANK
from riffle.train.checkpoint import add_prefix, dequantize, read_checkpoint, select_prefix, write_checkpoint
from riffle.train.objective import make_objective

if TYPE_CHECKING:
    from riffle.train.step import TrainStep


TRAINED_PREFIXES = ("best.model.", "average.", "model.")
"""Prefixes of weights in a checkpoint; the first that occurs marks those of the trained model."""
AT_LEAST_ONE = ("data.batch", "train.steps", "train.log_every", "train.checkpoint_every")
AT_LEAST_ZERO = ("train.weight_decay", "train.warmup", "train.clip", "train.gradient_noise")
FRACTIONS = ("data.shorter", "data.structure", "data.offset", "train.label_smoothing")
PASSAGE_FRACTIONS = ("share", "word_dropout", "forget", "within", "flatten")
"""Fields of :class:`PassageDataConfig` that lie between 0 and 1."""


class Run:
    """A run in its folder, trained or in training."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise FileNotFoundError(
                f"there is no run folder {self.folder}; train one with: riffle train TASK --out {self.folder}"
            )
        if not self.config_path.is_file():
            raise FileNotFoundError(f"{self.folder} is no run folder: it has no config.json")

    @property
    def config_path(self) -> Path:
        """The file of the configuration."""
        return self.folder / "config.json"

    @property
    def checkpoint(self) -> Path:
        """The file of weights and training state."""
        return self.folder / "checkpoint.safetensors"

    @cached_property
    def config(self) -> RunConfig:
        """The configuration."""
        try:
            values = json.loads(self.config_path.read_text())
            return from_dict(RUN_CONFIGS.get(values["task"], RunConfig), values)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{self.config_path} is no configuration of a run: {error}") from None

    @classmethod
    def create(cls, folder: Path, config: RunConfig) -> Run:
        """A new run in a new or empty folder."""
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(
                f"{folder} exists already: continue it with --resume, or choose another folder with --out"
            )
        check_config(config)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", asdict(config))
        return cls(folder)

    @classmethod
    def resume(cls, folder: Path, config: RunConfig) -> Run:
        """The run in a folder, which must have the same configuration."""
        run = cls(folder)
        changed = differences(run.config, config)
        if changed:
            lines = "; ".join(f"{name} is {old!r} there and {new!r} here" for name, (old, new) in changed.items())
            raise ValueError(f"{folder} belongs to another configuration: {lines}")
        for unfinished in run.folder.glob(f".{run.checkpoint.name}.*"):
            unfinished.unlink()  # a killed process left it
        return run

    def saved_step(self) -> int:
        """The step of the checkpoint, 0 if there is none."""
        return int(read_checkpoint(self.checkpoint, "step").get("", 0)) if self.checkpoint.exists() else 0

    def weights_step(self) -> int:
        """The step of the trained model's weights: the last one, or the best one with ``train.keep=best``."""
        return int(read_checkpoint(self.checkpoint, "best.step").get("", self.saved_step()))

    def save(self, step: TrainStep) -> None:
        """Write the checkpoint; all ranks take part, and rank 0 writes."""
        tensors = add_prefix(step.model.state_dict(), "model.") | step.state()
        if step.ranks.is_rank0:
            write_checkpoint(self.checkpoint, tensors)

    def load(self, step: TrainStep) -> int:
        """Read the checkpoint into a training state and its model; returns the step."""
        tensors = read_checkpoint(self.checkpoint)
        self._load_weights(step.model, select_prefix(tensors, "model."), self)
        try:
            step.load_state(tensors)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{self.checkpoint} lacks training state ({error}); restore it or train again") from None
        return int(step.step)

    def model(self, device: str | torch.device = "cpu") -> Any:
        """The trained model, in evaluation mode."""
        config = replace(self.config.model, backend="auto")  # the weights fit every kernel
        model = make_objective(self.config, self.folder, device).build(config, device=device)
        self.load_trained_weights(model, self)
        return model.eval()

    def load_trained_weights(self, model: nn.Module, run: Run) -> None:
        """Copy the trained weights into a model, which has the configuration of the given run."""
        candidates = (read_checkpoint(self.checkpoint, prefix) for prefix in TRAINED_PREFIXES)
        weights = dequantize(next((weights for weights in candidates if weights), {}))
        self._load_weights(model, weights, run)

    def padded(self, symbols: list[int]) -> list[int]:
        """An input as the network reads it: filled up by its task where it can be, then blanks up to the smallest bin.

        Smaller networks share the weights but were not trained. See :meth:`riffle.tasks.Task.fill`.
        """
        smallest = min(self.config.data.bins)
        symbols = get_task(self.config.task).fill(symbols, max(smallest, 2 ** bits(len(symbols))))
        return symbols + [BLANK] * (smallest - len(symbols))

    def _load_weights(self, model: nn.Module, weights: dict[str, Tensor], run: Run) -> None:
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            reason = " ".join(str(error).split())  # torch lists the names on several lines
            raise ValueError(f"{self.checkpoint} does not fit the model in {run.config_path}: {reason}") from None


def find_runs(root: Path, tasks: Container[str]) -> Iterator[Run]:
    """The runs of some tasks directly below ``root``, the most recently trained first."""
    checkpoints = sorted(root.glob("*/checkpoint.safetensors"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in checkpoints:
        with contextlib.suppress(OSError, ValueError):  # skip damaged runs
            run = Run(path.parent)
            if run.config.task in tasks:
                yield run


def find_run(task: str, root: Path) -> Run | None:
    """The most recently trained run of a task directly below ``root``."""
    return next(find_runs(root, [task]), None)


def record_environment(folder: Path, about: dict[str, Any]) -> None:
    """Write environment.json; if the run is resumed, append to the list ``resumed`` of the first record."""
    path = folder / "environment.json"
    first = read_json(path)
    if first:
        about = {**first, "resumed": [*first.get("resumed", []), about]}
    write_json(path, about)


class MetricsWriter:
    """Appends metrics to metrics.jsonl and to TensorBoard curves.

    Args:
        folder: The run's folder.
        step: The step the run continues from; later lines of an earlier attempt are dropped.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self.path = folder / "metrics.jsonl"
        kept = [line for line in read_metrics(folder) if line["step"] <= step]
        write_atomically(self.path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        self.curves = SummaryWriter(folder / "tensorboard", purge_step=step + 1)

    def write(self, step: int, **values: float) -> None:
        """Record values at a step."""
        try:
            with self.path.open("a") as file:
                file.write(json.dumps({"step": step, **values}) + "\n")
            for name, value in values.items():
                self.curves.add_scalar(name, value, step)
        except OSError as error:
            error.filename = error.filename or str(self.path.parent)
            raise

    def close(self) -> None:
        """Flush everything to disk."""
        self.curves.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl; an incomplete last line of a killed process is dropped."""
    path = folder / "metrics.jsonl"
    lines: list[dict[str, Any]] = []
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        for line in path.read_text().splitlines():
            lines.append(json.loads(line))
    return lines


def check_config(config: RunConfig) -> None:
    """Raise a ``ValueError`` that names the first field with an impossible value and the values it takes."""
    data, train = config.data, config.train
    values = {name: value for name, (value, _) in fields(config).items()}
    rising = data.bins and min(data.bins) >= 1 and list(data.bins) == sorted(set(data.bins))
    has_worst_cases = config.task in TASKS and TASKS[config.task].splits
    adamax_decay = train.optimizer == "adamax" and train.weight_decay != 0
    fractions = [f"data.{name}" for name in PASSAGE_FRACTIONS] if isinstance(data, PassageDataConfig) else []
    rules = {
        "data.bins": (rising, "rising lengths"),
        **{name: (values[name] >= 1, "at least 1") for name in AT_LEAST_ONE},
        **{name: (0 <= values[name] < math.inf, "at least 0") for name in AT_LEAST_ZERO},
        **{name: (0 <= values[name] <= 1, "within 0..1") for name in (*FRACTIONS, *fractions)},
        "data.full": (0 <= data.full <= 1 - data.shorter, "within 0..1, together with data.shorter"),
        "data.worst": (
            data.worst == 0 or (0 < data.worst <= 1 and has_worst_cases),
            "within 0..1, and 0 for a task without worst cases",
        ),
        "data.longest": (0 <= data.longest <= max(data.bins, default=0), "at most the largest bin, or 0 for it"),
        "train.learning_rate": (0 < train.learning_rate < math.inf, "above 0"),
        "train.weight_decay of AdaMax": (not adamax_decay, "0, since it has no decay"),
        "train.average": (0 <= train.average < 1, "at least 0 and below 1"),
        "train.keep": (train.keep == "last" or train.evaluate_every, "'last' where nothing is evaluated"),
        "train.evaluate_every": (train.evaluate_every >= 0, "at least 1, or 0 for no evaluation"),
        "train.evaluate_lengths": (min(train.evaluate_lengths, default=1) >= 1, "lengths of at least 1"),
    }
    for name, (holds, expected) in rules.items():
        if not holds:
            raise ValueError(f"{name} must be {expected}, got {values[name.split()[0]]}")
    if train.start and not (Path(train.start) / "checkpoint.safetensors").is_file():
        raise ValueError(f"train.start must be the folder of a trained run, got {train.start}")
    make_objective(config).build(config.model, device="meta")  # the model checks its own arguments
