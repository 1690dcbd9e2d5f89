"""The Triton kernels against the reference in float64: on a GPU in every dtype, elsewhere by the interpreter in fp32.

A kernel may stray from the float64 truth at most twice as far as eager PyTorch in the same dtype does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from riffle import ShuffleExchange

pytest.importorskip("triton", reason="Triton has no build for this platform")

from riffle.kernels import fused, reference
from riffle.kernels.reference import SwitchWeights
from riffle.shuffle import riffle, unriffle

pytestmark = pytest.mark.usefixtures("_poison")
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
DTYPES = [torch.float32, *([torch.bfloat16, torch.float16] if GPU else [])]
SHAPES = [(1, 2, 16), (3, 8, 12), (5, 4, 2), (3, 6, 2), (1, 64, 24), (2, 22, 48)]
if GPU:
    SHAPES = [
        (3, 8, 12),
        (1, 2, 16),
        (1, 4096, 96),
        (5, 1030, 96),
        (3, 6, 2),
        (3, 128, 192),
        (7, 64, 384),
        (1, 32, 512),
        (3, 16, 250),
    ]
CASES = [(shuffle, swap) for shuffle in (1, -1, 0) for swap in (True, False)]
if GPU:  # each case is compiled for each shape and dtype there
    CASES = [(1, True), (-1, True), (0, False)]
SHUFFLES = {1: unriffle, -1: riffle, 0: lambda x: x}


def shuffled(y_CD: Tensor, bins: Sequence[tuple[int, int]], shuffle: int) -> Tensor:
    """Shuffle every sequence; ``bins`` are numbers of sequences and the cells of each."""
    parts = y_CD.split([count * length for count, length in bins])
    pairs = zip(parts, bins, strict=True)
    return torch.cat([SHUFFLES[shuffle](part.view(*shape, -1)).flatten(0, 1) for part, shape in pairs])


def assert_as_accurate(
    name: str, actual: Tensor, eager: Tensor, exact: Tensor, factor: float = 2.0, layers: int = 1
) -> None:
    """``actual`` may stray from the float64 truth at most ``factor`` times as far as eager PyTorch does.

    Eight roundings in float32 are always allowed: a few pairs of cells have too few numbers for errors to average. Over
    several layers these add up as independent ones do.
    """
    error = (actual.double() - exact).norm().item()
    floor = 8 * layers**0.5 * torch.finfo(torch.float32).eps * exact.norm().item()
    allowed = max(factor * (eager.double() - exact).norm().item(), floor)
    assert error <= allowed, f"{name}: {error:.2e} from the float64 reference, {allowed:.2e} allowed"


def layer(x_BND: Tensor, unit: fused.PackedUnit, **options: Any) -> Tensor:
    """The fused layer on sequences of one length."""
    batch, cells, _ = x_BND.shape
    y_CD = fused.switch_and_shuffle(x_BND.flatten(0, 1), unit, sequences=[batch], cells=[cells], **options)
    return y_CD.view_as(x_BND)


class Case:
    """Random inputs of one layer, and its result and gradients by either kernel."""

    def __init__(self, batch: int, cells: int, features: int, skip: bool) -> None:
        generator = torch.Generator().manual_seed(0)

        def draw(*shape: int, scale: float = 1.0) -> Tensor:
            return (scale * torch.randn(*shape, generator=generator)).double().to(DEVICE)

        pair, self.names = 2 * features, ["x", "W_gates", "B_gates", "W_c", "B_c"]
        self.tensors = [draw(batch, cells, features).clamp(-1, 1), draw(3 * pair, pair, scale=pair**-0.5)]
        self.tensors += [draw(3 * pair), draw(2, features, pair, scale=pair**-0.5), draw(2, features)]
        if skip:
            self.names += ["skip", "skip scale"]
            self.tensors += [draw(batch, cells, features).clamp(-1, 1), draw(features)]
        self.grad = draw(batch, cells, features)

    def run(self, kernel: str, dtype: torch.dtype, shuffle: int, swap: bool) -> list[Tensor]:
        # Parameters stay as they are in eager PyTorch; the fused kernels take them in float32, as `pack` gives them.
        leaves = [tensor.to(dtype).clone().requires_grad_() for tensor in self.tensors]
        x_BND, weights, skip = leaves[0], SwitchWeights(*leaves[1:5]), leaves[5:]
        if kernel == "fused":
            unit = fused.pack(weights, skip[1] if skip else None, dtype)
            y_BND = layer(x_BND, unit, shuffle=shuffle, swap=swap, skip_CD=skip[0].flatten(0, 1) if skip else None)
        else:
            pairs = (*x_BND.shape[:1], -1, 2 * x_BND.shape[2])
            skip_BPE = (skip[0] * skip[1]).reshape(pairs) if skip else None
            y_BPE = reference.gated_switch(x_BND.reshape(pairs), weights, skip_BPE, swap=swap)
            y_BND = SHUFFLES[shuffle](y_BPE.reshape(x_BND.shape))
        return [y_BND.detach(), *torch.autograd.grad(y_BND, leaves, self.grad.to(dtype))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layer_and_every_gradient(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    for skip in (False, True):
        case = Case(*shape, skip)
        for shuffle, swap in CASES:
            exact, eager, actual = (
                case.run(kernel, kind, shuffle, swap)
                for kernel, kind in (("reference", torch.float64), ("reference", dtype), ("fused", dtype))
            )
            for name, *results in zip(["y", *case.names], actual, eager, exact, strict=True):
                assert_as_accurate(f"{name}, shuffle {shuffle}, swap {swap}, skip {skip}", *results)


def test_the_operator_is_registered_correctly() -> None:
    unit = ShuffleExchange(4, 2, device=DEVICE)["last"]
    packed = fused.pack(unit.weights(), unit.skip_scale, torch.float32)
    x_CD = torch.rand(8, 4, device=DEVICE, requires_grad=True)
    skip_CD = torch.rand(8, 4, device=DEVICE, requires_grad=True)
    checks = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    for skip, keep in (((None, None), False), ((skip_CD, packed.skip_scale), False), ((None, None), True)):
        groups = ([1, 2], [4, 2], [0.0, 0.0])
        arguments = (x_CD, *skip, packed.parameters, packed.weights, None, *groups, False, 1, True, keep)
        torch.library.opcheck(torch.ops.riffle.switch.default, arguments, test_utils=checks, atol=1e-5, rtol=1e-4)
