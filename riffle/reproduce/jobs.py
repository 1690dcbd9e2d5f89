"""What a process does for one run: train it, or go on with it, measure it, write its result.

The runs of an experiment: which are finished, which are begun, what is left to do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from riffle.config import RunConfig, differences, from_dict
from riffle.environment import environment
from riffle.files import write_json
from riffle.reproduce.results import read_result
from riffle.reproduce.specs import RunSpec
from riffle.train.loop import Interrupted, train
from riffle.train.run import Run, read_metrics

EVALUATIONS, LINES = 160, 40
"""Points of a run's result at most: evaluations, and other lines of metrics.jsonl."""


@dataclass(frozen=True, kw_only=True)
class RunJob:
    """A run to be carried out."""

    learner: RunSpec
    folder: Path
    """The run's folder."""
    result: Path
    """Where its result goes."""
    about: Mapping[str, Any]
    """What the result says of its origin: command, commit and the like."""

    @property
    def log(self) -> Path:
        """What the process has to say besides."""
        return self.folder.with_name(f"{self.folder.name}.log")


class RunUpdate(NamedTuple):
    """What a process reports."""

    kind: Literal["step", "measuring", "finished", "stopped", "failed"]
    step: int = 0
    rate: float = 0.0
    """Steps in a second."""
    reason: str = ""
    """Why it failed."""


def run_job(order: RunJob, device: torch.device, tell: Callable[[RunUpdate], None] = lambda news: None) -> None:
    """Carry out a run from wherever it is to its result."""
    learner = order.learner
    if not (order.folder / "config.json").exists():
        shutil.rmtree(order.folder, ignore_errors=True)  # a process was killed before it had written anything
        Run.create(order.folder, learner.config)
    run = Run.resume(order.folder, learner.config)
    train(run, device=device, on_log=lambda step, values: tell(RunUpdate("step", step, values["steps_per_second"])))
    tell(RunUpdate("measuring", learner.config.train.steps))
    measured = learner.measure(run, device)
    order.result.parent.mkdir(parents=True, exist_ok=True)
    write_json(order.result, {**describe_run(run, order, device), **measured})
    tell(RunUpdate("finished", learner.config.train.steps))


def describe_run(run: Run, order: RunJob, device: torch.device) -> dict[str, Any]:
    """How a run came about, and how it went."""
    facts, metrics, settings = environment(device), read_metrics(run.folder), run.config.train
    rates = [line["steps_per_second"] for line in metrics if "steps_per_second" in line]
    return {
        "run": order.learner.name,
        "group": order.learner.group,
        "seed": settings.seed,
        "steps": settings.steps,
        "seconds": round(sum(settings.log_every / rate for rate in rates), 1),
        **order.about,
        "hardware": facts["device"],
        "versions": facts["versions"],
        "finished": facts["started"],
        "config": asdict(run.config),
        "metrics": thin_metrics(metrics),
    }


def thin_metrics(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most 200 lines of a run's metrics, evenly spread, the last ones kept.

    >>> kept = thinned([{"step": step, "loss": 0.0} for step in range(1000)])
    >>> len(kept), kept[-1]["step"]
    (40, 999)
    """
    evaluated = [line for line in metrics if "loss" not in line]
    logged = [line for line in metrics if "loss" in line]
    kept = sorted(_spread(evaluated, EVALUATIONS) + _spread(logged, LINES), key=lambda line: line["step"])
    return [{name: value if name == "step" else float(f"{value:.5g}") for name, value in line.items()} for line in kept]


def _spread(lines: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    if len(lines) <= most:
        return lines
    return [lines[(index + 1) * len(lines) // most - 1] for index in range(most)]


def run_in_subprocess(order: RunJob, device: str, threads: int, variables: Mapping[str, str], pipe: Connection) -> None:
    """Carry out a run in a process of its own, and report it through a pipe."""
    os.setsid()  # Ctrl-C goes to the command, which stops its processes in good order
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(variables)
    order.folder.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)

    def tell(news: RunUpdate) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more, and the run is yet to be saved
            pipe.send(news)

    try:
        fcntl.flock(log, fcntl.LOCK_EX)  # a process that a killed command left behind may still be saving
        place = torch.device(device)
        if place.index is not None:
            torch.cuda.set_device(place)
        run_job(order, place, tell)
    except (Interrupted, KeyboardInterrupt):
        tell(RunUpdate("stopped"))
    except Exception as error:
        traceback.print_exc()
        said = next(iter(str(error).strip().splitlines()), "")
        tell(RunUpdate("failed", reason=f"{type(error).__name__}: {said}" if said else type(error).__name__))
    finally:
        sys.stderr.flush()


def _end_with_parent() -> None:
    """Stop as on Ctrl-C once the command is gone, however it ended."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)


class PendingRun(NamedTuple):
    """A run that is not finished."""

    order: RunJob
    step: int
    """Steps made so far."""
    rate: float | None
    """Its speed when it was last trained, in steps a second."""


def pending_runs(learners: Sequence[RunSpec], results: Path, work: Path, about: Mapping[str, Any]) -> list[PendingRun]:
    """The runs that have no result yet; refuses results and run folders of another configuration.

    Args:
        learners: All runs of an experiment.
        results: The folder of all results.
        work: The folder of all run folders.
        about: What each result is to say of its origin.
    """
    found = []
    for learner in learners:
        result, folder = (root / learner.folder / learner.name for root in (results, work))
        result = result.with_name(f"{learner.name}.json")
        if result.exists():
            _refuse_other(result, learner)
            continue
        step, rate = 0, None
        if (folder / "config.json").exists():
            run = Run.resume(folder, learner.config)
            step = run.saved_step()
            rate = next((line["steps_per_second"] for line in reversed(read_metrics(folder)) if "loss" in line), None)
        found.append(PendingRun(RunJob(learner=learner, folder=folder, result=result, about=about), step, rate))
    return found


def _refuse_other(path: Path, learner: RunSpec) -> None:
    content = read_result(path)
    if content is None:
        raise ValueError(f"{path} is no result of a run: remove it, or choose another folder with --out")
    kept = from_dict(type(learner.config), content["config"])
    assert isinstance(kept, RunConfig)
    other = differences(kept, learner.config)
    if other:
        lines = "; ".join(f"{name} is {old!r} there and {new!r} here" for name, (old, new) in other.items())
        raise ValueError(
            f"{path} is the result of another configuration: {lines}; remove it, or choose another folder with --out"
        )
