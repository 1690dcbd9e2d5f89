"""The script that times training steps on a GPU, without one: its table of kernels."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="Triton has no build for this platform")

from benchmark_scripts import load_script


def test_the_table_of_kernels_counts_what_overlaps_once() -> None:
    kernels = [
        {"name": "mm", "stream": 7, "start": 0.0, "microseconds": 4.0},
        {"name": "sum", "stream": 8, "start": 2.0, "microseconds": 3.0},
        {"name": "mm", "stream": 7, "start": 6.0, "microseconds": 4.0},
    ]
    table = load_script("step_times").kernel_table(kernels).splitlines()
    assert table[0] == "3 kernels, 11 us in all, 9 us with one at least, 10 us a step"
    assert [line.split() for line in table[1:]] == [["2", "8.0", "us", "mm"], ["1", "3.0", "us", "sum"]]
