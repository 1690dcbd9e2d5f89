"""Every kind of work: its results are the definition's, wrong ones are found, failures do not end a run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from riffle import ShuffleExchange
from riffle.bench import backward, inference, jobs, training
from riffle.bench.check import compare, relative_error
from riffle.bench.definition import definition
from riffle.bench.jobs import make_cells, make_network
from riffle.bench.measure import OUT_OF_MEMORY, WORKS, WRONG, Measurer
from riffle.bench.timing import Ceilings
from riffle.bench.workloads import Form, Measurement, Workload

from . import tiny

CPU = torch.device("cpu")
ROWS = (tiny.INFERENCE, tiny.BACKWARD, tiny.STEP, tiny.ENCODER)


def measure(row: Workload, form: Form = "eager") -> dict[str, Any]:
    return Measurer(CPU, Ceilings(1e9, 1e9, "made up"), quick=True)(Measurement("rows", row, form))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.work)
def test_entry(row: Workload) -> None:
    entry = measure(row)
    assert 0 < entry["fastest"] <= entry["milliseconds"] <= entry["slowest"]
    assert entry["repeats"] >= 3
    assert entry["floor_milliseconds"] == pytest.approx(row.flops / 1e6, rel=1e-4)
    assert entry["fraction_of_floor"] == pytest.approx(entry["floor_milliseconds"] / entry["milliseconds"], rel=1e-3)
    assert entry["peak_bytes"] is None
    assert max(entry["errors"].values()) < 1e-5


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.work)
def test_results_are_those_of_the_truth(row: Workload) -> None:
    truth, results = WORKS[row.work].truth(row, CPU), WORKS[row.work].job(row, "eager", CPU).results()
    assert results.keys() == truth.keys()
    assert all(float(result.norm()) > 0 for result in truth.values())
    assert compare(results, truth, torch.float32).passed


def test_definition_is_the_network() -> None:
    net, x_BND = make_network(tiny.INFERENCE, "eager", CPU), make_cells(tiny.INFERENCE, "eager", CPU)
    torch.testing.assert_close(definition(net, x_BND), net(x_BND))


def test_bfloat16_has_the_same_weights_and_cells() -> None:
    for make in (make_network, make_cells):
        exact, rounded = make(tiny.INFERENCE, "eager", CPU), make(tiny.INFERENCE, "compiled", CPU)
        if isinstance(exact, ShuffleExchange):
            exact, rounded = (torch.cat([p.flatten() for p in net.parameters()]) for net in (exact, rounded))
        assert rounded.dtype == torch.bfloat16
        assert torch.equal(exact, rounded.float())


def perturbed(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    forward = ShuffleExchange.forward

    def wrong(self: ShuffleExchange, x_BND: Tensor, *arguments: Any) -> Tensor:
        return factor * forward(self, x_BND, *arguments)

    monkeypatch.setattr(ShuffleExchange, "forward", wrong)


@pytest.mark.parametrize("row", [tiny.INFERENCE, tiny.BACKWARD], ids=lambda row: row.work)
def test_a_wrong_network_gets_no_time(row: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    perturbed(monkeypatch, 1.01)
    entry = measure(row)
    assert entry["failed"] == WRONG
    assert "milliseconds" not in entry
    assert entry["errors"]["output"] == pytest.approx(0.01, rel=1e-2)


def test_a_wrong_gradient_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(net: ShuffleExchange, x_BND: Tensor) -> Tensor:
        y_BND = definition(net, x_BND)
        return y_BND.detach() + 1.01 * (y_BND - y_BND.detach())

    monkeypatch.setattr(backward, "definition", wrong)
    entry = measure(tiny.BACKWARD)
    assert entry["failed"] == WRONG
    assert entry["errors"]["output"] < 1e-6
    assert entry["errors"]["gradient of input"] == pytest.approx(0.01, rel=0.05)


def test_a_wrong_step_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = training.truth(tiny.STEP, CPU)
    truth["gradient of weight"][0] += truth["gradient of weight"].norm()
    monkeypatch.setattr(training, "truth", lambda row, device: truth)
    assert measure(tiny.STEP)["failed"] == WRONG


def test_a_nan_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    perturbed(monkeypatch, float("nan"))
    entry = measure(tiny.INFERENCE)
    assert entry["failed"] == WRONG
    assert entry["errors"] == {"output": None}


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (torch.OutOfMemoryError("140 GB"), OUT_OF_MEMORY),
        (RuntimeError("the reason\nand more"), "RuntimeError: the reason"),
    ],
)
def test_failures_are_noted(error: Exception, failed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(inference, "job", fail)
    entry = measure(tiny.INFERENCE)
    assert entry["failed"] == failed
    assert "milliseconds" not in entry


def test_relative_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("riffle.bench.check.CHUNK", 3)  # as long tensors are compared, part by part
    exact = torch.randn(4, 5)
    noise = torch.randn(4, 5)
    expected = float(noise.norm() / exact.norm())
    assert relative_error(exact.double() + noise, exact) == pytest.approx(expected, rel=1e-6)
    assert relative_error(exact, torch.zeros(4, 5)) == float("inf")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the kernels themselves, see below")
@pytest.mark.parametrize(
    ("row", "form"), [(tiny.INFERENCE, "fused"), (tiny.BACKWARD, "fused"), (tiny.BACKWARD, "fused-keep")]
)
def test_fused_forms_on_the_interpreter(row: Workload, form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "dtype_of", lambda form: torch.float32)  # the interpreter's
    job = WORKS[row.work].job(row, form, CPU)
    assert compare(job.results(), WORKS[row.work].truth(row, CPU), torch.float32).passed


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["compiled", "fused", "fused-keep"])
@pytest.mark.parametrize("row", [tiny.BACKWARD, tiny.STEP], ids=lambda row: row.work)
def test_forms_on_a_gpu(row: Workload, form: Form) -> None:
    measurer = Measurer(torch.device("cuda"), Ceilings(1e12, 1e12, "made up"), quick=True)
    entry = measurer(Measurement("rows", row, form))
    assert "failed" not in entry, entry
    assert entry["peak_bytes"] > 0
