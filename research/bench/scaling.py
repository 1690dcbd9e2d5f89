"""Two measurements of long sequences, printed as JSON.

``torchrun --nproc-per-node 4 -m research.bench.scaling sequence-parallel`` measures a forward pass of a sequence
sharded over CPU processes, and predicts its time by the cost model from rates that all ranks measure together.

``python -m research.bench.scaling resident --log2 28 --maps 96 --out FILE`` measures a sequence that fills a GPU, in a
single buffer that every layer overwrites. At 2^16 cells its output is compared with the network's definition in
float32; at the full length, some pairs of every layer with the unit in float32.
"""

# B = batch, N = cells, on one rank or in the buffer, D = features per cell
from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer
from torch import Tensor

from research.bench.cost import Machine, ShardedCost, ShardedWork
from research.bench.jobs import definition, enlarge_weights
from research.bench.measure import TOLERANCE, relative_error
from research.bench.timing import peak_bytes, wall_times
from research.files import write_result
from riffle.environment import environment
from riffle.nn.execute import overwrite_layer, switch_layer
from riffle.nn.network import ShuffleExchange
from riffle.parallel import SequenceSharding
from riffle.parallel.exchange import exchange
from riffle.quantities import parse_count

REPEATS, EXCHANGE_REPEATS = 5, 25
"""Exchanges are short and their times vary more."""
COMPARED_BITS = 16
"""Address bits at which the whole output is compared with the definition."""
WARM_UP_BITS = 20
"""Address bits of a run that compiles the kernels, for chunks of the size that longer sequences have."""
PAIRS = 64
"""Pairs that are recomputed in every layer, the first and the last among them."""

app = typer.Typer(help="Measure long sequences.", pretty_exceptions_enable=False)


def measure_sequence_parallel(
    group: dist.ProcessGroup, work: ShardedWork, *, product: int = 1024, copied: int = 2**26
) -> dict[str, Any]:
    """Predicted and measured seconds of a forward pass in float32 on CPUs, and their ratios.

    ``product`` is the size of the square matrices whose product is timed, ``copied`` the bytes that a copy reads.
    """
    assert work.ranks == dist.get_world_size(group)
    machine = _measure_machine(group, work.ranks, product, copied)
    torch.manual_seed(0)  # the same weights on every rank
    net = ShuffleExchange(work.features, work.blocks, sharding=SequenceSharding(group), backend="reference")
    x_BND = torch.rand(work.batch, work.length // work.ranks, work.features)
    cost = ShardedCost(work, machine)
    communication = 0.0
    with torch.no_grad():
        whole = _seconds(group, lambda: net(x_BND))
        if work.ranks > 1:
            communication = cost.exchanges * _seconds(group, lambda: exchange(x_BND, group), EXCHANGE_REPEATS)
    predicted = {"compute": cost.compute_seconds, "communication": cost.communication_seconds, "whole": cost.seconds}
    measured = {"compute": whole - communication, "communication": communication, "whole": whole}
    return {
        "ranks": work.ranks,
        "length": work.length,
        "maps": work.features,
        "blocks": work.blocks,
        "rates": {"flops": machine.flops, "copy": machine.copy, "link": machine.link, "latency": machine.latency},
        "predicted_seconds": predicted,
        "measured_seconds": measured,
        "ratios": {name: measured[name] / predicted[name] for name in predicted if predicted[name]},
    }


def _measure_machine(group: dist.ProcessGroup, ranks: int, product: int, copied: int) -> Machine:
    a, b = torch.randn(product, product), torch.randn(product, product)
    flops = 2 * product**3 / _seconds(group, lambda: a @ b)
    source = torch.zeros(copied, dtype=torch.uint8)
    target = torch.empty_like(source)
    copy_rate = 2 * copied / _seconds(group, lambda: target.copy_(source))
    if ranks == 1:
        return Machine(flops=flops, copy=copy_rate)
    # An exchange of one number per rank is all latency. The bandwidth is that of a large exchange of fixed size: with
    # the size that the network exchanges, the prediction would be the measurement.
    small, large = torch.zeros(1, ranks, 1), torch.zeros(1, 2**18, 16)
    latency = _seconds(group, lambda: exchange(small, group), EXCHANGE_REPEATS)
    sent = large.nbytes * (ranks - 1) / ranks
    link = sent / max(1e-9, _seconds(group, lambda: exchange(large, group), EXCHANGE_REPEATS) - latency)
    return Machine(flops=flops, copy=copy_rate, link=link, latency=latency / (ranks - 1))


def _seconds(group: dist.ProcessGroup, call: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median time until the last rank is done, the same number on all ranks."""
    call()
    times = wall_times(call, repeats=repeats, synchronize=lambda: dist.barrier(group))
    seconds = torch.tensor(median(times) / 1e3)
    dist.all_reduce(seconds, dist.ReduceOp.MAX, group=group)
    return float(seconds)


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


@app.command("sequence-parallel")
def sequence_parallel(
    length: Annotated[str, typer.Option(help="Cells of the whole sequence.")] = "2^14",
    maps: Annotated[int, typer.Option(help="Feature maps per cell.")] = 96,
    blocks: Annotated[int, typer.Option(help="Beneš blocks.")] = 1,
) -> None:
    """Compare the cost model with a forward pass over the processes of torchrun."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    assert dist.group.WORLD is not None
    ranks = dist.get_world_size()
    work = ShardedWork(length=parse_count(length), features=maps, blocks=blocks, ranks=ranks, itemsize=4)
    result = measure_sequence_parallel(dist.group.WORLD, work)
    if dist.get_rank() == 0:
        print(json.dumps(result, indent=2))
    dist.destroy_process_group()


@app.command()
def resident(
    log2: Annotated[int, typer.Option(help="Address bits: 28 for 2^28 cells.")] = 28,
    maps: Annotated[int, typer.Option(help="Feature maps per cell.")] = 96,
    out: Annotated[Path | None, typer.Option(help="A JSON file for the result.")] = None,
) -> None:
    """Measure and check a sequence that is overwritten in place; bfloat16 on a GPU, float32 on a CPU."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    result = {**environment(device), **measure_resident(log2, maps, device, dtype)}
    print(json.dumps(result, indent=2))
    if out:
        write_result(out, result)
    if not result["right"]:
        raise SystemExit("the result is wrong: see error_of_the_definition and error_of_the_layers")


if __name__ == "__main__":
    app()
