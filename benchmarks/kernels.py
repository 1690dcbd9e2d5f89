"""Time every launch of a switch layer by itself, forward and backward, beside its bytes and FLOPs.

    python benchmarks/kernels.py --commit COMMIT --out benchmarks/results/h200-kernels.json

Needs a GPU. Bytes count every operand once; a launch that finds some of them in the cache can be faster than they say.
"""

# P = pairs, D = features per cell, E = 2 * D features per pair
from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.testing import do_bench

from riffle.kernels import launch
from riffle.kernels.launch import Route
from riffle.kernels.tuning import switch_blocks

SIZES = ((96, 2**21), (192, 2**20), (384, 2**17))
"""Features and cells, as in the rows of ``riffle bench``."""


def launches(features: int, cells: int) -> dict[str, tuple[Callable[[], object], float, float]]:
    """For every launch: the call, the multiples of P * E numbers it reads and writes, its FLOPs for a pair in D²."""
    pairs, pair = cells // 2, 2 * features

    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(*shape, device="cuda")).bfloat16()

    state_PE, grad_CD = draw(pairs, pair).clamp(-1, 1), draw(cells, features)
    gates_weight, gates_bias = draw(3 * pair, pair, scale=pair**-0.5), draw(3 * pair)
    weight, bias = draw(2, features, pair, scale=pair**-0.5), draw(2, features)
    scale_D = torch.rand(features, device="cuda")
    gates = torch.addmm(gates_bias, state_PE, gates_weight.t())
    product_2PE = launch.reset(gates, state_PE)
    sum_2PD = torch.bmm(product_2PE, weight.mT)
    grad_biases = launch.shares(state_PE, 4 * pair)
    grad_PE, out_EE = torch.empty_like(state_PE), torch.empty(3 * pair, pair, device="cuda")
    route = Route((0,), (cells,), (0.0,), None, 1, True)
    blocks = switch_blocks(grad_CD)
    calls: dict[str, tuple[Callable[[], object], float, float]] = {
        "gates (library)": (lambda: torch.addmm(gates_bias, state_PE, gates_weight.t(), out=gates), 4, 24),
        "reset_forward": (lambda: launch.reset(gates, state_PE), 5, 0),
        "candidates (library)": (lambda: torch.bmm(product_2PE, weight.mT, out=sum_2PD), 3, 8),
        "update_forward": (lambda: launch.update(gates, sum_2PD, state_PE, bias, route), 4, 0),
        "update_backward": (
            lambda: launch.update_backward(gates, sum_2PD, state_PE, bias, grad_CD, grad_biases, route), 7, 0,
        ),
        "gradient of r * s (library)": (lambda: torch.bmm(sum_2PD, weight, out=product_2PE), 3, 8),
        "reset_backward": (
            lambda: launch.reset_backward(
                gates, state_PE, product_2PE, product_2PE, grad_PE, grad_biases, add=True, fill=False
            ), 9, 0,
        ),
        "gradient of s (library)": (lambda: grad_PE.addmm_(gates, gates_weight), 5, 24),
        "gradient of the gates' weight (library)": (
            lambda: torch.mm(gates.t(), state_PE, out_dtype=torch.float32, out=out_EE), 4, 24,
        ),
        "gradient of one W_c (library)": (
            lambda: torch.mm(sum_2PD[0].t(), product_2PE[0], out_dtype=torch.float32, out=out_EE[:features]), 1.5, 4,
        ),
        "skip_forward": (lambda: launch.skip(grad_CD, grad_CD, scale_D), 3, 0),
        "skip_backward": (lambda: launch.skip_backward(grad_CD, scale_D, grad_CD, grad_PE.view_as(grad_CD)), 5, 0),
    }  # fmt: skip
    if blocks is not None:
        empty = sum_2PD.new_empty(0)
        calls["switch_forward"] = (
            lambda: launch.switch(gates, state_PE, state_PE, weight, bias, route, blocks, empty), 5, 8,
        )  # fmt: skip
    return calls


def measured(features: int, cells: int) -> list[dict[str, Any]]:
    """A row for every launch."""
    rows = []
    for name, (call, operands, flops) in launches(features, cells).items():
        milliseconds = do_bench(call, warmup=10, rep=100, return_mode="median")
        rows.append(
            {
                "launch": name,
                "features": features,
                "cells": cells,
                "milliseconds": round(milliseconds, 4),
                "TB/s": round(operands * cells * features * 2 / milliseconds / 1e9, 2),
                "TFLOP/s": round(flops * features**2 * cells / 2 / milliseconds / 1e9, 0),
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure all sizes and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", default=None)
    parser.add_argument("--out", type=Path, default=Path("kernels.json"))
    arguments = parser.parse_args()
    record = {
        "command": "python " + " ".join(sys.argv),
        "commit": arguments.commit,
        "hardware": torch.cuda.get_device_name(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__},
        "dtype": "bfloat16",
        "rows": [row for size in SIZES for row in measured(*size)],
    }
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
