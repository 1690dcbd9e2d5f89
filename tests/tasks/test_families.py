"""Families of structured inputs: enough for every task, legal, different from each other, and as far as they say."""

from __future__ import annotations

import pytest
import torch

from riffle.tasks import BLANK, TASKS, Task
from riffle.tasks.digits import operands
from riffle.tasks.families import FAR, LIKE_TRAINING
from riffle.tasks.rows import columns, last_column_so_far

from . import contract

ADDITIONS = ("add", "add-base4", "add-decimal")


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_families_of_a_task(task: Task) -> None:
    named = task.families()
    near = [name for name in named if not name.startswith(FAR)]
    assert len(near) >= {"add": 12, "sort": 10}.get(task.name, 8)
    assert len(task.splits) >= 3 * (task.name in ("duplicate", "reverse", "sort", "add", "multiply"))
    assert not set(named) & {"uniform", "structured", *task.splits}
    for length in (1, 2, 3, 8, 33):
        for split in (*named.values(), *task.splits.values()):
            contract.check_structured(task, split, length)
    inputs_BN = task.draw(torch.full((8,), 64), 64, generator=contract.seeded(0))
    drawn = {name: tuple(split(inputs_BN, contract.seeded(1)).flatten().tolist()) for name, split in named.items()}
    assert len({drawn[name] for name in near}) == len(near), "two families are the same"


def longest_pass(task: Task, inputs_BN: torch.Tensor) -> torch.Tensor:
    """The longest run of columns that pass a carry on, for every row."""
    a_BN, b_BN = operands(inputs_BN, task.separator)  # type: ignore[attr-defined]
    last = (inputs_BN == task.separator).int().argmax(dim=1, keepdim=True)  # type: ignore[attr-defined]
    passes_BN = (a_BN + b_BN == task.base - 1) & (columns(inputs_BN) < last)  # type: ignore[attr-defined]
    return torch.where(passes_BN, columns(inputs_BN) - last_column_so_far(~passes_BN), 0).amax(dim=1)


@pytest.mark.parametrize("name", ADDITIONS)
def test_carries_pass_at_most_31_columns_unless_a_family_is_far(name: str) -> None:
    task = TASKS[name]
    inputs_BN = task.draw(torch.full((64,), 512), 512, generator=contract.seeded(0))
    for family, split in task.families().items():
        longest = longest_pass(task, split(inputs_BN, contract.seeded(1)))
        if family.startswith(FAR):
            assert (longest > 31).sum() >= 32, family
        else:
            assert longest.max() <= 31, family
    chains = task.families()["chains-with-carry"](inputs_BN, contract.seeded(1))
    assert longest_pass(task, chains).min() >= 23


def test_what_binary_sums_are_made_of() -> None:
    task = TASKS["add"]
    inputs_BN = task.draw(torch.full((16,), 64), 64, generator=contract.seeded(0))
    made = {name: split(inputs_BN, contract.seeded(1)) for name, split in task.families().items()}
    digits = torch.where(columns(inputs_BN) < 31, 2, BLANK)
    assert torch.equal(task.answer(made["complement"]), digits.expand_as(inputs_BN)), "a + ~a is all ones"
    assert (task.answer(made["complement-plus-one"]) == 1).sum(dim=1).eq(31).all()
    assert torch.equal(made["alternating"][:, :29], made["alternating"][:, 2:31])
    zero = made["plus-zero"].tolist()
    assert all(row[32:63] == [1] * 31 and task.solve(row[:63]) == task.solve(row[:31]) for row in zero)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_families_on_a_gpu(task: Task) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    inputs_BN = task.draw(torch.full((8,), 40, device="cuda"), 64, generator=generator)
    for name, split in task.families().items():
        new_BN = split(inputs_BN, generator)
        assert new_BN.device == inputs_BN.device, name
        contract.check_answers(task, new_BN.cpu(), task.answer(new_BN).cpu())


def test_what_is_like_training_exists() -> None:
    assert not LIKE_TRAINING.difference(*((*task.splits, *task.families()) for task in TASKS.values()))
