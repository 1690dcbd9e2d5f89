"""Against examples made with the generators of the authors' released code, five for each length and seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from riffle.tasks import BLANK, TASKS
from riffle.tasks.task import trim

from .contract import seeded

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "data_generators.json").read_text())

AUTHORS_NAMES = {
    "duplicate": "dup",
    "reverse": "rev",
    "sort": "sort",
    "add": "badd",
    "multiply": "bmul",
    "id": "id",
    "kv-sort": "kvsort",
    "rev2": "rev2",
    "search": "search",
    "increment": "incr",
    "add-decimal": "add",
    "multiply-decimal": "mul",
    "add-base4": "qadd",
    "multiply-base4": "qmul",
    "multiply-bcd": "mulbcd",
    "divide": "div",
    "left": "left",
    "right": "right",
    "bit-reversal": "shuffle",
    "word-sort": "w_sort",
    "merge": "merge",
    "dyck": "dyck",
    "dyck-continue": "dyck_continue",
}


def examples(name: str) -> dict[int, list[tuple[list[int], list[int]]]]:
    """Input and output by length, without the blanks at their ends."""
    by_length: dict[int, list[tuple[list[int], list[int]]]] = {}
    for key, pairs in GOLDEN[AUTHORS_NAMES[name]]["examples"].items():
        length = int(key.split("_")[0].removeprefix("L"))
        by_length.setdefault(length, []).extend((trim(symbols), trim(output)) for symbols, output in pairs)
    return by_length


def test_every_task_of_the_authors_is_here() -> None:
    assert sorted(AUTHORS_NAMES.values()) == sorted(GOLDEN)
    assert set(AUTHORS_NAMES) <= set(TASKS)


@pytest.mark.parametrize("name", AUTHORS_NAMES)
def test_answers(name: str) -> None:
    task = TASKS[name]
    assert task.symbols == GOLDEN[AUTHORS_NAMES[name]]["n_input"]
    for length, pairs in examples(name).items():
        width = max(length, 3) + 2
        inputs = torch.tensor([symbols + [BLANK] * (width - len(symbols)) for symbols, _ in pairs])
        for (symbols, output), answer in zip(pairs, task.answer(inputs).tolist(), strict=True):
            assert task.solve(symbols) == output
            assert answer == output + [BLANK] * (width - len(output))
            assert all(symbol < task.classes for symbol in output)


@pytest.mark.parametrize("name", AUTHORS_NAMES)
def test_drawn_inputs_have_the_same_lengths_and_symbols(name: str) -> None:
    task = TASKS[name]
    for length, pairs in examples(name).items():
        rows = task.draw(torch.full((500,), length), max(length, 3), generator=seeded(length)).tolist()
        drawn = [trim(row) for row in rows]
        assert {len(symbols) for symbols, _ in pairs} == {len(symbols) for symbols in drawn}
        theirs = {symbol for symbols, _ in pairs for symbol in symbols}
        ours = {symbol for symbols in drawn for symbol in symbols}
        assert theirs <= ours
        if length == 32:  # long enough for the examples to hold every symbol
            assert theirs == ours
