"""The reference path on a CPU: speed as a share of a matrix product's in the same process, and peak memory.

    python -m research.bench.cpu [--out research/bench/results/cpu.json]

Speed: inference, float32, 96 maps, one block, batch 1, as a fraction of the rate of a 2048 x 2048 x 2048 product.
Memory: the growth of the process's peak resident set over one inference at 2**18 cells, plus the input, over the input.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from research.bench.cost import network_flops
from research.bench.timing import wall_times
from research.files import write_result
from riffle import ShuffleExchange
from riffle.environment import environment

FEATURES = 96
LENGTHS = (1024, 4096, 16384)
MEMORY_LENGTH = 2**18
SECONDS = 4.0
"""For how long a call is repeated."""


def median_seconds(call: Callable[[], object]) -> float:
    """The median time of a call, after two to warm up."""
    for _ in range(2):
        call()
    return statistics.median(wall_times(call, repeats=5, seconds=SECONDS)) / 1e3


def speed() -> dict[str, Any]:
    """The speed of inference at every length beside a matrix product's."""
    matrix = torch.randn(2048, 2048)
    net = ShuffleExchange(FEATURES).eval()
    rows = []
    with torch.inference_mode():
        for length in LENGTHS:
            x_BND = torch.randn(1, length, FEATURES)
            # The product is timed before and after, since a shared machine's speed drifts.
            before = median_seconds(lambda: matrix @ matrix)
            seconds = median_seconds(partial(net, x_BND))
            after = median_seconds(lambda: matrix @ matrix)
            product_rate = 2 * 2048**3 / statistics.mean((before, after))
            rate = network_flops(length, FEATURES, 1) / seconds
            rows.append(
                {
                    "length": length,
                    "milliseconds": round(seconds * 1e3, 2),
                    "gflops": round(rate / 1e9, 1),
                    "product_gflops": round(product_rate / 1e9, 1),
                    "fraction": round(rate / product_rate, 3),
                }
            )
            print(rows[-1], file=sys.stderr)
    return {"features": FEATURES, "blocks": 1, "batch": 1, "dtype": "float32", "rows": rows}


def memory() -> dict[str, Any]:
    """Peak memory of one inference; run in a process of its own, since a peak never falls again."""
    net = ShuffleExchange(FEATURES).eval()
    x_BND = torch.randn(1, MEMORY_LENGTH, FEATURES)
    with torch.inference_mode():
        net(x_BND[:, :4096])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        net(x_BND)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {
        "length": MEMORY_LENGTH,
        "input_bytes": x_BND.nbytes,
        "grown_bytes": grown,
        "times_input": round(1 + grown / x_BND.nbytes, 2),
    }


def main() -> None:
    """Measure, print, and write the result where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where to write the JSON")
    parser.add_argument("--only-memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only_memory:
        print(json.dumps(memory()))
        return
    command = [sys.executable, "-m", "research.bench.cpu", "--only-memory"]
    measured_memory = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    result = {"speed": speed(), "memory": measured_memory, "environment": environment(torch.device("cpu"))}
    print(json.dumps(result, indent=2))
    if arguments.out:
        write_result(arguments.out, result)


if __name__ == "__main__":
    main()
