"""``riffle solve`` with an input from a file, whole and streamed."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from riffle.models.sequence import predict_streamed
from riffle.tasks.task import trim
from riffle.train.evaluate import predict
from riffle.train.run import Run

from .riffle_command import TINY, riffle, succeed


@pytest.fixture
def numbers(run: Path) -> Path:
    path = Path("numbers.txt")
    path.write_text("\n".join(str(1 + i * i % 11) for i in range(300)))
    return path


def test_a_file_is_what_would_be_typed(run: Path, numbers: Path) -> None:
    typed = succeed("solve", "reverse", "--runs", "runs", *numbers.read_text().split(), "--json").json
    assert succeed("solve", "reverse", "--runs", "runs", "--input", numbers, "--json").json == typed
    shown = succeed("solve", "reverse", "--runs", "runs", "--input", numbers)
    assert shown.out == typed["output"] + "\n"
    assert "wrong, the answer is " + typed["expected"][:200] + "…" in shown.err, "not shortened"


def test_standard_input(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"3 1\n2\n")))
    assert succeed("solve", "reverse", "--runs", "runs", "--input", "-", "--json").json["input"] == "3 1 2"


@pytest.mark.parametrize("part", ["2^20", "64", "2^3"])
def test_streamed_the_answer_is_the_same(run: Path, numbers: Path, part: str) -> None:
    whole = succeed("solve", "reverse", "--runs", "runs", "--input", numbers, "--json").json
    streamed = succeed("solve", "reverse", "--runs", "runs", "--input", numbers, "--stream", "--part", part, "--json")
    assert streamed.json == whole
    assert "parts" in streamed.err


def test_out(run: Path, numbers: Path) -> None:
    whole = succeed("solve", "reverse", "--runs", "runs", "--input", numbers, "--json").json
    written = succeed("solve", "reverse", "--runs", "runs", "--input", numbers, "--stream", "--out", "answer.txt")
    assert written.out == ""
    assert Path("answer.txt").read_text() == whole["output"] + "\n"


@pytest.mark.parametrize("length", [0, 1, 2, 5, 32, 33])
def test_every_length_and_nothing_is_left_behind(trained: Path, length: int, tmp_path: Path) -> None:
    model, symbols = Run(trained).model(), [1 + i % 11 for i in range(length)]
    seen = []
    streamed = predict_streamed(
        model, symbols, part=8, scratch=tmp_path, on_progress=lambda *now: seen.append(list(tmp_path.iterdir()))
    )
    assert trim(streamed) == predict(model, symbols)
    assert len(streamed) == max(1, length)
    assert seen == [[]] * len(seen), "a process that is killed would leave its files"
    assert list(tmp_path.iterdir()) == []


def test_another_model_is_refused(tmp_path: Path) -> None:
    succeed("train", "reverse", *TINY, "--model", "lstm", "--steps", 1, "--out", tmp_path / "lstm")
    result = riffle("solve", "reverse", "1", "--stream", "--run", tmp_path / "lstm")
    assert result.code == 1
    assert "only shuffle-exchange networks can be streamed" in result.err
