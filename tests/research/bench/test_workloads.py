"""FLOPs and lower bounds against numbers counted by hand, and the selection of cases."""

from __future__ import annotations

import pytest

from research.bench.cost import encoder_flops, network_flops
from research.bench.timing import PeakRates
from research.bench.workloads import WORKLOADS, Case, Workload, row_names, select_cases
from riffle import ShuffleExchange

from . import tiny

H200 = PeakRates(775e12, 4.2e12, "an earlier measurement")
BY_NAME = {workload.name: workload for workload in WORKLOADS["cuda"]}
FLOORS = {
    "infer-2m": 16.4,
    "infer-1m": 31.1,
    "infer-128k": 25.9,
    "lambada": 0.62,
    "backward-1m": 93,
    "backward-2m": 49,
    "backward-lambada": 15,
}
"""Milliseconds at 775 TFLOP/s, as an earlier count had them."""


def test_network_of_eight_cells() -> None:
    # k = 3: two blocks of four layers and the last; four pairs of 4 numbers each in a layer.
    assert network_flops(8, 2, 2) == 9 * 4 * 2 * (3 * 16 + 2 * 8) == ShuffleExchange(2, 2).flops(8)


def test_encoder_of_two_cells() -> None:
    # d = 1: q, k, v and the projection, two layers of 4, by 2 cells; scores and mixing, 2 x 2 each.
    assert encoder_flops(2, 1, 3) == 3 * (2 * 2 * (4 + 8) + 2 * 2 * 2 * 2)


def test_latency_and_step() -> None:
    assert BY_NAME["latency"].flops == 19 * 1024 * (3 * 192**2 + 2 * 192 * 96)
    layers = {8: 5, 16: 7, 32: 9, 64: 11}
    cells = sum(64 * length * count for length, count in layers.items())
    assert BY_NAME["step"].flops == 3 * cells * (3 * 384**2 + 2 * 384 * 192)


@pytest.mark.parametrize("name", FLOORS)
def test_floors(name: str) -> None:
    assert H200.floor(BY_NAME[name].flops) == pytest.approx(FLOORS[name], rel=0.02)


def test_a_backward_pass_counts_twice() -> None:
    forward = Workload("a", "inference", 96, 1, (64,), batch=2)
    both = Workload("b", "forward and backward", 96, 1, (64,), batch=2)
    assert both.flops == 3 * forward.flops == 6 * network_flops(64, 96, 1)


def test_titles() -> None:
    assert BY_NAME["infer-2m"].title == "inference, 96 maps, 1 block, n = 2M"
    assert BY_NAME["lambada"].title == "inference, 384 maps, 2 blocks, n = 128, batch 64"
    assert tiny.OWN_LOOP[1].title == "forward and backward, 8 maps, 2 blocks, n = 16, batch 2"
    assert BY_NAME["step"].title == "training step, 192 maps, 1 block, bins 8+16+32+64, batch 64"


def test_cases_of_everything() -> None:
    cases = select_cases("cuda")
    assert len(set(cases)) == len(cases)
    assert {case.workload.name for case in cases if case.section == "rows"} == set(BY_NAME)
    kept = [case.workload.kind for case in cases if case.form == "fused-keep"]
    assert kept == ["forward and backward"] * 3 + ["training step"] * 2 + ["forward and backward"]
    assert {case.section for case in cases} == {"rows", "curve", "attention", "own-loop"}
    assert all(case.section != "attention" for case in select_cases("cuda", attention=False))


def test_cases_of_a_selection() -> None:
    latency = BY_NAME["latency"]
    assert select_cases("cuda", ["latency"], ["fused", "eager"]) == [
        Case("rows", latency, "eager"),
        Case("rows", latency, "fused"),
    ]
    assert {case.form for case in select_cases("cpu")} == {"eager", "riffle", "encoder"}
    own_loop = select_cases("cuda", ["own-loop"], ["gla"])
    assert {case.workload.lengths[0] for case in own_loop} == {1024, 16384, 262144}
    assert {case.workload.kind for case in own_loop} == {"plain forward", "plain forward and backward"}
    compiled = select_cases("cuda", ["own-loop"], ["riffle-graphs-compiled"])
    assert {case.workload.kind for case in compiled} == {"plain training step"}
    assert {case.section for case in select_cases("cpu", ["attention"], attention=False)} == {"attention"}


def test_unknown_names() -> None:
    for device in ("cuda", "cpu"):
        with pytest.raises(ValueError, match="no row 'latencyy' on") as caught:
            select_cases(device, ["latency", "latencyy"])
        assert all(name in str(caught.value) for name in row_names(device))
    with pytest.raises(ValueError, match=r"no form 'fused' on cpu; choose from eager, compiled"):
        select_cases("cpu", forms=["fused"])
