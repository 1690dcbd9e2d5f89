"""Optimisers: AdamW, the Neural GPU's AdaMax, the released code's RAdam, Muon; clipping and noise of gradients.

Those written here update all weights of a group at once and keep all state on the device, so that a CUDA graph can hold
their step.
"""

# K = matrices of one shape, R = rows, C = columns
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from riffle.config import ModelConfig, TrainConfig
from riffle.nn.switch import PairUnit

WITHIN = math.erf(math.sqrt(2))
"""Of normal numbers this share lies within two standard deviations; noise of gradients is cut off there."""


def base_learning_rate(train: TrainConfig, model: ModelConfig) -> float:
    """The learning rate before warm-up and decay: lower for wider networks."""
    width = 96 / model.features
    return train.learning_rate * (width if train.optimizer == "adamax" else math.sqrt(width))


def make_optimizer(model: nn.Module, train: TrainConfig, learning_rate: Tensor) -> Optimizer:
    """The optimiser of the model's parameters; the caller changes the tensor ``learning_rate`` in place."""
    if train.optimizer == "adamax":
        return AdaMax(model.parameters(), learning_rate)
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in model.named_parameters():
        # The biases of both candidates are stacked in one parameter of two dimensions, which is no matrix.
        is_matrix = parameter.dim() >= 2 and not name.endswith("bias") and id(parameter) not in embeddings
        (matrices if is_matrix else others).append(parameter)
    if train.optimizer == "muon":
        switches = {id(p) for unit in model.modules() if isinstance(unit, PairUnit) for p in unit.parameters()}
        of_switches = [matrix for matrix in matrices if id(matrix) in switches]
        if not of_switches:
            raise ValueError("train.optimizer=muon is for matrices of switches, and this model has none: take adamw")
        rest = [matrix for matrix in matrices if id(matrix) not in switches]
        return Muon(of_switches, [*rest, *others], learning_rate, weight_decay=train.weight_decay)
    decayed = {"params": matrices, "weight_decay": train.weight_decay}
    if train.optimizer == "radam":
        sparse = {"params": [parameter for parameter in others if id(parameter) in embeddings], "sparse": True}
        dense = {"params": [parameter for parameter in others if id(parameter) not in embeddings]}
        return RAdam([decayed, dense, sparse], learning_rate)
    groups = [decayed, {"params": others, "weight_decay": 0.0}]
    on_gpu = learning_rate.is_cuda
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.999), eps=1e-5, fused=True, capturable=on_gpu)


def gradients(model: nn.Module) -> list[Tensor]:
    """The gradients of all parameters that have one."""
    return _gradients(model.parameters())


def _gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


@torch.no_grad()
def clip_and_perturb(model: nn.Module, train: TrainConfig, learning_rate: Tensor, generator: torch.Generator) -> None:
    """Clip the gradients by their global norm (``train.clip``) and add noise to them (``train.gradient_noise``)."""
    if train.clip:
        nn.utils.clip_grad_norm_(model.parameters(), train.clip)
    if train.gradient_noise:
        clipped = gradients(model)
        sizes = [gradient.numel() for gradient in clipped]
        # From the generator that is equal on all ranks: noise of their own would make their weights differ. Not by
        # nn.init.trunc_normal_, which in torch 2.13 draws until the host sees that all numbers lie within.
        noise = clipped[0].new_empty(sum(sizes)).uniform_(-WITHIN, WITHIN, generator=generator).erfinv_()
        parts = (noise * (learning_rate * (train.gradient_noise * math.sqrt(2)))).split(sizes)
        torch._foreach_add_(clipped, [part.view_as(each) for part, each in zip(parts, clipped, strict=True)])


