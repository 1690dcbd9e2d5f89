"""What the tests of this folder share."""

from __future__ import annotations

import itertools
import time
from multiprocessing import forkserver
from typing import Any

import pytest

from research.bench import over_length


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every timed call takes a tenth of a second, so that measurements are quick and repeatable."""
    readings = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(readings) / 10)


@pytest.fixture
def no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every length of a timing figure takes 100 milliseconds, and nothing is computed."""

    def measure_point(*arguments: Any, **options: Any) -> dict[str, Any]:
        return {"milliseconds": 100.0, "peak_bytes": None, "graph": False}

    monkeypatch.setattr(over_length, "_measure_point", measure_point)


@pytest.fixture
def fork_server() -> None:
    """Start the process that runs are forks of before the scheduler does, which would let it import less."""
    forkserver.ensure_running()
