"""Plots and tables of a file as ``bench`` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from research.bench.plots import draw_bench
from research.bench.workloads import SECTIONS, select_cases


@pytest.fixture
def record() -> dict[str, Any]:
    """A made-up file: everything reaches half the floor, but one form ran out of memory."""
    content: dict[str, Any] = {section: {} for section in SECTIONS}
    content |= {"commit": "abc", "device": "Some GPU"}
    content["runs"] = [{"command": "riffle bench", "ceilings": {"product": 500e12, "copy": 2e12}}]
    content["versions"] = {"torch": "2.11.0"}
    for section, workload, form in select_cases("cuda"):
        floor = workload.flops / 500e9
        entry: dict[str, Any] = {"milliseconds": 2 * floor, "floor_milliseconds": floor, "fraction_of_floor": 0.5}
        entry |= {"peak_bytes": 3_000_000_000, "dtype": "bfloat16"}
        if workload.name == "backward-2m" and form == "compiled":
            entry = {"failed": "out of memory"}
        row = {"title": workload.title, "features": workload.features, "blocks": workload.blocks}
        row |= {"lengths": list(workload.lengths), "batch": workload.batch, "forms": {}}
        content[section].setdefault(workload.name, row)["forms"][form] = entry
    return content


def test_plot(record: dict[str, Any], tmp_path: Path) -> None:
    svg = tmp_path / "plot.svg"
    assert draw_bench(record, svg)
    text = svg.read_text()
    for label in ("Some GPU", "its floor: FLOPs", "6-layer encoder", "1M", "192 maps, 2 blocks"):
        assert f"<!-- {label}" in text, label
    assert not draw_bench({**record, "attention": {}}, tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_plot_of_a_run_cut_short(record: dict[str, Any], tmp_path: Path) -> None:
    only = {"ours-1024": record["attention"]["ours-1024"]}
    assert not draw_bench({**record, "attention": only}, tmp_path / "plot.svg")
    record["attention"]["encoder-1024"]["forms"]["compiled"] = {"failed": "out of memory"}
    assert draw_bench(record, tmp_path / "plot.svg")
