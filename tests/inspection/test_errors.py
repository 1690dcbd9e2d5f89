"""Errors are counted where they fall."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.inspect import errors_over_length
from riffle.tasks import get_task
from riffle.tasks.task import Task


class WrongInTheLastQuarter(nn.Module):
    """Right answers, except where it counts."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task, self.weight = task, nn.Parameter(torch.zeros(()))
        self.rows: list[int] = []

    def forward(self, inputs_BN: Tensor) -> Tensor:
        assert not self.training
        self.rows.append(len(inputs_BN))
        answers_BN = self.task.answer(inputs_BN)
        late_N = torch.arange(inputs_BN.shape[1]) >= inputs_BN.shape[1] * 3 // 4
        wrong_BN = answers_BN % (self.task.classes - 1) + 1
        return F.one_hot(torch.where(late_N, wrong_BN, answers_BN), self.task.classes).float()


@pytest.mark.parametrize("bins", [4, 8, 32])
def test_they_are_found(bins: int) -> None:
    task = get_task("reverse")
    model, seen = WrongInTheLastQuarter(task).train(), []
    lengths = [8, 16, 64, 1000]
    rates = errors_over_length(model, task, lengths, bins=bins, examples=40, trained_length=16, on_progress=seen.append)
    expected = (torch.arange(bins) >= bins * 3 // 4).double()
    assert rates.shape == (4, bins)
    assert torch.equal(rates, expected.expand_as(rates))
    assert model.training
    assert sum(model.rows) == 160
    assert sum(seen) == 40 * sum(lengths)


def test_rates_are_shares_of_what_is_not_blank() -> None:
    class Silent(WrongInTheLastQuarter):
        def forward(self, inputs_BN: Tensor) -> Tensor:
            return F.one_hot(torch.zeros_like(inputs_BN), self.task.classes).float()

    task = get_task("left")
    (rate,) = errors_over_length(Silent(task), task, [8], bins=4, examples=8).tolist()
    assert rate[0] == 1.0
    assert all(each != each for each in rate[1:]), "a blank for a blank is neither right nor wrong"


def test_the_same_seed_gives_the_same_errors() -> None:
    task = get_task("sort")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(task.symbols, 8), nn.Linear(8, task.classes))
    one, same, other = (errors_over_length(model, task, [16], bins=16, examples=9, seed=s) for s in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
