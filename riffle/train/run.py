"""A run's folder: config.json, environment.json, metrics.jsonl, tensorboard/ and checkpoint.safetensors."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from riffle.config import Count, Precision, RunConfig, fields, run_config_from_dict, training_differences
from riffle.files import (
    LOCK_FILE,
    DamagedFile,
    FolderLock,
    parse_json,
    read_checked,
    read_text,
    write_atomically,
    write_json,
)
from riffle.models.build import WithoutValues
from riffle.quantities import format_bytes, quote, shorten
from riffle.schema import check, decode
from riffle.shuffle import padded_length
from riffle.tasks import get_task
from riffle.tasks.task import BLANK
from riffle.train.checkpoint import add_prefix, dequantize, read_checkpoint, select_prefix, write_checkpoint
from riffle.train.objective import SAMPLERS, make_objective, resolve_precision

if TYPE_CHECKING:
    from riffle.train.step import TrainStep

TRAINED_PREFIXES = ("best.model.", "average.", "model.")
"""Prefixes of weights in a checkpoint; the first that occurs marks those of the trained model."""
OWNED_FILES = ("config.json", "environment.json", "metrics.jsonl", "checkpoint.safetensors", "words.safetensors")
"""Files that only the owner of a run folder writes."""
CURVES = "tensorboard"


class Run:
    """A run in its folder, trained or in training."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.config_path, self.checkpoint = self.folder / "config.json", self.folder / "checkpoint.safetensors"
        self.lock: FolderLock | None = None
        """Ownership of the folder, from :meth:`create` or :meth:`resume` to the end of the training."""
        if not self.folder.is_dir():
            raise FileNotFoundError(
                f"there is no run folder {self.folder}; train one with: riffle train TASK --out {self.folder}"
            )
        if not self.config_path.is_file():
            raise FileNotFoundError(f"{self.folder} is no run folder: it has no config.json")

    @cached_property
    def config(self) -> RunConfig:
        """The configuration."""
        path, what, remedy = self.config_path, "configuration of a run", "restore it or train again"
        return read_checked(path, lambda: run_config_from_dict(parse_json(read_text(path))), what, remedy)

    @classmethod
    def create(cls, folder: Path, config: RunConfig) -> Run:
        """A new run, owned by this process, in a folder that is new, empty, or of a run that came to nothing."""
        folder = Path(folder)
        _refuse_used(folder)
        check_config(config)
        with ExitStack() as on_failure:
            lock = on_failure.enter_context(FolderLock(folder))
            _refuse_used(folder)  # another process may have been quicker
            _remove_unfinished(folder)
            for name in OWNED_FILES:  # of a run that failed at its first steps
                (folder / name).unlink(missing_ok=True)
            shutil.rmtree(folder / CURVES, ignore_errors=True)
            write_json(folder / "config.json", asdict(config))
            run = cls(folder)
            run.lock = lock
            on_failure.pop_all()
        return run

    @classmethod
    def resume(cls, folder: Path, config: RunConfig, *, wait: bool = False) -> Run:
        """The run in a folder, owned by this process.

        Its configuration must be the given one, but for fields that do not change the training: these take the new
        values. ``wait`` waits for the present owner of the folder to end.
        """
        run = cls(folder)
        run.refuse_other(config)
        check(config)
        with ExitStack() as on_failure:
            run.lock = on_failure.enter_context(FolderLock(folder, wait=wait))
            _remove_unfinished(folder)
            if config != run.config:
                write_json(run.config_path, asdict(config))
                run.config = config
            on_failure.pop_all()
        return run

    def refuse_other(self, config: RunConfig) -> None:
        """Raise a ``ValueError`` that lists the fields in which a configuration describes another training."""
        evaluated = self.checkpoint.exists() and bool(read_checkpoint(self.checkpoint, "best.step"))
        changed = training_differences(self.config, config, evaluated=evaluated)
        if changed:
            lines = "; ".join(f"{name} is {quote(a)} there and {quote(b)} here" for name, (a, b) in changed.items())
            raise ValueError(f"{self.folder} belongs to another configuration: {lines}")

    def saved_step(self) -> int:
        """The step of the checkpoint, 0 if there is none."""
        return self._read_step("step", 0) if self.checkpoint.exists() else 0

    def weights_step(self) -> int:
        """The step of the trained model's weights: the last one, or the best one with ``train.keep=best``."""
        return self._read_step("best.step", self.saved_step())

    def _read_step(self, name: str, default: int) -> int:
        step = read_checkpoint(self.checkpoint, name).get("")
        if step is not None and (step.shape or step.is_floating_point() or not 0 <= step <= self.config.train.steps):
            raise self._damaged(f"{name} must be a whole number up to train.steps, got {quote(step.tolist())}")
        return default if step is None else int(step)

    def precision(self, device: torch.device) -> Precision:
        """In which precision it trains on a device; what ``auto`` meant before still holds if the device has it."""
        from riffle.environment import read_environment

        first = read_environment(self.folder) or {}
        before = [first, *first.get("resumed", [])][-1].get("precision")
        asked, best = self.config.train.precision, resolve_precision("auto", device)
        return resolve_precision(before if asked == "auto" and before in ("fp32", best) else asked, device)

    def save(self, step: TrainStep) -> None:
        """Write the checkpoint; all ranks take part, and rank 0 writes."""
        tensors = add_prefix(step.model.state_dict(), "model.") | step.state()
        if step.ranks.is_rank0:
            write_checkpoint(self.checkpoint, tensors)

    def load(self, step: TrainStep) -> int:
        """Read the checkpoint into a training state and its model; returns the step."""
        done, tensors = self.saved_step(), read_checkpoint(self.checkpoint)
        self._load_weights(step.model, select_prefix(tensors, "model."), self)
        try:
            step.load_state(tensors)
            for parameter, slots in step.optimizer.state.items():
                for name, slot in slots.items():
                    if slot.dim() and slot.shape != parameter.shape:
                        raise ValueError(f"{name} has shape {tuple(slot.shape)}, not {tuple(parameter.shape)}")
                    if not slot.isfinite().all():
                        raise ValueError(f"{name} is not finite")
        except (KeyError, ValueError, RuntimeError, TypeError, IndexError) as error:
            raise self._damaged(f"it lacks training state ({' '.join(str(error).split())})") from None
        return done

    def model(self, device: str | torch.device = "cpu") -> Any:
        """The trained model, in evaluation mode."""
        config: Any = self.config.model
        if hasattr(config, "backend"):
            config = replace(config, backend="auto")  # the weights fit every kernel
        model = make_objective(self.config, self.folder, device).build(config, device=device)
        self.load_trained_weights(model, self)
        return model.eval()

    def load_trained_weights(self, model: nn.Module, run: Run) -> None:
        """Copy the trained weights into a model, which has the configuration of the given run."""
        tensors = read_checkpoint(self.checkpoint)
        candidates = (select_prefix(tensors, prefix) for prefix in TRAINED_PREFIXES)
        try:
            weights = dequantize(next((weights for weights in candidates if weights), {}))
        except ValueError as error:
            raise self._damaged(str(error)) from None
        self._load_weights(model, weights, run)

    def padded(self, symbols: list[int]) -> list[int]:
        """An input as the network reads it: filled up by its task where it can be, then blanks up to the smallest bin.

        Smaller networks share the weights but were not trained. See :meth:`riffle.tasks.Task.fill`.
        """
        smallest = min(self.config.data.bins)
        length = padded_length(len(symbols), getattr(self.config.model, "pad", "power"))
        symbols = get_task(self.config.task).fill(symbols, max(smallest, length))
        return symbols + [BLANK] * (smallest - len(symbols))

    def _load_weights(self, model: nn.Module, weights: dict[str, Tensor], run: Run) -> None:
        try:
            model.load_state_dict(weights, assign=next(model.parameters()).is_meta)
        except RuntimeError as error:
            reason = " ".join(str(error).split())  # torch lists the names on several lines
            raise ValueError(f"{self.checkpoint} does not fit the model in {run.config_path}: {reason}") from None
        for name, tensor in weights.items():
            if not tensor.isfinite().all():
                raise self._damaged(f"the weights {name} are not all finite")

    def _damaged(self, reason: str) -> DamagedFile:
        return DamagedFile(f"{self.checkpoint} is damaged: {reason}; restore it or train again")


