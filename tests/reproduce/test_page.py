"""docs/experiments.md: its commands have the options they use, its table is right, its example runs."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
from cli.riffle_command import riffle, succeed

from riffle.reproduce import FIGURES, LEARNING, get_figure
from riffle.reproduce import runner as schedule

from .test_learning import one_by_one

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()


@pytest.mark.parametrize("command", re.findall(r"^riffle reproduce (.+)$", PAGE, flags=re.MULTILINE))
def test_commands(command: str) -> None:
    words = shlex.split(command)
    assert words[0] in (*LEARNING, "--report")
    shown = riffle("reproduce", "--help").out
    assert all(word in shown for word in words if word.startswith("--"))


def test_the_table_counts_the_runs() -> None:
    for name in LEARNING:
        (row,) = [line for line in PAGE.splitlines() if line.startswith("| `") and f"`{name}`" in line]
        runs, steps = (cell.strip() for cell in row.split("|")[3:5])
        learners = get_figure(name).configs(runs=get_figure(name).RUNS)
        first, _, second = runs.partition(" \N{MULTIPLICATION SIGN} ")
        assert len(learners) == int(first) * int(second or 1), name
        assert {each.config.train.steps for each in learners} == {
            int(count.replace(",", "")) for count in steps.split("; ")
        }


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, entry = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    added = ModuleType("riffle.reproduce.dropout")
    exec(module, added.__dict__)
    monkeypatch.setitem(sys.modules, added.__name__, added)
    monkeypatch.setitem(LEARNING, "dropout", "taken out again after the test")
    exec(entry, {"LEARNING": LEARNING})
    monkeypatch.setitem(FIGURES, "dropout", LEARNING["dropout"])
    monkeypatch.setattr(schedule, "carry_out", one_by_one)
    command = ("reproduce", "dropout", "--quick", "--out", tmp_path, "--work", tmp_path / "work", "--device", "cpu")
    found = succeed(*command, "--json").json
    assert set(found["runs"]) == {f"reverse-dropout-{rate}-seed0" for rate in ("0", "0-1", "0-2")}
    assert (tmp_path / "dropout" / "figure.png").exists()
    assert [claim["holds"] for claim in found["claims"]] == [None]
