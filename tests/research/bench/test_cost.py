"""The cost model against counts, against measurements, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research.bench.cost import Machine, ShardedCost, ShardedWork, network_flops
from riffle import ShuffleExchange
from riffle.shuffle import schedule

ROOT = Path(__file__).parents[3]
RESULTS, PAGE = ROOT / "research" / "bench" / "results", ROOT / "research" / "plan.md"
RECORDS = {False: RESULTS / "h200.json", True: RESULTS / "h200-one-launch.json"}
"""Measured files, by whether a layer was one launch where it can be."""
MISSED = ("infer-1m", True)
"""Where the predicted time is wrong; the page says by how much."""


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("k", [2, 5, 12])
def test_counts_are_those_of_the_network(k: int, blocks: int) -> None:
    work = ShardedWork(length=2**k, features=6, blocks=blocks)
    assert work.layers == len(schedule(k, blocks))
    assert work.parameters == sum(parameter.numel() for parameter in ShuffleExchange(6, blocks).parameters())
    assert network_flops(2**k, 6, blocks) == 16 * 6**2 * work.cells * work.layers


def test_even_lengths_cost_their_own_cells() -> None:
    costs = [ShardedCost(ShardedWork(length=n, pad="even", training=True), Machine()) for n in (1030, 2048)]
    assert costs[0].compute_seconds / costs[1].compute_seconds == pytest.approx(1030 / 2048)
    assert costs[0].fewest_ranks == 1


def test_bytes_sent() -> None:
    length, features, ranks, blocks = 2**20, 192, 16, 3
    sizes = {"length": length, "features": features, "blocks": blocks}
    cost, trained, alone = (
        ShardedCost(ShardedWork(**sizes, ranks=count, training=training), Machine())
        for count, training in ((ranks, False), (ranks, True), (1, True))
    )
    assert cost.exchanges == 2 * blocks
    assert cost.sent_numbers == blocks * 2 * (length / ranks) * features * (1 - 1 / ranks)
    assert cost.sent_bytes == 2 * cost.sent_numbers == trained.sent_numbers
    assert alone.sent_bytes == alone.communication_seconds == alone.exchanges == 0


@pytest.mark.parametrize("one_launch", RECORDS)
def test_measured_rows(one_launch: bool) -> None:
    """Time and memory over the predicted ones, by the rates of the row's own run."""
    record = json.loads(RECORDS[one_launch].read_text())
    for name, row in record["rows"].items():
        if len(row["lengths"]) > 1:  # a training step of several lengths, which the model has not
            continue
        fused = row["forms"]["fused"]
        sizes = {key: row[key] for key in ("features", "blocks", "batch")}
        work = ShardedWork(length=row["lengths"][0], training=name.startswith("backward"), **sizes)
        machine = Machine(
            flops=row["flops"] / (fused["floor_milliseconds"] / 1e3),
            copy=record["runs"][fused.get("run", 0)]["ceilings"]["copy"],
            warpgroups=one_launch,
        )
        cost = ShardedCost(work, machine)
        time, memory = fused["milliseconds"] / 1e3 / cost.seconds, fused["peak_bytes"] / cost.memory_bytes
        if name.startswith("infer") or name in ("backward-1m", "backward-2m"):  # others are short
            assert (name, one_launch) == MISSED or time == pytest.approx(1, abs=0.25)
            assert memory == pytest.approx(1, abs=0.1)
        assert f"| {row['title']} | {time:.3g} | {memory:.3g} |" in PAGE.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 1000}, "must be a power of two, as a sequence is padded to 1,024 cells, got 1000"),
        ({"length": 1001, "pad": "even"}, "must be even, as a sequence is padded to 1,002 cells, got 1001"),
        ({"length": 1002, "pad": "even", "ranks": 2}, "spread over devices has a power of two of cells, got 1002"),
        ({"length": 1002, "pad": "odd"}, "unknown pad 'odd'; choose one of power, even"),
        ({"length": 2**20, "ranks": 6}, "a power of two of devices, got 6"),
        ({"length": 2**6, "ranks": 16}, "64 cells are too few for 16 devices.* at most 8"),
        ({"length": 2**6, "features": 7}, "maps must be even"),
        ({"length": 2**6, "batch": 0}, "positive, got 192, 1 and 0"),
    ],
)
def test_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShardedWork(**arguments)  # type: ignore[arg-type]
