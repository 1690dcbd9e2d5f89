"""The script that times kernels on a GPU, without one: its settings, and what becomes of rows that fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from benchmark_scripts import load_script

from riffle.kernels import layer_plan, tuning
from riffle.kernels.reference import NORMS

SAME_KERNELS = {"other", "gradients15", "gradients17"}
"""Changes that need no check of their own."""


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    names = ("LAYER_ROWS", "PRODUCT_FORMS", "WIDE_FORMS", "RESIDENT_PAIRS", "DEPENDENT_LAUNCH", "GRADIENT_PAIRS")
    for name in (*names, "FEW_ROWS"):
        monkeypatch.setattr(tuning, name, getattr(tuning, name))
    monkeypatch.setattr(layer_plan, "GRADIENT_PAIRS", tuning.GRADIENT_PAIRS)
    yield load_script("kernel_trials")
    monkeypatch.undo()
    for cache in load_script("kernel_checks").CACHES:
        cache.cache_clear()


def test_every_setting_is_known_and_checked(trials: Any) -> None:
    checks = load_script("kernel_checks")
    used = {change for row in trials.rows() for setting in row.settings for change in setting.split("+")}
    assert used <= checks.CHANGES.keys()
    checked = {change for check in checks.checks() for change in check.setting.split("+")}
    assert used - checked == SAME_KERNELS
    rows = [row.name for row in trials.rows()]
    assert len(set(rows)) == len(rows)
    for setting in ("library+gradients17", "before"):
        trials.use(setting)
    assert not tuning.DEPENDENT_LAUNCH
    assert tuning.GRADIENT_PAIRS == 2**16
    assert tuning.PRODUCT_FORMS == {}
    options = {"dtype": torch.bfloat16, "features": 192}
    assert tuning.find_layer_form(2**11, keep=False, **options) is None
    assert tuning.find_layer_form(2**14, keep=True, skip=True, **options) is None
    trials.use("library+single")
    assert tuning.RESIDENT_PAIRS == {}
    trials.use("library+loop")
    assert tuning.RESIDENT_PAIRS == {192: 2**11}
    form = checks.LAYER_TRIALS["loop"][1]
    assert tuning.find_layer_form(2**19, keep=True, **options) == form
    trials.use("library")
    assert tuning.find_layer_form(2**19, keep=True, **options) is None
    assert tuning.find_layer_form(2**19, keep=True, skip=True, **options) == form
    assert tuning.find_layer_form(2**11, keep=False, **options).ways == 4
    assert tuning.find_layer_form(2**14, keep=False, **options).ways == 1


@pytest.mark.parametrize("norm", NORMS)
def test_the_residual_layer_that_is_timed_is_that_of_the_definition(trials: Any, norm: str) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for setting in ("library", "library+waiting+shared"):
        trials.use(setting)
        layer = trials.ResidualLayer(8, 64, norm=norm, dtype=torch.float32, device=device)
        plan = layer.plan(shuffle=1)
        layer.forward(plan)
        actual = [layer.out, *layer.backward(plan, layers=2)]
        for ours, theirs in zip(actual, layer.definition(torch.float64, 1), strict=True):
            assert (ours.double() - theirs).norm() <= 1e-4 * theirs.norm(), setting


def test_a_row_that_fails_does_not_stop_the_others(
    trials: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(number: float, setting: str) -> dict[str, Any]:
        if setting == "library":
            raise RuntimeError("no such kernel")
        return {"milliseconds": number if setting == "before" else 0.9 * number}

    settings = ("before", "library", "library+joint2")
    rows = [trials.Row("fails", settings, measure, (2.0,)), trials.Row("late", settings, measure, (2.0,), cost=1e6)]
    monkeypatch.setattr(trials, "rows", lambda: rows)
    monkeypatch.setattr(trials, "DEVICE", torch.device("cpu"))
    path = tmp_path / "result.json"
    monkeypatch.setattr(sys, "argv", ["kernel_trials.py", str(path), "--check-seconds", "0"])
    trials.main()
    entries = json.loads(path.read_text())["rows"]
    assert entries[1]["failed"] == "RuntimeError: no such kernel"
    assert [entry.get("failed") for entry in entries[3:]] == 3 * ["no time"]
    assert "fails [ms]: before 2; library -; library+joint2 1.8 (-10.0%)" in capsys.readouterr().out


def test_forms_that_failed_a_check_are_not_timed(trials: Any) -> None:
    row = trials.Row("row", ("before", "library+joint2", "library"), lambda setting: {"milliseconds": 1.0}, ())
    entries = list(trials.measure(row, row.settings, {"joint2"}, float("inf")))
    assert ["failed" in entry for entry in entries] == [False, True, False]
