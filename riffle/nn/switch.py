"""The Switch Unit of the paper, the variants of its ablation study, and the residual unit of its sequel."""

# B = batch, N = cells (even), P = N // 2 pairs, D = features per cell, E = 2 * D features per pair
from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.kernels.reference import (
    Norm,
    ResidualWeights,
    SwitchWeights,
    gated_switch,
    mix,
    read_gates,
    residual_candidate,
    residual_switch,
    swap_half,
)

GATE_BIAS = 0.5
"""Where the biases of reset and update gates start: sigmoid(0.5) = 0.62 of a cell is copied at first."""


class GateValues(NamedTuple):
    """What a unit computes from the pairs it reads; a gate that the unit does not have is None."""

    candidate: Tensor
    """``[P, E]``."""
    reset: Tensor | None = None
    """``[P, 2, E]``."""
    update: Tensor | None = None
    """``[P, E]``."""
    swap: Tensor | None = None
    """``[P, E]``."""


def check_arguments(
    features: Any, blocks: Any, length: Any = None, dropout: Any = 0.0, noise: Any = 0.0, dtype: Any = None
) -> None:
    """Refuse the sizes, rates and dtypes of which no network can be made."""
    if not isinstance(features, Integral):
        raise ValueError(f"features must be a whole number, got {features!r}")
    _check_even(features)
    check_sizes(blocks=blocks, length=1 if length is None else length)
    rates = isinstance(dropout, Real) and isinstance(noise, Real)
    if not (rates and 0 <= dropout < 1 and 0 <= noise < math.inf):
        raise ValueError(f"dropout must lie in [0, 1) and noise be at least 0, finite, got {dropout} and {noise}")
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"dtype must be one of real numbers, such as torch.float32, got {dtype!r}")


def check_sizes(**sizes: Any) -> None:
    """Refuse sizes that are no whole numbers of at least 1."""
    for what, size in sizes.items():
        if not isinstance(size, Integral) or isinstance(size, bool):
            raise ValueError(f"{what} must be a whole number, got {size!r}")
        if size < 1:
            raise ValueError(f"{what} must be at least 1, got {size}")


def _check_even(features: Any) -> None:
    if features < 2 or features % 2:
        raise ValueError(f"features must be even, since swapHalf exchanges half of them, got {features}")


