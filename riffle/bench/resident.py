"""A sequence that fills a GPU, in one buffer: ``python -m riffle.bench.resident --log2 28 --maps 96 --out FILE``.

At 2^16 cells, the network that overwrites its input is compared with the definition in float32. At the asked length it
is timed. Then it runs once more, and of every layer some pairs all over the buffer are computed anew, by the unit in
float32 from the cells as they were before the layer; their places are found by the address bit alone.
"""

# B = 1 sequence, N = 2**k cells, D = features per cell, S = pairs that are looked at
from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from riffle import ShuffleExchange
from riffle.bench.check import TOLERANCE, relative_error
from riffle.bench.definition import definition
from riffle.bench.jobs import keep_cells_apart
from riffle.bench.timing import peak_bytes
from riffle.environment import environment
from riffle.files import write_json
from riffle.nn.execute import overwrite_layer, switch_of

COMPARED_BITS = 16
"""Address bits at which the whole result is compared with the definition."""
WARM_UP_BITS = 20
"""Address bits of a run that compiles the kernels, for chunks of the size that longer sequences have."""
PAIRS = 64
"""Pairs that are looked at in every layer, the first and the last among them."""
FILLED_ROWS = 2**20
"""Cells drawn at once, so that no second buffer stands beside the sequence."""


@torch.no_grad()
def measure(k: int, features: int, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Time, memory and errors of one block on ``2**k`` cells that overwrites them.

    Args:
        k: Address bits.
        features: Feature maps per cell.
        device: Where.
        dtype: Of weights and cells.
    """
    torch.manual_seed(0)
    exact = ShuffleExchange(features, backend="reference", device=device)
    keep_cells_apart(exact)
    exact.to(dtype).to(torch.float32).requires_grad_(False)
    net = copy.deepcopy(exact).to(dtype).eval()
    net.backend = "auto"
    small_BND = random_cells(min(k, COMPARED_BITS), features, device, dtype)
    # With gradients enabled, though nothing asks for one, the units take none of the short cuts of inference.
    with torch.enable_grad():
        truth_BND = definition(exact, small_BND.float())
    error = relative_error(net.overwrite(small_BND), truth_BND)
    del truth_BND
    net.overwrite(random_cells(min(k, WARM_UP_BITS), features, device, dtype))
    state_BND = random_cells(k, features, device, dtype)
    seconds = 0.0

    def run() -> None:
        nonlocal seconds
        _wait(device)
        start = perf_counter()
        net.overwrite(state_BND)
        _wait(device)
        seconds = perf_counter() - start

    peak = peak_bytes(run, device)
    layer_errors = check_layers(net, exact, state_BND)
    return {
        "cells": 2**k,
        "maps": features,
        "blocks": 1,
        "layers": len(layer_errors),
        "dtype": str(dtype).removeprefix("torch."),
        "seconds": seconds,
        "buffer_bytes": state_BND.nbytes,
        "peak_bytes": peak,
        "error_of_the_definition": {"cells": small_BND.shape[1], "error": error},
        "error_of_the_layers": {"pairs": PAIRS, "worst": max(layer_errors)},
        # A comparison with NaN is false, so a NaN is not right.
        "right": all(wrong <= TOLERANCE[dtype] for wrong in (error, *layer_errors)),
    }


def random_cells(k: int, features: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Cells within ±1, drawn where they will lie."""
    state_BND = torch.empty(1, 2**k, features, device=device, dtype=dtype)
    for part_ND in state_BND[0].split(FILLED_ROWS):
        part_ND.uniform_(-1, 1)
    return state_BND


@torch.no_grad()
def check_layers(net: ShuffleExchange, exact: ShuffleExchange, state_BND: Tensor) -> list[float]:
    """Overwrite the cells once more; for each layer, how far some of its pairs are from the unit in float32."""
    cells = state_BND.shape[1]
    k = cells.bit_length() - 1
    switch = switch_of(net, state_BND, k)
    generator = torch.Generator().manual_seed(0)
    errors = []
    for layer in net.layers(k):
        drawn = torch.randint(cells, (PAIRS,), generator=generator).tolist()
        first = [address & ~(1 << layer.bit) for address in (0, cells - 1, *drawn[2:])]
        places = [place for address in first for place in (address, address | 1 << layer.bit)]
        before_ND = _rows(state_BND, places).float()
        overwrite_layer(state_BND, layer.bit, layer.unit, switch)
        with torch.enable_grad():
            truth_ND = exact[layer.unit](before_ND)
        errors.append(relative_error(_rows(state_BND, places), truth_ND.detach()))
    return errors


def _rows(state_BND: Tensor, places: list[int]) -> Tensor:
    """Cells side by side, taken one by one: no index arithmetic of a kernel to trust."""
    return torch.stack([state_BND[0, place] for place in places])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure a sequence that is overwritten in place, and check it; bfloat16 on a GPU, float32 on a CPU."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--log2", type=int, default=28, help="address bits: 28 for 2^28 cells")
    parser.add_argument("--maps", type=int, default=96, help="feature maps per cell")
    parser.add_argument("--out", type=Path, help="a JSON file for the result")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    result = {**environment(device), **measure(arguments.log2, arguments.maps, device, dtype)}
    print(json.dumps(result, indent=2))
    if arguments.out:
        write_json(arguments.out, result)
    if not result["right"]:
        raise SystemExit("the result is wrong: see error_of_the_definition and error_of_the_layers")


if __name__ == "__main__":
    main()
