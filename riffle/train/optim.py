"""Optimisers: AdamW and Muon; clipping and noise of gradients.

Muon updates all weights of a group at once and keeps all state on the device, so that a CUDA graph can hold its step.
"""

# K = matrices of one shape, R = rows, C = columns
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from riffle.config import BaseModelConfig, TrainConfig
from riffle.nn.switch import PairUnit
from riffle.registry import Registry

WITHIN = math.erf(math.sqrt(2))
"""The share of normally distributed numbers within two standard deviations; noise of gradients is cut off there."""


class OptimizerEntry(NamedTuple):
    """An optimiser of the registry."""

    make: Callable[[nn.Module, TrainConfig, Tensor], Optimizer]
    """Makes it for a model; the caller changes the tensor of the learning rate in place."""
    width_factor: Callable[[float], float] = math.sqrt
    """What the learning rate is multiplied by, from 96 / features."""


def base_learning_rate(train: TrainConfig, model: BaseModelConfig) -> float:
    """The learning rate before warm-up and decay: lower for wider networks."""
    return train.learning_rate * OPTIMIZERS[train.optimizer].width_factor(96 / model.features)


def make_optimizer(model: nn.Module, train: TrainConfig, learning_rate: Tensor) -> Optimizer:
    """The optimiser of the model's parameters; the caller changes the tensor ``learning_rate`` in place."""
    return OPTIMIZERS[train.optimizer].make(model, train, learning_rate)


def split_parameters(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The matrices of a model, which are decayed, and its other parameters: embeddings and vectors."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in model.named_parameters():
        # The biases of both candidates are stacked in one parameter of two dimensions, which is no matrix.
        is_matrix = parameter.dim() >= 2 and not name.endswith("bias") and id(parameter) not in tables
        (matrices if is_matrix else others).append(parameter)
    return matrices, others


def adamw(model: nn.Module, train: TrainConfig, learning_rate: Tensor) -> Optimizer:
    """AdamW with decay of the matrices."""
    matrices, others = split_parameters(model)
    groups = [{"params": matrices, "weight_decay": train.weight_decay}, {"params": others, "weight_decay": 0.0}]
    on_gpu = learning_rate.is_cuda
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.999), eps=1e-5, fused=True, capturable=on_gpu)


def muon(model: nn.Module, train: TrainConfig, learning_rate: Tensor) -> Optimizer:
    """Muon for the matrices of switches, Adam for all other parameters."""
    matrices, others = split_parameters(model)
    switches = {id(p) for unit in model.modules() if isinstance(unit, PairUnit) for p in unit.parameters()}
    of_switches = [matrix for matrix in matrices if id(matrix) in switches]
    if not of_switches:
        raise ValueError("train.optimizer=muon is for matrices of switches, and this model has none: take adamw")
    rest = [matrix for matrix in matrices if id(matrix) not in switches]
    return Muon(of_switches, [*rest, *others], learning_rate, weight_decay=train.weight_decay)


OPTIMIZERS = Registry("optimizer", {"adamw": OptimizerEntry(adamw), "muon": OptimizerEntry(muon)})
"""The optimisers of ``train.optimizer``, by name."""


