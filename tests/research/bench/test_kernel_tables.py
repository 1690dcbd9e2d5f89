"""The tables of docs/kernels.md: goals beside what was reached, and hardware counters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import load_script


@pytest.fixture(scope="module")
def tables() -> Any:
    return load_script("tables_kernels")


@pytest.mark.parametrize(("reached", "verdict"), [(0.499, "short"), (0.5, "met")])
def test_a_goal_is_met_or_missed(tables: Any, reached: float, verdict: str, tmp_path: Path) -> None:
    record = json.loads(tables.ONE_LAUNCH.read_text(encoding="utf-8"))
    record["rows"]["infer-2m"]["forms"]["fused"] |= {"fraction_of_floor": reached, "run": 0}
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    lines = [line for line in tables.goals(path).splitlines() if "96 maps, 1 block, n = 2M |" in line]
    assert [line.split(" | ")[1] for line in lines] == ["50%"]
    assert f"| {record['runs'][0]['command'].split()[-1]} | {verdict} |" in lines[0]


def test_counters_of_a_launch(tables: Any, tmp_path: Path) -> None:
    stalls = {"barrier": 3.0, "wait": 2.0, "selected": 4.0, "gmma": 0.5, "long_scoreboard": 0.5}
    metrics = {f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": n for name, n in stalls.items()}
    metrics |= {"gpu__time_duration.sum": 12_345.0, "dram__bytes.sum.per_second": 3.5e12}
    metrics["sm__warps_active.avg.per_cycle_active"] = 11.99
    for name, percent in (
        ("sm__pipe_tensor_cycles_active", 10.4),
        ("l1tex__data_pipe_lsu_wavefronts", 20.0),
        ("lts__throughput", 30.0),
        ("sm__inst_executed", 40.0),
    ):
        metrics[f"{name}.avg.pct_of_peak_sustained_elapsed"] = percent
    launches = [{"case": "product_backward 192, 16384 pairs, kept, skip", "metrics": metrics}]
    record = {"device": "Some GPU", "commit": "abc", "versions": {"torch": "2.11.0"}, "command": ["counters.py"]}
    path = tmp_path / "counters.json"
    path.write_text(json.dumps(record | {"launches": launches}), encoding="utf-8")
    cells = ["`product_backward`, 192 maps, 16,384 pairs, gates kept, skip connection", "12.35 µs", "10%", "20%", "30%"]
    cells += ["3.50 TB/s", "40%", "12", "barrier 30%, fixed wait 20%, long scoreboard 5%"]
    assert tables.counters(path).splitlines()[-1] == f"| {' | '.join(cells)} |"
