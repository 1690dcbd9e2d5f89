"""Training sets that are drawn once."""

from __future__ import annotations

import torch

from research.tasks.fixed import sample_fixed, training_set
from riffle.config import DataConfig
from riffle.tasks import get_task
from riffle.train.data import held_out


def test_a_fixed_training_set_is_the_same_in_every_run() -> None:
    task, data = get_task("parity"), DataConfig(bins=(16,), examples=5)
    generators = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    drawn = [sample_fixed(task, data, 0, 200, generator=generator) for generator in generators]
    rows = [set(map(tuple, torch.cat(batch, dim=1).tolist())) for batch in drawn]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 5
    assert all(torch.equal(batch.targets, task.answer(batch.inputs)) for batch in drawn)


def test_a_fixed_training_set_has_no_held_out_example() -> None:
    task, data = get_task("reverse"), DataConfig(bins=(8, 32), examples=3000)
    batch = training_set(task, data, 1, torch.device("cpu"))
    assert len(batch.inputs) == 3000
    assert not held_out(batch.inputs.long()).any()
    assert torch.equal(batch.targets.long(), task.answer(batch.inputs.long()))
    assert batch.inputs.unique(dim=0).shape[0] > 2700, "one in sixteen stands twice"
