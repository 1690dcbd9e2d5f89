"""The kernels for compute capability 9.0 compile without a GPU, spill no registers and fit into shared memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from riffle.kernels import TRITON_VERSION

ROOT = Path(__file__).parents[2]
MOST_SHARED = 227 * 1024
"""Bytes of shared memory that a program can have."""


pytestmark = pytest.mark.skipif(TRITON_VERSION < (3, 6), reason="needs Triton 3.6")


def compile_kernels(cache: Path, *options: str) -> list[dict[str, Any]]:
    # Not by the interpreter, for which other tests define the kernels.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "research.bench.kernel_resources", *options]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("features", "kernels", "more"),
    [
        (96, ("layer_forward", "product_backward"), "--keep gates --cells 32768 --noise"),
        (192, ("layers_forward",), "--keep nothing --cells 1024"),
    ],
)
def test_kernels_of_the_gated_unit(features: int, kernels: tuple[str, ...], more: str, tmp_path: Path) -> None:
    """A width each, for the time it takes; research/bench/kernel_resources.py compiles all of them."""
    options = ("--features", str(features), "--units", "gated", *more.split())
    rows = compile_kernels(tmp_path, *options, "--kernels", *kernels)
    assert {row["kernel"] for row in rows} == set(kernels)
    for row in rows:
        assert row["HGMMA"] > 0
        assert row["spills"] == row["HMMA"] == 0
        assert row["shared"] <= MOST_SHARED
        assert row["ACQBULK"] == row["PREEXIT"], "waits for the launch before, and lets the next one begin"


def test_kernels_of_the_swap_gate_unit(tmp_path: Path) -> None:
    kernels = ("switch_forward", "update_forward", "swap_gate_backward")
    options = ("--features", "96", "--units", "swap-gate", "--keep", "gates", "--cells", "512", "65536", "--dropout")
    check_launches(compile_kernels(tmp_path, *options, "--kernels", *kernels), set(kernels))


def test_kernels_of_the_residual_unit(tmp_path: Path) -> None:
    options = ("--features", "192", "--keep", "gates", "--units", "residual")
    rows = compile_kernels(tmp_path, *options, "--cells", "512", "65536")
    check_launches(rows, {f"{norm}_{way}" for norm in ("features", "residual") for way in ("forward", "backward")})
    for row in rows:  # where a warp has rows of its own, no memory is shared for their sums
        assert row["kernel"] != "features_forward" or not row["WARP_ROWS"] or row["shared"] == 0
    waiting = compile_kernels(tmp_path, *options, "--cells", "512", "--kernels", "residual_backward", "--waiting")
    assert waiting
    assert all(row["ACQBULK"] == row["PREEXIT"] == 0 for row in waiting)


def check_launches(rows: list[dict[str, Any]], kernels: set[str]) -> None:
    """These kernels, each of which waits for the launch before it once and lets the next one begin once."""
    assert {row["kernel"] for row in rows} == kernels
    for row in rows:
        assert row["spills"] == 0
        assert row["shared"] <= MOST_SHARED
        assert row["ACQBULK"] == row["PREEXIT"] == 1


def test_kernels_of_the_neural_gpu(tmp_path: Path) -> None:
    rows = compile_kernels(tmp_path, "--features", "48", "--units", "neural-gpu", "--dropout")
    assert [(row["kernel"], row["DROPOUT"]) for row in rows] == [("steps_forward", True), ("steps_backward", True)]
    for row in rows:
        assert row["HGMMA"] > 0
        assert row["spills"] == row["HMMA"] == 0
        assert row["shared"] <= MOST_SHARED
