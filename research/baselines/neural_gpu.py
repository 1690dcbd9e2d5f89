"""The Neural GPU with diagonal gates (DNGPU): n steps of one convolutional GRU over n cells.

Training adds a cost of saturation, whose weight is adapted as training goes on.
"""

# B = batch, N = length, D = feature maps per cell, C = classes
# L = cells of all rows of all batches, concatenated, each row followed by one cell that stays zero
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.kernels import Backend, resolve
from riffle.models.base import SymbolModel
from riffle.tasks.rows import columns, row_lengths

LIMIT = 0.9
"""Arguments outside ±0.9 are saturated."""
INITIAL_WEIGHT = 1e-3
WEIGHT_RANGE = (1e-20, 1e-3)
"""The weight of the cost is clipped to this range."""
PERIOD = 200
"""Steps after which the weight is adapted."""
LONGEST_FUSED = 128
"""Cells of a sequence up to which training makes all steps in one launch, unless that is asked for."""
RESET_BIAS, UPDATE_BIAS = 0.5, 0.7
"""Initial biases of the gates."""


class Saturation(nn.Module):
    r"""Sum :math:`\max(|x| - 0.9, 0)` over the arguments :math:`x` of clipped nonlinearities.

    The sum of a batch of :math:`B` rows of :math:`n` cells is divided by :math:`n^2 B`. Every 200 steps its weight
    becomes the learning rate times the mean loss over the mean cost, within 1e-20..1e-3. Weight and means are buffers,
    so that a checkpoint holds them and they stay on the device.
    """

    weight: Tensor
    period: Tensor

    def __init__(self, **factory: Any) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor(INITIAL_WEIGHT, **factory))
        # Sum of losses, sum of costs and steps since the weight was adapted.
        self.register_buffer("period", torch.zeros(3, **factory))
        self._shapes: list[tuple[int, ...]] = []
        self._cells_L: Tensor | None = None
        self._sum: Tensor | None = None

    def start(self, shapes: Sequence[tuple[int, ...]]) -> Saturation:
        """Reset for batches of these shapes; each row has one more cell, which does not count."""
        self._shapes, self._cells_L, self._sum = list(shapes), None, None
        self._share = 1 / len(shapes)
        return self

    def add(self, x_LD: Tensor) -> None:
        """Add the arguments of a nonlinearity."""
        cost_L = torch.linalg.vector_norm(F.softshrink(x_LD, LIMIT), ord=1, dim=-1)
        self._cells_L = cost_L if self._cells_L is None else self._cells_L + cost_L

    def add_input(self, x_LD: Tensor) -> None:
        """Add the arguments of the input's nonlinearity, which count once for each step that follows."""
        steps = [x_LD.new_full((batch * (width + 1),), width) for batch, width in self._shapes]
        self._cells_L = torch.cat(steps) * torch.linalg.vector_norm(F.softshrink(x_LD, LIMIT), ord=1, dim=-1)

    def finish_batch(self) -> None:
        """Add the cost of the first batch that is left, and drop its cells."""
        assert self._cells_L is not None, "nothing was added"
        batch, width = self._shapes.pop(0)
        cells = batch * (width + 1)
        total = self._cells_L[:cells].unflatten(0, (batch, width + 1))[:, :width].sum()
        cost = total * self._scale(batch, width)
        self._sum = cost if self._sum is None else self._sum + cost
        self._cells_L = self._cells_L[cells:]

    def scales(self) -> list[float]:
        """By what the sum of each batch is multiplied."""
        return [self._scale(batch, width) for batch, width in self._shapes]

    def _scale(self, batch: int, width: int) -> float:
        return self._share / (width**2 * batch)

    def finish(self, scaled_S: Tensor) -> None:
        """Set the cost of all batches, from the sum of each sequence by its batch's scale."""
        self._sum = scaled_S.sum()

    def cost(self) -> Tensor:
        """The cost of the batches that are finished, averaged over them; zero before."""
        return torch.zeros_like(self.weight) if self._sum is None else self._sum

    @torch.no_grad()
    def adapt(self, loss: Tensor, learning_rate: Tensor) -> None:
        """Add a step's loss and cost to the means, and adapt the weight when the period is over."""
        self.period += torch.stack([loss.detach(), self.cost().detach(), torch.ones_like(loss)]).to(self.period)
        over = self.period[2] >= PERIOD
        # In the authors' code the weight cancels: it is part of the cost they average.
        adapted = (learning_rate * self.period[0] / (self.period[1] + 1e-20)).clamp(*WEIGHT_RANGE).to(self.weight)
        self.weight.copy_(torch.where(over, adapted, self.weight))
        self.period.mul_(~over)
        self._sum = None  # frees the step's graph


