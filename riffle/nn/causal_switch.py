"""The units of the causal network: they map a pair of cells to what the later one becomes."""

# B = batch, N = pairs, P = pairs (any leading shape), D = features per cell, E = 2 * D: an earlier and a later cell
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.kernels.reference import gelu, mix
from riffle.nn.switch import GATE_BIAS, GateLinear, PairUnit


class CausalUnit(PairUnit):
    """A unit that maps a pair of cells, the earlier one first, to what the later one becomes."""

    bounded = False
    """Whether cells stay in [-1, 1] where the input does."""

    def forward(self, s_BNE: Tensor, skip_BNE: Tensor | None = None) -> Tensor:
        """The later cells, ``[B, N, D]``; ``skip_BNE`` is added, scaled, to what gates and candidates read."""
        if skip_BNE is not None:
            assert self.skip_scale is not None, "this unit was built without a skip connection"
            skip_BNE = skip_BNE * self.skip_scale.repeat(2)
        return self.pairs(s_BNE, skip_BNE)


class CausalSwitchUnit(CausalUnit):
    r"""The later half of a :class:`~riffle.nn.switch.SwitchUnit`.

    .. math::
        \begin{aligned}
            r &= \sigma(W_r s + B_r), \qquad c = \tanh(W_c (r \odot s) + B_c), \qquad u = \sigma(W_u s + B_u) \\
            s_o &= u \odot \mathrm{swapHalf}(s)^2 + (1 - u) \odot c
        \end{aligned}

    where :math:`s` is the pair and :math:`\mathrm{swapHalf}(s)^2` the first half of the later cell beside the second of
    the earlier one.
    """

    bounded = True

    def __init__(self, features: int, *, skip: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__(features, skip=skip, device=device, dtype=dtype)
        self.gates = GateLinear(2 * features, 3 * features, device=device, dtype=dtype)
        self.candidate = GateLinear(2 * features, features, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot uniform for each matrix by itself, gate biases at 0.5, the candidate's at 0."""
        super().reset_parameters()
        reset, update = self.gates.weight.split((2 * self.features, self.features))
        for matrix in (reset, update, self.candidate.weight):
            nn.init.xavier_uniform_(matrix)
        nn.init.constant_(self.gates.bias, GATE_BIAS)
        nn.init.zeros_(self.candidate.bias)

    def pairs(self, s_PE: Tensor, skip_PE: Tensor | None) -> Tensor:
        read_PE = s_PE if skip_PE is None else s_PE + skip_PE
        reset_PE, update_PD = self.gates(read_PE).split((2 * self.features, self.features), dim=-1)
        candidate_PD = self.candidate(reset_PE.sigmoid() * read_PE).tanh()
        _, earlier_second, later_first, _ = s_PE.chunk(4, dim=-1)
        return mix(update_PD.sigmoid(), torch.cat((later_first, earlier_second), -1), candidate_PD)


class CausalResidualUnit(CausalUnit):
    r"""A residual unit that normalises first: :math:`s_o = s^2 + W\,\mathrm{GELU}(Z\,\mathrm{LayerNorm}(s) + B_Z) + B`.

    It has three times as many hidden features as a cell, and starts nearly as the identity.
    """

    skips = False

    def __init__(self, features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__(features, device=device, dtype=dtype)
        self.hidden = GateLinear(2 * features, 3 * features, device=device, dtype=dtype)
        self.candidate = GateLinear(3 * features, features, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot uniform matrices, W at a hundredth of that, no biases."""
        super().reset_parameters()
        nn.init.xavier_uniform_(self.hidden.weight)
        nn.init.xavier_uniform_(self.candidate.weight, gain=0.01)
        nn.init.zeros_(self.hidden.bias)
        nn.init.zeros_(self.candidate.bias)

    def pairs(self, s_PE: Tensor, skip_PE: Tensor | None) -> Tensor:
        assert skip_PE is None, "this unit has no skip connection"
        active = gelu(self.hidden(F.layer_norm(s_PE, s_PE.shape[-1:])))
        return s_PE[..., self.features :] + self.candidate(active).to(s_PE.dtype)


CAUSAL_UNITS: dict[str, type[CausalUnit]] = {"gated": CausalSwitchUnit, "residual": CausalResidualUnit}
"""The units that a causal network can be built of, by name."""
