"""Several groups in one call of the kernels: outputs, gradients and dropout are those of each group by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from riffle import ShuffleExchange

pytest.importorskip("triton", reason="Triton has no build for this platform")

from riffle.kernels import fused

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
DTYPES = [torch.float32, *([torch.bfloat16, torch.float16] if GPU else [])]
FEATURES = 64 if GPU else 4
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 0.1, torch.float16: 0.03}
"""Of the largest number; two ways to compute in 16 bits, neither of them exact, are held together here."""


def pair_of_networks(**options: Any) -> tuple[ShuffleExchange, ShuffleExchange]:
    """Equal ones on the fused kernels and on the reference."""
    blocks, recompute = options.pop("blocks", 1), options.pop("recompute", True)
    ours = ShuffleExchange(FEATURES, blocks, backend="fused", recompute=recompute, device=DEVICE, **options)
    theirs = ShuffleExchange(FEATURES, blocks, backend="reference", device=DEVICE, **options)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def assert_close(name: str, actual: Tensor | None, expected: Tensor | None, tolerance: float) -> None:
    if actual is None or expected is None:  # a unit that no group's schedule has
        assert actual is expected is None, name
        return
    largest = max(1e-3, expected.abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * largest, msg=lambda text: f"{name}: {text}")


def assert_same(ours: ShuffleExchange, theirs: ShuffleExchange, xs_BND: list[Tensor], apart: list[Tensor]) -> None:
    """The same results and gradients as ``apart``, which ``theirs`` computed from the same inputs."""
    tolerance = TOLERANCE[xs_BND[0].dtype]
    together = ours.forward_batches(xs_BND)
    for index, (actual, expected) in enumerate(zip(together, apart, strict=True)):
        assert_close(f"output {index}", actual, expected, tolerance)
    weights = [torch.randn_like(y_BND) for y_BND in apart]
    gradients = []
    for net, ys_BND in ((ours, together), (theirs, apart)):
        loss = sum((y_BND * weight_BND).mean() for y_BND, weight_BND in zip(ys_BND, weights, strict=True))
        gradients.append(torch.autograd.grad(loss, [*net.parameters(), *xs_BND], allow_unused=True))
    names = [*(name for name, _ in ours.named_parameters()), *(f"input {index}" for index in range(len(xs_BND)))]
    for name, actual, expected in zip(names, *gradients, strict=True):
        assert_close(name, actual, expected, tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=5)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=3),
    blocks=st.integers(1, 3),
    sharing=st.sampled_from(["block", "minimal", "full"]),
    kind=st.sampled_from([("gated", "power"), ("no-residual", "power"), ("no-benes", "power"), ("gated", "even")]),
    recompute=st.booleans(),
)
def test_together_as_apart(
    dtype: torch.dtype, shapes: list[tuple[int, int]], blocks: int, sharing: str, kind: tuple[str, str], recompute: bool
) -> None:
    options = {"unit": kind[0], "pad": kind[1], "blocks": blocks, "sharing": sharing, "recompute": recompute}
    nets = pair_of_networks(**options, dtype=dtype)
    xs_BND = [(torch.rand(batch, length, FEATURES, device=DEVICE) * 2 - 1).to(dtype) for batch, length in shapes]
    xs_BND = [x_BND.requires_grad_() for x_BND in xs_BND]
    assert_same(*nets, xs_BND, [nets[1](x_BND) for x_BND in xs_BND])


def test_at_powers_of_two_even_lengths_are_the_padded_ones_bit_for_bit() -> None:
    nets = [ShuffleExchange(FEATURES, 2, backend="fused", pad=pad, device=DEVICE) for pad in ("even", "power")]
    nets[1].load_state_dict(nets[0].state_dict())
    xs_BND = [torch.rand(3, length, FEATURES, device=DEVICE).requires_grad_() for length in (8, 3)]
    results = []
    for net in nets:
        ys_BND = net.forward_batches(xs_BND)
        loss = sum(y_BND.square().sum() for y_BND in ys_BND)
        results.append([*ys_BND, *torch.autograd.grad(loss, [*xs_BND, *net.parameters()])])
    for actual, expected in zip(*results, strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("shuffle", [1, -1, 0])
def test_every_group_has_its_own_rate_of_dropout(shuffle: int) -> None:
    features, rates = 16, [0.5, 0.1]
    unit = ShuffleExchange(features, device=DEVICE)["last"]
    packed = fused.pack(unit.weights(), None, torch.float32)
    x_CD = (torch.rand(2 * 64 + 9 * 8, features, device=DEVICE) * 2 - 1).requires_grad_()
    groups: dict[str, Any] = {"sequences": [2, 9], "cells": [64, 8], "shuffle": shuffle}
    plain_CD = fused.switch_and_shuffle(x_CD, packed, **groups)
    dropped_CD = fused.switch_and_shuffle(x_CD, packed, dropout=rates, **groups)
    parts = [part.split([128, 72]) for part in (plain_CD, dropped_CD)]
    keeping = []
    for rate, plain, dropped in zip(rates, *parts, strict=True):
        kept = dropped != 0
        assert abs(kept.float().mean().item() - (1 - rate)) < 0.05
        torch.testing.assert_close(dropped[kept], plain[kept] / (1 - rate))
        keeping.append(kept / (1 - rate))
    grad_CD = torch.randn_like(plain_CD)
    (actual,) = torch.autograd.grad(dropped_CD, x_CD, grad_CD)
    (expected,) = torch.autograd.grad(plain_CD, x_CD, grad_CD * torch.cat(keeping))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
