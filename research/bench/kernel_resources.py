"""Compile the kernels of all units for compute capability 9.0, without a GPU, and print the resources they use.

    python -m research.bench.kernel_resources                # all forms that tuning.py can choose
    python -m research.bench.kernel_resources --features 192 --dtype float16 --waiting
    python -m research.bench.kernel_resources --features 192 --units residual-features residual-sequence

Layers run forward and back on CPU tensors, but each launch compiles its kernel and does not start it. Triton's tools
then report registers, spilled bytes, shared memory and code size, the number of warpgroup products (HGMMA), and the
instructions by which a kernel waits for the launch before it (ACQBULK) and lets the next one begin (PREEXIT). Prints
one line of JSON for each kernel. The unit "neural-gpu" is that of research.baselines.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from riffle.kernels import hopper, hopper_backward, hopper_wide, layer_backward, residual, tuning
from riffle.kernels.launches import Kept, Launch, Workspace, forward_layer, forward_layers, unit_weights
from riffle.kernels.layer_backward import SkipGradient, UnitGradients, backward_layer
from riffle.kernels.layer_plan import plan_layer, share_gradients
from riffle.kernels.reference import NORMS, Norm
from riffle.kernels.units import KERNELS

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
WIDE_FORMS = {width: [form._replace(fewest=0) for form in forms] for width, forms in tuning.WIDE_FORMS.items()}
"""Those of the table, for any number of pairs."""


class NoDevice:
    """A driver that names a target and has no device."""

    def get_current_target(self) -> GPUTarget:
        """The architecture to compile for."""
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        """A device's index, which is not used."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The default stream's handle, which is not used."""
        return 0


def resources(compiled: Any) -> dict[str, Any]:
    """Registers, memory and instruction counts of a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run([TOOLS / "cuobjdump", option, file.name], capture_output=True, text=True, check=True).stdout
            for option in ("-res-usage", "-sass")
        )
    numbers = {}
    for name, key in (("registers", "REG"), ("stack", "STACK")):
        match = re.search(rf"{key}:(\d+)", usage)
        assert match is not None
        numbers[name] = int(match[1])
    addresses = [int(address, 16) for address in re.findall(r"/\*([0-9a-f]{4,6})\*/ ", code)]
    counts = {name: len(re.findall(rf"\b{name}\b", code)) for name in ("HGMMA", "HMMA", "ACQBULK", "PREEXIT")}
    spilled = len(re.findall(r"\bSTL\b|\bLDL\b", code))
    return numbers | {
        "spills": spilled,
        "shared": compiled.metadata.shared,
        "code_kb": round(max(addresses) / 1024, 1),
        **counts,
    }


@contextmanager
def compile_only(
    found: dict[str, dict[str, Any]], *, dependent: bool = True, kernels: Sequence[str] | None = None
) -> Iterator[None]:
    """Let launches compile their kernels, or only the named ones, without starting any; adds resources to ``found``."""

    def run(launch: Launch, tensors: Sequence[Tensor | None]) -> None:
        if kernels and launch.kernel not in kernels:
            return
        kernel, constants = getattr(launch.kernels, launch.kernel), launch.constants
        compiled = kernel.warmup(*launch._arguments(tensors), *launch.numbers, grid=launch.grid, **constants)
        dtype = next(str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor is not None)
        flags = {name: value for name, value in constants.items() if name.isupper() and name != "FORM"}
        if "FORM" in constants:
            flags = constants["FORM"]
        name = f"{launch.kernel} {dtype} {' '.join(f'{name}={value}' for name, value in flags.items())}"
        if name not in found:
            found[name] = {"kernel": launch.kernel, "dtype": dtype, **flags, **resources(compiled)}

    before = driver._active
    driver.set_active(NoDevice())
    clear_caches()
    with ExitStack() as stack:
        stack.callback(setattr, driver, "_active", before)
        stack.callback(clear_caches)
        replace(stack, Launch, _run=run)
        for owner in (layer_backward, residual):
            replace(stack, owner, add_weight_gradient=lambda grad, read, out, fresh=False: None)
        replace(stack, tuning, has_warpgroups=lambda device: True, DEPENDENT_LAUNCH=dependent)
        for module in (tuning, hopper, hopper_backward, hopper_wide):
            replace(stack, module, multiprocessors=lambda device: 1)
        yield