class ForeachOptimizer(Optimizer):
    """The base of AdaMax and RAdam: updates all weights at once and reads no number on the host.

    The learning rate is a tensor that the caller changes in place, the same for all groups of weights.
    """

    buffers: ClassVar[tuple[str, ...]]
    """Names of the state tensors of a weight, in its shape and initially 0; a ``count`` of steps is kept besides."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all weights that have a gradient."""
        assert closure is None, "a closure is for optimisers that evaluate the loss themselves"
        weights = [weight for group in self.param_groups for weight in group["params"] if weight.grad is not None]
        for weight in weights:
            if not self.state[weight]:
                buffers = {name: torch.zeros_like(weight) for name in self.buffers}
                self.state[weight] = {"count": torch.zeros((), device=weight.device), **buffers}
        if weights:
            self.update(weights, self.state[weights[0]]["count"], self.param_groups[0]["lr"])
            torch._foreach_add_(self.buffer("count", weights), 1)

    def buffer(self, name: str, weights: list[Tensor]) -> list[Tensor]:
        """A state tensor of each weight."""
        return [self.state[weight][name] for weight in weights]

    def update(self, weights: list[Tensor], count: Tensor, rate: Tensor) -> None:
        """Update all weights, after ``count`` earlier steps."""
        raise NotImplementedError


ADAMAX_BETA, ADAMAX_EPSILON = 0.9, 1e-8
"""Decay of the mean gradient, and what is added to the denominator."""
ADAMAX_CLIP, ADAMAX_CLIP_FLOOR = 1.2, 1e-4
"""An element of a gradient is clipped to this multiple of its decaying maximum, plus a constant."""
NORM_DECAY, MIN_NORM_DECAY, NORM_DECAY_HALF_LIFE = 0.01, 0.0005, 2000
"""Relative decay of the maximum per step at first, its smallest value, and the steps after which it has halved."""


class AdaMax(ForeachOptimizer):
    r"""AdaMax of the Neural GPU's authors: the mean gradient divided by a decaying maximum of its magnitude.

    .. math::
        \begin{aligned}
            g'_t &= \mathrm{clip}(g_t, \pm(1.2\, v_{t-1} + 10^{-4})), \qquad m_t = 0.9\, m_{t-1} + 0.1\, g'_t \\
            v_t &= \max(\beta_t v_{t-1}, |g'_t|), \qquad
            w_t = w_{t-1} - \eta\, m_t / (v_t + 10^{-8}), \qquad
            \beta_t = 1 - \max(0.0005, 0.01 \cdot 2^{-t / 2000})
        \end{aligned}

    :class:`torch.optim.Adamax` does not clip, has a constant decay, and corrects the bias of the mean.
    """

    buffers = ("mean", "norm")

    def __init__(self, params: Iterable[Any], lr: Tensor) -> None:
        super().__init__(params, {"lr": lr})

    def update(self, weights: list[Tensor], count: Tensor, rate: Tensor) -> None:
        means, norms = self.buffer("mean", weights), self.buffer("norm", weights)
        keep = 1 - (NORM_DECAY * 0.5 ** (count / NORM_DECAY_HALF_LIFE)).clamp(min=MIN_NORM_DECAY)

        limits = torch._foreach_mul(norms, ADAMAX_CLIP)
        torch._foreach_add_(limits, ADAMAX_CLIP_FLOOR)
        clipped = torch._foreach_minimum(_gradients(weights), list(limits))
        torch._foreach_neg_(limits)
        torch._foreach_maximum_(clipped, list(limits))
        torch._foreach_mul_(means, ADAMAX_BETA)
        torch._foreach_add_(means, clipped, alpha=1 - ADAMAX_BETA)
        torch._foreach_mul_(norms, keep)
        torch._foreach_abs_(clipped)
        torch._foreach_maximum_(norms, clipped)
        changes = torch._foreach_div(means, torch._foreach_add(norms, ADAMAX_EPSILON))
        torch._foreach_mul_(changes, rate)
        torch._foreach_sub_(weights, changes)


RADAM_BETA, RADAM_BETA_SQUARE, RADAM_EPSILON = 0.9, 0.999, 1e-5
"""Decay of the mean gradient and of the mean square, and what is added to the denominator."""
RADAM_RHO = 2 / (1 - RADAM_BETA_SQUARE) - 1
"""Steps that the mean square finally averages over, :math:`\\rho`."""
RADAM_MIN_RHO = 5
"""Steps that it must average over for its variance to be finite."""