def _unfinished(folder: Path) -> set[Path]:
    """Files that a killed process left behind: temporary ones of those that the owner of a run folder writes."""
    return {path for name in OWNED_FILES for path in folder.glob(f".{name}.*")}


def _remove_unfinished(folder: Path) -> None:
    for path in _unfinished(folder):
        path.unlink()


def _refuse_used(folder: Path) -> None:
    """Raise if a folder has more than a lock, temporary files, and what a run leaves that fails at its first steps."""
    if folder.is_dir():
        found = {path.name for path in folder.iterdir() if path not in _unfinished(folder)} - {LOCK_FILE}
        failed = {"config.json", "environment.json"} <= found <= {*OWNED_FILES, CURVES} - {"checkpoint.safetensors"}
        if not found or (failed and not read_metrics(folder)):
            return
    if folder.exists():
        if (folder / LOCK_FILE).exists():
            FolderLock(folder).release()  # refused by a living owner, whom the message names
        raise FileExistsError(f"{folder} exists already: continue it with --resume, or choose another one with --out")


def find_runs(root: Path, tasks: Container[str]) -> Iterator[Run]:
    """The runs of some tasks directly below ``root``, the most recently trained first; damaged ones are skipped."""
    checkpoints = sorted(root.glob("*/checkpoint.safetensors"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in checkpoints:
        try:
            run = Run(path.parent)
            if run.config.task not in tasks:
                continue
            with WithoutValues():
                run.model("meta")
        except (OSError, ValueError) as error:
            logging.getLogger(__name__).warning("skipped: %s", shorten(str(error)))
        else:
            yield run


def find_run(task: str, root: Path) -> Run | None:
    """The most recently trained run of a task directly below ``root``."""
    return next(find_runs(root, [task]), None)


def record_environment(folder: Path, about: dict[str, Any]) -> None:
    """Write environment.json; if the run is resumed, append to the list ``resumed`` of the first record."""
    from riffle.environment import read_environment

    if first := read_environment(folder):
        about = {**first, "resumed": [*first.get("resumed", []), about]}
    write_json(folder / "environment.json", about)


class MetricsWriter:
    """Appends metrics to metrics.jsonl and, where TensorBoard is installed, to its curves.

    Args:
        folder: The run's folder.
        step: The step the run continues from; later lines of an earlier attempt are dropped.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.path = folder / "metrics.jsonl"
        self.kept = [line for line in read_metrics(folder) if line["step"] <= step]
        write_atomically(self.path, "".join(json.dumps(line) + "\n" for line in self.kept).encode())
        self.curves: Any = None
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard.writer import SummaryWriter

            with self._naming_folder():
                self.curves = SummaryWriter(folder / CURVES, purge_step=step + 1)

    def write(self, step: int, **values: float) -> None:
        """Record values at a step."""
        with self._naming_folder():
            with self.path.open("a") as file:
                file.write(json.dumps({"step": step, **values}) + "\n")
            for name, value in values.items() if self.curves else ():
                self.curves.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush everything to disk."""
        if self.curves:
            with self._naming_folder():
                self.curves.close()

    @contextmanager
    def _naming_folder(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = error.filename or str(self.path.parent)
            raise


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl; an incomplete last line of a killed process is dropped."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    *lines, _incomplete = read_text(path).split("\n")
    return [
        read_checked(path, partial(_decode_metrics, line, number), "record of metrics", "remove that line")
        for number, line in enumerate(lines, 1)
        if line
    ]


def _decode_metrics(line: str, number: int) -> dict[str, float]:
    values: dict[str, float] = decode(dict[str, float], parse_json(line), f"line {number}")
    decode(Count, values.get("step"), f"line {number}.step")
    return values


def check_config(config: RunConfig) -> None:
    """Raise a ``ValueError`` that names the first field with an impossible value and the values it takes."""
    from riffle.train.optim import OPTIMIZERS
    from riffle.train.schedule import SCHEDULES

    check(config)
    data, train = config.data, config.train
    values = {name: value for name, (value, _) in fields(config).items()}
    rules = {
        "data.bins": (data.bins and list(data.bins) == sorted(set(data.bins)), "rising lengths"),
        "data.full": (data.full + data.shorter + data.above <= 1, "within 0..1 with data.shorter and data.above"),
        "data.longest": (data.longest <= max(data.bins, default=0), "at most the largest bin, or 0 for it"),
        "train.keep": (train.keep == "last" or train.evaluate_every, "'last' where nothing is evaluated"),
    }
    for name, (holds, expected) in rules.items():
        if not holds:
            raise ValueError(f"{name} must be {expected}, got {quote(values[name])}")
    OPTIMIZERS[train.optimizer], SCHEDULES[train.schedule]  # unknown names are refused
    if data.examples:  # which only research has
        SAMPLERS["data.examples"]
    if train.start and not (Path(train.start) / "checkpoint.safetensors").is_file():
        raise ValueError(f"train.start must be the folder of a trained run, got {train.start}")
    with WithoutValues():
        model = make_objective(config).build(config.model, device="meta")  # the model checks its own arguments
    cells = data.batch * sum(data.bins)
    numbers = sum(parameter.numel() for parameter in model.parameters()) + cells * config.model.features
    from riffle.environment import total_bytes

    if 4 * numbers > (most := total_bytes()):
        raise ValueError(
            f"the weights and the cells of a step take over {format_bytes(4 * numbers)}, and this machine has "
            f"{format_bytes(most)}: choose a smaller model.features, model.blocks, data.batch or data.bins"
        )
