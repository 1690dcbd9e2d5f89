"""What files and options hold is checked against type hints; messages are short, whatever was typed."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from research.quantities import parse_bytes
from riffle.config import ModelConfig, RunConfig, override, run_config_from_dict
from riffle.files import DamagedFile, read_json, read_text
from riffle.quantities import parse_count, quote, shorten
from riffle.schema import Range, decode


class Entry(TypedDict):
    name: str
    sizes: list[int]
    note: NotRequired[str]


FITTING = [
    (int, 3),
    (float, 3),
    (float, 0.5),
    (bool, True),
    (str, "a"),
    (Any, [None]),
    (int | None, None),
    (list[int], [1, 2]),
    (dict[str, float], {"a": 1, "b": 0.5}),
    (Literal["a", "b"], "b"),
    (Annotated[float, Range(gt=0, lt=1)], 0.5),
    (Entry, {"name": "a", "sizes": [], "further": {}}),
]
WRONG = [
    (int, "8", "x must be a whole number, got '8'"),
    (int, True, "x must be a whole number, got True"),
    (int, 2**63, "x must be below 9,223,372,036,854,775,808"),
    (float, math.nan, "x must be finite, got nan"),
    (bool, 1, "x must be true or false, got 1"),
    (str, 1, "x must be a text, got 1"),
    (int | None, "", "x must be a whole number"),
    (list[int], [1, []], r"x[1] must be a whole number, got []"),
    (tuple[int, ...], 3, "x must be a list, got 3"),
    (dict[str, int], [], "x must be an object, got []"),
    (dict[str, int], {"a": None}, "x.a must be a whole number"),
    (Literal["a", "b"], "c", "x must be one of a, b, got 'c'"),
    (Annotated[int, Range(ge=1, le=9)], 0, "x must be at least 1, got 0"),
    (Annotated[int, Range(ge=1, le=9)], 10**26, "x must be at most 9, got 1000000"),
    (Annotated[float, Range(gt=0, lt=1)], 0, "x must be above 0"),
    (Annotated[float, Range(gt=0, lt=1)], 1, "x must be below 1"),
    (Entry, {"sizes": []}, "the field x.name is missing"),
    (Entry, {"name": "a", "sizes": [0.5]}, "x.sizes[0] must be a whole number"),
    (Entry, {"name": "a", "sizes": [], "note": 1}, "x.note must be a text"),
    (ModelConfig, {"colour": 1}, "unknown field 'colour'; ModelConfig has kind, features"),
]


@pytest.mark.parametrize(("hint", "value"), FITTING, ids=str)
def test_values_that_fit(hint: Any, value: Any) -> None:
    assert decode(hint, value, "x") == value


@pytest.mark.parametrize(("hint", "value", "message"), WRONG, ids=str)
def test_values_that_do_not_fit(hint: Any, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        decode(hint, value, "x")
    assert str(error.value).startswith(message)


CONFIGS: list[Any] = [
    [],
    None,
    {"task": 3},
    {"task": "sort", "model": None},
    {"task": "sort", "model": {"features": "8"}},
    {"task": "sort", "model": {"features": 10**26}},
    {"task": "sort", "data": {"bins": [8, "16"]}},
    {"task": "sort", "train": {"precision": "fp8"}},
    {"task": "lambada", "data": {"words": "1"}},
]


@pytest.mark.parametrize("content", CONFIGS, ids=str)
def test_configurations_that_were_edited(content: Any) -> None:
    with pytest.raises(ValueError, match=r"must be|missing"):
        run_config_from_dict(json.loads(json.dumps(content)))


@pytest.mark.parametrize("digits", ["-1", "9" * 26, "9" * 5000, "0", "1e3"])
@pytest.mark.parametrize("field", ["model.features", "model.blocks", "train.steps", "data.batch", "data.bins"])
def test_numbers_that_no_field_takes(field: str, digits: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field}(\[0\])? must be") as error:
        override(RunConfig(task="sort"), [f"{field}={digits}"])
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("text", ["2^49", "2^999", "2**99999999", "10^15", "9" * 5000, "1" + "0" * 300 + "^2"])
def test_counts_have_a_limit(text: str) -> None:
    with pytest.raises(ValueError, match=r"is too large: the largest number here is 2\^48") as error:
        parse_count(text)
    assert len(str(error.value)) < 200
    assert parse_count("2^48") == 2**48
    assert parse_count("1^9999") == 1


@pytest.mark.parametrize("text", ["0", "0.0", "9" * 400])
def test_rates_have_limits(text: str) -> None:
    with pytest.raises(ValueError, match=r"is too (small|large), it is no number of"):
        parse_bytes(f"{text}B")


CONTENTS = {
    "nothing": b"",
    "half": b'{"a": ',
    "nested": b"[" * 100_000,
    "many digits": b"1" * 10_000,
    "another type": b"[]",
    "no text": b"\xff\xfe{}",
    "zeros": bytes(100),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_damaged_json(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(CONTENTS[content])
    with pytest.raises(DamagedFile, match=r"a\.json is no .*") as error:
        read_json(path, dict[str, int], what="record", remedy="make it again")
    assert str(path) in str(error.value)
    assert len(str(error.value)) < 300


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DamagedFile, match="pipe is a pipe: write its content to a file first"):
        read_text(tmp_path / "pipe")


HOSTILE: list[Any] = ["a" * 10**7, "\x1b]0;owned\x07\x1b[2J" * 99, "\u202e", "'" * 500, "\udcff"]
HOSTILE += [[["a" * 99] * 99] * 99, 10**5000]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_quotations_are_short_and_without_control_characters(value: Any) -> None:
    assert len(quote(value)) <= 80
    assert quote(value).isprintable()
    message = shorten(f"unknown task {value!r}, {str(value)[:4000]}" if isinstance(value, str) else quote(value))
    assert message.isprintable()
    assert len(message) <= 3000
    assert all(len(word) <= 200 for word in message.split())


def test_ordinary_messages_stay_as_they_are() -> None:
    message = "the run's folder 'runs/a b' isn't there: it's the user's, and so's all that doesn't fit 80 columns"
    assert shorten(message) == message
