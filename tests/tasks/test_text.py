"""What people type and read."""

from __future__ import annotations

import pytest

from riffle.tasks import TASKS

READS = [
    ("add", ["1011", "110"], [2, 2, 1, 2, 11, 1, 2, 2, 1]),
    ("multiply", ["10", "*", "11"], [1, 2, 12, 2, 2]),
    ("divide", ["1/10"], [2, 1, 12, 1, 2]),
    ("sort", ["7", "3", "11"], [7, 3, 11]),
    ("sort", ["7,3", "11"], [7, 3, 11]),
    ("kv-sort", ["3:9", "1:4"], [3, 9, 1, 4]),
    ("search", ["3:9 1:4 ? 1"], [3, 9, 1, 4, 1]),
    ("memory-index", ["1:0", "2:1", "2", "1"], [1, 5, 6, 3]),
    ("merge", ["a", "b", "/", "c"], [1, 12, 2, 12, 11, 12, 3]),
    ("dyck", ["( [", "] )"], [1, 3, 4, 2]),
    ("multiply-bcd", ["9", "0"], [2, 1, 1, 4, 12, 1, 1, 1, 3]),
]


@pytest.mark.parametrize(("name", "words", "symbols"), READS)
def test_parse(name: str, words: list[str], symbols: list[int]) -> None:
    assert TASKS[name].parse(words) == symbols


SHOWS = [
    ("add", [1, 1, 0, 0], "0"),
    ("add", [2, 0, 3, 2], "1?_1"),
    ("sort", [1, 0, 7, 0, 0], "1 _ 7"),
    ("kv-sort", [1, 4, 2, 0, 3], "1:4 2:_ 3"),
    ("search", [0, 0], "not found"),
    ("memory-index", [1, 0, 2], "0 _ 1"),
    ("word-sort", [2, 1, 12, 0, 11], "ba _k"),
    ("merge", [1, 12, 11], "a /"),
    ("dyck", [2, 0], "balanced"),
    ("dyck", [2, 2], "2 2"),
    ("divide", [1, 2, 3, 2, 1], "10 remainder 1"),
    ("divide", [3, 0, 3], "_ remainder ?_"),
    ("multiply-bcd", [1, 1, 2, 3, 1, 1, 1, 4, 1, 1, 1, 3], "84"),
    ("multiply-bcd", [1, 1, 2, 3, 0, 0, 0, 0, 2, 2], "?_4"),
]


@pytest.mark.parametrize(("name", "output", "text"), SHOWS)
def test_render(name: str, output: list[int], text: str) -> None:
    assert TASKS[name].render(output) == text


ERRORS = [
    ("sort", ["7", "15"], r"^symbol 15 is outside 1\.\.11; type symbols"),
    ("sort", ["7", "x"], r"^'x' is not a symbol"),
    ("sort", [], "no symbol"),
    ("add", ["102", "1"], r"^'2' in '102' is not a digit 0\.\.1; type two binary numbers"),
    ("add", ["101"], "^two numbers are needed, got '101'"),
    ("divide", ["101", "00"], "^cannot divide by 00"),
    ("kv-sort", ["3:9", "4"], "^'4' is not a pair key:value"),
    ("search", ["3:9"], "no key is asked for in '3:9'"),
    ("search", ["3", "3:9"], "'3:9' comes after a key"),
    ("memory-index", ["3:2", "3"], "'2' in '3:2' is not a bit"),
    ("memory-index", ["3:1", "3:0", "3"], "key 3 has two cells"),
    ("memory-index", ["130:1", "3"], r"symbol 130 is outside 1\.\.129"),
    ("rotate", ["1011", "4"], r"^amount 4 is outside 0\.\.3"),
    ("rotate", ["1011", "\u0663"], r"^amount \u0663 is outside 0\.\.3"),
    ("rotate", ["1011", "9" * 5000], r"^amount 9+ is outside 0\.\.3"),
    ("sort", ["9" * 5000], r"^symbol 9+ is outside 1\.\.11"),
    ("rotate", ["1011"], "^a number and an amount are needed"),
    ("word-sort", ["lid"], r"^letter 'l' in 'lid' is outside a\.\.k"),
    ("merge", ["b", "a", "/", "c"], "^the list 'b a' is not sorted"),
    ("merge", ["a", "b"], "^two lists of words are needed"),
    ("dyck", ["(a)"], r"^'a' in '\(a\)' is not one of the brackets \(\)\[\]"),
    ("dyck-continue", ["(]"], r"^']' in '\(]' closes nothing"),
]


@pytest.mark.parametrize(("name", "words", "message"), ERRORS)
def test_errors(name: str, words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TASKS[name].parse(words)
