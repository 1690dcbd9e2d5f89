"""Adam with decoupled decay of the matrices, RAdam, Muon or AdaMax; what is done to gradients before.

What hand-written optimisers have in common: all weights of a group at once, all state on their device.

AdaMax as the Neural GPU's authors trained with it: gradients clipped by their own past, a decay rate that slows.

RAdam as the paper's released code has it: gradients are divided by their size before they are averaged.

Muon: every matrix of a switch is moved along all of its directions alike; everything else as by Adam.
"""

# K = matrices of a size, R = rows, C = columns
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from riffle.config import ModelConfig, TrainConfig
from riffle.nn.switch import PairUnit


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


class ForeachOptimizer(Optimizer):
    """An optimiser whose step can be part of a CUDA graph: no number of it is ever read by the host."""

    buffers: ClassVar[tuple[str, ...]]
    """Names of what is kept for each weight, in its shape and 0 at first, beside a ``count`` of steps."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make one step from the gradients that are there."""
        assert closure is None, "a closure is for optimisers that evaluate the loss themselves"
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            for weight in weights:
                if not self.state[weight]:
                    kept = {name: torch.zeros_like(weight) for name in self.buffers}
                    self.state[weight] = {"count": torch.zeros((), device=weight.device), **kept}
            if weights:
                self.move(weights, [weight.grad for weight in weights], group)
                torch._foreach_add_(self.kept("count", weights), 1)

    def kept(self, name: str, weights: list[Tensor]) -> list[Tensor]:
        """A buffer of each weight."""
        return [self.state[weight][name] for weight in weights]

    def move(self, weights: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        """Change the weights, which have made ``count`` steps before this one."""
        raise NotImplementedError


ADAMAX_BETA = 0.9
"""Decay of the mean of gradients."""
ADAMAX_EPSILON = 1e-8
CLIP, CLIP_FLOOR = 1.2, 1e-4
"""An element of a gradient is clipped to this many times its largest size so far, and a little."""
FAST, SLOW, HALVING = 0.01, 0.0005, 2000
"""The norm decays by the first per step, by half of that after as many steps, and never by less than the second."""


class AdaMax(ForeachOptimizer):
    r"""Divide a running mean of gradients by a decaying maximum of their sizes, element by element.

    .. math::
        \begin{aligned}
            g'_t &= \mathrm{clip}(g_t, \pm(1.2\, v_{t-1} + 10^{-4})), \qquad m_t = 0.9\, m_{t-1} + 0.1\, g'_t \\
            v_t &= \max(\beta_t v_{t-1}, |g'_t|), \qquad
            w_t = w_{t-1} - \eta\, m_t / (v_t + 10^{-8}), \qquad
            \beta_t = 1 - \max(0.0005, 0.01 \cdot 2^{-t / 2000})
        \end{aligned}

    :class:`torch.optim.Adamax` neither clips nor changes its decay, and corrects a bias that this one leaves.

    Args:
        params: The parameters, or groups of them.
        lr: The learning rate, a tensor that the caller changes in place.

    Examples::

        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = AdaMax([weight], lr=torch.tensor(0.1))
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight.data
        tensor([0.9900, 0.9900])
    """

    buffers = ("mean", "norm")

    def __init__(self, params: Iterable[Any], lr: Tensor) -> None:
        super().__init__(params, {"lr": lr})

    def move(self, weights: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        count = self.state[weights[0]]["count"]
        means, norms = self.kept("mean", weights), self.kept("norm", weights)
        keep = 1 - (FAST * 0.5 ** (count / HALVING)).clamp(min=SLOW)

        limits = torch._foreach_mul(norms, CLIP)
        torch._foreach_add_(limits, CLIP_FLOOR)
        clipped = torch._foreach_minimum(gradients, list(limits))
        torch._foreach_neg_(limits)
        torch._foreach_maximum_(clipped, list(limits))
        torch._foreach_mul_(means, ADAMAX_BETA)
        torch._foreach_add_(means, clipped, alpha=1 - ADAMAX_BETA)
        torch._foreach_mul_(norms, keep)
        torch._foreach_abs_(clipped)
        torch._foreach_maximum_(norms, clipped)
        changes = torch._foreach_div(means, torch._foreach_add(norms, ADAMAX_EPSILON))
        torch._foreach_mul_(changes, group["lr"])
        torch._foreach_sub_(weights, changes)


RADAM_BETA, RADAM_BETA_SQUARE = 0.9, 0.999
"""Decay of the mean, and of the mean square."""
RADAM_EPSILON = 1e-5
LONGEST = 2 / (1 - RADAM_BETA_SQUARE) - 1
"""Over how many steps the mean square averages in the end."""
ENOUGH = 5
"""Over how many it has to, for its variance to be finite."""


class RAdam(ForeachOptimizer):
    r"""Adam whose steps grow as the mean square of the gradients becomes reliable, in the order of LaProp.

    .. math::
        \begin{aligned}
            v_t &= 0.999\, v_{t-1} + 0.001\, g_t^2, \qquad
            m_t = 0.9\, m_{t-1} + 0.1\, \frac{g_t}{\sqrt{v_t / (1 - 0.999^t)} + 10^{-5}}, \\
            w_t &= (1 - \eta \lambda)\, w_{t-1} - \eta\, r_t\, \frac{m_t}{1 - 0.9^t}, \qquad
            \rho_t = \rho - \frac{2 t\, 0.999^t}{1 - 0.999^t}, \qquad
            r_t = \sqrt{\frac{(\rho_t - 4) (\rho_t - 2)\, \rho}{(\rho - 4) (\rho - 2)\, \rho_t}}
        \end{aligned}

    where :math:`\rho = 1999`, and :math:`r_t = 1` in the first five steps, in which :math:`\rho_t < 5`. The factor is
    0.2 after 100 steps and 0.65 after 1,000: a slow start. In a group with ``sparse`` gradients are averaged first and
    divided then, in the first five steps not at all, as the released code treats its embedding.
    :class:`torch.optim.RAdam` divides all of them last.

    Args:
        params: Groups of parameters with ``weight_decay`` and ``sparse``.
        lr: The learning rate, a tensor that the caller changes in place.

    Examples::

        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = RAdam([weight], lr=torch.tensor(0.1))
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight.data
        tensor([0.9000, 0.9000])
    """

    buffers = ("mean", "square")

    def __init__(self, params: Iterable[Any], lr: Tensor) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0, "sparse": False})

    def move(self, weights: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        count = self.state[weights[0]]["count"] + 1
        means, squares = self.kept("mean", weights), self.kept("square", weights)
        power = RADAM_BETA_SQUARE**count
        length = LONGEST - 2 * count * power / (1 - power)
        reliable = length >= ENOUGH
        ratio = (length - 4) * (length - 2) * LONGEST / ((LONGEST - 4) * (LONGEST - 2) * length)
        factor = torch.where(reliable, ratio.clamp(min=0).sqrt(), 1.0) / (1 - RADAM_BETA**count)

        torch._foreach_mul_(squares, RADAM_BETA_SQUARE)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - RADAM_BETA_SQUARE)
        sizes = torch._foreach_div(squares, 1 - power)
        torch._foreach_sqrt_(sizes)
        torch._foreach_add_(sizes, RADAM_EPSILON)
        if group["sparse"]:
            torch._foreach_lerp_(means, gradients, 1 - RADAM_BETA)
            directions = [torch.where(reliable, mean / size, mean) for mean, size in zip(means, sizes, strict=True)]
        else:
            torch._foreach_lerp_(means, torch._foreach_div(gradients, sizes), 1 - RADAM_BETA)
            directions = means
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_sub_(weights, torch._foreach_mul(directions, group["lr"] * factor))


