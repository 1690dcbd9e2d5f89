"""What the tests of this folder share."""

from __future__ import annotations

import itertools
import time

import pytest


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every timed call takes a tenth of a second, so that measurements are quick and repeatable."""
    readings = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(readings) / 10)
