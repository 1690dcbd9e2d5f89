"""``plan``: its table, its JSON, its plot, its page."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from unittest.mock import patch

import pytest
from cli.riffle_command import riffle

PAGE = Path(__file__).parents[3] / "research" / "plan.md"
COMMAND = "plan --length 2^30 --maps 192 --gpus 64 --link 400Gb"


def plan(command: str) -> str:
    with patch.dict(os.environ, COLUMNS="120"):
        result = riffle(*shlex.split(command))
    assert result.code == 0, result.err
    return result.out


def test_the_numbers() -> None:
    result = json.loads(plan(f"{COMMAND} --json"))
    forward, training = result["forward"], result["training"]
    assert forward["sent_bytes"] == 2 * 2**24 * 192 * 63 // 64 * 2
    assert forward["exchanges"] == 2
    assert forward["fits"]
    assert not training["fits"]
    assert training["fewest_gpus"] == 256
    assert forward["seconds"] == pytest.approx(forward["compute_seconds"] + forward["communication_seconds"])


def test_the_table_is_the_one_of_the_page() -> None:
    table = plan(COMMAND)
    assert "does not fit" in table
    shown = PAGE.read_text(encoding="utf-8").partition(f"python -m research {COMMAND}\n")[2].partition("```")[0]
    assert [line.split() for line in table.splitlines()] == [line.split() for line in shown.splitlines()]


@pytest.mark.parametrize(("length", "streams"), [("2^20", False), ("2^30", True)])
def test_what_one_gpu_cannot_hold_can_be_streamed(length: str, streams: bool) -> None:
    assert (
        "the 412.3 GB of cells can be streamed" in riffle("plan", "--length", length, "--gpus", "64").err
    ) == streams


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--gpus 3", "power of two of devices, got 3"),
        ("--length 5x", "'5x' is no whole number"),
        ("--link fast", "'fast' is no number of bits or bytes"),
    ],
)
def test_mistakes(option: str, message: str) -> None:
    assert message in riffle("plan", *option.split()).err
