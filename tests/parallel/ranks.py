"""A pool of Gloo ranks that run functions together, started once for all tests."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SIZES = (1, 2, 3, 4, 8)
"""Ranks of the groups that a function can ask for; 3 to be refused."""
PATIENCE = 60


class Ranks:
    """Eight processes; ``run(size, function, ...)`` calls ``function(group, ...)`` on the first ``size`` of them."""

    def __init__(self, folder: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(max(SIZES)):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, str(folder / "store"), theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(self, size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What each rank returns; an exception where a rank raised one."""
        assert size in SIZES
        pipes = self.pipes[:size]
        for pipe in pipes:
            pipe.send((size, function, arguments))
        answers = []
        for rank, pipe in enumerate(pipes):
            assert pipe.poll(PATIENCE), f"rank {rank} does not answer"
            answers.append(pipe.recv())
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def stop(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(10)
            process.kill()


def _serve(rank: int, store: str, pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"file://{store}", rank=rank, world_size=max(SIZES), timeout=timedelta(seconds=PATIENCE)
    )
    groups = {size: dist.new_group(range(size)) for size in SIZES}
    while (job := pipe.recv()) is not None:
        size, function, arguments = job
        try:
            answer = function(groups[size], *arguments)
        except Exception as error:
            answer = error
        pipe.send(answer)
    dist.destroy_process_group()
