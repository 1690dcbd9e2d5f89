"""Tables of docs/kernels.md: what was aimed at and reached, and what hardware counters say of single launches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from research.tables.common import read_json, table, where
from research.tables.speed import ONE_LAUNCH, OWN_LOOP
from riffle.quantities import DASH, format_milliseconds, format_share

RESULTS = ONE_LAUNCH.parent
COUNTERS, COUNTERS_2 = RESULTS / "kernel-counters.json", RESULTS / "kernel-counters-2.json"


class Goal(NamedTuple):
    """What a row was to reach."""

    row: str
    form: str
    share: float
    """Of the rate of a short product."""


GOALS = (
    Goal("infer-2m", "fused", 0.50),
    Goal("infer-1m", "fused", 0.55),
    Goal("infer-128k", "fused", 0.58),
    Goal("lambada", "fused", 0.52),
    Goal("backward-1m", "fused", 0.40),
    Goal("backward-1m", "fused-keep", 0.47),
    Goal("backward-2m", "fused", 0.30),
    Goal("backward-2m", "fused-keep", 0.35),
)
CALL_GOAL, STEP_GOAL = 0.6, 1.1
"""Milliseconds at most."""
KEPT = {"fused": ", inputs kept", "fused-keep": ", gates kept"}
STALLS = {
    "barrier": "barrier",
    "long_scoreboard": "long scoreboard",
    "short_scoreboard": "short scoreboard",
    "wait": "fixed wait",
    "gmma": "product",
    "mio_throttle": "queue of shared memory",
}
"""Why a warp does not issue: names of Nsight Compute, and ours."""
SHOWN_STALLS = 3


def goals(path: Path = ONE_LAUNCH) -> str:
    """Each row beside what it was to reach, as a share of the short product of its own run."""
    record = read_json(path)
    lines = []
    for goal in GOALS:
        row = record["rows"][goal.row]
        entry = row["forms"][goal.form]
        title = row["title"] + (KEPT[goal.form] if goal.row.startswith("backward") else "")
        reached = entry["fraction_of_floor"]
        times = [format_milliseconds(entry["milliseconds"]), record["runs"][entry["run"]]["command"].split()[-1]]
        shares = [format_share(share) for share in (goal.share, reached)]
        lines.append([title, *shares, *times, _verdict(reached >= goal.share)])
    own = read_json(OWN_LOOP)
    for row, form, most, runs in (
        (own["own-loop"]["own-call-4k"], "riffle-graphs", CALL_GOAL, own["runs"]),
        (record["rows"]["step"], "fused-keep", STEP_GOAL, record["runs"]),
    ):
        entry = row["forms"][form]
        times = [format_milliseconds(entry["milliseconds"]), runs[entry["run"]]["command"].split()[-1]]
        lines.append([row["title"], format_milliseconds(most), DASH, *times, _verdict(entry["milliseconds"] <= most)])
    return table(["work", "goal", "reached", "time", "commit", ""], lines)


def _verdict(met: bool) -> str:
    return "met" if met else "short"


def counters(path: Path = COUNTERS) -> str:
    """What a launch keeps busy, and what its warps wait for."""
    record = read_json(path)
    about = (
        f"{where(record)}, `python benchmarks/{' '.join(record['command'])}` "
        f"([{path.name}](research/bench/results/{path.name})); percent of what a unit can do, over the whole launch:"
    )
    heads = ["launch", "time", "tensor cores", "shared memory and L1", "L2", "device memory", "issue slots", "warps"]
    return f"{about}\n\n{table([*heads, 'warps wait for'], [_counter_row(launch) for launch in record['launches']])}"


def _counter_row(launch: Mapping[str, Any]) -> list[str]:
    metrics = launch["metrics"]
    busy = {
        unit: f"{metrics[f'{name}.avg.pct_of_peak_sustained_elapsed']:.0f}%"
        for unit, name in (
            ("tensor", "sm__pipe_tensor_cycles_active"),
            ("shared", "l1tex__data_pipe_lsu_wavefronts"),
            ("l2", "lts__throughput"),
            ("issue", "sm__inst_executed"),
        )
    }
    return [
        _name(launch["case"]),
        f"{metrics['gpu__time_duration.sum'] / 1e3:.4g} µs",
        busy["tensor"],
        busy["shared"],
        busy["l2"],
        f"{metrics['dram__bytes.sum.per_second'] / 1e12:.2f} TB/s",
        busy["issue"],
        f"{metrics['sm__warps_active.avg.per_cycle_active']:.0f}",
        _stalls(metrics),
    ]


def _name(case: str) -> str:
    """As on the page: "layer_forward 192, 524288 pairs" with code and commas."""
    size, _, more = case.partition(" pairs")
    kernel, features, pairs = size.replace(",", "").split()
    more = more.replace("kept", "gates kept").replace("skip", "skip connection")
    launch = "the gates' product" if kernel == "gates" else f"`{kernel}`"
    return f"{launch}, {features} maps, {int(pairs):,} pairs{more}"


def _stalls(metrics: Mapping[str, float]) -> str:
    """The reasons for which warps waited most, with their share of the warps' time."""
    pattern = re.compile("smsp__average_warps_issue_stalled_(.*)_per_issue_active.ratio")
    found = {match[1]: value for name, value in metrics.items() if (match := pattern.fullmatch(name))}
    total = sum(found.values())
    waits = sorted(((value, name) for name, value in found.items() if name != "selected"), reverse=True)
    return ", ".join(f"{STALLS[name]} {value / total:.0%}" for value, name in waits[:SHOWN_STALLS])
