"""Rows that take milliseconds, of every kind of work."""

from __future__ import annotations

from riffle.bench.workloads import Workload

INFERENCE = Workload(name="short", work="inference", features=8, blocks=2, lengths=(16,), batch=2)
BACKWARD = Workload(name="backward", work="forward and backward", features=8, blocks=2, lengths=(16,), batch=2)
STEP = Workload(name="step", work="training step", features=8, blocks=1, lengths=(4, 8, 16), batch=8)
ENCODER = Workload(name="encoder-16", work="encoder", features=64, blocks=2, lengths=(16,))
OURS = Workload(name="ours-16", work="inference", features=64, blocks=2, lengths=(16,))
CURVE = tuple(
    Workload(name=f"curve-{length}", work="inference", features=8, blocks=1, lengths=(length,)) for length in (8, 32)
)
