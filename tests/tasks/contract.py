"""What every task must do, as checks of one task; the suite runs them on all tasks, the docs on a new one."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from riffle.tasks import BLANK, Task
from riffle.tasks.task import Split, trim

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 63, 64)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mixed(batch: int, longest: int, seed: int = 0) -> Tensor:
    """Lengths 1..longest in random order, the longest among them."""
    lengths_B = torch.randint(1, longest + 1, (batch,), generator=seeded(seed))
    lengths_B[0] = longest
    return lengths_B


def check_symbols(task: Task, inputs: Tensor, targets: Tensor) -> None:
    """Dtypes, shapes and alphabets of a batch."""
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.shape == targets.shape
    assert inputs.min() >= BLANK
    assert inputs.max() < task.symbols
    assert targets.min() >= BLANK
    assert targets.max() < task.classes


def check_answers(task: Task, inputs: Tensor, targets: Tensor) -> None:
    """Every target is what ``solve`` says, cropped to the width, and ``solve`` leaves its input alone."""
    width = inputs.shape[1]
    for row, target in zip(inputs.tolist(), targets.tolist(), strict=True):
        symbols = trim(row)
        before = list(symbols)
        solved = task.solve(symbols)
        assert symbols == before, f"{task.name}: solve changed its input"
        assert solved == trim(solved), f"{task.name}: solve left trailing blanks"
        assert target == (solved + [BLANK] * width)[:width], f"{task.name}: {symbols}"


def check_sample(task: Task) -> None:
    """Batches of one length."""
    for length in LENGTHS:
        batch = task.sample(16, length, generator=seeded(length))
        assert batch.inputs.shape == (16, length)
        check_symbols(task, *batch)
        check_answers(task, *batch)


def check_mixed_lengths(task: Task) -> None:
    """Batches of many lengths, wider than the longest."""
    for longest, width in ((1, 1), (2, 5), (13, 16), (64, 64), (100, 131)):
        inputs = task.draw(mixed(48, longest, seed=longest), width, generator=seeded(width))
        targets = task.answer(inputs)
        assert inputs.shape == (48, width)
        check_symbols(task, inputs, targets)
        check_answers(task, inputs, targets)


def check_structure(task: Task) -> None:
    """Structured inputs are legal, of the lengths they were drawn with, and mostly other inputs."""
    for longest, width in ((1, 1), (2, 5), (13, 16), (64, 64), (60, 131)):
        drawn = task.draw(mixed(96, longest, seed=longest), width, generator=seeded(width))
        kept = drawn.clone()
        inputs = task.restructure(drawn, seeded(longest))
        targets = task.answer(inputs)
        assert torch.equal(drawn, kept)
        assert torch.equal(inputs != BLANK, drawn != BLANK)
        check_symbols(task, inputs, targets)
        check_answers(task, inputs, targets)
        assert longest < 60 or (inputs != drawn).any(dim=1).double().mean() > 0.5


def check_room(task: Task) -> None:
    """A row of length ``l`` stays within ``l`` cells (a merge needs three), and within the width."""
    least = 3 if task.name == "merge" else 1
    for length in LENGTHS:
        inputs = task.draw(torch.full((32,), length), 80, generator=seeded(length))
        assert (inputs[:, max(length, least) :] == BLANK).all(), f"{task.name} at length {length}"


def check_padding(task: Task) -> None:
    """Answers do not depend on how many blanks follow; the lengths and symbols drawn do not either."""
    inputs = task.draw(mixed(32, 40), 64, generator=seeded(3))
    wider = torch.nn.functional.pad(inputs, (0, 37))
    assert torch.equal(task.answer(wider)[:, :64], task.answer(inputs))
    assert (task.answer(wider)[:, 64:] == BLANK).all()
    lengths_B = torch.full((256,), 24)
    narrow, wide = (task.draw(lengths_B, width, generator=seeded(width)) for width in (24, 90))
    narrow_rows, wide_rows = ([trim(row) for row in inputs.tolist()] for inputs in (narrow, wide))
    assert set(map(len, narrow_rows)) == set(map(len, wide_rows))
    assert set().union(*narrow_rows) == set().union(*wide_rows)


def check_seeds(task: Task) -> None:
    """The generator alone decides: same seed, same batch; other seed, other batch; global state untouched."""
    state = torch.get_rng_state()
    first, again, other = (task.sample(32, 33, generator=seeded(seed)) for seed in (5, 5, 6))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.targets, again.targets)
    assert not torch.equal(first.inputs, other.inputs)
    follow_up = seeded(5)
    task.sample(32, 33, generator=follow_up)
    assert not torch.equal(task.sample(32, 33, generator=follow_up).inputs, first.inputs)
    assert torch.equal(torch.get_rng_state(), state)


def check_no_sync(task: Task) -> None:
    """Shapes alone decide what runs: on tensors without values, anything that has to look at one raises."""
    for length in (1, 2, 16):
        with FakeTensorMode():
            lengths_B = torch.full((4,), length)
            inputs = task.draw(lengths_B, length, generator=seeded(0))
            assert task.answer(inputs).shape == (4, length)
            for split in (task.restructure, *task.splits.values()):
                assert split(inputs, seeded(0)).shape == (4, length)


def check_pure(task: Task) -> None:
    """``draw`` and ``answer`` leave their arguments alone and give new tensors."""
    lengths_B = mixed(16, 32)
    kept_lengths = lengths_B.clone()
    inputs = task.draw(lengths_B, 32, generator=seeded(1))
    kept_inputs = inputs.clone()
    targets = task.answer(inputs)
    targets.add_(1)
    assert torch.equal(lengths_B, kept_lengths)
    assert torch.equal(inputs, kept_inputs)


def check_fill(task: Task) -> None:
    """Filling takes at most the cells it is given, leaves no gap, and never changes the answer."""
    for length in LENGTHS:
        for row in task.sample(4, length, generator=seeded(length)).inputs.tolist():
            symbols, solved = trim(row), task.solve(trim(row))
            for cells in (length, 64, 100):
                filled = task.fill(list(symbols), cells)
                assert task.fill([*symbols, BLANK], cells) in (filled, [*symbols, BLANK])
                assert len(filled) <= max(cells, len(symbols))
                assert BLANK not in trim(filled)
                assert all(BLANK <= symbol < task.symbols for symbol in filled)
                assert trim(task.unfill(task.solve(trim(filled)), symbols, filled)) == solved
    assert task.fill([], 8) == task.solve([]) == []
    assert (task.answer(torch.zeros((2, 8), dtype=torch.int64)) == BLANK).all(), "nothing in, nothing out"


def check_text(task: Task) -> None:
    """The example can be typed, answered both ways and shown, and any output at all can be shown."""
    symbols = task.parse(task.example)
    assert task.parse([" ".join(task.example)]) == symbols
    assert all(BLANK <= symbol < task.symbols for symbol in symbols)
    solved = task.solve(trim(symbols))
    assert solved
    assert all(BLANK <= symbol < task.classes for symbol in solved)
    width = max(len(symbols), len(solved))
    answer = task.answer(torch.tensor([symbols + [BLANK] * (width - len(symbols))]))
    assert trim(answer[0].tolist()) == solved
    shown = task.render(solved)
    assert shown
    assert shown == task.render([*solved, BLANK, BLANK])
    for length in (0, 1, 2, 9):
        outputs = torch.randint(0, task.classes, (50, length), generator=seeded(length))
        assert all(isinstance(task.render(output), str) for output in outputs.tolist())


def check_write(task: Task) -> None:
    """``write`` is the inverse of ``parse``, wherever the input is long enough to be typed."""
    for length in (9, 31, 64):
        for row in task.sample(8, length, generator=seeded(length)).inputs.tolist():
            text = task.write(trim(row))
            assert trim(task.parse([text])) == trim(task.parse(text.split())) == trim(row)
    symbols = task.parse(task.example)
    assert task.parse([task.write(symbols)]) == symbols
    assert all(task.label(symbol) for symbol in range(max(task.symbols, task.classes)))
    assert task.pieces(task.render(task.solve(trim(symbols))))


def check_bad_text(task: Task) -> None:
    """What cannot be read is answered with what can."""
    for words in ([], [""], ["%"], ["7", "3", "%"], ["-1"], ["99999"]):
        with pytest.raises(ValueError, match=re.escape(task.syntax)):
            task.parse(words)


CHECKS = (
    *(check_sample, check_mixed_lengths, check_structure, check_room, check_padding, check_seeds, check_no_sync),
    *(check_pure, check_fill, check_text, check_write, check_bad_text),
)
"""What every task must pass."""


def check_structured(task: Task, split: Split, length: int) -> None:
    """A worst case or a family gives legal inputs of the lengths they were drawn with, and their targets are right."""
    for rows, width in ((12, length), (32, length + 5)):
        drawn_BN = task.draw(mixed(rows, length), width, generator=seeded(length))
        new_BN = split(drawn_BN, seeded(length))
        assert torch.equal(new_BN != BLANK, drawn_BN != BLANK)
        check_symbols(task, new_BN, task.answer(new_BN))
        check_answers(task, new_BN, task.answer(new_BN))