class DiagonalGRU(nn.Module):
    r"""One step of the Neural GPU: a gated unit that reads each cell and its two neighbours.

    .. math::
        \begin{aligned}
            r &= \hat\sigma(W_r * s + B_r), \qquad c = \widehat{\tanh}(W_c * (r \odot s) + B_c) \\
            u &= \hat\sigma(W_u * s + B_u), \qquad s' = u \odot \mathrm{shift}(s) + (1 - u) \odot c
        \end{aligned}

    where :math:`*` is a convolution over three cells, :math:`\widehat{\tanh}` clips to [-1, 1], :math:`\hat\sigma(x)`
    is :math:`(\widehat{\tanh}(x) + 1) / 2`, and shift moves a third of the maps one cell to the right, a third one
    cell to the left and leaves the others where they are: these are the diagonal gates. The candidate has dropout.

    Shape:
        - Input and output: :math:`(L, D)`; the last cell must be zero.
    """

    def __init__(self, features: int, *, dropout: float = 0.0, **factory: Any) -> None:
        super().__init__()
        self.features = features
        self.gates = nn.Linear(3 * features, 2 * features, **factory)
        self.candidate = nn.Linear(3 * features, features, **factory)
        self.dropout = nn.Dropout(dropout)
        # Glorot uniform for each filter; over three cells it has three times as many outputs as a matrix of its shape.
        limit = (6 / (3 * features + 3 * features)) ** 0.5
        for matrix in (*self.gates.weight.chunk(2), self.candidate.weight):
            nn.init.uniform_(matrix, -limit, limit)
        reset_bias, update_bias = self.gates.bias.chunk(2)
        nn.init.constant_(reset_bias, RESET_BIAS)
        nn.init.constant_(update_bias, UPDATE_BIAS)
        nn.init.zeros_(self.candidate.bias)

    def forward(self, s_LD: Tensor, saturation: Saturation | None = None) -> Tensor:
        """One step; the arguments of the nonlinearities are added to ``saturation``."""
        near_L3D = _with_neighbours(s_LD)
        gates_L2D = self.gates(near_L3D).to(s_LD.dtype)  # under autocast the products are rounded, the state is not
        reset_LD, update_LD = F.hardsigmoid(3 * gates_L2D).chunk(2, dim=-1)  # torch's has a slope of a sixth, not half
        candidate_LD = self.candidate(_with_neighbours(reset_LD * s_LD)).to(s_LD.dtype)
        if saturation is not None:
            saturation.add(gates_L2D)
            saturation.add(candidate_LD)
        candidate_LD = self.dropout(F.hardtanh(candidate_LD))
        return torch.lerp(candidate_LD, self._shift(near_L3D), update_LD)

    def _shift(self, near_L3D: Tensor) -> Tensor:
        """The diagonal shift: the first maps stay, the next come from the left, the last from the right."""
        left_LD, own_LD, right_LD = near_L3D.chunk(3, dim=-1)
        moved = self.features // 3
        stay = self.features - 2 * moved
        return torch.cat([own_LD[:, :stay], left_LD[:, stay : stay + moved], right_LD[:, stay + moved :]], dim=-1)


