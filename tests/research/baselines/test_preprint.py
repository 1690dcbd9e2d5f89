"""The network of the preprint's code against a second statement of it, cell by cell, and its kernels against that."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from research.baselines.preprint import PreprintNetwork
from riffle.kernels import HAS_TRITON

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
FEATURES = 96 if GPU else 16


def make(blocks: int, **options: object) -> PreprintNetwork:
    """A network in which nothing is at its initial value."""
    torch.manual_seed(blocks)
    model = PreprintNetwork(5, 4, FEATURES, blocks, device=DEVICE, **options)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def rotated(cells_ND: Tensor, k: int, left: bool) -> Tensor:
    """A gather by the cyclic shift of every address."""
    size = len(cells_ND)
    index = [(x << 1) % size | x >> (k - 1) if left else x >> 1 | (x & 1) << (k - 1) for x in range(size)]
    return cells_ND[index]


def by_hand(model: PreprintNetwork, symbols_N: Tensor) -> Tensor:
    """The scores of one sequence: shuffles before switches, lists of what earlier blocks made, as in that code."""
    k = len(symbols_N).bit_length() - 1
    state = torch.tanh(30 * model.embedding.weight[symbols_N])

    def switch(name: str, state: Tensor, skip: Tensor | None = None) -> Tensor:
        return model.units[name](state[None], None if skip is None else skip[None])[0]

    ends = state = switch("first", state)
    middle, before = None, []
    for block in range(model.blocks):
        made = []
        for i in range(k - 2):
            state = switch(f"{block}_forward", rotated(state, k, left=True), before[i] if before else None)
            made.append(state)
        middle = state = switch(f"{block}_middle", rotated(state, k, left=True), middle)
        for i in range(k - 2):
            earlier = before[k - 2 + i] if before else None
            state = switch(f"{block}_reverse", rotated(state, k, left=False), earlier)
            made.append(state)
        ends = state = switch(f"{block}_last", rotated(state, k, left=False), ends)
        before = made
    return model.output(state)


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_outputs_and_gradients_are_those_of_the_definition(blocks: int) -> None:
    model = make(blocks, backend="reference").double()
    batches = [torch.randint(0, 5, (2, length), device=DEVICE) for length in (8, 64, 4, 16, 16)]
    together = model.forward_batches(batches)
    alone = [torch.stack([by_hand(model, row) for row in batch]) for batch in batches]
    gradients = []
    for scores in (together, alone):
        loss = sum((each * torch.arange(each.numel(), device=DEVICE).view_as(each).sin()).sum() for each in scores)
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))  # type: ignore[arg-type]
    for ours, theirs in zip(together, alone, strict=True):
        torch.testing.assert_close(ours, theirs)
    for (name, _), ours, theirs in zip(model.named_parameters(), *gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6, msg=name)


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.parametrize("dtype", [torch.float32, *([torch.bfloat16] if GPU else [])], ids=str)
@pytest.mark.parametrize("blocks", [1, 2])
def test_the_kernels_stray_at_most_twice_as_far_as_eager_pytorch(blocks: int, dtype: torch.dtype) -> None:
    batches = [torch.randint(0, 5, (32 if GPU else 2, length), device=DEVICE) for length in (4, 16, 8)]
    found = []
    for backend, kind in (("fused", dtype), ("reference", dtype), ("reference", torch.float64)):
        model = make(blocks, backend=backend).to(dtype).to(kind)
        scores = model.forward_batches(batches)
        losses = [(x.double() * torch.arange(x.numel(), device=DEVICE).view_as(x).cos()).sum() for x in scores]
        found.append([*scores, *torch.autograd.grad(losses, list(model.parameters()))])
    names = [*map(str, range(len(batches))), *(name for name, _ in model.named_parameters())]
    for name, actual, eager, exact in zip(names, *found, strict=True):
        error, eager_error = ((each.double() - exact).norm().item() for each in (actual, eager))
        floor = 32 * torch.finfo(torch.float32).eps * exact.norm().item()
        assert error <= max(2 * eager_error, floor), f"{name}: {error:.2e}, {eager_error:.2e} by eager PyTorch"


def test_noise_and_dropout_are_for_training_alone() -> None:
    symbols_BN = torch.randint(0, 5, (2, 16), device=DEVICE)
    for options in ({"noise": 0.1}, {"dropout": 0.5}):
        model = make(1, **options)
        assert not torch.equal(model.train()(symbols_BN), model(symbols_BN))
        assert torch.equal(model.eval()(symbols_BN), make(1).eval()(symbols_BN))
