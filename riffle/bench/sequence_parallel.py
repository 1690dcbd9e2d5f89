"""The model of cost beside measured runs: ``torchrun --nproc-per-node 4 -m riffle.bench.sequence_parallel``.

First every rank measures what the machine can do while all others do the same: a matrix product, a copy, exchanges of
little and of much. From these rates the model predicts a forward pass, which is then timed.
"""

# B = batch, N = cells on this rank, D = features per cell
from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from riffle import ShuffleExchange
from riffle.cost import Machine, ShardedCost, ShardedWork
from riffle.parallel.exchange import exchange
from riffle.quantities import parse_count

REPEATS, EXCHANGES = 5, 25
"""How often a thing is timed; exchanges are short and scatter."""


def measure(group: dist.ProcessGroup, work: ShardedWork, *, product: int = 1024, copied: int = 2**26) -> dict[str, Any]:
    """Predicted and measured seconds of a forward pass in float32 on CPUs, and their ratios.

    Args:
        group: The ranks.
        work: The network and the sequence; one rank for each of the group.
        product: The size of the square matrices whose product is timed.
        copied: How many bytes the copy reads.
    """
    assert work.ranks == dist.get_world_size(group)
    machine = _machine(group, work, product, copied)
    torch.manual_seed(0)  # the same weights on every rank
    net = ShuffleExchange(work.features, work.blocks, sequence_group=group, backend="reference")
    x_BND = torch.rand(work.batch, work.length // work.ranks, work.features)
    cost = ShardedCost(work, machine)
    with torch.no_grad():
        whole = _seconds(group, lambda: net(x_BND))
        traffic = 0.0
        if work.ranks > 1:
            traffic = cost.exchanges * _seconds(group, lambda: exchange(x_BND, group), EXCHANGES)
    predicted = {"compute": cost.compute_seconds, "communication": cost.communication_seconds, "whole": cost.seconds}
    measured = {"compute": whole - traffic, "communication": traffic, "whole": whole}
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


def _machine(group: dist.ProcessGroup, work: ShardedWork, product: int, copied: int) -> Machine:
    a, b = torch.randn(product, product), torch.randn(product, product)
    flops = 2 * product**3 / _seconds(group, lambda: a @ b)
    source = torch.zeros(copied, dtype=torch.uint8)
    target = torch.empty_like(source)
    copy = 2 * copied / _seconds(group, lambda: target.copy_(source))
    if work.ranks == 1:
        return Machine(flops=flops, copy=copy)
    # An exchange of one number for each rank is all latency. One of a fixed large size gives the bandwidth: were it
    # the size that the network exchanges, the prediction would be the measurement.
    little, much = torch.zeros(1, work.ranks, 1), torch.zeros(1, 2**18, 16)
    late = _seconds(group, lambda: exchange(little, group), EXCHANGES)
    sent = much.nbytes * (work.ranks - 1) / work.ranks
    link = sent / max(1e-9, _seconds(group, lambda: exchange(much, group), EXCHANGES) - late)
    return Machine(flops=flops, copy=copy, link=link, latency=late / (work.ranks - 1))


def _seconds(group: dist.ProcessGroup, function: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median time until the last rank is done."""
    function()
    times = []
    for _ in range(repeats):
        dist.barrier(group)
        start = perf_counter()
        function()
        dist.barrier(group)
        times.append(perf_counter() - start)
    # All ranks must go by the same number.
    agreed = torch.tensor(median(times))
    dist.all_reduce(agreed, dist.ReduceOp.MAX, group=group)
    return float(agreed)


def main() -> None:
    """Measure under ``torchrun`` and print the result as JSON."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--length", type=parse_count, default=2**14, help="cells of the whole sequence")
    parser.add_argument("--maps", type=int, default=96, help="feature maps per cell")
    parser.add_argument("--blocks", type=int, default=1, help="Beneš blocks")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    assert dist.group.WORLD is not None
    work = ShardedWork(
        length=arguments.length,
        features=arguments.maps,
        blocks=arguments.blocks,
        ranks=dist.get_world_size(),
        itemsize=4,
    )
    result = measure(dist.group.WORLD, work)
    if dist.get_rank() == 0:
        print(json.dumps(result, indent=2))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