def clear_caches() -> None:
    """Forget the forms and plans that were chosen before the table was changed."""
    for cache in (
        tuning.find_layer_form, tuning.layer_form, tuning.product_form, tuning.wide_form, tuning.switch_blocks,
        plan_layer, residual.plan_residual_layer,
    ):  # fmt: skip
        cache.cache_clear()


def replace(stack: ExitStack, owner: Any, **values: Any) -> None:
    """Set attributes, and restore them when the stack is closed."""
    for name, value in values.items():
        stack.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)


def run_layers(
    features: int,
    dtype: torch.dtype,
    *,
    keep: bool,
    skip: bool,
    cells: int = 512,
    dropout: float = 0.0,
    noise: bool = False,
    bins: int = 1,
    gates: int = 3,
) -> None:
    """Layers of a gated unit forward and back.

    One layer, and two that share weight-gradient products; with candidates recovered from the outputs and recomputed.
    """
    pair, groups = 2 * features, ((1,) * bins, tuple(cells // 2**i for i in range(bins)))
    cells = sum(groups[1])
    plan = plan_layer(
        *groups, (dropout,) * bins, features, dtype, torch.device("cpu"),
        shuffle=1, swap=True, keep=keep, skip=skip, first=False, noise=noise, gates=gates,
    )  # fmt: skip
    zeros = partial(torch.zeros, dtype=dtype)
    scale = zeros(features, dtype=torch.float32)
    matrices = zeros(gates * pair, pair), zeros(gates * pair), zeros(2, features, pair), zeros(2, features)
    weights = unit_weights(*matrices, scale)
    x, out, other, seed = zeros(cells, features), zeros(cells, features), zeros(cells, features), None
    if dropout:
        seed = torch.zeros(2, dtype=torch.int64)
    kept = Kept(zeros(cells // 2, gates * pair), None) if keep else None
    skip_CD = other if skip else None
    forward_layer(plan, x, skip_CD, weights, seed, Workspace(x), kept=kept, out_CD=out)
    gradients = UnitGradients(
        zeros(gates * pair, pair, dtype=torch.float32), zeros(2, features, pair, dtype=torch.float32),
        zeros((gates + 1) * pair, dtype=torch.float32), scale.clone(),
    )  # fmt: skip
    for alone in (True, False):
        shares = share_gradients([plan] * (1 if alone else 2), ["unit"] * 2)
        for from_output in (True, False):
            for more in (False,) if skip else (False, True):
                workspace = Workspace(x)
                for share in shares:
                    backward_layer(
                        plan, other, x, out if from_output else None, skip_CD, weights, seed,
                        workspace, kept=kept, share=share,
                        gradients=gradients, grad_CD=zeros(cells, features), grad_more_CD=other if more else None,
                        grad_skip_CD=zeros(cells, features) if skip else None,
                        skip_gradient=SkipGradient(other, scale, scale.clone()) if more else None,
                    )  # fmt: skip


def run_joined_layers(features: int, dtype: torch.dtype, *, skip: bool, cells: int = 256, layers: int = 2) -> None:
    """Several layers of a unit in one launch."""
    plan = plan_layer(
        (1,), (cells,), (0.0,), features, dtype, torch.device("cpu"),
        shuffle=1, swap=True, keep=False, skip=skip, first=False,
    )  # fmt: skip
    pair = 2 * features
    zeros = partial(torch.zeros, dtype=dtype)
    scale = zeros(features, dtype=torch.float32)
    weights = unit_weights(zeros(3 * pair, pair), zeros(3 * pair), zeros(2, features, pair), zeros(2, features), scale)
    x, out = zeros(cells, features), zeros(layers, cells, features)
    forward_layers(
        plan, x, x if skip else None, out if skip else None, weights, Workspace(x),
        counters=zeros(64, dtype=torch.int32), out_LCD=out,
    )  # fmt: skip


def run_residual_layers(
    features: int,
    dtype: torch.dtype,
    norm: Norm,
    *,
    keep: bool,
    cells: int = 512,
    dropout: float = 0.0,
    noise: bool = False,
    bins: int = 1,
) -> None:
    """Layers of the residual unit, as in :func:`run_layers`."""
    pair, groups = 2 * features, ((1,) * bins, tuple(cells // 2**i for i in range(bins)))
    cells = sum(groups[1])
    plan = residual.plan_residual_layer(
        *groups, (dropout,) * bins, features, dtype, torch.device("cpu"),
        norm=norm, shuffle=1, swap=False, keep=keep, skip=False, first=False, noise=noise,
    )  # fmt: skip
    zeros = partial(torch.zeros, dtype=dtype)
    weights = residual.ResidualUnitWeights(
        zeros(2 * pair, pair), zeros(2 * pair), zeros(pair, 2 * pair), zeros(pair), zeros(pair, dtype=torch.float32)
    )
    gradients = residual.residual_gradients(
        zeros(2 * pair, pair, dtype=torch.float32),
        zeros(pair, 2 * pair, dtype=torch.float32),
        *zeros(4 * pair, dtype=torch.float32).split([3 * pair, pair]),
    )
    x, seed = zeros(cells, features), torch.zeros(2, dtype=torch.int64) if dropout else None
    kept = Kept(zeros(cells // 2, 2 * pair), None) if keep else None
    residual.forward_residual_layer(
        plan, x, None, weights, seed, Workspace(x), kept=kept, out_CD=zeros(cells, features)
    )
    for layers in (1, 2):
        plans: list[Any] = [plan] * layers
        workspace = Workspace(x)
        for share in share_gradients(plans, ["unit"] * layers):
            residual.backward_residual_layer(
                plan, zeros(cells, features), x, None, None, weights, seed, workspace, kept=kept, share=share,
                gradients=gradients, grad_CD=zeros(cells, features),
            )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--features", type=int, nargs="*", help="widths; all of the table unless given")
    parser.add_argument("--units", nargs="*", default=list(KERNELS), choices=[*KERNELS, "neural-gpu"])
    parser.add_argument("--dtype", nargs="*", default=["bfloat16"], choices=["bfloat16", "float16"])
    parser.add_argument("--keep", nargs="*", type=int, default=[0, 1], help="0: gates are not kept, 1: they are")
    parser.add_argument("--skip", nargs="*", type=int, default=[0, 1], help="0: no skip connection, 1: one")
    parser.add_argument("--cells", nargs="*", type=int, default=[512, 60], help="512: all groups of a form, 60: one")
    parser.add_argument("--kernels", nargs="*", help="names of kernels, all unless given")
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--noise", action="store_true", help="noise in place of dropout")
    parser.add_argument("--waiting", action="store_true", help="without programmatic dependent launch")
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = {}
    table = tuning.LAYER_ROWS
    widths = options.features or sorted({row.features for row in table} | {*tuning.PRODUCT_FORMS, *WIDE_FORMS})
    products = {features: form._replace(fewest=0) for features, form in tuning.PRODUCT_FORMS.items()}
    compile_unit: dict[str, Callable[..., None]] = {
        "gated": partial(compile_gated, table),
        "swap-gate": compile_swap_gate,
        **{f"residual-{norm}": partial(compile_residual, norm) for norm in NORMS},
        "neural-gpu": partial(compile_neural_gpu, found),
    }
    with ExitStack() as stack:
        replace(stack, tuning, LAYER_ROWS=table, PRODUCT_FORMS=products, WIDE_FORMS={})
        stack.enter_context(compile_only(found, dependent=not options.waiting, kernels=options.kernels))
        for features, name, unit in product(widths, options.dtype, options.units):
            printed = len(found)
            common: dict[str, Any] = {}
            if options.dropout or options.noise:
                common = {"dropout": 0.1, "noise": options.noise, "bins": 2}
            compile_unit[unit](features, getattr(torch, name), options, common)
            for row in list(found.values())[printed:]:
                print(json.dumps(row), flush=True)


def compile_gated(
    table: Sequence[tuning.LayerRow],
    features: int,
    dtype: torch.dtype,
    options: argparse.Namespace,
    common: dict[str, Any],
) -> None:
    """All forms of the table, and the other kernels where it has none."""
    for keep, skip in product(options.keep, options.skip):
        rows = [row for row in table if row[:2] == (features, keep) and row.skip in (None, skip)]
        forms = {row.form: None for row in rows} or [None]
        for form, wide, cells in product(forms, WIDE_FORMS.get(features, [None]), options.cells):
            tuning.LAYER_ROWS = () if form is None else (tuning.LayerRow(features, bool(keep), 0, form),)
            tuning.WIDE_FORMS = {} if wide is None else {features: (wide,)}
            clear_caches()
            run_layers(features, dtype, keep=bool(keep), skip=bool(skip), cells=cells, **common)
    for skip in options.skip if 0 in options.keep and features in tuning.RESIDENT_PAIRS else ():
        with ExitStack() as stack:
            replace(stack, tuning, multiprocessors=lambda device: 132)
            clear_caches()
            run_joined_layers(features, dtype, skip=bool(skip))


def compile_swap_gate(features: int, dtype: torch.dtype, options: argparse.Namespace, common: dict[str, Any]) -> None:
    """With the candidates' product by the library, and on the chip where that has a form."""
    for keep, skip, cells, few in product(options.keep, options.skip, options.cells, (True, False)):
        with ExitStack() as stack:
            if not few:
                replace(stack, tuning, FEWEST_PAIRS=0)
            clear_caches()
            run_layers(features, dtype, keep=bool(keep), skip=bool(skip), cells=cells, gates=4, **common)


def compile_residual(
    norm: Norm, features: int, dtype: torch.dtype, options: argparse.Namespace, common: dict[str, Any]
) -> None:
    """The kernels for few pairs and those for many."""
    for few in (True, False):
        with ExitStack() as stack:
            if not few:
                replace(stack, tuning, FEWEST_PAIRS=0, FEWEST_RESIDUAL_PAIRS=0)
            for keep, cells in product(options.keep, options.cells):
                clear_caches()
                run_residual_layers(features, dtype, norm, keep=bool(keep), cells=cells, **common)


def compile_neural_gpu(
    found: dict[str, dict[str, Any]],
    features: int,
    dtype: torch.dtype,
    options: argparse.Namespace,
    common: dict[str, Any],
) -> None:
    """The steps of the Neural GPU, for training with batches of 64 of the usual lengths."""
    from triton.runtime.jit import MockTensor

    from research.baselines import diagonal_gru, neural_gpu_operator

    batches, widths = [64] * 4, [64, 32, 16, 8]
    kept, single = MockTensor(dtype), MockTensor(torch.float32)
    seed = MockTensor(torch.int64) if common else None
    groups = neural_gpu_operator._groups(batches, widths)
    numbers = (0.1, 0.1, sum(64 * width for width in widths), *groups, (0.1,) * len(widths))
    form = neural_gpu_operator.find_form(features, max(widths), dtype, torch.device("cpu"))
    constants = neural_gpu_operator._constants(features, seed, form)
    launches = {
        "steps_forward": [*[single] * 2, *[kept] * 4, seed, *[single] * 3, *[kept] * 4],
        "steps_backward": [*[single] * 4, *[kept] * 2, seed, *[kept] * 3, *[single] * 2, *[kept] * 2],
    }
    for name, tensors in launches.items():
        compiled = getattr(diagonal_gru, name).warmup(*tensors, *numbers, grid=(sum(batches),), **constants)
        found[f"{name} {features} {dtype}"] = {"kernel": name, **constants, **resources(compiled)}


if __name__ == "__main__":
    main()
