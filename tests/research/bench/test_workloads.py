"""FLOPs against numbers counted by hand, and the selection of cases."""

from __future__ import annotations

import pytest

from research.bench.cost import encoder_flops, network_flops
from research.bench.timing import PeakRates
from research.bench.workloads import WORKLOADS, row_names, select_cases

BY_NAME = {workload.name: workload for workload in WORKLOADS["cuda"]}


def test_flops() -> None:
    assert BY_NAME["lambada"].title == "inference, 384 maps, 2 blocks, n = 128, batch 64"
    # k = 3: two blocks of four layers and the last, of four pairs; three gates of 4 x 4, two candidates of 4 x 2.
    assert network_flops(8, 2, 2) == 9 * 4 * 2 * (3 * 16 + 2 * 8)
    # d = 1: q, k, v and the projection, two layers of 4, by 2 cells; scores and mixing, 2 x 2 each.
    assert encoder_flops(2, 1, 3) == 3 * (2 * 2 * (4 + 8) + 2 * 2 * 2 * 2)
    assert BY_NAME["latency"].flops == 19 * 1024 * (3 * 192**2 + 2 * 192 * 96)
    layers = {8: 5, 16: 7, 32: 9, 64: 11}
    cells = sum(64 * length * count for length, count in layers.items())
    assert BY_NAME["step"].flops == 3 * cells * (3 * 384**2 + 2 * 384 * 192), "a backward pass counts twice"
    assert PeakRates(775e12, 4.2e12, "made up").floor(BY_NAME["infer-1m"].flops) == pytest.approx(31.1, rel=0.02)


def test_unknown_names() -> None:
    for device in ("cuda", "cpu"):
        with pytest.raises(ValueError, match="no row 'latencyy' on") as caught:
            select_cases(device, ["latency", "latencyy"])
        assert all(name in str(caught.value) for name in row_names(device))
    with pytest.raises(ValueError, match=r"no form 'fused' on cpu; choose from eager, compiled"):
        select_cases("cpu", forms=["fused"])
