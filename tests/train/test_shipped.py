"""The trained weights in the package: small, whole, described, and as good as their cards say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from research.ship.card import model_card
from research.ship.ship import ship_run
from riffle.tasks import TASKS, get_task
from riffle.train.checkpoint import read_checkpoint
from riffle.train.evaluate import evaluate
from riffle.train.run import Run
from riffle.train.shipped import SHIPPED, solve

LARGE = ("multiply",)
"""Learned by no smaller network."""
SHIPPED_TASKS = sorted(folder.name for folder in SHIPPED.iterdir() if folder.name in TASKS)


def test_there_are_some() -> None:
    assert {"add", "duplicate", "multiply", "reverse", "sort"} <= set(SHIPPED_TASKS)


def test_all_of_them_together() -> None:
    assert sum(file.stat().st_size for file in SHIPPED.rglob("*") if file.is_file()) <= 48e6


@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_a_shipped_run(name: str) -> None:
    run = Run(SHIPPED / name)
    assert run.config.task == name
    assert run.checkpoint.stat().st_size <= (12e6 if name in LARGE else 2.5e6)
    assert (run.folder / "README.md").read_text() == model_card(run)
    environment = json.loads((run.folder / "environment.json").read_text())
    assert environment["commit"]
    assert environment["command"][0] == "riffle"
    promised = json.loads((run.folder / "evaluation.json").read_text())["scores"]
    task = get_task(name)
    assert {score["split"] for score in promised} <= {"uniform", *task.splits, *task.families()}
    trained = run.config.data.longest_input
    for length in (16, trained):
        (score,) = evaluate(run.model(), task, [length], examples=64, trained_length=trained)
        (card_score,) = (s for s in promised if s["split"] == "uniform" and s["length"] == length)
        # Some answers are one symbol, so that of 64 a wrong one is more than 0.015.
        assert score.symbol_accuracy >= card_score["symbol_accuracy"] - 0.02


@pytest.mark.parametrize(
    ("name", "words", "answer"),
    [
        ("sort", "2 1", "1 2"),
        ("add", "1 1", "10"),
        ("increment", "5", "6"),
        ("multiply", "11 11", "1001"),
        ("reverse", "7", "7"),
        ("right", "4", "4"),
    ],
)
def test_inputs_shorter_than_any_trained_network(name: str, words: str, answer: str) -> None:
    solution = solve(name, words.split(), Run(SHIPPED / name))
    assert (solution.output, solution.correct) == (answer, True)


def test_shipping_a_shipped_run_changes_nothing(tmp_path: Path) -> None:
    run = Run(SHIPPED / "sort")
    ship_run(run, tmp_path / "again")
    again = Run(tmp_path / "again")
    assert again.saved_step() == run.saved_step()
    before, after = read_checkpoint(run.checkpoint), read_checkpoint(again.checkpoint)
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
