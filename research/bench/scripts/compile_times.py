"""Compile the kernels of a training step for compute capability 9.0, without a GPU, and say how long it takes.

    python benchmarks/compile_times.py                   # in 1, 2, 4 threads and one for each core
    python benchmarks/compile_times.py --threads 1 16 --kernels

Each number of threads has a process and an empty cache of its own; a single one has the cache of the environment. A
line of JSON for each: seconds by the clock, and of processors in the process and in those that it started. With
``--kernels`` another one for each kernel: seconds by the clock for each step, of which the first one is in Python. The
launchers in C, which are linked with a driver, are not compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import torch
import triton
from triton.runtime import driver

from research.bench.scripts.kernel_resources import NoDevice
from riffle import ShuffleExchange
from riffle.kernels import hopper, hopper_backward, tuning
from riffle.kernels.compilation import compile_passes
from riffle.kernels.plan import KEEP_GATES, NetworkForm, NetworkPlan, plan_network

MULTIPROCESSORS = 132
"""Of an H200: they decide how some kernels cut up their work."""


class NoLauncher(NoDevice):
    """A driver that names a target, and starts nothing."""

    def launcher_cls(self, source: Any, metadata: Any) -> None:
        """Compile no launcher."""


def training_plan(features: int, blocks: int, batch: int, length: int) -> NetworkPlan:
    """The plan of a training step in bfloat16, as an H200 would have it."""
    net = ShuffleExchange(features, blocks)
    units: Any = net.units.values()
    form = NetworkForm(
        net.blocks, net.sharing, net.benes, net.skips, tuple(net.units.keys()),
        tuple(unit.swap for unit in units), tuple(unit.skip_scale is not None for unit in units),
    )  # fmt: skip
    shape = ((batch,), (length,), features)
    return plan_network(
        *shape, torch.float32, torch.device("cpu"), form, torch.bfloat16, 0.0, 0.0, KEEP_GATES, eager=True
    )  # fmt: skip


def compile_all(threads: int, shape: Sequence[int], *, kernels: bool) -> None:
    """Compile in so many threads, and print."""

    def listen(*, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        stages = {"python": times.ir_initialization, **dict(times.lowering_stages)}
        flags = [str(value) for value in src.constants.values() if "Constants" in str(value)]
        seconds = {name: round(micros / 1e6, 2) for name, micros in stages.items()}
        print(json.dumps({"kernel": src.name, "seconds": seconds, "flags": flags}), flush=True)

    if kernels:
        triton.knobs.compilation.listener = listen
    driver.set_active(NoLauncher())
    tuning.has_warpgroups = lambda device: True  # type: ignore[assignment]  # no device to ask
    for module in (tuning, hopper, hopper_backward):
        module.multiprocessors = lambda device: MULTIPROCESSORS  # type: ignore[attr-defined]
    plan = training_plan(*shape)
    began, before = time.perf_counter(), os.times()
    count = compile_passes(plan, dropout=False, threads=threads)
    seconds, after = time.perf_counter() - began, os.times()
    own, others = (sum(after[i : i + 2]) - sum(before[i : i + 2]) for i in (0, 2))
    row = {"threads": threads, "kernels": count, "seconds": seconds, "processor": own, "processes": others}
    print(json.dumps({name: round(value, 2) for name, value in row.items()}), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile and print."""
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=int, nargs="*", default=sorted({1, 2, 4, min(cores, 16)}))
    parser.add_argument("--kernels", action="store_true", help="a line for each kernel, too")
    parser.add_argument(
        "--shape", type=int, nargs=4, default=[192, 2, 32, 1024], help="maps, blocks, sequences and their cells"
    )
    options = parser.parse_args(arguments)
    if len(options.threads) == 1:
        compile_all(options.threads[0], options.shape, kernels=options.kernels)
        return
    for threads in options.threads:
        flags = ["--kernels"] if options.kernels else []
        command = [sys.executable, __file__, "--threads", str(threads), *flags, "--shape", *map(str, options.shape)]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(command, env=os.environ | {"TRITON_CACHE_DIR": folder}, check=True)


if __name__ == "__main__":
    main()
