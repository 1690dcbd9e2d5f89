"""The script that times training steps on a GPU, without one: its forms, and its table of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton has no build for this platform")

from benchmark_scripts import load_script

from riffle.kernels import layer_plan, tuning

NAMES = (
    "RESIDUAL_BACKWARD", "FEW_ROWS", "SIDE_STREAMS", "CAPTURE_PRIORITY", "FEW_COPIES", "CAST_PIECES", "GRADIENT_PAIRS",
)  # fmt: skip


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in NAMES:
        monkeypatch.setattr(tuning, name, getattr(tuning, name))
    monkeypatch.setattr(layer_plan, "GRADIENT_PAIRS", tuning.GRADIENT_PAIRS)
    yield load_script("step_times")
    monkeypatch.undo()
    for cache in load_script("kernel_checks").CACHES:
        cache.cache_clear()


def test_every_form_is_known_and_leaves_nothing_behind(script: Any) -> None:
    before = {name: getattr(tuning, name) for name in NAMES}
    for form in (*script.FORMS, *script.GATED):
        script.use(form)
    script.use("adds+copies+stages2+streams3+priority+gradients13")
    assert (tuning.RESIDUAL_BACKWARD.fills, tuning.FEW_COPIES, tuning.SIDE_STREAMS) == (False, False, 3)
    assert tuning.row_blocks(tuning.row_form(64, "backward"), 768).options["STAGES"] == 2
    assert layer_plan.GRADIENT_PAIRS == 2**13
    script.use("library")
    assert {name: getattr(tuning, name) for name in NAMES} == before


def test_the_table_of_kernels_counts_what_overlaps_once(script: Any) -> None:
    kernels = [
        {"name": "mm", "stream": 7, "start": 0.0, "microseconds": 4.0},
        {"name": "sum", "stream": 8, "start": 2.0, "microseconds": 3.0},
        {"name": "mm", "stream": 7, "start": 6.0, "microseconds": 4.0},
    ]
    table = script.kernel_table(kernels).splitlines()
    assert table[0] == "3 kernels, 11 us in all, 9 us with one at least, 10 us a step"
    assert [line.split() for line in table[1:]] == [["2", "8.0", "us", "mm"], ["1", "3.0", "us", "sum"]]
