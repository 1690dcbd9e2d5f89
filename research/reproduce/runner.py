"""Scheduler of many runs on few devices: a process for each run, clean stopping, and a record of the time taken.

On a GPU, NVIDIA's Multi-Process Service (MPS) lets kernels of several processes run side by side, not in turns.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from research.files import write_result
from research.reproduce.jobs import RunJob, RunUpdate, run_in_subprocess
from riffle.files import read_json
from riffle.kernels.tuning import MPS_SHARE

POLL_SECONDS = 0.2
"""How often signals and the time limit are checked."""
OnUpdate = Callable[[RunJob, RunUpdate], None]


@dataclass
class Worker:
    """A process and the last update received from it."""

    job: RunJob
    device: str
    process: ForkServerProcess
    last: RunUpdate | None = None


def run_jobs(
    jobs: Sequence[RunJob],
    devices: Sequence[str],
    *,
    threads: int = 1,
    seconds: float | None = None,
    variables: Mapping[str, str] | None = None,
    compile_once: bool = False,
    on_update: OnUpdate = lambda job, update: None,
) -> int | None:
    """Run jobs, each in a process of its own; returns the signal that stopped them, None where there was none.

    As many run at the same time as there are ``devices``, several of which may be the same. A run that fails, or whose
    process dies, is reported and does not affect the others. On a first SIGINT or SIGTERM, and when ``seconds`` are
    over, nothing new is started and every process saves its run; a second signal kills the processes. The last update
    of a run is "finished", "stopped" or "failed".

    With ``compile_once``, the first run with kernels of its own compiles them while others that need the same wait, and
    these then find them in Triton's cache.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["research.reproduce.jobs"])  # torch is imported once, not by each of them
    waiting, free, running = list(jobs), list(devices), dict[Connection, Worker]()
    compiled: set[Hashable] = {None}
    end = float("inf") if seconds is None else time.monotonic() + seconds
    stopping = False
    with _collect_signals() as received, ExitStack() as on_exit:
        on_exit.callback(lambda: _signal(running.values(), signal.SIGINT))  # where the scheduler itself fails
        while waiting or running:
            if not stopping and (received or time.monotonic() > end):
                stopping = True
                waiting.clear()
                _signal(running.values(), signal.SIGINT)
            if len(received) > 1:
                _signal(running.values(), signal.SIGKILL)
            while waiting and free:
                compiling = {worker.job.kernels for worker in running.values() if compile_once} - compiled
                job = next((job for job in waiting if job.kernels not in compiling), None)
                if job is None:
                    break
                waiting.remove(job)
                device = free.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(
                    target=run_in_subprocess, args=(job, device, threads, dict(variables or {}), sender)
                )
                process.start()
                sender.close()  # so that the pipe ends with the process
                running[receiver] = Worker(job, device, process)
            for pipe in wait(list(running), timeout=POLL_SECONDS):
                assert isinstance(pipe, Connection)
                worker = running[pipe]
                try:
                    worker.last = pipe.recv()
                except (EOFError, OSError):  # the process has ended, perhaps in the middle of an update
                    del running[pipe]
                    free.append(worker.device)
                    _reap(worker, stopping, on_update)
                else:
                    if worker.last.kind == "step":
                        compiled.add(worker.job.kernels)
                    on_update(worker.job, worker.last)
    return received[0] if received else None


def _reap(worker: Worker, stopping: bool, on_update: OnUpdate) -> None:
    """Wait for a process that closed its pipe, and report its end if it did not do so itself."""
    worker.process.join()
    if worker.last is None or worker.last.kind not in ("finished", "stopped", "failed"):
        reason = f"its process ended with status {worker.process.exitcode}"
        on_update(worker.job, RunUpdate("stopped") if stopping else RunUpdate("failed", reason=reason))
    worker.process.close()


def _signal(workers: Iterable[Worker], number: int) -> None:
    for worker in workers:
        if worker.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(worker.process.pid, number)


@contextmanager
def _collect_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list."""
    received: list[int] = []
    before = {
        each: signal.signal(each, lambda number, frame: received.append(number))
        for each in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield received
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


MPS_CONTROL = "nvidia-cuda-mps-control"
MPS_SHARES, MPS_TOGETHER = (25, 50, 100), 150
"""Percent of a GPU's multiprocessors that one run may take, and that all may take together at least.

Six runs of a quarter made 1,316 steps a second on an H200, six without a limit 1,117. At 37 percent, 48 of its
multiprocessors, the library's matrix products were wrong, and right at these shares.
"""


@contextmanager
def multi_process_service(clients: int) -> Iterator[dict[str, str]]:
    """Run MPS for several clients, where it is installed and not running; yields environment variables for them.

    Without MPS processes take turns on a GPU, which is slower but equally correct, so its absence is no error.
    """
    if clients < 2 or shutil.which(MPS_CONTROL) is None:
        yield {}
        return
    percent = next((each for each in MPS_SHARES if each * clients >= MPS_TOGETHER), MPS_SHARES[-1])
    share = {MPS_SHARE: str(percent)}
    if _mps_control({}, command="get_server_list"):
        yield share
        return
    folder = Path(tempfile.gettempdir()) / f"riffle-mps-{os.getuid()}"  # a service left by a killed command is reused
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    folder.mkdir(exist_ok=True, mode=0o700)
    started = _mps_control(variables, command="get_server_list") or _mps_control(variables, "-d")
    try:
        yield variables | share if started else {}
    finally:
        if started:
            _mps_control(variables, command="quit")


def _mps_control(variables: Mapping[str, str], *arguments: str, command: str = "") -> bool:
    """Whether the control program succeeds with arguments, or with a command on its standard input."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [MPS_CONTROL, *arguments],
            input=f"{command}\n".encode() if command else b"",
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,  # the service would keep a pipe open
            stderr=subprocess.DEVNULL,
            timeout=20,
        )
        return done.returncode == 0
    return False


@contextmanager
def record_time(path: Path, provenance: Mapping[str, Any], ended: Counter[str]) -> Iterator[None]:
    """Append an entry to time.json when the block ends or fails: its duration, and how many runs ended how."""
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    try:
        yield
    finally:
        entry = {"started": started, "seconds": round(time.monotonic() - began, 1), **ended, **provenance}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_result(path, [*(read_json(path, list[Any], what="record of times") or []), entry])
