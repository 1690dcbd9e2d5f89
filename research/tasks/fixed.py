"""Training sets that are drawn once, for ``data.examples``."""

# B = batch
from __future__ import annotations

import functools
from dataclasses import replace

import torch

from research.tasks.listops import ListOps
from riffle.config import DataConfig
from riffle.tasks.rows import randint
from riffle.tasks.task import Batch, Task
from riffle.train.data import held_out, sample_bin

TRAINING_SET = 0
"""Seed of a fixed training set."""
DRAWN_AT_ONCE = 2**14
"""Examples of a fixed training set that are drawn at once, which bounds the memory that takes."""


def sample_fixed(task: Task, data: DataConfig, index: int, batch: int, *, generator: torch.Generator) -> Batch:
    """A training batch of the bin ``data.bins[index]`` from its fixed training set."""
    rows_B = randint(0, data.examples, (batch,), generator)
    return Batch(*(part[rows_B].long() for part in training_set(task, data, index, generator.device)))


@functools.cache
def training_set(task: Task, data: DataConfig, index: int, device: torch.device) -> Batch:
    """The fixed training set of a bin, the same in every run: what the task prescribes, or examples drawn once.

    Where held-out examples are drawn, others stand a second time in their place.
    """
    generator = torch.Generator(device).manual_seed(TRAINING_SET)
    smallest = torch.uint8 if max(task.symbols, task.classes) <= 256 else torch.int64
    shortest = data.bins[index - 1] + 1 if index else 1
    if isinstance(task, ListOps):
        batch = task.data_set(data.examples, shortest, data.bins[index], generator=generator)
    else:
        fresh, parts = replace(data, examples=0), []
        for start in range(0, data.examples, DRAWN_AT_ONCE):
            rows = min(DRAWN_AT_ONCE, data.examples - start)
            drawn = sample_bin(task, fresh, index, rows, generator=generator)
            own_B = (~held_out(drawn.inputs)).nonzero()[:, 0]
            own_B = own_B[torch.arange(rows, device=device) % len(own_B)]
            parts.append([part[own_B].to(smallest) for part in drawn])
        batch = Batch(*(torch.cat(each) for each in zip(*parts, strict=True)))
    return Batch(*(part.to(smallest) for part in batch))
