"""Gloo ranks that train together and can be killed; forks of a process that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from research.registry import register
from riffle.config import RunConfig
from riffle.train import loop
from riffle.train.distributed import RankGroup
from riffle.train.run import Run

PATIENCE = 60
"""Seconds after which a test gives up on a rank."""


class Processes:
    """Ranks that each call ``job(ranks, ...)``, with the environment that ``torchrun`` would give them."""

    def __init__(self, size: int, job: Callable[..., Any], *arguments: Any, timeout: float = PATIENCE) -> None:
        context = multiprocessing.get_context("forkserver")
        self.pipes: list[Connection] = []
        self.ranks = []
        port = _free_port()
        for rank in range(size):
            ours, theirs = context.Pipe(duplex=False)
            environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
            process = context.Process(target=_serve, args=(environment, timeout, theirs, job, arguments), daemon=True)
            process.start()
            theirs.close()  # so that a dead rank's pipe ends
            self.pipes.append(ours)
            self.ranks.append(process)

    def outcomes(self) -> list[Any]:
        """What each rank returned or raised; None where it was killed."""
        try:
            return [self._outcome(rank) for rank in range(len(self.ranks))]
        finally:
            self.stop()

    def stop(self) -> None:
        for process in self.ranks:
            process.kill()
            process.join()

    def _outcome(self, rank: int) -> Any:
        assert self.pipes[rank].poll(PATIENCE), f"rank {rank} does not end"
        try:
            return self.pipes[rank].recv()
        except EOFError:
            return None


@contextmanager
def started(size: int, job: Callable[..., Any], *arguments: Any, timeout: float = PATIENCE) -> Iterator[Processes]:
    """Ranks that are gone after the block."""
    processes = Processes(size, job, *arguments, timeout=timeout)
    try:
        yield processes
    finally:
        processes.stop()


def together(size: int, job: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What each rank returns; raises what the first of them raised."""
    outcomes = Processes(size, job, *arguments).outcomes()
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def train(ranks: RankGroup, folder: Path, config: RunConfig) -> None:
    """Begin the run in a folder, or go on with it."""
    ranks.rank0_first(lambda: (Run.resume if folder.exists() else Run.create)(folder, config))
    loop.train(Run(folder), ranks=ranks)
    ranks.close()


def _serve(
    environment: dict[str, Any], timeout: float, pipe: Connection, job: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    register()
    os.environ.update({"MASTER_ADDR": "localhost"} | {name: str(value) for name, value in environment.items()})
    try:
        outcome = job(RankGroup.from_environment(torch.device("cpu"), timeout=timeout), *arguments)
    except (Exception, SystemExit) as error:
        outcome = error.with_traceback(None)
        outcome.__cause__ = None
    try:
        pipe.send(outcome)
    except Exception:  # an exception that cannot be pickled
        pipe.send(RuntimeError(f"{type(outcome).__name__}: {outcome}"))
    os._exit(0)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]
