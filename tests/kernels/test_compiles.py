"""The kernels for compute capability 9.0 compile without a GPU, spill no registers and fit into shared memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmark_scripts import BENCHMARKS

from riffle.kernels import TRITON_VERSION

MOST_SHARED = 227 * 1024
"""Bytes of shared memory that a program can have."""


@pytest.mark.skipif(TRITON_VERSION < (3, 6), reason="needs Triton 3.6")
@pytest.mark.parametrize(
    ("features", "keep", "kernels"),
    [(96, 1, ("layer_forward", "product_backward")), (384, 0, ("gates_forward", "candidates_forward"))],
)
def test_kernels_compile(features: int, keep: int, kernels: tuple[str, ...], tmp_path: Path) -> None:
    """Two widths, for the time it takes; benchmarks/kernel_resources.py has them all."""
    options = ("--features", str(features), "--keep", str(keep), "--skip", "1", "--cells", "512", "--kernels", *kernels)
    # Not by the interpreter, for which other tests define the kernels.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(BENCHMARKS.parent)}
    command = [sys.executable, str(BENCHMARKS / "kernel_resources.py"), *options]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert {row["kernel"] for row in rows} == set(kernels)
    for row in rows:
        assert row["HGMMA"] > 0
        assert row["spills"] == row["HMMA"] == 0
        assert row["shared"] <= MOST_SHARED
        assert row["ACQBULK"] == row["PREEXIT"], "waits for the launch before, and lets the next one begin"