class NeuralGPU(SymbolModel, tags=["neural-gpu"]):
    r"""Map a sequence of symbols to scores over the output alphabet by the improved Neural GPU.

    :math:`n` cells take :math:`n` steps of a :class:`DiagonalGRU`, so the cost grows with :math:`n^2`. Cells past the
    end of the input are kept at zero. In training, :meth:`extra_loss` is a cost of saturation: how far the arguments of
    the clipped nonlinearities lie outside ±0.9, since their gradient vanishes outside ±1.

    Args:
        symbols, classes: See :class:`~riffle.models.base.SymbolModel`.
        features: Feature maps per cell, at least 3.
        dropout: Dropout rate of the embedding and of every candidate.
        reach: How many times as long as the input the output can be; cells further away are kept at zero.
        backend: Which kernels train it, see :func:`riffle.kernels.resolve`: "fused" makes all steps in one launch. Only
            training in float32 without TF32, or with autocast, has fused kernels; otherwise :class:`DiagonalGRU`
            computes, and with "auto" also for more than 128 cells.

    Examples::

        >>> model = NeuralGPU(symbols=12, classes=12, features=24)
        >>> model(torch.tensor([[3, 1, 2]])).shape
        torch.Size([1, 3, 12])
        >>> bool(model.extra_loss() >= 0)
        True
    """

    embedding_name = "input"

    def __init__(
        self,
        symbols: int,
        classes: int,
        features: int,
        *,
        dropout: float = 0.0,
        reach: int = 1,
        backend: Backend = "auto",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if features < 3:
            raise ValueError(f"features must be at least 3, since a third of them moves each way, got {features}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
        factory = {"device": device, "dtype": dtype}
        self.reach, self.backend = reach, backend
        self.input = nn.Linear(symbols, features, **factory)
        self.unit = DiagonalGRU(features, dropout=dropout, **factory)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(features, classes, **factory)
        self.saturation = Saturation(**factory)
        for layer in (self.input, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def run(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """Score batches of several widths at once; each takes as many steps as it is wide."""
        if self._is_fused(max(x_BN.shape[1] for x_BN in batches)):
            order = sorted(range(len(batches)), key=lambda index: -batches[index].shape[1])
            ordered = [batches[index] for index in order]
            x_CD = self.embed(torch.cat([x_BN.flatten() for x_BN in ordered]))
            scores = self._run_fused(x_CD, [self.active_cells(x_BN) for x_BN in ordered])
            return [scores[order.index(index)] for index in range(len(batches))]
        return self._run_cells([self.embed(x_BN) for x_BN in batches], [self.active_cells(x_BN) for x_BN in batches])

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        active_BN = self.active_cells((x_BND != 0).any(dim=-1))
        if self._is_fused(x_BND.shape[1]):
            return self._run_fused(x_BND.flatten(0, 1), [active_BN])[0]
        return self._run_cells([x_BND], [active_BN])[0]

    def _is_fused(self, widest: int) -> bool:
        """Whether kernels compute; they are for training in float32, with or without autocast.

        A sequence is the work of one multiprocessor, so a whole GPU that goes step by step overtakes it at some length.
        Where products of float32 numbers may be rounded to TF32 the library computes them: Triton cuts off the bits
        that the library rounds, and errs twice as much.
        """
        weight = self.output.weight
        rounded = torch.is_autocast_enabled(weight.device.type) or torch.get_float32_matmul_precision() == "highest"
        short = widest <= LONGEST_FUSED or self.backend == "fused"
        fit = self.training and rounded and short and weight.dtype == torch.float32
        return fit and resolve(self.backend, weight) == "fused"

    def embed(self, symbols_BN: Tensor) -> Tensor:
        """The cells of symbols before the first nonlinearity."""
        return F.embedding(symbols_BN, self.input.weight.T) + self.input.bias

    def active_cells(self, symbols_BN: Tensor) -> Tensor:
        """Which cells lie within ``reach`` times the length of the input, bool ``[B, N]``."""
        return columns(symbols_BN) < self.reach * row_lengths(symbols_BN)[:, None]

    def _run_cells(self, batches: Sequence[Tensor], active: Sequence[Tensor]) -> list[Tensor]:
        order = sorted(range(len(batches)), key=lambda index: batches[index].shape[1])
        ordered, masks = [batches[index] for index in order], [active[index] for index in order]
        saturation = self.saturation.start([tuple(mask.shape) for mask in masks]) if self.training else None
        s_LD, active_L1 = self.initial_state(ordered, masks, saturation)
        scores: list[Tensor] = [s_LD] * len(batches)
        steps = 0
        for index, (batch, width) in zip(order, (mask_BN.shape for mask_BN in masks), strict=True):
            for _ in range(width - steps):
                s_LD = self.unit(s_LD, saturation) * active_L1
            steps, cells = width, batch * (width + 1)
            scores[index] = self.read_out(s_LD[:cells], batch, width)  # narrow batches come first and are dropped
            s_LD, active_L1 = s_LD[cells:], active_L1[cells:]
            if saturation is not None:
                saturation.finish_batch()
        return scores

    def _run_fused(self, x_CD: Tensor, active: Sequence[Tensor]) -> list[Tensor]:
        """The same by kernels that make all steps in one launch; wide batches come first, since they take longest."""
        from research.baselines.neural_gpu_operator import run_steps  # imports Triton

        shapes = [(mask_BN.shape[0], mask_BN.shape[1]) for mask_BN in active]
        active_C = torch.cat([mask_BN.flatten() for mask_BN in active]).to(x_CD.dtype)
        saturation, parameters, device = self.saturation.start(shapes), list(self.unit.parameters()), x_CD.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x_CD.dtype
        rates = {"input_dropout": self.dropout.p, "dropout": self.unit.dropout.p}
        s_CD, cost_S = run_steps(x_CD, active_C, parameters, shapes, saturation.scales(), dtype=dtype, **rates)
        saturation.finish(cost_S)
        scores = self.output(s_CD).split([batch * width for batch, width in shapes])
        return [scores_C.unflatten(0, shape) for scores_C, shape in zip(scores, shapes, strict=True)]

    def initial_state(
        self, batches: Sequence[Tensor], active: Sequence[Tensor], saturation: Saturation | None = None
    ) -> tuple[Tensor, Tensor]:
        """The cells of all batches before the first step, ``[L, D]``, and the mask of active cells, ``[L, 1]``."""
        active_L = torch.cat([F.pad(mask_BN, (0, 1)).flatten() for mask_BN in active])
        s_LD = torch.cat([F.pad(x_BND, (0, 0, 0, 1)).flatten(0, 1) for x_BND in batches])
        if saturation is not None:
            saturation.add_input(s_LD)
        active_L1 = active_L[:, None].to(s_LD.dtype)
        return self.dropout(F.hardtanh(s_LD)) * active_L1, active_L1

    def read_out(self, s_LD: Tensor, batch: int, length: int) -> Tensor:
        """The scores of one batch after its last step."""
        return self.output(s_LD.unflatten(0, (batch, length + 1))[:, :length])

    def extra_loss(self) -> Tensor:
        """The weighted cost of saturation of the last training batches."""
        return self.saturation.weight * self.saturation.cost()

    def step_statistics(self) -> list[Tensor]:
        return [self.saturation.cost().detach()]

    def after_step(self, loss: Tensor, learning_rate: Tensor) -> None:
        self.saturation.adapt(loss, learning_rate)


def _with_neighbours(s_LD: Tensor) -> Tensor:
    """Each cell's left neighbour, the cell and its right neighbour side by side; the last cell of all is zero."""
    return torch.cat([s_LD.roll(1, 0), s_LD, s_LD.roll(-1, 0)], dim=-1)
