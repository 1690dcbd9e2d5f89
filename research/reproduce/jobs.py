"""One run in a process of its own: train or resume it, measure it, write its result; and which runs are left."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from research.files import write_result
from research.registry import register
from research.reproduce.results import read_result
from research.reproduce.specs import RunSpec
from riffle.config import ModelConfig, run_config_from_dict, training_differences
from riffle.environment import environment
from riffle.kernels.tuning import MPS_SHARE
from riffle.quantities import quote
from riffle.train.loop import Interrupted, train
from riffle.train.run import Run, read_metrics

CHECKED_PRODUCTS = ((8192, 128, 384), (24576, 128, 128), (3840, 768, 384), (2048, 256, 768))
"""Rows, terms of a sum and columns of products that were wrong where a run had 48 multiprocessors of an H200."""
MAX_EVALUATIONS = 160
"""Evaluations during training that a result keeps, and the last line of the training log."""


@dataclass(frozen=True, kw_only=True)
class RunJob:
    """A run to train and measure."""

    spec: RunSpec
    folder: Path
    result: Path
    provenance: Mapping[str, Any]
    """What the result records of its origin: command, commit and the like."""
    step: int = 0
    """Steps trained before."""
    rate: float | None = None
    """Steps per second when it was last trained."""

    @property
    def log(self) -> Path:
        """Standard output and error of the process."""
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def kernels(self) -> Hashable:
        """What decides which kernels are compiled: runs that agree in it share them. None where there are none."""
        model, data, train = self.spec.config.model, self.spec.config.data, self.spec.config.train
        has_kernels = model.kind in (ModelConfig().kind, "dngpu", "preprint", "variant")
        return (model, data.bins, data.batch, train.precision) if has_kernels else None


class RunUpdate(NamedTuple):
    """What a process reports of its run: steps, steps per second, and the reason of a failure."""

    kind: Literal["step", "measuring", "finished", "stopped", "failed"]
    step: int = 0
    rate: float = 0.0
    reason: str = ""


def pending_jobs(specs: Sequence[RunSpec], results: Path, work: Path, provenance: Mapping[str, Any]) -> list[RunJob]:
    """The runs without a result; refuses results and run folders of another configuration."""
    pending = []
    for spec in specs:
        result, folder = results / spec.folder / f"{spec.name}.json", work / spec.folder / spec.name
        if result.exists():
            _refuse_other_config(result, spec)
            continue
        step, rate = 0, None
        if (folder / "config.json").exists():
            run = Run(folder)
            run.refuse_other(spec.config)
            step = run.saved_step()
            rate = next((line["steps_per_second"] for line in reversed(read_metrics(folder)) if "loss" in line), None)
        pending.append(RunJob(spec=spec, folder=folder, result=result, provenance=provenance, step=step, rate=rate))
    return pending


def _refuse_other_config(path: Path, spec: RunSpec) -> None:
    content = read_result(path)
    if content is None:
        raise ValueError(f"{path} is no result of a run: remove it, or choose another folder with --out")
    changed = training_differences(run_config_from_dict(content["config"]), spec.config)
    if changed:
        lines = "; ".join(f"{name} is {quote(old)} there and {quote(new)} here" for name, (old, new) in changed.items())
        raise ValueError(
            f"{path} is the result of another configuration: {lines}; remove it, or choose another folder with --out"
        )


def run_job(job: RunJob, device: torch.device, on_update: Callable[[RunUpdate], None] = lambda update: None) -> None:
    """Train a run from its last checkpoint to the end, measure it and write its result."""
    config = job.spec.config
    exists = (job.folder / "config.json").exists()
    # A process that a killed command left behind may still be saving.
    run = Run.resume(job.folder, config, wait=True) if exists else Run.create(job.folder, config)
    train(run, device=device, on_log=lambda step, log: on_update(RunUpdate("step", step, log["steps_per_second"])))
    on_update(RunUpdate("measuring", config.train.steps))
    measured = job.spec.measure(run, device)
    facts, metrics = environment(device), read_metrics(run.folder)
    rates = [line["steps_per_second"] for line in metrics if "steps_per_second" in line]
    result = {
        "run": job.spec.name,
        "group": job.spec.group,
        "seed": config.train.seed,
        "steps": config.train.steps,
        "seconds": round(sum(config.train.log_every / rate for rate in rates), 1),
        **job.provenance,
        "hardware": facts["device"],
        "versions": facts["versions"],
        "finished": facts["started"],
        "config": asdict(run.config),
        "metrics": thin_metrics(metrics),
        **measured,
    }
    job.result.parent.mkdir(parents=True, exist_ok=True)
    write_result(job.result, result)
    on_update(RunUpdate("finished", config.train.steps))


def thin_metrics(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The evaluations of a run, evenly thinned, and the last line of its training log, with five digits."""
    evaluations = [line for line in metrics if "loss" not in line]
    number = min(len(evaluations), MAX_EVALUATIONS)
    kept = [evaluations[(index + 1) * len(evaluations) // number - 1] for index in range(number)]
    kept += [line for line in metrics if "loss" in line][-1:]
    return [
        {name: value if name == "step" else float(f"{value:.5g}") for name, value in line.items()}
        for line in sorted(kept, key=lambda line: line["step"])
    ]


def run_in_subprocess(job: RunJob, device: str, threads: int, variables: Mapping[str, str], pipe: Connection) -> None:
    """The main function of a run's process: :func:`run_job`, reporting through a pipe."""
    os.setsid()  # Ctrl-C reaches only the command, which then stops its processes in order
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(variables)
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    register()

    def on_update(update: RunUpdate) -> None:
        with contextlib.suppress(OSError):  # the command is gone, but the run must still be saved
            pipe.send(update)

    try:
        torch_device = torch.device(device)
        if torch_device.index is not None:
            torch.cuda.set_device(torch_device)
        if torch_device.type == "cuda":
            check_products(torch_device)
        run_job(job, torch_device, on_update)
    except (Interrupted, KeyboardInterrupt):
        on_update(RunUpdate("stopped"))
    except Exception as error:
        traceback.print_exc()
        first_line = str(error).strip().partition("\n")[0]
        on_update(RunUpdate("failed", reason=f"{type(error).__name__}: {first_line}".removesuffix(": ")))
    finally:
        sys.stderr.flush()


def check_products(device: torch.device) -> None:
    """Raise ``RuntimeError`` where the library's matrix products are wrong, as under MPS with some shares of a GPU."""
    for rows, terms, columns in CHECKED_PRODUCTS:
        a, b = (torch.randn(size, terms, dtype=torch.bfloat16, device=device) for size in (rows, columns))
        exact = a.double() @ b.double().t()
        error = ((torch.mm(a, b.t()) - exact).norm() / exact.norm()).item()
        if not error < 0.01:  # NaN is no small error
            share = os.environ.get(MPS_SHARE, "100")
            raise RuntimeError(
                f"a product of matrices is wrong on {device}: {rows} x {terms} by {terms} x {columns} in bfloat16 has "
                f"a relative error of {error:.2g}. The process has {share}% of the multiprocessors (MPS): take "
                "another number of runs at once (--at-once)"
            )


def _end_with_parent() -> None:
    """Stop as on Ctrl-C once the command has ended, however it ended."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)
