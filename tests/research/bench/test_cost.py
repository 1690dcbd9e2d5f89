"""The model of cost against what was counted, what was measured, and what is refused."""

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
"""What was measured, by whether layers were one launch where they can be."""


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("k", [2, 5, 12])
def test_counts_are_those_of_the_network(k: int, blocks: int) -> None:
    work = ShardedWork(length=2**k, features=6, blocks=blocks)
    assert work.layers == len(schedule(k, blocks))
    assert work.parameters == sum(parameter.numel() for parameter in ShuffleExchange(6, blocks).parameters())
    assert network_flops(2**k, 6, blocks) == 16 * 6**2 * work.cells * work.layers


def test_even_lengths_cost_their_own_cells() -> None:
    even, power = (ShardedWork(length=length, pad="even", training=True) for length in (1030, 2048))
    assert even.layers == power.layers == len(schedule(11))
    assert network_flops(1030, 192, 1) / network_flops(2048, 192, 1) == 1030 / 2048
    costs = [ShardedCost(work, Machine()) for work in (even, power)]
    assert costs[0].compute_seconds / costs[1].compute_seconds == pytest.approx(1030 / 2048)
    assert costs[0].fewest_ranks == 1
    assert ShardedCost(even, Machine(memory=1e6)).fewest_ranks is None


def test_volume_is_the_derived_one() -> None:
    length, features, ranks, blocks = 2**20, 192, 16, 3
    cost = ShardedCost(ShardedWork(length=length, features=features, ranks=ranks, blocks=blocks), Machine())
    assert cost.exchanges == 2 * blocks
    assert cost.sent_numbers == blocks * 2 * (length / ranks) * features * (1 - 1 / ranks)
    assert cost.sent_bytes == 2 * cost.sent_numbers
    trained = ShardedCost(
        ShardedWork(length=length, features=features, ranks=ranks, blocks=blocks, training=True), Machine()
    )
    assert trained.sent_numbers == 2 * cost.sent_numbers


def test_one_device_sends_nothing() -> None:
    for training in (False, True):
        cost = ShardedCost(ShardedWork(length=2**20, training=training), Machine())
        assert cost.sent_bytes == cost.communication_seconds == cost.exchanges == 0


def test_more_devices_hold_longer_sequences() -> None:
    fewest = [ShardedCost(ShardedWork(length=2**k), Machine()).fewest_ranks for k in (20, 26, 30, 34)]
    assert None not in fewest
    assert fewest == sorted(fewest)
    assert fewest[0] == 1
    assert ShardedCost(ShardedWork(length=2**30), Machine(memory=1e6)).fewest_ranks is None


def test_one_launch_moves_a_third_and_holds_half() -> None:
    one, two = (ShardedCost(ShardedWork(length=2**20, features=192), Machine(warpgroups=has)) for has in (True, False))
    assert (one.one_launch, two.one_launch) == (True, False)
    assert one.copy_seconds * 9 == pytest.approx(two.copy_seconds * 3)
    assert one.memory_bytes * 6 == pytest.approx(two.memory_bytes * 3, rel=0.01)
    assert one.product_seconds == two.product_seconds


@pytest.mark.parametrize("changes", [{"features": 384}, {"length": 2**14}, {"itemsize": 4}])
def test_one_launch_is_predicted_where_the_table_chooses_it(changes: dict[str, int]) -> None:
    work = ShardedWork(**{"length": 2**20, "features": 192, **changes})  # type: ignore[arg-type]
    one, two = (ShardedCost(work, Machine(warpgroups=has)) for has in (True, False))
    assert not one.one_launch
    assert (one.seconds, one.memory_bytes) == (two.seconds, two.memory_bytes)


def ratios(row: str, one_launch: bool) -> tuple[float, float]:
    """Measured over predicted time and memory of a row, by the copy's rate and the product's of the row's own run."""
    record = json.loads(RECORDS[one_launch].read_text(encoding="utf-8"))
    measured = record["rows"][row]
    fused = measured["forms"]["fused"]
    work = ShardedWork(
        length=measured["lengths"][0],
        features=measured["features"],
        blocks=measured["blocks"],
        batch=measured["batch"],
        training=row.startswith("backward"),
    )
    forward = network_flops(work.length, work.features, work.blocks) * work.batch
    assert measured["flops"] == forward * (3 if work.training else 1)
    product = measured["flops"] / (fused["floor_milliseconds"] / 1e3)  # the rate by which its floor was computed
    copy = record["runs"][fused.get("run", 0)]["ceilings"]["copy"]
    cost = ShardedCost(work, Machine(flops=product, copy=copy, warpgroups=one_launch))
    return fused["milliseconds"] / 1e3 / cost.seconds, fused["peak_bytes"] / cost.memory_bytes


LONG = [(row, False) for row in ("infer-2m", "infer-1m", "infer-128k", "backward-1m", "backward-2m")]
LONG += [(row, True) for row in ("infer-2m", "infer-1m", "infer-128k", "backward-1m", "backward-2m")]


MISSED = [("infer-1m", True)]
"""Where the predicted time is wrong; the page says by how much."""


@pytest.mark.parametrize(("row", "one_launch"), [each for each in LONG if each not in MISSED])
def test_a_long_sequence_on_one_gpu_takes_the_predicted_time(row: str, one_launch: bool) -> None:
    assert ratios(row, one_launch)[0] == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize(("row", "one_launch"), LONG)
def test_a_long_sequence_on_one_gpu_takes_the_predicted_memory(row: str, one_launch: bool) -> None:
    assert ratios(row, one_launch)[1] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("one_launch", RECORDS)
def test_the_page_shows_every_row_that_was_measured(one_launch: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = json.loads(RECORDS[one_launch].read_text(encoding="utf-8"))["rows"]
    for name, row in rows.items():
        if len(row["lengths"]) == 1:  # a step of several bins is no work of the model
            time, memory = ratios(name, one_launch)
            assert f"| {row['title']} | {time:.3g} | {memory:.3g} |" in page


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
