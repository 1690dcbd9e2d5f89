"""Layers of one unit by the launches alone: outputs that give the candidates, and one product for several layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this platform")

from riffle.kernels import layer_plan, reference
from riffle.kernels.launches import Kept, UnitWeights, Workspace, forward_layer
from riffle.kernels.layer_backward import UnitGradients, backward_layer
from riffle.kernels.reference import SwitchWeights
from riffle.shuffle import riffle, unriffle

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if GPU else [torch.float32]
LAYERS, BATCH, CELLS, FEATURES = 3, 3, 16, 64 if GPU else 8
SHUFFLES = (1, -1, 1)


def draw(*shape: int, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(*shape)).double().to(DEVICE)


class Chain:
    """A few layers of one unit, each with a skip connection of its own or none."""

    def __init__(self, skip: bool, update_bias: float) -> None:
        torch.manual_seed(0)
        pair = 2 * FEATURES
        self.x = draw(BATCH, CELLS, FEATURES).clamp(-1, 1)
        self.weights = [draw(3 * pair, pair, scale=pair**-0.5), draw(3 * pair)]
        self.weights += [draw(2, FEATURES, pair, scale=pair**-0.5), draw(2, FEATURES)]
        self.weights[1][2 * pair :] += update_bias
        self.skips = [draw(BATCH, CELLS, FEATURES).clamp(-1, 1) for _ in range(LAYERS)] if skip else []
        self.scale, self.grad = draw(FEATURES), draw(BATCH, CELLS, FEATURES)

    def expected(self, dtype: torch.dtype) -> list[Tensor]:
        """By the reference."""
        tensors = (self.x, *self.weights, *self.skips, *([self.scale] if self.skips else []))
        leaves = [tensor.to(dtype).clone().requires_grad_() for tensor in tensors]
        y_BND, pairs = leaves[0], (BATCH, CELLS // 2, 2 * FEATURES)
        for layer in range(LAYERS):
            skip_BPE = (leaves[5 + layer] * leaves[-1]).view(pairs) if self.skips else None
            y_BPE = reference.gated_switch(y_BND.reshape(pairs), SwitchWeights(*leaves[1:5]), skip_BPE)
            y_BND = {1: unriffle, -1: riffle}[SHUFFLES[layer]](y_BPE.reshape(y_BND.shape))
        return [y_BND.detach(), *torch.autograd.grad(y_BND, leaves, self.grad.to(dtype))]

    def actual(self, dtype: torch.dtype, *, from_outputs: bool, keep: bool) -> list[Tensor]:
        """By the launches."""
        gates, gates_bias, candidates, candidates_bias = (weight.to(dtype) for weight in self.weights)
        scale_D = self.scale.float() if self.skips else None
        weights = UnitWeights(gates, gates.t(), candidates, candidates.mT, gates_bias, candidates_bias, scale_D)
        device = self.x.device
        plans = [
            layer_plan.plan_layer(
                (BATCH,), (CELLS,), (0.0,), FEATURES, dtype, device, shuffle=shuffle, swap=True, keep=keep
            )
            for shuffle in SHUFFLES
        ]
        cells, kept = [self.x.to(dtype).flatten(0, 1)], []
        skips = [skip.to(dtype).flatten(0, 1) for skip in self.skips] or [None] * LAYERS
        for plan, skip_CD in zip(plans, skips, strict=True):
            empty = cells[0].new_empty
            rows = plan.pairs if plan.keep_sums else 0
            kept.append(Kept(empty(plan.pairs, 6 * FEATURES), empty(rows, 2, FEATURES)) if keep else None)
            arguments = (plan, cells[-1], skip_CD, weights, None, Workspace(cells[0]))
            cells.append(forward_layer(*arguments, kept=kept[-1], out_CD=None))
        zeros = [torch.zeros_like(weight, dtype=torch.float32) for weight in (gates, candidates)]
        biases = torch.zeros(8 * FEATURES, device=device)
        gradients = UnitGradients(*zeros, biases, None if scale_D is None else torch.zeros_like(scale_D))
        workspace, grad_CD = Workspace(cells[0]), self.grad.to(dtype).flatten(0, 1)
        grad_skips = [torch.empty_like(grad_CD) if self.skips else None for _ in range(LAYERS)]
        backward = range(LAYERS - 1, -1, -1)
        for layer, share in zip(backward, layer_plan.share_gradients(plans, ["unit"] * LAYERS), strict=True):
            grad_x_CD = torch.empty_like(grad_CD)
            backward_layer(
                plans[layer], grad_CD, cells[layer], cells[layer + 1] if from_outputs else None, skips[layer], weights,
                None, workspace, kept=kept[layer], share=share, gradients=gradients, grad_CD=grad_x_CD,
                grad_skip_CD=grad_skips[layer],
            )  # fmt: skip
            grad_CD = grad_x_CD
        gates_bias, candidates_bias = gradients.biases.split([6 * FEATURES, 2 * FEATURES])
        results = [cells[-1], grad_CD, gradients.gates, gates_bias, gradients.candidates, candidates_bias]
        return [*results, *([*grad_skips, gradients.skip_scale] if self.skips else [])]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("layers_together", [1, 2, 3])
def test_layers_together_as_one_by_one(
    dtype: torch.dtype, skip: bool, layers_together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_plan, "GRADIENT_PAIRS", layers_together * BATCH * CELLS // 2)
    for from_outputs, keep, update_bias in ((True, False, 0.0), (True, True, 2.0), (False, False, 0.0)):
        chain = Chain(skip, update_bias)
        exact, eager = chain.expected(torch.float64), chain.expected(dtype)
        actual = chain.actual(dtype, from_outputs=from_outputs, keep=keep)
        for index, results in enumerate(zip(actual, eager, exact, strict=True)):
            result, plain, truth = (tensor.double().flatten() for tensor in results)
            allowed = max(2 * (plain - truth).norm(), 8 * torch.finfo(torch.float32).eps * truth.norm())
            assert (result - truth).norm() <= allowed, (index, from_outputs, keep)
