"""Benchmarks of others: every run is as they prescribe, scores count what they count, quick runs leave results."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cli.riffle_command import succeed

from research.recipes import chomsky as recipe
from research.reproduce import runner
from research.reproduce.figures import chomsky, listops
from riffle.config import RunConfig
from riffle.tasks import TASKS
from riffle.tasks.task import BLANK

from .test_figures import run_in_this_process


def oracle(config: RunConfig, right_to: int) -> Any:
    """A run whose answers are right up to a length, with any symbols after them; a blank is always the likeliest."""
    task = TASKS[config.task]

    def model(inputs_BN: torch.Tensor) -> torch.Tensor:
        answers_BN = task.answer(inputs_BN)
        outputs_BN = torch.where(answers_BN == BLANK, 1, answers_BN)
        if inputs_BN.shape[1] > right_to * task.reach:
            outputs_BN = outputs_BN % (task.classes - 1) + 1  # another symbol
        scores_BNC = torch.nn.functional.one_hot(outputs_BN, task.classes).float()
        return scores_BNC + 2 * torch.nn.functional.one_hot(torch.zeros_like(outputs_BN), task.classes)

    return SimpleNamespace(config=config, model=lambda device: model)


@pytest.mark.parametrize("task", ["parity", "duplicate-bits", "add-unequal"])
def test_a_score_is_the_mean_over_lengths_of_the_symbols_of_the_answer(task: str) -> None:
    run = oracle(recipe(task), right_to=100)
    measured = chomsky.score_lengths(run, torch.device("cpu"), (41, 63, 64, 65, 128))["accuracy"]
    assert measured == {"score": 0.8, "41 to 64": 1.0, "65 to 128": 0.5}


@pytest.mark.parametrize(
    ("name", "only"),
    [
        ("chomsky", "parity-gated"),
        ("chomsky", "parity-lstm"),
        ("chomsky", "parity-transformer-relative-post-norm"),
        ("listops", "listops-gated"),
        ("residual", "add-residual-features"),
    ],
)
def test_a_quick_run(name: str, only: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_jobs", run_in_this_process)
    command = ("reproduce", name, "--quick", "--only", only, "--out", tmp_path, "--work", tmp_path / "work", "--json")
    shown = succeed(*command, "--device", "cpu", "--commit", "abc").json
    assert shown["runs"] == [f"{only}-seed0"]
    result = json.loads((tmp_path / name / f"{only}-seed0.json").read_text())
    assert name == "residual" or 0 <= result["accuracy"]["score"] <= 1
    assert (tmp_path / name / "figure.svg").exists() == (name == "residual")


def test_the_table() -> None:
    specs = [*chomsky.CHOMSKY.specs(), *listops.LISTOPS.specs()]
    scored = {"lstm": 0.6, "transformer": 0.5, "gated": 0.95, "residual": 0.4}
    results = [
        {"group": spec.group, "accuracy": {"score": scored[spec.group.split(", ")[1]] + 0.01 * spec.config.train.seed}}
        for spec in specs
    ]
    (relative,) = [result for result in results if result["group"] == "bucket-sort, transformer, relative"]
    relative["accuracy"]["score"] = 0.9
    columns, rows = chomsky.table(results)
    assert rows[-1][columns.index("transformer, alibi") :] == pytest.approx([50, 90, 52])
    assert [row[columns.index("gated, best")] for row in rows] == pytest.approx([97] * 15)
    assert rows[0][columns.index("lstm")] is None
