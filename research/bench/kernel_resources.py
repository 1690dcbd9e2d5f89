"""Compile the kernels of all units for compute capability 9.0, without a GPU, and print the resources they use.

    python -m research.bench.kernel_resources                # everything that networks of two blocks launch
    python -m research.bench.kernel_resources --features 192 --dtype float16 --waiting
    python -m research.bench.kernel_resources --features 192 --units residual --keep gates --cells 512

The passes of a network run on tensors without memory: each launch compiles its kernel and does not start it. Triton's
tools then report registers, spilled bytes, shared memory and code size, the number of warpgroup products (HGMMA), and
the instructions by which a kernel waits for the launch before it (ACQBULK) and lets the next one begin (PREEXIT). One
line of JSON for each kernel. The unit "neural-gpu" is that of research.baselines.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from riffle import ShuffleExchange
from riffle.kernels import hopper, hopper_backward, tuning
from riffle.kernels.compilation import dry_run
from riffle.kernels.launches import Launch
from riffle.kernels.plan import KEEP_GATES, KEEP_INPUTS, KEEP_NOTHING, plan_network

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
MULTIPROCESSORS = 132
"""Of an H200."""
KEEP = {"nothing": KEEP_NOTHING, "inputs": KEEP_INPUTS, "gates": KEEP_GATES}
UNITS: dict[str, dict[str, str]] = {
    "gated": {},
    "swap-gate": {"unit": "swap-gate"},
    "residual": {"unit": "residual"},
}
CELLS = tuple(2**k for k in range(5, 22))
NO_DEVICE = SimpleNamespace(
    get_current_target=lambda: GPUTarget("cuda", 90, 32),
    get_current_device=lambda: 0,
    get_current_stream=lambda device: 0,
)
"""A driver that names a target and has no device."""


def resources(compiled: Any) -> dict[str, Any]:
    """Registers, memory and instruction counts of a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run([TOOLS / "cuobjdump", option, file.name], capture_output=True, text=True, check=True).stdout
            for option in ("-res-usage", "-sass")
        )
    numbers = {
        name: int(re.findall(rf"{key}:(\d+)", usage)[0]) for name, key in (("registers", "REG"), ("stack", "STACK"))
    }
    addresses = [int(address, 16) for address in re.findall(r"/\*([0-9a-f]{4,6})\*/ ", code)]
    counts = {name: len(re.findall(rf"\b{name}\b", code)) for name in ("HGMMA", "HMMA", "ACQBULK", "PREEXIT")}
    spilled = len(re.findall(r"\bSTL\b|\bLDL\b", code))
    size = round(max(addresses) / 1024, 1)
    return {**numbers, "spills": spilled, "shared": compiled.metadata.shared, "code_kb": size, **counts}


class Compiler:
    """Compiles the kernels of launches, each once and only the named ones if given, and prints what they use."""

    def __init__(self, kernels: list[str] | None) -> None:
        self.kernels, self.seen = kernels, set[str]()

    def compile(self, launch: Launch, *tensors: Tensor | None) -> None:
        """In the place of :meth:`Launch.compile`."""
        kernel, constants = getattr(launch.kernels, launch.kernel), launch.constants
        dtype = next(str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor is not None)
        flags = constants.get("FORM") or {name: value for name, value in constants.items() if name.isupper()}
        arguments = (*launch._arguments(tensors), *launch.numbers)
        self.warm_up(kernel, arguments, launch.grid, constants, {"kernel": launch.kernel, "dtype": dtype, **flags})

    def warm_up(self, kernel: Any, arguments: Any, grid: Any, constants: Any, row: dict[str, Any]) -> None:
        """Compile a kernel and print its row with what it uses."""
        name = str(row | {"SHUFFLE": None})  # which changes addresses alone
        if name not in self.seen and row["kernel"] in (self.kernels or [row["kernel"]]) and grid[0]:
            self.seen.add(name)
            compiled = kernel.warmup(*arguments, grid=grid, **constants)
            print(json.dumps({**row, **resources(compiled)}), flush=True)


def compile_network(unit: str, features: int, dtype: torch.dtype, cells: int, keep: int, options: Any) -> None:
    """Compile what both passes of a network of two blocks launch, for a sequence of so many cells."""
    spec = ShuffleExchange(features, 2, **UNITS[unit]).spec  # type: ignore[arg-type]
    assert spec is not None
    dropout, noise = 0.1 * options.dropout, 0.1 * options.noise
    shape = ((1,), (cells,), features)
    plan = plan_network(*shape, dtype, torch.device("cpu"), spec, dtype, dropout, noise, keep, eager=True)
    dry_run(plan, dropout=options.dropout or options.noise)


def compile_neural_gpu(features: int, dtype: torch.dtype, compiler: Compiler) -> None:
    """Compile the steps of the Neural GPU, for training with batches of 64 of the usual lengths."""
    from triton.runtime.jit import MockTensor

    from research.baselines import diagonal_gru, neural_gpu_operator

    batches, widths = [64] * 4, [64, 32, 16, 8]
    kept, single, seed = MockTensor(dtype), MockTensor(torch.float32), MockTensor(torch.int64)
    groups = neural_gpu_operator._groups(batches, widths)
    numbers = (0.1, 0.1, sum(64 * width for width in widths), *groups, (0.1,) * len(widths))
    form = neural_gpu_operator.find_form(features, max(widths), dtype, torch.device("cpu"))
    constants = neural_gpu_operator._constants(features, seed, form)
    launches = {
        "steps_forward": [*[single] * 2, *[kept] * 4, seed, *[single] * 3, *[kept] * 4],
        "steps_backward": [*[single] * 4, *[kept] * 2, seed, *[kept] * 3, *[single] * 2, *[kept] * 2],
    }
    for name, tensors in launches.items():
        row = {"kernel": name, **constants}
        compiler.warm_up(getattr(diagonal_gru, name), (*tensors, *numbers), (sum(batches),), constants, row)


def main() -> None:
    """Compile and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--features", type=int, nargs="*", default=[32, 48, 64, 96, 192, 384])
    parser.add_argument("--units", nargs="*", default=list(UNITS), choices=[*UNITS, "neural-gpu"])
    parser.add_argument("--dtype", nargs="*", default=["bfloat16"], choices=["bfloat16", "float16"])
    parser.add_argument("--keep", nargs="*", default=list(KEEP), choices=list(KEEP), help="kept for the backward pass")
    parser.add_argument("--cells", nargs="*", type=int, default=CELLS, help="of a sequence")
    parser.add_argument("--kernels", nargs="*", help="names of kernels, all unless given")
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--noise", action="store_true", help="noise in place of dropout")
    parser.add_argument("--waiting", action="store_true", help="without programmatic dependent launch")
    options = parser.parse_args()
    driver.set_active(NO_DEVICE)
    tuning.has_warpgroups = lambda device: True  # type: ignore[assignment]
    tuning.DEPENDENT_LAUNCH = not options.waiting
    for module in (tuning, hopper, hopper_backward):
        module.multiprocessors = lambda device: MULTIPROCESSORS  # type: ignore[attr-defined]
    compiler = Compiler(options.kernels)
    Launch.compile = lambda launch, *tensors: compiler.compile(launch, *tensors)  # type: ignore[method-assign]
    for features, name, unit in product(options.features, options.dtype, options.units):
        dtype = getattr(torch, name)
        if unit == "neural-gpu":
            compile_neural_gpu(features, dtype, compiler)
            continue
        for cells, keep in product(options.cells, options.keep):
            compile_network(unit, features, dtype, cells, KEEP[keep], options)


if __name__ == "__main__":
    main()