MOMENTUM = 0.95
SIZE = 0.2
"""Root mean square of a change's entries at a learning rate of 1: about that of Adam's, so that rates carry over."""
TURNS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial that drives singular values to about 1, from any between 0 and 1."""


class Muon(torch.optim.AdamW):
    r"""Replace the mean gradient of each matrix by the orthogonal matrix that is nearest to it.

    .. math::
        m_t = \mu\, m_{t-1} + (1 - \mu)\, g_t, \qquad
        w_t = (1 - \eta \lambda)\, w_{t-1} - 0.2\, \eta \sqrt{c}\; U V^\top, \qquad
        U \Sigma V^\top = (1 - \mu)\, g_t + \mu\, m_t

    where :math:`c` is the longer side of the matrix (Jordan et al., 2024). Each reset gate, the update gate and the
    pair of candidates are a matrix of their own, however weights are stacked. :class:`torch.optim.Muon` takes one plain
    matrix at a time and a rate that is a number, so that no CUDA graph can hold its step; this one turns all matrices
    of a size at once.

    Args:
        matrices: The matrices.
        others: The other parameters, for Adam.
        lr: The learning rate of both, a tensor that the caller changes in place.
        weight_decay: Decay of the matrices.

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
        """Make one step from the gradients that are there."""
        assert closure is None, "a closure is for optimisers that evaluate the loss themselves"
        groups = self.param_groups
        turned, others = groups
        weights = [weight for weight in turned["params"] if weight.grad is not None]
        if weights:
            self._turn(weights, turned["lr"], turned["weight_decay"])
        try:
            self.param_groups = [others]  # Adam is to leave the matrices alone
            super().step()
        finally:
            self.param_groups = groups

    def _turn(self, weights: list[Tensor], rate: Tensor, decay: float) -> None:
        for weight in weights:
            if not self.state[weight]:
                # Adam wants to find a count of steps wherever there is state.
                self.state[weight] = {"mean": torch.zeros_like(weight), "step": torch.zeros((), device=weight.device)}
        means = [self.state[weight]["mean"] for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        torch._foreach_lerp_(means, gradients, 1 - MOMENTUM)
        ahead = [_matrices(each) for each in torch._foreach_lerp(gradients, means, MOMENTUM)]
        sizes = {each.shape[1:] for each in ahead}
        for size in sorted(sizes):
            places = [place for place, each in enumerate(ahead) if each.shape[1:] == size]
            turned_KRC = orthogonal(torch.cat([ahead[place] for place in places])) * (SIZE * max(size) ** 0.5)
            counts = [len(ahead[place]) for place in places]
            for place, change_KRC in zip(places, turned_KRC.split(counts), strict=True):
                weights[place].mul_(1 - rate * decay).sub_(rate * change_KRC.view_as(weights[place]))


def orthogonal(x_KRC: Tensor) -> Tensor:
    """About the nearest orthogonal matrices: singular vectors stay, singular values come near 1, if not all but 0."""
    tall = x_KRC.shape[-2] > x_KRC.shape[-1]
    x_KRC = x_KRC.mT if tall else x_KRC
    norm_K11 = torch.linalg.matrix_norm(x_KRC, keepdim=True).clamp(min=1e-30)
    turned_KRC = (x_KRC / norm_K11).to(torch.bfloat16 if x_KRC.is_cuda else x_KRC.dtype)
    a, b, c = COEFFICIENTS
    for _ in range(TURNS):
        square_KRR = turned_KRC @ turned_KRC.mT
        mix_KRR = torch.baddbmm(square_KRR, square_KRR, square_KRR, beta=b, alpha=c)
        turned_KRC = torch.baddbmm(turned_KRC, mix_KRR, turned_KRC, beta=a)
    return (turned_KRC.mT if tall else turned_KRC).to(x_KRC.dtype)


def _matrices(weight: Tensor) -> Tensor:
    """The square matrices that are stacked in a weight, ``[K, R, C]``, or the weight as one matrix."""
    rows_RC = weight.flatten(0, -2)
    rows, columns = rows_RC.shape
    return rows_RC.unflatten(0, (-1, columns)) if rows % columns == 0 else rows_RC[None]
