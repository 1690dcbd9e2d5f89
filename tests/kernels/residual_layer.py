"""One layer of the residual unit, forward and back, for tests of its kernels."""

# C = cells, D = features per cell, E = 2 * D features per pair, P = pairs
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from riffle.kernels import reference, residual
from riffle.kernels.launches import Kept, Workspace
from riffle.kernels.layer_plan import share_gradients
from riffle.kernels.reference import Norm
from riffle.kernels.residual import ResidualPlan
from riffle.shuffle import SHUFFLES

CELLS = 64
"""Of a sequence, as in training."""


class ResidualLayer:
    """A layer with random weights and cells; its hidden features are kept."""

    def __init__(self, features: int, pairs: int, *, norm: Norm, dtype: torch.dtype, device: torch.device) -> None:
        torch.manual_seed(0)
        self.features, self.pairs, self.norm, self.dtype, self.device = features, pairs, norm, dtype, device
        pair, cells = 2 * features, 2 * pairs
        assert cells % CELLS == 0, f"whole sequences of {CELLS} cells, got {pairs} pairs"
        matrices = self.draw(2 * pair, pair, scale=pair**-0.5), self.draw(pair, 2 * pair, scale=(2 * pair) ** -0.5)
        residual_E = self.draw(pair).float()
        self.weights = residual.ResidualUnitWeights(
            matrices[0], self.draw(2 * pair), matrices[1], self.draw(pair), residual_E
        )
        self.x, self.grad = self.draw(cells, features), self.draw(cells, features)
        self.out, self.grad_x = (torch.full_like(self.x, float("nan")) for _ in range(2))
        self.kept = Kept(self.x.new_full((pairs, 2 * pair), float("nan")), None)
        self.workspace = Workspace(self.x)

    def draw(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normal numbers."""
        return (scale * torch.randn(*shape, device=self.device)).to(self.dtype)

    def plan(self, shuffle: int) -> ResidualPlan:
        """By the present setting."""
        return residual.plan_residual_layer(
            (2 * self.pairs // CELLS,), (CELLS,), (0.0,), self.features, self.dtype, self.device,
            norm=self.norm, shuffle=shuffle, swap=False, keep=True, skip=False, first=False,
        )  # fmt: skip

    def forward(self, plan: ResidualPlan) -> None:
        """Fill the output and the hidden features."""
        residual.forward_residual_layer(
            plan, self.x, None, self.weights, None, self.workspace, kept=self.kept, out_CD=self.out
        )

    def backward(self, plan: ResidualPlan, layers: int = 1) -> list[Tensor]:
        """All gradients, of as many layers as share products, one after the other."""
        pair = 2 * self.features
        sizes = [2 * pair * pair, 2 * pair * pair, 3 * pair, pair]
        gradients = residual.residual_gradients(*torch.empty(sum(sizes), device=self.device).split(sizes))
        plans: list[Any] = [plan] * layers
        for share in share_gradients(plans, ["unit"] * layers):
            residual.backward_residual_layer(
                plan, self.grad, self.x, None, None, self.weights, None, self.workspace, kept=self.kept, share=share,
                gradients=gradients, grad_CD=self.grad_x,
            )  # fmt: skip
        hidden_bias, bias, residual_E = gradients.vectors.split([2 * pair, pair, pair])
        found = (gradients.hidden, hidden_bias, gradients.candidate, bias, residual_E)
        return [self.grad_x, *(gradient / layers for gradient in found)]

    def definition(self, dtype: torch.dtype, shuffle: int) -> list[Tensor]:
        """Output and gradients by plain PyTorch."""
        leaves = [tensor.to(dtype).clone().requires_grad_() for tensor in (self.x, *self.weights)]
        weights = reference.ResidualWeights(*leaves[1:])
        s_BPE = leaves[0].view(-1, CELLS // 2, 2 * self.features)
        y_BND = reference.residual_switch(s_BPE, weights, norm=self.norm).view(-1, CELLS, self.features)
        y_CD = SHUFFLES[shuffle](y_BND).reshape(self.x.shape)
        return [y_CD.detach(), *torch.autograd.grad(y_CD, leaves, self.grad.to(dtype))]
