"""Adam with decoupled decay of the matrices and a learning rate that falls linearly to zero."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from riffle.config import ModelConfig, TrainConfig


def base_learning_rate(train: TrainConfig, model: ModelConfig) -> float:
    """The learning rate of the first step: wider networks take smaller ones."""
    return train.learning_rate * math.sqrt(96 / model.features)


def make_optimizer(model: nn.Module, train: TrainConfig, learning_rate: Tensor) -> torch.optim.Optimizer:
    """Adam over the model's parameters; ``learning_rate`` is a tensor that the caller changes in place."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in model.named_parameters():
        # The biases of both candidates are stacked, so two dimensions alone make no matrix.
        is_matrix = parameter.dim() >= 2 and not name.endswith("bias") and id(parameter) not in embeddings
        (matrices if is_matrix else others).append(parameter)
    groups = [{"params": matrices, "weight_decay": train.weight_decay}, {"params": others, "weight_decay": 0.0}]
    on_gpu = learning_rate.is_cuda
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.999), eps=1e-5, fused=True, capturable=on_gpu)
