"""The layer on a CPU, beside recurrent layers and an encoder with as many weights, by one thread and by two.

    python -m research.bench.cpu [--out research/bench/results/cpu.json]

Inference, and forward and backward passes, of one sequence in float32. Memory: the growth of the process's peak
resident set over one inference at 2**18 cells, plus the input, over the input.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from research.bench.timing import five_digits, wall_times
from research.files import write_result
from riffle import ShuffleExchange
from riffle.environment import environment

FEATURES, BLOCKS, ENCODER_LAYERS, HEADS = 64, 2, 6, 4
LENGTHS, TRAINED_LENGTHS, MEMORY_LENGTH = (1024, 1025, 4096, 16384), (1024, 1025, 4096), 2**18
LONG, LONGEST = 1.0, 4.0
"""Seconds for which a call is repeated after one to warm up, three times at least; from the other on the first is
taken."""


def layers() -> dict[str, nn.Module]:
    """Layers of as many weights as two Beneš blocks of the gated unit, from and to one width where they have one."""
    gated = ShuffleExchange(FEATURES, BLOCKS)

    def recurrent(kind: Callable[..., nn.Module], gates: int, directions: int) -> nn.Module:
        beside = (FEATURES + 2) / 2  # gates * directions * hidden * (hidden + features + 2) weights
        hidden = round((beside**2 + count(gated) / gates / directions) ** 0.5 - beside)
        return kind(FEATURES, hidden, batch_first=True, bidirectional=directions == 2)

    block = nn.TransformerEncoderLayer(FEATURES, HEADS, 4 * FEATURES, 0.0, "gelu", batch_first=True, norm_first=True)
    return {
        "riffle, gated": gated,
        'riffle, gated, pad="even"': ShuffleExchange(FEATURES, BLOCKS, pad="even"),
        "riffle, residual": ShuffleExchange(FEATURES, BLOCKS, unit="residual"),
        "LSTM": recurrent(nn.LSTM, 4, 1),
        "BiLSTM": recurrent(nn.LSTM, 4, 2),
        "GRU": recurrent(nn.GRU, 3, 1),
        f"{ENCODER_LAYERS}-layer encoder": nn.TransformerEncoder(block, ENCODER_LAYERS, enable_nested_tensor=False),
    }


def count(module: nn.Module) -> int:
    """The weights of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def time_call(call: Callable[[], object]) -> dict[str, float]:
    """Median, fastest and slowest call in milliseconds, after one to warm up."""
    times = wall_times(call, repeats=1)
    if times[0] < 1e3 * LONGEST:
        times = wall_times(call, repeats=3, seconds=LONG)
    named = {"milliseconds": statistics.median(times), "fastest": min(times), "slowest": max(times)}
    return {name: five_digits(value) for name, value in named.items()}


def forward(layer: nn.Module, length: int, training: bool) -> Callable[[], object]:
    """One call of a layer on one sequence, with its backward pass in training."""
    x_BND = torch.rand(1, length, FEATURES, requires_grad=training) * 2 - 1

    def call() -> None:
        with torch.set_grad_enabled(training):
            y = layer(x_BND)
            y = y[0] if isinstance(y, tuple) else y
        if training:
            y.square().sum().backward(inputs=list(layer.parameters()))

    return call


def speed(threads: int) -> list[dict[str, Any]]:
    """The times of all layers with so many threads."""
    torch.set_num_threads(threads)
    rows = []
    for name, layer in layers().items():
        for training in (False, True):
            for length in TRAINED_LENGTHS if training else LENGTHS:
                row = {"threads": threads, "layer": name, "weights": count(layer), "training": training}
                rows.append(row | {"length": length} | time_call(forward(layer.train(training), length, training)))
                print(rows[-1], file=sys.stderr)
    return rows


def memory() -> dict[str, Any]:
    """Peak memory of one inference; called first, since a process's peak never falls again."""
    net, x_BND = ShuffleExchange(96).eval(), torch.randn(1, MEMORY_LENGTH, 96)
    with torch.inference_mode():
        net(x_BND[:, :4096])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        net(x_BND)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    times = round(1 + grown / x_BND.nbytes, 2)
    return {"length": MEMORY_LENGTH, "input_bytes": x_BND.nbytes, "grown_bytes": grown, "times_input": times}


def main() -> None:
    """Measure, print, and write the result where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where to write the JSON")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    result: dict[str, Any] = {"environment": environment(torch.device("cpu")), "features": FEATURES, "blocks": BLOCKS}
    result |= {"memory": memory(), "rows": [row for threads in arguments.threads for row in speed(threads)]}
    print(json.dumps(result, indent=2))
    if arguments.out:
        write_result(arguments.out, result)


if __name__ == "__main__":
    main()
