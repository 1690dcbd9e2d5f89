"""The fused kernels against the definition in float64, on the machine at hand: what ``riffle info --verify`` shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from riffle.kernels.plan import KEEP_GATES, KEEP_INPUTS, KEEP_NOTHING, NetworkPlan, plan_network
from riffle.nn.network import ShuffleExchange

UNITS = ("gated", "swap-gate", "residual")
WIDTHS = (192, 32, 48, 64, 96, 128, 384)
CELLS = (2**10, 2**12, 2**14, 2**15, 2**16)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
LENGTH = 16
"""Cells of a sequence: few layers, so that eager PyTorch in float64 has room beside them."""
FACTOR, ROUNDINGS = 2.0, 8.0
"""How far a result may be from float64: twice as far as eager PyTorch in its dtype, or eight roundings in float32."""


class Check(NamedTuple):
    """Forms that ran for the first time, and how far their results were off."""

    forms: tuple[str, ...]
    dtype: torch.dtype
    cells: int
    worst: str
    """Of the output and all gradients the one that is farthest off."""
    share: float
    """Its distance from float64, as a share of what is allowed; NaN fails."""

    @property
    def right(self) -> bool:
        """Whether all are as exact as they have to be."""
        return self.share <= 1

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        state = "right" if self.right else "WRONG"
        share = f"{self.worst} at {self.share:.0%} of what is allowed"
        return f"{state}  {dtype}, {self.cells:,} cells: {', '.join(self.forms)}; {share}"


def verify(
    device: torch.device,
    units: Sequence[str] = UNITS,
    widths: Sequence[int] = WIDTHS,
    cells: Sequence[int] = CELLS,
    dtypes: Sequence[torch.dtype] = DTYPES,
) -> Iterator[Check]:
    """Run networks of two blocks until every form has run that would run on these; all widths in the first dtype."""
    seen: set[tuple[str, torch.dtype]] = set()
    for dtype, unit, features, count in product(dtypes, units, widths, cells):
        if dtype != dtypes[0] and features != widths[0]:
            continue
        for keep in (KEEP_NOTHING, KEEP_INPUTS, KEEP_GATES):
            net = ShuffleExchange(
                features, 2, unit=unit, backend="fused", recompute=keep != KEEP_GATES, graphs=False,
                device=device, dtype=dtype,
            )  # fmt: skip
            assert net.spec is not None
            shape = ((count // LENGTH,), (LENGTH,), features, dtype, device)
            plan = plan_network(*shape, net.spec, dtype, 0.0, 0.0, keep, eager=True)
            new = {name for name in form_names(plan, unit) if (name, dtype) not in seen}
            if new:
                seen |= {(name, dtype) for name in new}
                yield _check(net, sorted(new), count, gradients=keep != KEEP_NOTHING)


def form_names(plan: NetworkPlan, unit: str) -> set[str]:
    """The forms of a plan's layers, with what they were made for."""
    names: set[str] = set()
    for layer in plan.layers:
        launches, runs = layer.plan, layer.run != 1
        forms = ("layers_forward",) if runs else ("layer_forward", "switch_forward")
        found = [next((form for form in forms if getattr(launches, form, None)), f"passes of the {unit} unit")]
        if plan.keep:
            product = getattr(launches, "product_backward", None)
            found.append("product_backward" if product else f"{unit} unit, backward")
        flags = ["with a skip connection"] if layer.skip else []
        flags += ["keeping gates"] if plan.keep == KEEP_GATES else []
        for form in found:
            # Forms that every shape can have differ in nothing but numbers.
            width = [] if "unit" in form else [f"{plan.features} maps"]
            names.add(f"{form} ({', '.join([*width, *flags])})" if width or flags else form)
    return names


def _check(net: ShuffleExchange, forms: list[str], cells: int, *, gradients: bool) -> Check:
    torch.manual_seed(0)
    for name, parameter in net.named_parameters():
        if not name.endswith("weight"):
            parameter.data += 0.3 * torch.randn_like(parameter)
    weight = next(net.parameters())
    shape = (cells // LENGTH, LENGTH, net.features)
    x_BND = (torch.rand(shape, device=weight.device) * 2 - 1).to(weight.dtype)
    grad_BND = torch.randn_like(x_BND)
    options: dict[str, Any] = {"unit": net.unit, "backend": "reference", "device": weight.device}
    found = []
    for dtype in (None, weight.dtype, torch.float64):
        other = net
        if dtype is not None:
            other = ShuffleExchange(net.features, net.blocks, **options, dtype=dtype)
            other.load_state_dict(net.state_dict())
        found.append(_results(other, x_BND, grad_BND, gradients=gradients))
    layers, rounding = len(net.layers(LENGTH.bit_length() - 1)), torch.finfo(torch.float32).eps
    worst = ("", 0.0)
    for name, exact in found[2].items():
        error, eager = ((each[name].double() - exact).norm().item() for each in found[:2])
        share = error / max(FACTOR * eager, ROUNDINGS * layers**0.5 * rounding * exact.norm().item())
        if not share <= worst[1]:  # NaN as well
            worst = (name, share)
    return Check(tuple(forms), weight.dtype, cells, *worst)


def _results(net: ShuffleExchange, x_BND: Tensor, grad_BND: Tensor, *, gradients: bool) -> dict[str, Tensor]:
    """The output, and the gradients of the input and every parameter."""
    dtype = next(net.parameters()).dtype
    x_BND = x_BND.to(dtype).requires_grad_(gradients)
    with torch.set_grad_enabled(gradients):
        y_BND = net(x_BND)
    found = {"output": y_BND.detach()}
    if gradients:
        parameters = dict(net.named_parameters())
        grads = torch.autograd.grad(y_BND, [x_BND, *parameters.values()], grad_BND.to(dtype))
        found |= dict(
            zip(["gradient of the input", *(f"gradient of {name}" for name in parameters)], grads, strict=True)
        )
    return found
