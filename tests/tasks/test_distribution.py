"""The vectorised draws against the step-by-step processes they stand for."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch

from riffle.tasks import TASKS, Task
from riffle.tasks.task import trim
from riffle.tasks.words import draw_words, split_words

from .contract import seeded

DRAWS = 6000


def frequencies(rows: list[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    return {row: count / len(rows) for row, count in Counter(rows).items()}


def assert_same_distribution(ours: list[tuple[int, ...]], theirs: list[tuple[int, ...]]) -> None:
    """Every frequency agrees within five standard errors of the difference."""
    mine, other = frequencies(ours), frequencies(theirs)
    for row in mine.keys() | other.keys():
        p = (mine.get(row, 0) + other.get(row, 0)) / 2
        error = math.sqrt(p * (1 / len(ours) + 1 / len(theirs)))
        assert abs(mine.get(row, 0) - other.get(row, 0)) <= 5 * error + 1e-3, row


def draw(task: Task, length: int) -> list[tuple[int, ...]]:
    rows = task.draw(torch.full((DRAWS,), length), length, generator=seeded(length))
    return [tuple(trim(row)) for row in rows.tolist()]


def nested(rng: random.Random, length: int, *, closed: bool = True) -> list[int]:
    """Brackets of two kinds: open one of either kind or close the innermost, until the rest must close."""
    word: list[int] = []
    stack: list[int] = []
    while len(word) + closed * len(stack) < length:
        choice = rng.choice([1, 3, *stack[-1:]])
        word.append(choice)
        if choice % 2:
            stack.append(choice + 1)
        else:
            stack.pop()
    return word + stack[::-1] * closed


def test_balanced_brackets() -> None:
    rng = random.Random(0)
    ours = [row for row in draw(TASKS["dyck"], 6) if TASKS["dyck"].solve(list(row)) == [2]]
    assert_same_distribution(ours, [tuple(nested(rng, 6)) for _ in range(DRAWS)])


def test_open_brackets() -> None:
    rng = random.Random(0)
    theirs = [(*nested(rng, 4, closed=False), rng.choice([1, 3])) for _ in range(DRAWS)]
    assert_same_distribution(draw(TASKS["dyck-continue"], 5), theirs)


@pytest.mark.parametrize("length", [3, 6, 25])
def test_dividers_of_words(length: int) -> None:
    rng = random.Random(0)
    theirs = []
    for _ in range(DRAWS):
        row, i = [0] * length, 1
        while i < length - 1:
            row[i] = int(rng.random() < min(0.5, length**-0.5))
            i += 1 + row[i]
        theirs.append(tuple(row))
    rows = draw_words(torch.full((DRAWS,), length), length, 11, 12, seeded(2))
    ours = [tuple(row) for row in (rows == 12).long().tolist()]
    if length < 10:
        assert_same_distribution(ours, theirs)
    assert sum(map(sum, ours)) / DRAWS == pytest.approx(sum(map(sum, theirs)) / DRAWS, rel=0.05)


def test_lists_to_merge_are_sorted_halves() -> None:
    for row in draw(TASKS["merge"], 20)[:500]:
        words = split_words(row, 12)
        at = words.index([11])
        first, second = words[:at], words[at + 1 :]
        assert first == sorted(first)
        assert second == sorted(second)
        assert len(first) == (len(words) - 1) // 2
        assert all(max(word) <= 10 for word in first + second)


def test_divisors_are_uniform_without_zero() -> None:
    rows = [row[-2:] for row in draw(TASKS["divide"], 5) if row[2] == 12]
    assert {row: round(share, 1) for row, share in frequencies(rows).items()} == {(1, 2): 0.3, (2, 1): 0.3, (2, 2): 0.3}


def test_memory_asks_for_every_cell_once() -> None:
    for length in (2, 9, 64, 300):
        for row in draw(TASKS["memory-index"], length)[:50]:
            cells, asked = row[: len(row) // 2], row[len(row) // 2 :]
            assert len(row) == 2 * min(length // 2, 129)
            assert sorted((cell - 1) // 3 for cell in cells) == sorted(key // 3 - 1 for key in asked)
            assert len(set(asked)) == len(asked)


def expression(rng: random.Random, length: int) -> str:
    """An expression with brackets of some length, the numbers as d, divided step by step."""
    if length <= 4:
        return ["d", "-d", "(d)", "(-d)"][length - 1]
    first = rng.randint(1, length - 4)
    return f"({expression(rng, first)}{rng.choice('+-')}{expression(rng, length - first - 3)})"


def test_expressions_with_brackets() -> None:
    rng, task = random.Random(0), TASKS["modular-brackets"]
    for length in (5, 8, 13):
        shapes = [
            "".join("d" if c.isdigit() else c for c in task.write(list(row)) if c != " ") for row in draw(task, length)
        ]
        ours, theirs = (
            [tuple(map(ord, shape)) for shape in each]
            for each in (shapes, [expression(rng, length) for _ in range(DRAWS)])
        )
        assert_same_distribution(ours, theirs)


def test_numbers_of_unequal_lengths() -> None:
    lengths = Counter(row.index(11) for row in draw(TASKS["add-unequal"], 12))
    assert set(lengths) == set(range(1, 11))
    assert max(lengths.values()) < 1.2 * DRAWS / 10


def list_of_the_arena(rng: random.Random, depth: int) -> tuple[int, int]:
    """Symbols and lists of a nested list at some depth, drawn argument by argument."""
    symbols, lists = 2, 1
    for _ in range(rng.randint(2, 10)):
        nested_list = depth + 1 < 10 and rng.random() < 0.25
        more = list_of_the_arena(rng, depth + 1) if nested_list else (1, 0)
        symbols, lists = symbols + more[0], lists + more[1]
    return symbols, lists


def test_lists_of_the_long_range_arena() -> None:
    rng, task = random.Random(0), TASKS["listops"]
    drawn = [list_of_the_arena(rng, 1) for _ in range(1000)]
    theirs = torch.tensor([pair for pair in drawn if 500 < pair[0] < 2000]).double()
    batch = task.data_set(150, 1, 2048, generator=seeded(0))
    ours = torch.stack([(batch.inputs > 0).sum(1), (batch.inputs == 15).sum(1)], dim=1).double()
    error = (theirs.var(0) / len(theirs) + ours.var(0) / len(ours)).sqrt()
    assert ((theirs.mean(0) - ours.mean(0)).abs() < 4 * error).all()
    for row, target in zip(batch.inputs[:9].tolist(), batch.targets[:9].tolist(), strict=True):
        assert trim(target) == task.solve(trim(row))
