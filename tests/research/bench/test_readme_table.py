"""The speed table of the documentation and its plot, from a file as ``riffle bench`` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import load_script

from research.bench.plots import draw_bench
from research.bench.workloads import SECTIONS, select_cases
from riffle.quantities import DASH

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def readme() -> Any:
    return load_script("readme")


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


def test_table(readme: Any, record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps(record))
    text = readme.speed(file)
    assert text.startswith(
        "One Some GPU, commit abc, torch 2.11.0, `riffle bench`; a matrix product reached 500 TFLOP/s"
    )
    lines = text.splitlines()
    cells = [*["50.7 ms, 3.0 GB"] * 3, DASH, "25.4 ms", "50%"]
    assert f"| inference, 96 maps, 1 block, n = 2M | {' | '.join(cells)} |" in lines
    (failed,) = [line for line in lines if line.startswith("| forward and backward, 96 maps")]
    assert "| out of memory |" in failed


def test_beside_attention(readme: Any, record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps(record))
    lines = readme.beside_attention(file).splitlines()
    assert lines[0].startswith("One Some GPU, commit abc, torch 2.11.0, `riffle bench`")
    assert "| cells | 1K | 4K | 8K | 16K | 64K | 256K | 1M |" in lines
    assert any(line.startswith("| 6-layer encoder, FlashAttention, 192 maps | ") for line in lines)
    assert lines[-1] == "![Time over length](research/bench/results/gpu.png)"


def test_rows_alone(readme: Any, record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    only = record["rows"]["latency"]["forms"]
    only.pop("compiled")
    file.write_text(json.dumps({**record, "rows": {"latency": record["rows"]["latency"]}}))
    *_, last = readme.speed(file).splitlines()
    cells = ["0.0115 ms, 3.0 GB", DASH, "0.0115 ms, 3.0 GB", DASH]
    assert last.startswith(f"| inference, 96 maps, 1 block, n = 1K | {' | '.join(cells)} |")


def test_own_loop(readme: Any, record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    for row in record["own-loop"].values():
        for form, entry in row["forms"].items():
            entry |= {"parameters": 2_900_000, "graph": "graphs" in form, "first_seconds": 7.0}
    record["own-loop"]["own-backward-1k"]["forms"]["gla"] = {"failed": "not installed"}
    file.write_text(json.dumps(record))
    lines = readme.own_loop(file).splitlines()
    assert "The models have 2.9 to 2.9 million parameters" in lines[0]
    assert "`torch.compile` of it took at most 7 s" in lines[0]
    assert sum(line.startswith("| riffle, `torch.compile` |") for line in lines) == 1
    (other,) = [line for line in lines if line.startswith("| gated linear attention, both directions |")]
    assert "| not installed |" in other
    assert readme.own_steps(file).count("\n| ") == 6
    assert readme.own_loop(tmp_path / "absent.json") == readme.own_steps(tmp_path / "absent.json") == ""


def test_own_loop_names_the_run_of_every_row(readme: Any, record: dict[str, Any], tmp_path: Path) -> None:
    record["runs"] += [{"command": f"riffle bench --commit {name}"} for name in ("replaced", "last")]
    for name, row in record["own-loop"].items():
        for form, entry in row["forms"].items():
            last = form == "riffle-graphs" and name.startswith(("own-step", "own-call"))
            entry |= {"parameters": 2_900_000, "run": 2 if last else 0}
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps(record))
    first, last = [line for line in readme.own_loop(file).splitlines() if line.startswith("- ")]
    assert last == "- `riffle bench --commit last`. First table: riffle."
    one, _, two = first.partition(" Second table: ")
    assert one.startswith("- `riffle bench`. First table: riffle, `torch.compile`; riffle, `graphs=False`; ")
    assert two.startswith("riffle; riffle, `graphs=False`; ")
    assert "(riffle, `torch.compile`, riffle, `graphs=False`, 6-layer" in readme.own_steps(file)


def test_one_launch_names_the_run_of_every_row(readme: Any, record: dict[str, Any], tmp_path: Path) -> None:
    record["runs"].append({"command": "riffle bench --quick", "ceilings": {"product": 600e12, "copy": 2e12}})
    for name, row in record["rows"].items():
        for entry in row["forms"].values():
            entry["run"] = int(name == "latency")
    record["rows"] = dict(reversed(record["rows"].items()))
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps(record))
    lines = readme.one_launch(file).splitlines()
    assert lines[2:4] == ["1. `riffle bench`: 500 TFLOP/s.", "2. `riffle bench --quick`: 600 TFLOP/s."]
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1] for line in lines[7:]}
    assert rows.pop("inference, 96 maps, 1 block, n = 1K") == "2"
    assert set(rows.values()) == {"1"}
    assert [title.startswith("forward") for title in rows] == sorted(title.startswith("forward") for title in rows)


def test_nothing_without_the_file(readme: Any, tmp_path: Path) -> None:
    assert readme.speed(tmp_path / "absent.json") == ""
    text = "a\n<!-- table: speed -->\nold\n<!-- end -->\nb\n"
    for lines, expected in (("", ""), ("new", "new\n")):
        tables = {"speed": lambda lines=lines: lines}
        assert readme.with_tables("README.md", text, tables) == f"a\n<!-- table: speed -->\n{expected}<!-- end -->\nb\n"


def test_plot(record: dict[str, Any], tmp_path: Path) -> None:
    svg = tmp_path / "plot.svg"
    assert draw_bench(record, svg)
    text = svg.read_text()
    for label in ("Some GPU", "its floor: FLOPs", "6-layer encoder", "2M", "96 maps, 1 block", "192 maps, 2 blocks"):
        assert f"<!-- {label}" in text, label
    assert draw_bench({**record, "attention": {}}, svg)
    assert "FlashAttention" not in svg.read_text()
    assert not draw_bench({**record, "attention": {}, "curve": {}}, tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_plot_of_a_run_cut_short(record: dict[str, Any], tmp_path: Path) -> None:
    only = {"ours-1024": record["attention"]["ours-1024"]}
    assert not draw_bench({**record, "curve": {}, "attention": only}, tmp_path / "plot.svg")
    record["attention"]["encoder-1024"]["forms"]["compiled"] = {"failed": "out of memory"}
    assert draw_bench(record, tmp_path / "plot.svg")
