"""Workloads of every kind that take milliseconds."""

from __future__ import annotations

from research.bench.workloads import Workload

INFERENCE = Workload("short", "inference", 8, 2, (16,), batch=2)
BACKWARD = Workload("backward", "forward and backward", 8, 2, (16,), batch=2)
STEP = Workload("step", "training step", 8, 1, (4, 8, 16), batch=8)
ENCODER = Workload("encoder-16", "encoder", 64, 2, (16,))
RESIDUAL = (
    Workload("residual", "forward and backward", 8, 2, (16,), batch=2, unit="residual"),
    Workload("residual-step", "training step", 8, 1, (4, 8, 16), batch=8, unit="residual"),
)
OURS = Workload("ours-16", "inference", 64, 2, (16,))
OWN_LOOP = tuple(
    Workload(f"own-{kind.split()[-1]}", kind, 8, 2, (16,), batch=2)
    for kind in ("plain forward", "plain forward and backward", "plain training step")
)
