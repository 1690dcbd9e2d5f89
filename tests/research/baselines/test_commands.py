"""Other models on the command line: the same commands, and what is said of mistakes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from cli.riffle_command import TINY, riffle

from research.reproduce import FIGURES

PAGE = Path(__file__).parents[3] / "research" / "rivals.md"
COMMANDS = re.findall(r"^riffle (.+)$", PAGE.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("model", ["dngpu", "transformer", "gru"])
def test_train_evaluate_and_solve(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trained = riffle("train", "reverse", "--model", model, *TINY, "--steps", 2, "--out", folder)
    assert trained.code == 0, trained.err
    assert json.loads((folder / "config.json").read_text())["model"]["kind"] == model
    evaluated = riffle("eval", folder, "--lengths", "3,8", "--examples", 4, "--device", "cpu", "--json")
    assert [score["length"] for score in evaluated.json["scores"]][:2] == [3, 8]
    solved = riffle("solve", "reverse", "--run", folder, "7", "3", "--json")
    assert solved.code == 0, solved.err


def test_a_length_too_heavy_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    riffle("train", "reverse", "--model", "dngpu", *TINY, "--steps", 1, "--out", folder)
    refused = riffle("eval", folder, "--lengths", 2**20, "--device", "cpu")
    assert refused.code == 1
    assert re.search(r"this would take about [\d,]+ days.*--force", refused.err)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_page(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    if words[0] == "train":
        shown = riffle(*words, "--show", "--json")
        assert shown.code == 0, shown.err
    elif words[0] == "reproduce":
        assert words[1] in FIGURES
        assert set(words[2:]) <= {"--memory", "11"}
    else:
        assert words == ["eval", "runs/add-dngpu"], "where riffle train add --model dngpu leaves its run"