class PairUnit(nn.Module):
    """What every unit has in common: it maps pairs of cells to pairs of cells, with an optional skip connection.

    A new unit is a subclass with a line in :data:`UNITS`; it says here what a network has to know of it.

    Args:
        features: Feature maps per cell, :math:`m` in the paper; even, since swapHalf halves them.
        skip: Whether the unit has a learnable scale for a skip connection.
    """

    swaps = False
    """Whether it takes ``swap``, with which a layer can be told not to exchange the second halves of cells."""
    skips = True
    """Whether it takes ``skip``, and skip connections join the blocks of its networks."""
    benes = True
    """Whether the second half of a block is the mirror image of the first."""
    norms = False
    """Whether it takes ``norm``, what to normalise over."""
    kind: str | None = None
    """The name of its kernels in :data:`riffle.kernels.units.KERNELS`; None where there is plain PyTorch alone."""
    fused_layer = False
    """Whether these kernels run a layer by itself, too, and not whole networks alone."""
    pairwise = True
    """Whether what it makes of a pair depends on that pair alone."""
    swap = False
    """Whether this one swaps."""

    def __init__(self, features: int, *, skip: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        _check_even(features)
        self.features = features
        self.skip_scale = nn.Parameter(torch.empty(features, device=device, dtype=dtype)) if skip else None

    def reset_parameters(self) -> None:
        """Set the parameters to their initial values."""
        if self.skip_scale is not None:
            nn.init.constant_(self.skip_scale, 0.5)

    def pairs(self, s_PE: Tensor, skip_PE: Tensor | None) -> Tensor:
        """The unit's mathematics on pairs of cells side by side."""
        raise NotImplementedError

    def gate_values(self, read_PE: Tensor) -> GateValues:
        """Candidate and gates of pairs, to which the skip connection has been added."""
        raise NotImplementedError

    def tensors(self) -> list[Tensor]:
        """The parameters as the kernels of this kind take them: matrices with their biases, and :attr:`vector`."""
        raise NotImplementedError

    @property
    def vector(self) -> Tensor | None:
        """The one parameter that kernels take in float32: the scale of the skip connection, if there is one."""
        return self.skip_scale

    @property
    def flops(self) -> int:
        """FLOPs of the matrix products for one pair: two for each entry of a matrix."""
        return sum(2 * weight.numel() for name, weight in self.named_parameters() if name.endswith("weight"))

    def forward(self, x_BND: Tensor, skip_BND: Tensor | None = None) -> Tensor:
        """Apply the unit to adjacent pairs; ``skip_BND`` is added, scaled, to what gates and candidates read."""
        skip_BPE = None
        if skip_BND is not None:
            assert self.skip_scale is not None, "this unit was built without a skip connection"
            skip_BPE = (skip_BND * self.skip_scale).unflatten(-2, (-1, 2)).flatten(-2)
        s_BPE = x_BND.unflatten(-2, (-1, 2)).flatten(-2)
        return self.pairs(s_BPE, skip_BPE).unflatten(-1, (2, -1)).flatten(-3, -2)

    def extra_repr(self) -> str:
        return f"{self.features}, skip={self.skip_scale is not None}"


class GateLinear(nn.Module):
    """Weight and bias of a unit's gates, under the names that an :class:`nn.Linear` gives them.

    Frameworks that initialise every ``nn.Linear`` of a model anew, as ``post_init()`` of ``transformers`` does, leave
    it alone. Its first values are drawn like those of one, so that a seed gives the network that it always gave.
    """

    def __init__(self, inputs: int, outputs: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        linear = nn.Linear(inputs, outputs, device=device, dtype=dtype)
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, s_PE: Tensor) -> Tensor:
        """What the gates are before their sigmoid."""
        return F.linear(s_PE, self.weight, self.bias)


class SwitchUnit(PairUnit):
    r"""Map every adjacent pair of cells to a new pair with one gated, GRU-like unit.

    .. math::
        \begin{aligned}
            r^i &= \sigma(W_r^i s + B_r^i), \qquad c^i = \tanh(W_c^i (r^i \odot s) + B_c^i), \qquad i = 1, 2 \\
            u &= \sigma(W_u s + B_u), \qquad
            [s_o^1, s_o^2] = u \odot \mathrm{swapHalf}(s^1, s^2) + (1 - u) \odot [c^1, c^2]
        \end{aligned}

    where :math:`s = [s^1, s^2]` is the pair, :math:`r^i` the reset gates, :math:`c^i` the candidates, :math:`u` the
    update gate and swapHalf exchanges the second halves of the two cells.

    Args:
        features: Feature maps per cell, :math:`m` in the paper; even.
        skip: Whether the unit has a learnable scale for a skip connection.
        swap: False replaces swapHalf by the identity.

    Shape:
        - Input and output: :math:`(B, N, D)` with even :math:`N` and :math:`D` = ``features``.

    Examples::

        >>> switch = SwitchUnit(8)
        >>> switch(torch.randn(2, 16, 8)).shape
        torch.Size([2, 16, 8])
    """

    swaps = True
    kind = "gated"
    fused_layer = True

    def __init__(
        self, features: int, *, skip: bool = False, swap: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(features, skip=skip, device=device, dtype=dtype)
        self.swap = swap and self.swaps
        self.gates = GateLinear(2 * features, 6 * features, device=device, dtype=dtype)
        self.candidates_weight = nn.Parameter(torch.empty(2, features, 2 * features, device=device, dtype=dtype))
        self.candidates_bias = nn.Parameter(torch.empty(2, features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot uniform for each matrix of the paper by itself, gate biases at 0.5, the other biases at 0."""
        super().reset_parameters()
        for matrix in (*self.gates.weight.chunk(3), *self.candidates_weight.unbind()):
            nn.init.xavier_uniform_(matrix)
        nn.init.constant_(self.gates.bias, GATE_BIAS)
        nn.init.zeros_(self.candidates_bias)

    def weights(self) -> SwitchWeights:
        """The parameters as the kernels take them."""
        return SwitchWeights(self.gates.weight, self.gates.bias, self.candidates_weight, self.candidates_bias)

    def pairs(self, s_PE: Tensor, skip_PE: Tensor | None) -> Tensor:
        return gated_switch(s_PE, self.weights(), skip_PE, swap=self.swap)

    def gate_values(self, read_PE: Tensor) -> GateValues:
        gates = read_gates(read_PE, self.weights())
        return GateValues(gates.candidate, gates.reset, gates.update)

    def tensors(self) -> list[Tensor]:
        return [*self.weights(), *([] if self.skip_scale is None else [self.skip_scale])]

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.swap else ", swap=False")


class NoSwapUnit(SwitchUnit):
    """Ablation "no-swap": the identity in place of swapHalf."""

    swaps = False


class NoResidualUnit(SwitchUnit):
    """Ablation "no-residual": no skip connections between the blocks."""

    skips = False


class NoBenesUnit(SwitchUnit):
    """Ablation "no-benes": the second half of a block is another forward half."""

    benes = False


class SwapGateUnit(SwitchUnit):
    r"""Ablation "swap-gate": a further gate :math:`g` chooses between the pair and the swapped pair to be copied.

    .. math:: \tilde s = g \odot [s^1, s^2] + (1 - g) \odot [s^2, s^1], \qquad g = \sigma(W_g s + B_g)
    """

    swaps = False
    kind = "swap-gate"
    fused_layer = False

    def __init__(self, features: int, *, skip: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__(features, skip=skip, device=device, dtype=dtype)
        self.swap_gate = nn.Linear(2 * features, 2 * features, device=device, dtype=dtype)
        self._reset_swap_gate()

    def _reset_swap_gate(self) -> None:
        nn.init.xavier_uniform_(self.swap_gate.weight)
        nn.init.zeros_(self.swap_gate.bias)

    def reset_parameters(self) -> None:
        """As of a gated unit; the new gate's bias at 0."""
        super().reset_parameters()
        if hasattr(self, "swap_gate"):  # not yet while the rest is made
            self._reset_swap_gate()

    def pairs(self, s_PE: Tensor, skip_PE: Tensor | None) -> Tensor:
        read_PE = s_PE if skip_PE is None else s_PE + skip_PE
        straight_PE = torch.sigmoid(self.swap_gate(read_PE))
        swapped_PE = torch.cat(s_PE.chunk(2, dim=-1)[::-1], dim=-1)
        chosen_PE = mix(straight_PE, s_PE, swapped_PE)
        # The unit copies what it is given as s, so what it should read is handed over as a skip connection.
        return gated_switch(chosen_PE, self.weights(), read_PE - chosen_PE, swap=False)

    def gate_values(self, read_PE: Tensor) -> GateValues:
        return super().gate_values(read_PE)._replace(swap=torch.sigmoid(self.swap_gate(read_PE)))

    def tensors(self) -> list[Tensor]:
        tensors = super().tensors()
        return [*tensors[:4], self.swap_gate.weight, self.swap_gate.bias, *tensors[4:]]


class TwoLayerUnit(PairUnit):
    """Ablation "two-fc": two fully connected layers with one ReLU and twice the feature maps in the middle."""

    gated = False

    def __init__(self, features: int, *, skip: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__(features, skip=skip, device=device, dtype=dtype)
        pair = 2 * features
        self.first = nn.Linear(pair, 2 * pair, device=device, dtype=dtype)
        self.second = nn.Linear(2 * pair, pair, device=device, dtype=dtype)
        self.update = nn.Linear(pair, pair, device=device, dtype=dtype) if self.gated else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot uniform matrices, biases at 0, the update gate's at 0.5."""
        super().reset_parameters()
        for layer in (self.first, self.second, self.update):
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight)
                nn.init.constant_(layer.bias, GATE_BIAS if layer is self.update else 0.0)

    def pairs(self, s_PE: Tensor, skip_PE: Tensor | None) -> Tensor:
        read_PE = s_PE if skip_PE is None else s_PE + skip_PE
        candidate_PE, _, update_PE, _ = self.gate_values(read_PE)
        if update_PE is None:
            return candidate_PE.to(s_PE.dtype)  # autocast computed it in another
        return mix(update_PE, swap_half(s_PE), candidate_PE)

    def gate_values(self, read_PE: Tensor) -> GateValues:
        candidate_PE = self.second(F.relu(self.first(read_PE)))
        if self.update is None:
            return GateValues(candidate_PE)
        return GateValues(candidate_PE.tanh(), update=torch.sigmoid(self.update(read_PE)))


class GatedTwoLayerUnit(TwoLayerUnit):
    """Ablation "two-fc-gate": these layers and a tanh make the candidate that the update gate mixes with swapHalf."""

    gated = True
    swap = True


class ResidualUnit(PairUnit):
    r"""The unit of residual shuffle-exchange networks (Draguns et al., AAAI 2021): two layers beside a scaled identity.

    .. math::
        \begin{aligned}
            g &= \mathrm{GELU}(\mathrm{Norm}(Z s, B_Z)), \qquad c = W g + B \\
            [s_o^1, s_o^2] &= \sigma(2 S) \odot s + h \odot c
        \end{aligned}

    where :math:`s = [s^1, s^2]` is the pair, :math:`g` has twice as many features, :math:`c` is the candidate,
    :math:`h = 0.25 \sqrt{1 - 0.9^2}`, :math:`\mathrm{GELU}(x) = x\,\sigma(1.702\,x)` and Norm is one of

    .. math::
        \text{"sequence"}: \frac{2 (x - \bar x) + B_Z}{\sqrt{\overline{(2 (x - \bar x) + B_Z)^2} + 10^{-10}}} \qquad
        \text{"features"}: \frac{x - \bar x}{\sqrt{\overline{(x - \bar x)^2} + 10^{-5}}} + B_Z

    Means over the sequence are those of one feature over all its pairs, as in the authors' released code; a pair then
    depends on all others of its sequence and on its length. Means over the features are those of one pair.

    Args:
        features: Feature maps per cell, :math:`m` in the paper.
        norm: "features" or "sequence".

    Shape:
        - Input and output: :math:`(B, N, D)` with even :math:`N` and :math:`D` = ``features``.

    Examples::

        >>> switch = ResidualUnit(8)
        >>> switch(torch.randn(2, 16, 8)).shape
        torch.Size([2, 16, 8])
    """

    skips = False
    norms = True

    def __init__(self, features: int, *, norm: Norm = "features", device: Any = None, dtype: Any = None) -> None:
        super().__init__(features, device=device, dtype=dtype)
        factory = {"device": device, "dtype": dtype}
        self.norm, self.pairwise = norm, norm == "features"
        self.kind = "residual" if self.pairwise else None  # plain PyTorch normalises sequences
        self.hidden_weight = nn.Parameter(torch.empty(4 * features, 2 * features, **factory))
        self.hidden_bias = nn.Parameter(torch.empty(4 * features, **factory))
        self.candidate_weight = nn.Parameter(torch.empty(2 * features, 4 * features, **factory))
        self.candidate_bias = nn.Parameter(torch.empty(2 * features, **factory))
        self.residual = nn.Parameter(torch.empty(2 * features, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot uniform matrices, no hidden bias, a small one of the candidate, and nine tenths of a pair kept."""
        super().reset_parameters()
        for matrix in (self.hidden_weight, self.candidate_weight):
            nn.init.xavier_uniform_(matrix)
        nn.init.zeros_(self.hidden_bias)
        nn.init.uniform_(self.candidate_bias, 0, 0.01)  # zeros cannot be normalised
        nn.init.constant_(self.residual, math.log(0.9 / (1 - 0.9)) / 2)

    def weights(self) -> ResidualWeights:
        """The parameters as the kernels take them."""
        hidden = self.hidden_weight, self.hidden_bias
        return ResidualWeights(*hidden, self.candidate_weight, self.candidate_bias, self.residual)

    def pairs(self, s_PE: Tensor, skip_PE: Tensor | None) -> Tensor:
        assert skip_PE is None, "this unit has no skip connection"
        return residual_switch(s_PE, self.weights(), norm=self.norm)

    def gate_values(self, read_PE: Tensor) -> GateValues:
        return GateValues(residual_candidate(read_PE, self.weights(), norm=self.norm))

    def tensors(self) -> list[Tensor]:
        return list(self.weights())

    @property
    def vector(self) -> Tensor:
        """What is kept of a pair, before its sigmoid."""
        return self.residual

    def extra_repr(self) -> str:
        return f"{self.features}, norm={self.norm!r}"


UNITS: dict[str, type[PairUnit]] = {
    "gated": SwitchUnit,
    "no-swap": NoSwapUnit,
    "no-residual": NoResidualUnit,
    "no-benes": NoBenesUnit,
    "swap-gate": SwapGateUnit,
    "two-fc": TwoLayerUnit,
    "two-fc-gate": GatedTwoLayerUnit,
    "residual": ResidualUnit,
}
"""The units that a network can be built of, by name."""
