"""Adam with decoupled decay of the matrices, RAdam, Muon or AdaMax; what is done to gradients before."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from riffle.config import ModelConfig, TrainConfig
from riffle.nn.switch import PairUnit
from riffle.train.adamax import AdaMax
from riffle.train.muon import Muon
from riffle.train.radam import RAdam


def base_learning_rate(train: TrainConfig, model: ModelConfig) -> float:
    """The learning rate before any fall: wider networks take smaller ones."""
    width = 96 / model.features
    return train.learning_rate * (width if train.optimizer == "adamax" else math.sqrt(width))


def make_optimizer(model: nn.Module, train: TrainConfig, learning_rate: Tensor) -> torch.optim.Optimizer:
    """The optimiser of the model's parameters; ``learning_rate`` is a tensor that the caller changes in place."""
    if train.optimizer == "adamax":
        return AdaMax(model.parameters(), learning_rate)
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in model.named_parameters():
        # The biases of both candidates are stacked, so two dimensions alone make no matrix.
        is_matrix = parameter.dim() >= 2 and not name.endswith("bias") and id(parameter) not in embeddings
        (matrices if is_matrix else others).append(parameter)
    if train.optimizer == "muon":
        switches = {id(p) for unit in model.modules() if isinstance(unit, PairUnit) for p in unit.parameters()}
        turned = [matrix for matrix in matrices if id(matrix) in switches]
        if not turned:
            raise ValueError("train.optimizer=muon is for matrices of switches, and this model has none: take adamw")
        rest = [matrix for matrix in matrices if id(matrix) not in switches]
        return Muon(turned, [*rest, *others], learning_rate, weight_decay=train.weight_decay)
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": train.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    if train.optimizer == "radam":
        looked_up = [parameter for parameter in others if id(parameter) in embeddings]
        groups[1]["params"] = [parameter for parameter in others if id(parameter) not in embeddings]
        return RAdam([*groups, {"params": looked_up, "sparse": True}], learning_rate)
    on_gpu = learning_rate.is_cuda
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.999), eps=1e-5, fused=True, capturable=on_gpu)


def gradients(model: nn.Module) -> list[Tensor]:
    """The gradients of all parameters that have one."""
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@torch.no_grad()
def shape_gradients(model: nn.Module, train: TrainConfig, learning_rate: Tensor, generator: torch.Generator) -> None:
    """Clip the gradients by their norm and add noise to them, as far as asked for."""
    if train.clip:
        nn.utils.clip_grad_norm_(model.parameters(), train.clip)
    if train.gradient_noise:
        shaped = gradients(model)
        # By the generator that all ranks share: with noise of their own they would part.
        noise = [nn.init.trunc_normal_(torch.empty_like(gradient), generator=generator) for gradient in shaped]
        torch._foreach_mul_(noise, learning_rate * train.gradient_noise)
        torch._foreach_add_(shaped, noise)