def gradients_of(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The gradients of the parameters that have one."""
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


@torch.no_grad()
def clip_and_perturb(model: nn.Module, train: TrainConfig, learning_rate: Tensor, generator: torch.Generator) -> None:
    """Clip the gradients by their global norm (``train.clip``) and add noise to them (``train.gradient_noise``)."""
    if train.clip:
        nn.utils.clip_grad_norm_(model.parameters(), train.clip)
    if train.gradient_noise:
        clipped = gradients_of(model.parameters())
        sizes = [gradient.numel() for gradient in clipped]
        # All ranks draw the same noise, so that their weights stay equal. nn.init.trunc_normal_ would wait for the
        # device: in torch 2.13 it draws again until the host sees that all numbers are within bounds.
        noise = clipped[0].new_empty(sum(sizes)).uniform_(-WITHIN, WITHIN, generator=generator).erfinv_()
        parts = (noise * (learning_rate * (train.gradient_noise * math.sqrt(2)))).split(sizes)
        torch._foreach_add_(clipped, [part.view_as(each) for part, each in zip(parts, clipped, strict=True)])


MUON_MOMENTUM = 0.95
MUON_RMS = 0.2
"""Root mean square of an update at learning rate 1: about that of Adam, so that the same learning rates suit both."""
NEWTON_SCHULZ_STEPS = 5
NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The odd polynomial of degree 5 that moves singular values between 0 and 1 close to 1."""


class Muon(torch.optim.AdamW):
    r"""Muon: replace the mean gradient of each matrix by the nearest orthogonal matrix; Adam for all other parameters.

    .. math::
        m_t = \mu\, m_{t-1} + (1 - \mu)\, g_t, \qquad
        w_t = (1 - \eta \lambda)\, w_{t-1} - 0.2\, \eta \sqrt{c}\; U V^\top, \qquad
        U \Sigma V^\top = (1 - \mu)\, g_t + \mu\, m_t

    where :math:`c` is the longer side of the matrix (Jordan et al., 2024). Each reset gate, the update gate and the
    pair of candidates count as separate matrices, although weights are stacked. :class:`torch.optim.Muon` takes one
    plain matrix at a time and a learning rate that is a number, so that no CUDA graph can hold its step; this one
    orthogonalises all matrices of one shape at once.

    Examples::

        >>> matrix = torch.nn.Parameter(torch.zeros(2, 2))
        >>> optimizer = Muon([matrix], [], lr=torch.tensor(0.1), weight_decay=0.0)
        >>> (matrix * torch.tensor([[5.0, 0.0], [0.0, 5.0]])).sum().backward()
        >>> optimizer.step()
        >>> matrix.data.round(decimals=2)
        tensor([[-0.0300,  0.0000],
                [ 0.0000, -0.0300]])
    """

    def __init__(
        self, matrices: Iterable[Tensor], others: Iterable[Tensor], lr: Tensor, *, weight_decay: float
    ) -> None:
        groups = [
            {"params": list(matrices), "weight_decay": weight_decay},
            {"params": list(others), "weight_decay": 0.0},
        ]
        super().__init__(groups, lr=lr, betas=(0.9, 0.999), eps=1e-5, fused=True, capturable=lr.is_cuda)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all weights that have a gradient."""
        assert closure is None, "a closure is for optimisers that evaluate the loss themselves"
        groups = self.param_groups
        matrices, others = groups
        weights = [weight for weight in matrices["params"] if weight.grad is not None]
        if weights:
            self._update_matrices(weights, matrices["lr"], matrices["weight_decay"])
        try:
            self.param_groups = [others]  # Adam updates the others only
            super().step()
        finally:
            self.param_groups = groups

    def _update_matrices(self, weights: list[Tensor], rate: Tensor, decay: float) -> None:
        for weight in weights:
            if not self.state[weight]:
                # Adam expects a step count wherever there is state.
                self.state[weight] = {"mean": torch.zeros_like(weight), "step": torch.zeros((), device=weight.device)}
        means = [self.state[weight]["mean"] for weight in weights]
        changes = gradients_of(weights)
        torch._foreach_lerp_(means, changes, 1 - MUON_MOMENTUM)
        directions = [stacked_matrices(each) for each in torch._foreach_lerp(changes, means, MUON_MOMENTUM)]
        for shape in sorted({each.shape[1:] for each in directions}):
            indices = [index for index, each in enumerate(directions) if each.shape[1:] == shape]
            stacked_KRC = torch.cat([directions[index] for index in indices])
            updates_KRC = orthogonalise(stacked_KRC) * (MUON_RMS * max(shape) ** 0.5)
            counts = [len(directions[index]) for index in indices]
            for index, update_KRC in zip(indices, updates_KRC.split(counts), strict=True):
                weights[index].mul_(1 - rate * decay).sub_(rate * update_KRC.view_as(weights[index]))


def orthogonalise(x_KRC: Tensor) -> Tensor:
    """The approximately nearest orthogonal matrices by Newton-Schulz: singular values, unless almost 0, go near 1."""
    tall = x_KRC.shape[-2] > x_KRC.shape[-1]
    x_KRC = x_KRC.mT if tall else x_KRC
    norm_K11 = torch.linalg.matrix_norm(x_KRC, keepdim=True).clamp(min=1e-30)
    y_KRC = (x_KRC / norm_K11).to(torch.bfloat16 if x_KRC.is_cuda else x_KRC.dtype)
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    for _ in range(NEWTON_SCHULZ_STEPS):
        square_KRR = y_KRC @ y_KRC.mT
        factor_KRR = torch.baddbmm(square_KRR, square_KRR, square_KRR, beta=b, alpha=c)
        y_KRC = torch.baddbmm(y_KRC, factor_KRR, y_KRC, beta=a)
    return (y_KRC.mT if tall else y_KRC).to(x_KRC.dtype)


def stacked_matrices(weight: Tensor) -> Tensor:
    """The square matrices that are stacked in a weight, ``[K, R, C]``, or the weight as one matrix."""
    rows_RC = weight.flatten(0, -2)
    rows, columns = rows_RC.shape
    return rows_RC.unflatten(0, (-1, columns)) if rows % columns == 0 else rows_RC[None]
