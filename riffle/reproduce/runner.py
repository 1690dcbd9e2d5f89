"""Many runs on few devices: several processes at once on each, one failure of its own, one clean end for all.

NVIDIA's Multi-Process Service: kernels of several processes side by side on one GPU, not in turns.

How long the runs of an experiment took together: time.json, an entry for each time they were set going.

How long runs will take, from how fast runs like them go.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import FrameType
from typing import Any

from riffle.files import read_json, write_json
from riffle.reproduce.jobs import RunJob, RunUpdate, run_in_subprocess

TICK = 0.2
"""Seconds after which signals and the time are looked at."""
OnUpdate = Callable[[RunJob, RunUpdate], None]


@dataclass
class Worker:
    """A process and what it was last heard of."""

    order: RunJob
    device: str
    process: ForkServerProcess
    last: RunUpdate | None = None


def run_jobs(
    orders: Sequence[RunJob],
    devices: Sequence[str],
    *,
    threads: int = 1,
    seconds: float | None = None,
    variables: Mapping[str, str] | None = None,
    tell: OnUpdate = lambda order, news: None,
) -> int | None:
    """Carry out runs, each in a process of its own.

    A run that fails, or whose process dies, is told of and costs the others nothing. On a first SIGINT or SIGTERM, and
    when time is over, nothing new is started and every process saves its run; a second signal kills them.

    Args:
        orders: The runs, in the order in which they are started.
        devices: A device for each run that goes on at the same time; several may share one.
        threads: CPU threads of each process.
        seconds: When to stop, None for never.
        variables: Environment variables of the processes.
        tell: Called with everything a run reports; "finished", "stopped" or "failed" is the last of it.

    Returns:
        The signal that stopped it, None where there was none.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["riffle.reproduce.jobs"])  # torch is imported once, not by each of them
    waiting, free, running = deque(orders), list(devices), dict[Connection, Worker]()
    end = float("inf") if seconds is None else time.monotonic() + seconds
    stopping = False
    with _signals() as received, _none_left_behind(running):
        while waiting or running:
            if not stopping and (received or time.monotonic() > end):
                stopping = True
                waiting.clear()
                _signal(running.values(), signal.SIGINT)
            if len(received) > 1:
                _signal(running.values(), signal.SIGKILL)
            while waiting and free:
                order, device = waiting.popleft(), free.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(
                    target=run_in_subprocess, args=(order, device, threads, dict(variables or {}), theirs)
                )
                process.start()
                theirs.close()  # so that the pipe ends with the process
                running[ours] = Worker(order, device, process)
            for pipe in wait(list(running), timeout=TICK):
                assert isinstance(pipe, Connection)
                worker = running[pipe]
                try:
                    worker.last = pipe.recv()
                except (EOFError, OSError):  # it is gone, perhaps in the middle of a report
                    del running[pipe]
                    free.append(worker.device)
                    _reap(worker, stopping, tell)
                else:
                    tell(worker.order, worker.last)
    return received[0] if received else None


def _reap(worker: Worker, stopping: bool, tell: OnUpdate) -> None:
    """Wait for a process that closed its pipe, and tell of it where it could not."""
    worker.process.join()
    if worker.last is None or worker.last.kind not in ("finished", "stopped", "failed"):
        reason = f"its process ended with status {worker.process.exitcode}"
        tell(worker.order, RunUpdate("stopped") if stopping else RunUpdate("failed", reason=reason))
    worker.process.close()


def _signal(workers: Iterable[Worker], number: int) -> None:
    for worker in workers:
        if worker.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(worker.process.pid, number)


@contextmanager
def _none_left_behind(running: Mapping[Connection, Worker]) -> Iterator[None]:
    """Stop what runs when something goes wrong here."""
    try:
        yield
    finally:
        _signal(running.values(), signal.SIGINT)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


CONTROL = "nvidia-cuda-mps-control"


@contextmanager
def shared_gpu(wanted: bool) -> Iterator[dict[str, str]]:
    """Start the service where it is wanted, installed and not running; gives the variables that lead a process to it.

    Without the service processes take turns on a GPU, which is slower and as right, so its absence is no error.
    """
    if not wanted or shutil.which(CONTROL) is None or _answers({}):
        yield {}
        return
    place = Path(tempfile.gettempdir()) / f"riffle-mps-{os.getuid()}"  # where a killed command left it, it is found
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(place), "CUDA_MPS_LOG_DIRECTORY": str(place)}
    place.mkdir(exist_ok=True, mode=0o700)
    started = _answers(variables) or _control(variables, "-d")
    try:
        yield variables if started else {}
    finally:
        if started:
            _control(variables, said="quit\n")


def _answers(variables: Mapping[str, str]) -> bool:
    return _control(variables, said="get_server_list\n")


def _control(variables: Mapping[str, str], *arguments: str, said: str = "") -> bool:
    """Whether the service's command succeeds."""
    with suppress(OSError, subprocess.TimeoutExpired):
        environment = {**os.environ, **variables}
        # No pipes: the service would keep them open.
        done = subprocess.run(
            [CONTROL, *arguments],
            input=said.encode(),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=20,
        )
        return done.returncode == 0
    return False


@contextmanager
def record_time(path: Path, about: Mapping[str, Any], ended: Counter[str]) -> Iterator[None]:
    """Add an entry of what happens meanwhile, also where it is stopped.

    Args:
        path: The file.
        about: What the entry says of its origin.
        ended: How many runs were finished, stopped or failed, once it is over.
    """
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    try:
        yield
    finally:
        entry = {"started": started, "seconds": round(time.monotonic() - began, 1), **ended, **about}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, [*(read_json(path) or []), entry])


class TimeEstimate:
    """Speeds of groups of runs, and the time that is left by them.

    >>> estimate = Estimate(at_once=2)
    >>> estimate.seconds([("add", 1000)]) is None
    True
    >>> estimate.note("add", 100.0)
    >>> estimate.seconds([("add", 1000), ("sort", 3000), ("add", 2000)])
    30.0

    Args:
        at_once: Runs that go on at the same time.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once, self.rates = at_once, dict[str, float]()

    def note(self, group: str, rate: float) -> None:
        """Take note of a group's speed in steps a second; the last one counts."""
        self.rates[group] = rate

    def seconds(self, left: Iterable[tuple[str, int]]) -> float | None:
        """Seconds for runs of which group and steps left are given, None as long as no speed is known.

        A group of which nothing is known is taken to be as fast as the others on average. It cannot be less than the
        longest run takes.
        """
        if not self.rates:
            return None
        usual = statistics.harmonic_mean(list(self.rates.values()))
        each = [steps / self.rates.get(group, usual) for group, steps in left]
        return max([sum(each) / self.at_once, *each])
