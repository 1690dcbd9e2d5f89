"""Every kind of workload: its results are the reference's, wrong ones are found, failures do not end a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from research.bench.jobs import make_network
from research.bench.measure import OUT_OF_MEMORY, WRONG, Measurer
from research.bench.timing import PeakRates
from research.bench.workloads import Case, Form, Workload
from riffle import ShuffleExchange

from . import tiny

CPU = torch.device("cpu")
WORKLOADS = (tiny.INFERENCE, tiny.BACKWARD, tiny.STEP, tiny.ENCODER, *tiny.RESIDUAL)


def measure(workload: Workload, form: Form = "eager", device: torch.device = CPU) -> dict[str, Any]:
    measurer = Measurer(device, quick=True, rates=PeakRates(1e9, 1e9, "made up"))
    return measurer(Case("rows", workload, form))


def change_network(monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor], Tensor]) -> None:
    """Change what the network computes in float32 by itself; the definition and float64 stay right."""
    forward, forward_batches = ShuffleExchange.forward, ShuffleExchange.forward_batches

    def changed(y_BND: Tensor) -> Tensor:
        return change(y_BND) if y_BND.dtype == torch.float32 else y_BND

    monkeypatch.setattr(ShuffleExchange, "forward", lambda *given: changed(forward(*given)))
    monkeypatch.setattr(ShuffleExchange, "forward_batches", lambda *given: [*map(changed, forward_batches(*given))])


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.kind)
def test_entry(workload: Workload) -> None:
    entry = measure(workload)
    assert 0 < entry["fastest"] <= entry["milliseconds"] <= entry["slowest"]
    assert entry["repeats"] >= 3
    assert entry["floor_milliseconds"] == pytest.approx(workload.flops / 1e6, rel=1e-4)
    assert entry["fraction_of_floor"] == pytest.approx(entry["floor_milliseconds"] / entry["milliseconds"], rel=1e-3)
    assert entry["peak_bytes"] is None
    assert max(entry["errors"].values()) < 1e-5


@pytest.mark.parametrize("workload", [tiny.INFERENCE, tiny.BACKWARD], ids=lambda workload: workload.kind)
def test_a_wrong_network_gets_no_time(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    change_network(monkeypatch, lambda y_BND: 1.01 * y_BND)
    entry = measure(workload)
    assert entry["failed"] == WRONG
    assert "milliseconds" not in entry
    assert entry["errors"]["output"] == pytest.approx(0.01, rel=1e-2)
    change_network(monkeypatch, lambda y_BND: y_BND * float("nan"))
    assert measure(workload)["errors"]["output"] is None


def test_a_wrong_gradient_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    change_network(monkeypatch, lambda y_BND: y_BND.detach() + 1.01 * (y_BND - y_BND.detach()))
    entry = measure(tiny.BACKWARD)
    assert entry["failed"] == WRONG
    assert entry["errors"]["output"] < 1e-6
    assert entry["errors"]["gradient of input"] == pytest.approx(0.01, rel=0.05)
    entry = measure(tiny.STEP)
    assert entry["failed"] == WRONG
    assert entry["errors"]["loss"] < 1e-6
    assert entry["errors"]["gradient of embedding"] == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (torch.OutOfMemoryError("140 GB"), OUT_OF_MEMORY),
        (RuntimeError("the reason\nand more"), "RuntimeError: the reason"),
    ],
)
def test_failures_are_recorded(error: Exception, failed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(y_BND: Tensor) -> Tensor:
        raise error

    change_network(monkeypatch, fail)
    entry = measure(tiny.INFERENCE)
    assert entry["failed"] == failed
    assert "milliseconds" not in entry


@pytest.mark.parametrize("workload", tiny.OWN_LOOP, ids=lambda workload: workload.kind)
def test_own_loop(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = measure(workload, "riffle")
    assert 0 < entry["fastest"] <= entry["milliseconds"] <= entry["slowest"]
    assert entry["errors"]["output"] > 1e-4, "it ran in bfloat16"
    assert entry["parameters"] == sum(p.numel() for p in make_network(workload, "eager", CPU).parameters())
    change_network(monkeypatch, lambda y_BND: 1.1 * y_BND)
    assert measure(workload, "riffle")["failed"] == WRONG


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["compiled", "fused", "fused-keep"])
@pytest.mark.parametrize("workload", [tiny.BACKWARD, tiny.STEP], ids=lambda workload: workload.kind)
def test_forms_on_a_gpu(workload: Workload, form: Form) -> None:
    entry = measure(workload, form, torch.device("cuda"))
    assert "failed" not in entry, entry
    assert entry["peak_bytes"] > 0
