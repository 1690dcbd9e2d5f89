"""Muon: every matrix of a switch is moved along all of its directions alike; everything else as by Adam."""

# K = matrices of a size, R = rows, C = columns
from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

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
