"""Thousands of digits, and algebra that must hold whatever the input, against Python's own numbers and lists."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from riffle.tasks import BLANK, TASKS
from riffle.tasks.digits import digits_of, multiply, number_of
from riffle.tasks.task import trim

from .contract import seeded

REPEATABLE = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def answer(name: str, symbols: list[int], width: int | None = None) -> list[int]:
    """The vectorised answer to one input, without the blanks at its end."""
    row = symbols + [BLANK] * ((width or len(symbols)) - len(symbols))
    return trim(TASKS[name].answer(torch.tensor([row]))[0].tolist())


@pytest.mark.parametrize(
    ("name", "digits", "split"),
    [
        *((name, 4096, "uniform") for name in ("add", "add-decimal")),
        *((name, 2048, "uniform") for name in ("multiply", "multiply-decimal")),
        ("divide", 700, "uniform"),
        *(("add", 4096, split) for split in TASKS["add"].splits),
    ],
)
def test_many_digits(name: str, digits: int, split: str) -> None:
    task = TASKS[name]
    inputs, targets = task.sample(2, 2 * digits + 1, generator=seeded(digits), split=split)
    for symbols, target in zip(inputs.tolist(), targets.tolist(), strict=True):
        assert trim(target) == task.solve(trim(symbols))


def test_longest_carry_runs_through_all_digits() -> None:
    inputs, targets = TASKS["add"].sample(64, 65, generator=seeded(1), split="longest-carry")
    assert inputs[0].tolist() == [2] * 32 + [11] + [2] + [1] * 31
    assert targets[0].tolist() == [1] * 32 + [2] + [BLANK] * 32
    a, b = inputs[:, :32] - 1, inputs[:, 33:] - 1
    starts = (a & b).argmax(dim=1)
    assert (starts[::2] == 0).all()
    assert starts.unique().numel() > 8
    assert ((a & b).sum(dim=1) == 1).all(), "one carry starts in every row"
    handed_on = torch.arange(32) > starts[:, None]
    assert ((a ^ b)[handed_on] == 1).all(), "and every digit above hands it on"


@pytest.mark.parametrize("digit", [9, 5])
def test_products_stay_exact_at_16384_digits(digit: int) -> None:
    digits = 1 << 14
    a = torch.zeros((1, 2 * digits), dtype=torch.int64)
    a[:, :digits] = digit
    value = 10**digits // 9 * digit
    assert multiply(a, a, 10)[0].tolist() == digits_of(value * value, 10, 2 * digits)


BASES = {"add": 2, "add-base4": 4, "add-decimal": 10, "multiply": 2, "multiply-base4": 4, "multiply-decimal": 10}


@REPEATABLE
@given(
    st.sampled_from([name for name in BASES if "add" in name]), st.integers(0, 2**99), st.integers(0, 2**99), st.data()
)
def test_leading_zeros_change_no_sum(name: str, a: int, b: int, data: st.DataObject) -> None:
    task, base = TASKS[name], BASES[name]
    typed = ["".join(map(str, reversed(digits_of(number, base)))) for number in (a, b)]
    symbols = task.parse(typed)
    filled = task.fill(symbols, data.draw(st.integers(1, 400)))
    solved = task.solve(filled)
    assert solved == task.solve(symbols)
    zeros = [task.parse(["0", "0"])[0]] * data.draw(st.integers(0, 5))
    assert task.unfill([*solved, *zeros, BLANK], symbols, filled) == solved, (
        "leading zeros of the network are taken off"
    )


@REPEATABLE
@given(st.sampled_from(sorted(BASES)), st.integers(1, 30), st.data())
def test_arithmetic_is_that_of_python(name: str, digits: int, data: st.DataObject) -> None:
    task, base = TASKS[name], BASES[name]
    a, b = (data.draw(st.integers(0, base**digits - 1)) for _ in range(2))
    a_text, b_text = ("".join(map(str, reversed(digits_of(value, base, digits)))) for value in (a, b))
    output = answer(name, task.parse([a_text, b_text]), width=2 * digits + 5)
    value = a + b if name.startswith("add") else a * b
    assert number_of([symbol - 1 for symbol in output], base) == value
    assert task.render(output) == "".join(map(str, reversed(digits_of(value, base))))


@REPEATABLE
@given(st.integers(0, 2**40), st.integers(1, 2**40))
def test_division_is_that_of_python(a: int, b: int) -> None:
    task = TASKS["divide"]
    output = answer("divide", task.parse([f"{a:b}", f"{b:b}"]))
    assert task.render(output) == f"{a // b:b} remainder {a % b:b}"


ROWS = st.lists(st.integers(1, 11), min_size=1, max_size=40)


@REPEATABLE
@given(ROWS)
def test_algebra_of_sequences(symbols: list[int]) -> None:
    assert answer("reverse", answer("reverse", symbols)) == symbols
    assert answer("sort", answer("reverse", symbols)) == answer("sort", symbols)
    doubled = answer("duplicate", symbols, width=2 * len(symbols))
    assert doubled[: len(symbols)] == doubled[len(symbols) :] == symbols
    assert answer("left", answer("reverse", symbols)) == answer("right", symbols)
    pairs = symbols + symbols
    assert answer("rev2", answer("rev2", pairs)) == pairs
    if len(symbols) & (len(symbols) - 1) == 0:
        assert answer("bit-reversal", answer("bit-reversal", symbols)) == symbols


@REPEATABLE
@given(st.lists(st.lists(st.integers(1, 11), max_size=5), min_size=1, max_size=8), st.integers(0, 9))
def test_any_words_sort_as_lists_do(words: list[list[int]], extra: int) -> None:
    row = [symbol for word in words for symbol in (*word, 12)][:-1]
    for name in ("word-sort", "merge"):  # empty words included, which draws never hold
        if row:
            assert answer(name, row, width=len(row) + extra) == TASKS[name].solve(row)


@REPEATABLE
@given(st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_any_brackets_are_judged_right(symbols: list[int]) -> None:
    assert answer("dyck", symbols, width=16) == TASKS["dyck"].solve(symbols)
