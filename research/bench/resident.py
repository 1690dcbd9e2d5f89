"""Time and check a sequence that fills a GPU, in a single buffer that every layer overwrites.

    python -m research.bench.resident --log2 28 --maps 96 --out FILE

At 2^16 cells the output is compared with the network's definition in float32; at the full length, some pairs of every
layer with the unit in float32.
"""

# B = batch, N = cells, D = features per cell
from __future__ import annotations

import argparse
import copy
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from research.bench.jobs import definition, enlarge_weights
from research.bench.measure import TOLERANCE, relative_error
from research.bench.timing import peak_bytes, wall_times
from research.files import format_result, write_result
from riffle.environment import environment
from riffle.nn.execute import overwrite_layer, switch_layer
from riffle.nn.network import ShuffleExchange

COMPARED_BITS = 16
"""Address bits at which the whole output is compared with the definition."""
WARM_UP_BITS = 20
"""Address bits of a first run, which compiles the kernels for chunks of the size that longer sequences have."""
PAIRS = 64
"""Pairs that are recomputed in every layer, the first and the last among them."""


@torch.no_grad()
def measure_resident(k: int, features: int, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Time, memory and errors of one block that overwrites its input of ``2**k`` cells."""
    torch.manual_seed(0)
    exact = ShuffleExchange(features, backend="reference", device=device)
    enlarge_weights(exact)
    exact.to(dtype).to(torch.float32).requires_grad_(False)
    net = copy.deepcopy(exact).to(dtype).eval()
    net.backend = "auto"
    small_BND = random_cells(min(k, COMPARED_BITS), features, device, dtype)
    # With gradients enabled, though none is needed, the units do not take the optimised path of inference.
    with torch.enable_grad():
        expected_BND = definition(exact, small_BND.float())
    error = relative_error(net.overwrite(small_BND), expected_BND)
    del expected_BND
    net.overwrite(random_cells(min(k, WARM_UP_BITS), features, device, dtype))
    state_BND = random_cells(k, features, device, dtype)
    times: list[float] = []

    def run() -> None:
        synchronize = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
        times.extend(wall_times(lambda: net.overwrite(state_BND), repeats=1, synchronize=synchronize))

    peak = peak_bytes(run, device)
    layer_errors = check_layers(net, exact, state_BND)
    return {
        "cells": 2**k,
        "maps": features,
        "blocks": 1,
        "layers": len(layer_errors),
        "dtype": str(dtype).removeprefix("torch."),
        "seconds": times[0] / 1e3,
        "buffer_bytes": state_BND.nbytes,
        "peak_bytes": peak,
        "error_of_the_definition": {"cells": small_BND.shape[1], "error": error},
        "error_of_the_layers": {"pairs": PAIRS, "worst": max(layer_errors)},
        # A comparison with NaN is false, so a NaN is not right.
        "right": all(each <= TOLERANCE[dtype] for each in (error, *layer_errors)),
    }


def random_cells(k: int, features: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Cells within ±1, drawn 2^20 at a time, so that there is no second buffer beside the sequence."""
    state_BND = torch.empty(1, 2**k, features, device=device, dtype=dtype)
    for part_ND in state_BND[0].split(2**20):
        part_ND.uniform_(-1, 1)
    return state_BND


@torch.no_grad()
def check_layers(net: ShuffleExchange, exact: ShuffleExchange, state_BND: Tensor) -> list[float]:
    """Overwrite the cells once more; the relative error of some pairs of every layer against the unit in float32."""
    cells = state_BND.shape[1]
    k = cells.bit_length() - 1
    switch = switch_layer(net, state_BND, k)
    generator = torch.Generator().manual_seed(0)
    errors = []
    for layer in net.layers(k):
        drawn = torch.randint(cells, (PAIRS,), generator=generator).tolist()
        first = [address & ~(1 << layer.bit) for address in (0, cells - 1, *drawn[2:])]
        addresses = [address for low in first for address in (low, low | 1 << layer.bit)]
        # Cells are read one by one, so that the check relies on no kernel's index arithmetic.
        before_ND = torch.stack([state_BND[0, address] for address in addresses]).float()
        overwrite_layer(state_BND, layer.bit, layer.unit, switch)
        with torch.enable_grad():
            expected_ND = exact[layer.unit](before_ND)
        after_ND = torch.stack([state_BND[0, address] for address in addresses])
        errors.append(relative_error(after_ND, expected_ND.detach()))
    return errors


def main() -> None:
    """Measure in bfloat16 on a GPU, in float32 on a CPU, print the result, and write it where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--log2", type=int, default=28, help="Address bits: 28 for 2^28 cells.")
    parser.add_argument("--maps", type=int, default=96, help="Feature maps per cell.")
    parser.add_argument("--out", type=Path, help="A JSON file for the result.")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    result = {**environment(device), **measure_resident(arguments.log2, arguments.maps, device, dtype)}
    print(format_result(result))
    if arguments.out:
        write_result(arguments.out, result)
    if not result["right"]:
        raise SystemExit("the result is wrong: see error_of_the_definition and error_of_the_layers")


if __name__ == "__main__":
    main()
