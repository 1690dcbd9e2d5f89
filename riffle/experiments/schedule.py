"""Many runs on few devices: several processes at once on each, one failure of its own, one clean end for all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from types import FrameType

from riffle.experiments.job import News, Order, serve

TICK = 0.2
"""Seconds after which signals and the time are looked at."""
Tell = Callable[[Order, News], None]


@dataclass
class Worker:
    """A process and what it was last heard of."""

    order: Order
    device: str
    process: ForkServerProcess
    last: News | None = None


def carry_out(
    orders: Sequence[Order],
    devices: Sequence[str],
    *,
    threads: int = 1,
    seconds: float | None = None,
    variables: Mapping[str, str] | None = None,
    tell: Tell = lambda order, news: None,
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
    context.set_forkserver_preload(["riffle.experiments.job"])  # torch is imported once, not by each of them
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
                process = context.Process(target=serve, args=(order, device, threads, dict(variables or {}), theirs))
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
                    _bury(worker, stopping, tell)
                else:
                    tell(worker.order, worker.last)
    return received[0] if received else None


def _bury(worker: Worker, stopping: bool, tell: Tell) -> None:
    """Wait for a process that closed its pipe, and tell of it where it could not."""
    worker.process.join()
    if worker.last is None or worker.last.kind not in ("finished", "stopped", "failed"):
        reason = f"its process ended with status {worker.process.exitcode}"
        tell(worker.order, News("stopped") if stopping else News("failed", reason=reason))
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
