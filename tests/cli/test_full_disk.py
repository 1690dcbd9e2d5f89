"""A disk that is full while a command writes: one sentence, no half-written file, and what was there is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from .riffle_command import riffle, small_files

RUN = "runs/reverse"
COMMANDS = (
    ("route", "3", "1", "0", "2", "--draw", "route.svg"),
    ("route", "3", "1", "0", "2", "--draw", "route.png"),
    ("eval", RUN, "--lengths", "4", "--examples", "1", "--device", "cpu"),
    ("inspect", RUN, "--lengths", "4", "--examples", "1", "--probes", "1", "--length", "4", "--device", "cpu"),
    ("solve", "reverse", *"12345678" * 30, "--out", "answer.txt"),
    ("bench", "--quick", "--rows", "latency", "--out", "bench.json", "--device", "cpu"),
    ("export", RUN, "--format", "hub", "--out", "passed-on"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join((command[0], command[-1])))
def test_a_full_disk(command: tuple[str, ...], run: Path, tmp_path: Path) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = files()
    with small_files(10):
        result = riffle(*command)
    assert result.code == 1, result
    assert "File too large (" in result.err.splitlines()[-1]
    assert files() == before
