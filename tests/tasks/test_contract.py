"""One suite over every task: the contract of :class:`riffle.tasks.Task`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from riffle.tasks import TASKS, Task, get_task

from . import contract


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest) -> Task:
    return TASKS[request.param]


def test_names() -> None:
    assert all(task.name == name for name, task in TASKS.items())
    assert list(TASKS)[:5] == ["duplicate", "reverse", "sort", "add", "multiply"]
    assert len(TASKS) == 44, "21 with weights, 23 of research"


def test_described(task: Task) -> None:
    assert task.summary.endswith(".")
    assert task.example
    assert "for example" in task.syntax
    assert type(task).__doc__
    assert hash(task) == hash(type(task)())
    assert task == type(task)()


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(task: Task, check: Callable[[Task], None]) -> None:
    check(task)


def test_unknown_names() -> None:
    assert get_task("sort") is TASKS["sort"]
    with pytest.raises(ValueError, match=r"unknown task 'srot'; did you mean 'sort'\? choose one of duplicate"):
        get_task("srot")
    with pytest.raises(ValueError, match=r"unknown task 'zzz'; choose one of duplicate"):
        get_task("zzz")
    with pytest.raises(ValueError, match="has no split 'sorted'; it has uniform, structured, longest-carry"):
        TASKS["add"].sample(2, 8, generator=torch.Generator(), split="sorted")
