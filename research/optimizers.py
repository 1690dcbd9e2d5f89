"""Optimisers and learning rate schedules of the authors' codes: RAdam, the Neural GPU's AdaMax, falls on plateaus.

They update all weights at once and keep all state on the device, so that a CUDA graph can hold a training step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from riffle.config import TrainConfig
from riffle.train.optim import OptimizerEntry, gradients_of, split_parameters
from riffle.train.schedule import LinearDecay


class ForeachOptimizer(Optimizer):
    """The base of AdaMax and RAdam: updates all weights at once, keeps all state on the device.

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
        clipped = torch._foreach_minimum(gradients_of(weights), list(limits))
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
        changes, squares, means = gradients_of(weights), self.buffer("square", weights), self.buffer("mean", weights)
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


def make_radam(model: nn.Module, train: TrainConfig, learning_rate: Tensor) -> Optimizer:
    """RAdam with decay of the matrices; gradients of embeddings count as sparse."""
    matrices, others = split_parameters(model)
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    decayed = {"params": matrices, "weight_decay": train.weight_decay}
    sparse = {"params": [parameter for parameter in others if id(parameter) in tables], "sparse": True}
    dense = {"params": [parameter for parameter in others if id(parameter) not in tables]}
    return RAdam([decayed, dense, sparse], learning_rate)


def make_adamax(model: nn.Module, train: TrainConfig, learning_rate: Tensor) -> Optimizer:
    """AdaMax, which has no decay."""
    if train.weight_decay:
        raise ValueError(f"train.weight_decay must be 0 for adamax, which has no decay, got {train.weight_decay}")
    return AdaMax(model.parameters(), learning_rate)


RADAM = OptimizerEntry(make_radam)
ADAMAX = OptimizerEntry(make_adamax, width_factor=float)

PLATEAU_FACTOR = 0.7
"""What the learning rate is multiplied by on a plateau."""
HIGH_LOSS = 1e6
"""Initial value of the averages: no loss is above it."""


class Plateau(LinearDecay):
    """A learning rate that is multiplied by 0.7 on a plateau of the loss, down to ``floor`` times the first rate.

    The loss is averaged over 200 steps. It is on a plateau if both of the last two averages are above the one before
    them. This is the rule of the Neural GPU's code.
    """

    period = 200
    """Steps over which a loss is averaged before it is compared with earlier averages."""
    patience = 2
    """Averages that must all be above the one before them."""
    floor = 1 / 60
    """The lowest learning rate, as a share of the first one."""
    forgets = False
    """Whether averages from before a plateau are not compared with later ones."""

    def __init__(self, base: float, train: TrainConfig, device: torch.device) -> None:
        super().__init__(base, train, device)
        self.own = torch.tensor(base, device=device)
        self.sum = torch.zeros((), dtype=torch.float64, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        # The last averages, the oldest first; at first any loss is progress.
        self.averages = torch.full((self.patience,), HIGH_LOSS, dtype=torch.float64, device=device)

    def decayed(self, step: Tensor) -> Tensor:
        return self.own

    def after_step(self, loss: Tensor) -> None:
        self.sum += loss
        self.count += 1
        over = self.count >= self.period
        recent = torch.cat([self.averages[1:], (self.sum / self.period).view(1)])
        stuck = over & (recent.amin() > self.averages[0])
        reduced = (self.own * PLATEAU_FACTOR).clamp(min=self.base * self.floor)
        self.own.copy_(torch.where(stuck, reduced, self.own))
        if self.forgets:
            recent = torch.where(stuck, HIGH_LOSS, recent)
        self.averages.copy_(torch.where(over, recent, self.averages))
        self.sum.mul_(~over)
        self.count.mul_(~over)

    def state(self) -> dict[str, Tensor]:
        return {"own": self.own, "sum": self.sum, "count": self.count, "averages": self.averages}


class ShortPlateau(Plateau):
    """The rule of the code of the preprint: averages over 100 steps, three of them above the one before, start anew."""

    period, patience, floor, forgets = 100, 3, 1 / 40, True