class RAdam(ForeachOptimizer):
    r"""RAdam of the paper's released code: rectified Adam that normalises gradients before it averages them (LaProp).

    .. math::
        \begin{aligned}
            v_t &= 0.999\, v_{t-1} + 0.001\, g_t^2, \qquad
            m_t = 0.9\, m_{t-1} + 0.1\, \frac{g_t}{\sqrt{v_t / (1 - 0.999^t)} + 10^{-5}}, \\
            w_t &= (1 - \eta \lambda)\, w_{t-1} - \eta\, r_t\, \frac{m_t}{1 - 0.9^t}, \qquad
            \rho_t = \rho - \frac{2 t\, 0.999^t}{1 - 0.999^t}, \qquad
            r_t = \sqrt{\frac{(\rho_t - 4) (\rho_t - 2)\, \rho}{(\rho - 4) (\rho - 2)\, \rho_t}}
        \end{aligned}

    where :math:`\rho = 1999`, and :math:`r_t = 1` in the first five steps, in which :math:`\rho_t < 5`. The factor
    :math:`r_t` is a warm-up: 0.2 after 100 steps, 0.65 after 1,000. In a group with ``sparse`` gradients are averaged
    first and then normalised, except in the first five steps, as the released code does for its embedding.
    :class:`torch.optim.RAdam` normalises last for all weights.
    """

    buffers = ("mean", "square")

    def __init__(self, params: Iterable[Any], lr: Tensor) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0, "sparse": False})

    def update(self, weights: list[Tensor], count: Tensor, rate: Tensor) -> None:
        count = count + 1
        power = RADAM_BETA_SQUARE**count
        rho = RADAM_RHO - 2 * count * power / (1 - power)
        reliable = rho >= RADAM_MIN_RHO
        ratio = (rho - 4) * (rho - 2) * (RADAM_RHO / ((RADAM_RHO - 4) * (RADAM_RHO - 2))) / rho
        factor = torch.where(reliable, ratio.clamp(min=0).sqrt(), 1.0) / (1 - RADAM_BETA**count)

        sparse = {weight for group in self.param_groups if group["sparse"] for weight in group["params"]}
        weights = sorted(weights, key=lambda weight: weight in sparse)
        normalised = sum(weight not in sparse for weight in weights)
        changes, squares, means = _gradients(weights), self.buffer("square", weights), self.buffer("mean", weights)
        torch._foreach_mul_(squares, RADAM_BETA_SQUARE)
        torch._foreach_addcmul_(squares, changes, changes, 1 - RADAM_BETA_SQUARE)
        scales = torch._foreach_div(squares, 1 - power)
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, RADAM_EPSILON)
        if normalised:
            changes[:normalised] = torch._foreach_div(changes[:normalised], scales[:normalised])
        torch._foreach_lerp_(means, changes, 1 - RADAM_BETA)
        of_sparse = zip(means[normalised:], scales[normalised:], strict=True)
        directions = means[:normalised] + [torch.where(reliable, mean / scale, mean) for mean, scale in of_sparse]
        for group in self.param_groups:
            decayed = [weight for weight in group["params"] if weight.grad is not None]
            if group["weight_decay"] and decayed:
                torch._foreach_mul_(decayed, 1 - rate * group["weight_decay"])
        torch._foreach_sub_(weights, torch._foreach_mul(directions, rate * factor))


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
        changes = _gradients(weights)
        torch._foreach_lerp_(means, changes, 1 - MUON_MOMENTUM)
        directions = [_matrices(each) for each in torch._foreach_lerp(changes, means, MUON_MOMENTUM)]
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


def _matrices(weight: Tensor) -> Tensor:
    """The square matrices that are stacked in a weight, ``[K, R, C]``, or the weight as one matrix."""
    rows_RC = weight.flatten(0, -2)
    rows, columns = rows_RC.shape
    return rows_RC.unflatten(0, (-1, columns)) if rows % columns == 0 else rows_RC[None]
