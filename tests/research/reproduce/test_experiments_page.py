"""research/experiments.md: its commands have the options they use, its table is right, its example runs."""

from __future__ import annotations

import math
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
from cli.riffle_command import riffle, succeed

from research.reproduce import FIGURES, Entry, get_figure, runner

from .test_figures import run_in_this_process

PAGE = (Path(__file__).parents[3] / "research" / "experiments.md").read_text()
LEARNING = [name for name, entry in FIGURES.items() if entry.kind == "learning"]


@pytest.mark.parametrize("command", re.findall(r"^python -m research reproduce (.+)$", PAGE, flags=re.MULTILINE))
def test_commands(command: str) -> None:
    words = shlex.split(command)
    assert words[0] in (*LEARNING, "--report")
    shown = riffle("reproduce", "--help").out
    assert all(word in shown for word in words if word.startswith("--"))


def test_the_table_counts_the_runs() -> None:
    for name in LEARNING:
        (row,) = [line for line in PAGE.splitlines() if line.startswith("| `") and f"`{name}`" in line]
        runs, steps = (cell.strip() for cell in row.split("|")[3:5])
        specs = get_figure(name).specs()
        products = [map(int, product.split("\N{MULTIPLICATION SIGN}")) for product in runs.split("+")]
        assert len(specs) == sum(map(math.prod, products)), name
        assert {spec.config.train.steps for spec in specs} == {
            int(count.replace(",", "")) for count in steps.split("; ")
        }


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, entry = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    added = ModuleType("research.reproduce.figures.dropout")
    exec(module, added.__dict__)
    monkeypatch.setitem(sys.modules, added.__name__, added)
    listed: dict[str, Entry] = {}
    exec(entry, {"FIGURES": listed, "Entry": Entry})
    monkeypatch.setitem(FIGURES, "dropout", listed["dropout"])
    monkeypatch.setattr(runner, "run_jobs", run_in_this_process)
    command = ("reproduce", "dropout", "--quick", "--out", tmp_path, "--work", tmp_path / "work", "--device", "cpu")
    shown = succeed(*command, "--json").json
    assert set(shown["runs"]) == {f"reverse-dropout-{rate}-seed0" for rate in ("0", "0-1", "0-2")}
    assert (tmp_path / "dropout" / "figure.png").exists()
    assert [claim["verdict"] for claim in shown["claims"]] == ["not measured"]
