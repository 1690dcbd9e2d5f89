"""Scores and single answers, with models whose answers are known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from riffle.tasks import TASKS, Task, get_task
from riffle.train import evaluate as module
from riffle.train.data import Part, held_out
from riffle.train.evaluate import evaluate, predict

LENGTHS = (1, 2, 7, 16, 33)


class Oracle(nn.Module):
    """Gives the right answer, or one that ``spoil`` makes of it; keeps what it was asked."""

    def __init__(self, task: Task, spoil: Callable[[Tensor], Tensor] = lambda answer_BN: answer_BN) -> None:
        super().__init__()
        self.task, self.spoil = task, spoil
        self.asked: list[Tensor] = []
        self.device_marker = nn.Parameter(torch.zeros(()))

    def forward(self, inputs_BN: Tensor) -> Tensor:
        assert not self.training
        self.asked.append(inputs_BN)
        return nn.functional.one_hot(self.spoil(self.task.answer(inputs_BN)), self.task.classes).float()


@pytest.mark.parametrize("name", TASKS)
def test_a_perfect_model_scores_one_and_a_wrong_one_zero(name: str) -> None:
    task = get_task(name)
    splits = ["uniform", *task.splits]
    for trained_length in (0, 16):
        right = evaluate(Oracle(task), task, LENGTHS, splits=splits, examples=6, trained_length=trained_length)
        assert [(s.split, s.length) for s in right] == [(split, length) for split in splits for length in LENGTHS]
        assert all((s.symbol_accuracy, s.sequence_accuracy) == (1.0, 1.0) and 1 <= s.examples <= 6 for s in right)
        assert all(s.examples == 6 for s in right if s.split == "uniform" and s.length > 7)
    wrong = evaluate(
        Oracle(task, lambda answer_BN: (answer_BN + 1) % task.classes), task, LENGTHS, splits=splits, examples=6
    )
    assert all((s.symbol_accuracy, s.sequence_accuracy) == (0.0, 0.0) for s in wrong)


def test_one_wrong_symbol() -> None:
    task = get_task("reverse")

    def first_wrong(answer_BN: Tensor) -> Tensor:
        spoilt = answer_BN.clone()
        spoilt[:, 0] = spoilt[:, 0] % 11 + 1
        return spoilt

    (score,) = evaluate(Oracle(task, first_wrong), task, [16], examples=10)
    assert (score.symbol_accuracy, score.sequence_accuracy) == (15 / 16, 0.0)
    task = get_task("left")  # an output where the target is blank is wrong, too
    (score,) = evaluate(Oracle(task, lambda answer_BN: answer_BN.clamp(min=1)), task, [4], examples=10)
    assert (score.symbol_accuracy, score.sequence_accuracy) == (1 / 4, 0.0)


def test_examples_up_to_the_trained_length_are_held_out() -> None:
    model = Oracle(get_task("reverse"))
    evaluate(model, model.task, [16, 32, 64], examples=30, trained_length=32)
    assert [tuple(inputs_BN.shape) for inputs_BN in model.asked] == [(30, 16), (30, 32), (30, 64)]
    assert [bool(held_out(inputs_BN).all()) for inputs_BN in model.asked] == [True, True, False]
    model = Oracle(get_task("add"))
    evaluate(model, model.task, [64], splits=["repeated", "plus-one"], examples=30, trained_length=64)
    assert all(bool(held_out(inputs_BN).all()) for inputs_BN in model.asked)


@pytest.mark.parametrize("split", ["uniform", "runs"])
@pytest.mark.parametrize("length", [16, 40])
def test_no_example_chooses_weights_and_tests_them(split: str, length: int) -> None:
    def asked(part: Part, seed: int) -> set[tuple[int, ...]]:
        model = Oracle(get_task("dyck-continue") if split == "uniform" else get_task("sort"))
        evaluate(model, model.task, [length], splits=[split], examples=200, trained_length=32, seed=seed, part=part)
        return {tuple(row) for row in model.asked[0].tolist()}

    selection = asked("selection", 1) | asked("selection", 2)
    assert not selection & (asked("test", 1) | asked("test", 2))


def test_no_input_is_tested_twice_and_a_small_family_as_a_whole() -> None:
    model = Oracle(get_task("add"))
    splits = ["powers-of-two", "all-one", "one-digit-plus-zero", "uniform"]
    scores = evaluate(model, model.task, [15], splits=splits, examples=100, trained_length=16)
    assert [score.examples for score in scores] == [49, 1, 7, 100], "7 digits each"
    rows = torch.cat(model.asked)
    assert rows[:57].unique(dim=0).shape[0] == 49 + 1 + 7
    assert rows[57:].unique(dim=0).shape[0] == 100
    assert [score.held_out for score in scores][-1] == 100
    assert all(score.held_out is not None and score.held_out < score.examples for score in scores[:1])


def test_filled_inputs_are_what_solve_asks() -> None:
    class FullOnly(Oracle):
        """Right where the input fills its network; zeros in place of the blanks of the answer."""

        def forward(self, inputs_BN: Tensor) -> Tensor:
            full_B1 = (inputs_BN != 0).sum(dim=1, keepdim=True) >= 63
            answer_BN = self.task.answer(inputs_BN).clamp(min=1)
            return nn.functional.one_hot(torch.where(full_B1, answer_BN, 3), self.task.classes).float()

    task = get_task("add")
    fill = partial(task.fill, length=64)
    (bare,), (filled,) = (evaluate(FullOnly(task), task, [40], examples=9, fill=each) for each in (None, fill))
    assert (bare.sequence_accuracy, filled.sequence_accuracy, filled.symbol_accuracy) == (0, 1, 1)
    (wrong,) = evaluate(FullOnly(task), task, [40], examples=9, fill=partial(task.fill, length=32))
    assert wrong.sequence_accuracy == 0


def test_long_inputs_go_through_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.CELLS_PER_BATCH, "cpu", 64)
    model = Oracle(get_task("reverse"))
    done: list[int] = []
    scores = evaluate(model, model.task, [4, 20, 100], examples=7, on_progress=done.append)
    assert [len(inputs_BN) for inputs_BN in model.asked] == [7, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1]
    assert done == [28, 60, 60, 20, *[100] * 7], "cells"
    assert [score.examples for score in scores] == [7, 7, 7]


def test_same_seed_same_examples() -> None:
    def asked(seed: int, lengths: list[int]) -> Tensor:
        model = Oracle(get_task("sort"))
        evaluate(model, model.task, lengths, examples=5, seed=seed)
        return model.asked[-1]

    assert torch.equal(asked(1, [20]), asked(1, [8, 20])), "a length's examples depend on the other lengths"
    assert not torch.equal(asked(1, [20]), asked(2, [20]))


def test_an_unknown_split_lists_the_splits() -> None:
    task = get_task("add")
    with pytest.raises(ValueError, match="has no split 'hard'; it has uniform, "):
        evaluate(Oracle(task), task, [8], splits=["hard"])


def test_predict() -> None:
    assert predict(Oracle(get_task("reverse")), [3, 1, 2]) == [2, 1, 3]
    assert predict(Oracle(get_task("duplicate")), [3, 1, 0, 0]) == [3, 1, 3, 1]
    assert predict(Oracle(get_task("left")), [7, 1, 2]) == [7]
    assert predict(Oracle(get_task("id")), []) == []
