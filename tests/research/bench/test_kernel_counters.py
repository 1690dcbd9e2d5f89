"""The script that reads hardware counters: which launches the profiler sees, and what is taken from its output."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from benchmark_scripts import load_script

from riffle.kernels.launches import Launch
from riffle.kernels.tuning import find_layer_form, switch_blocks

OUTPUT = """==PROF== Connected to process 12 (/usr/bin/python3)
==PROF== Profiling "layer_forward" - 0: 0%....50%....100% - 9 passes
"ID","Process ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active","lts__t_bytes.sum","sm__cycles_elapsed.max","smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio","smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
"","","","","","nsecond","%","%","byte","cycle","inst","inst"
"0","12","layer_forward","(288, 1, 1)","(132, 1, 1)","912,345","71.25","n/a","3,000,000","9","0.5","2.25"
"1","12","void gemm<float, 2>","(384, 1, 1)","(132, 1, 1)","1,000","80","62.5","nan","9","1","0"
==PROF== Disconnected from process 12
"""  # noqa: E501  # as it is printed


@pytest.fixture
def counters() -> Any:
    return load_script("kernel_counters")


def test_output(counters: Any) -> None:
    (first, second), units = counters.parse(OUTPUT)
    assert first["kernel"] == "layer_forward"
    assert first["grid"] == "(132, 1, 1)"
    assert first["metrics"]["gpu__time_duration.sum"] == 912345
    assert first["metrics"]["lts__t_bytes.sum"] == 3e6
    tensor = "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active"
    assert tensor not in first["metrics"], "it could not be had"
    assert second["metrics"][tensor] == 62.5
    assert "lts__t_bytes.sum" not in second["metrics"]
    assert "sm__cycles_elapsed.max" not in units
    assert units["lts__t_bytes.sum"] == "byte"
    assert counters.line_of({"case": "a"} | first) == "a: 912.3 us, sm 71%; wait 2.25, barrier 0.50"
    assert counters.line_of(second).startswith("void gemm<float, 2>: 1.0 us, sm 80%, tensor 62%; barrier 1.00")


def test_no_counters(counters: Any) -> None:
    assert counters.parse("==ERROR== ERR_NVGPUCTRPERM") == ([], {})


def test_only_metrics_that_exist_are_asked_for(counters: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "Device\n\nlts__t_bytes    Counter   byte   # of bytes\ndram__bytes_read    Counter\n"
    result = type("Result", (), {"stdout": listed})
    monkeypatch.setattr(counters.subprocess, "run", lambda command, **options: result)
    assert counters.known_metrics("ncu") == ["lts__t_bytes.sum", "dram__bytes_read.sum"]


def test_the_profiler_sees_one_launch(counters: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    monkeypatch.setattr(Launch, "_run", lambda launch, tensors: events.append(launch.kernel))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for name in ("start", "stop"):
        monkeypatch.setattr(torch.cuda.profiler, name, lambda name=name: events.append(name))
    first, second = Launch("first", (1,)), Launch("second", (1,))
    x = torch.ones(1, 1)
    done: list[str] = []
    with counters.profiled("second", done):
        first()
        second()
        torch.mm(x, x)
    first()
    assert events == ["first", "start", "second", "stop", "first"]
    with counters.profiled("gates", done):
        second()
        assert torch.equal(torch.mm(x, x), x)
    assert events[5:] == ["second", "start", "stop"]
    assert done == ["second", "gates"]


def test_the_layers_have_the_launches(counters: Any) -> None:
    for case in counters.CASES:
        shape = case.pairs, case.features, torch.bfloat16
        form = find_layer_form(*shape, keep=case.keep, skip=case.skip)
        assert (form is not None) == (case.launch == "layer_forward") or case.back, case.name
        blocks = switch_blocks(2 * case.pairs, *shape[1:])
        assert case.launch not in ("reset_forward", "update_forward") or blocks is None
        assert case.launch != "switch_forward" or blocks is not None
    names = [case.name for case in counters.CASES]
    assert not any(name.startswith(other) for name in names for other in names if other != name)
