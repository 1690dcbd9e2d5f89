"""Series over length: where they stop, and what they measure."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from research.baselines.neural_gpu import NeuralGPU
from research.bench.over_length import Series, graphed_steps, measure_series


class Growing(nn.Module):
    """Takes a time that grows with the square of the length, by a fake clock, and runs out of memory at a length."""

    def __init__(self, end: int) -> None:
        super().__init__()
        self.end, self.clock, self.weight = end, 0.0, nn.Parameter(torch.ones(()))

    def forward(self, x_BN: Tensor) -> Tensor:
        if x_BN.shape[1] >= self.end:
            raise torch.OutOfMemoryError
        self.clock += 0.1 * (x_BN.shape[1] / 4) ** 2
        return self.weight * x_BN


def measure(monkeypatch: pytest.MonkeyPatch, end: int, budget: float, **options: Any) -> dict[str, Any]:
    model = Growing(end)
    monkeypatch.setattr(time, "perf_counter", lambda: model.clock)
    lengths = (4, 8, 16, 32)
    series = Series(model="x", work="training", lengths=lengths, symbols=3, build=lambda device, dtype: model)
    return measure_series(series, torch.device("cpu"), budget=budget, **options)


def test_a_series_stops_where_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    result = measure(monkeypatch, 16, budget=10, on_point=lambda point: seen.append(point["length"]))
    assert seen == [point["length"] for point in result["points"]] == [4, 8]
    assert result["stopped"] == "16 is out of memory"


def test_a_series_stops_where_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    result = measure(monkeypatch, 10**6, budget=6.3)  # 6.4 s are expected
    assert [point["milliseconds"] for point in result["points"]] == [100, 400, 1600]
    assert result["stopped"] == "32 would take over 6.3 s"
    assert measure(monkeypatch, 10**6, budget=6.5)["stopped"] is None


@pytest.mark.gpu
def test_steps_replayed_are_the_model() -> None:
    model = NeuralGPU(13, 4, 12, device="cuda").eval()
    x_BN = torch.randint(0, 13, (1, 256), device="cuda")
    with torch.no_grad():
        torch.testing.assert_close(graphed_steps(model, x_BN)(), model(x_BN), rtol=1e-4, atol=1e-5)
