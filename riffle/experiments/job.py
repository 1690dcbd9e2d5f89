"""What a process does for one run: train it, or go on with it, measure it, write its result."""

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

from riffle.experiments.learner import Learner
from riffle.train.checkpoint import write_json
from riffle.train.loop import Interrupted, train
from riffle.train.record import environment, read_metrics
from riffle.train.run import Run

EVALUATIONS, LINES = 160, 40
"""Points of a run's result at most: evaluations, and other lines of metrics.jsonl."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """A run to be carried out."""

    learner: Learner
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


class News(NamedTuple):
    """What a process reports."""

    kind: Literal["step", "measuring", "finished", "stopped", "failed"]
    step: int = 0
    rate: float = 0.0
    """Steps in a second."""
    reason: str = ""
    """Why it failed."""


def work(order: Order, device: torch.device, tell: Callable[[News], None] = lambda news: None) -> None:
    """Carry out a run from wherever it is to its result."""
    learner = order.learner
    if not (order.folder / "config.json").exists():
        shutil.rmtree(order.folder, ignore_errors=True)  # a process was killed before it had written anything
        Run.create(order.folder, learner.experiment)
    run = Run.resume(order.folder, learner.experiment)
    train(run, device=device, on_log=lambda step, values: tell(News("step", step, values["steps_per_second"])))
    tell(News("measuring", learner.experiment.train.steps))
    measured = learner.measure(run, device)
    order.result.parent.mkdir(parents=True, exist_ok=True)
    write_json(order.result, {**described(run, order, device), **measured})
    tell(News("finished", learner.experiment.train.steps))


def described(run: Run, order: Order, device: torch.device) -> dict[str, Any]:
    """How a run came about, and how it went."""
    facts, metrics, settings = environment(device), read_metrics(run.folder), run.experiment.train
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
        "config": asdict(run.experiment),
        "metrics": thinned(metrics),
    }


def thinned(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
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


def serve(order: Order, device: str, threads: int, variables: Mapping[str, str], pipe: Connection) -> None:
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

    def tell(news: News) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more, and the run is yet to be saved
            pipe.send(news)

    try:
        fcntl.flock(log, fcntl.LOCK_EX)  # a process that a killed command left behind may still be saving
        place = torch.device(device)
        if place.index is not None:
            torch.cuda.set_device(place)
        work(order, place, tell)
    except (Interrupted, KeyboardInterrupt):
        tell(News("stopped"))
    except Exception as error:
        traceback.print_exc()
        said = next(iter(str(error).strip().splitlines()), "")
        tell(News("failed", reason=f"{type(error).__name__}: {said}" if said else type(error).__name__))
    finally:
        sys.stderr.flush()


def _end_with_parent() -> None:
    """Stop as on Ctrl-C once the command is gone, however it ended."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)
