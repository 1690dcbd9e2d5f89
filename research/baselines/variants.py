"""Networks that differ from the paper's in what it says of them without a figure: one sentence each."""

# B = batch, N = 2**k cells, D = features per cell, P = pairs, E = 2 * D
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.kernels.reference import SwitchWeights
from riffle.models.sequence import SequenceModel
from riffle.nn.lengths import at_padded_lengths
from riffle.nn.network import ShuffleExchange
from riffle.nn.switch import UNITS, GateLinear, GateValues, SwitchUnit, TwoLayerUnit
from riffle.shuffle import bits


class OneResetUnit(SwitchUnit):
    """Both outputs share one reset gate: "it is important that each output uses a separate reset gate"."""

    def __init__(self, features: int, *, device: Any = None, dtype: Any = None, **options: Any) -> None:
        super().__init__(features, device=device, dtype=dtype, **options)
        self.gates = GateLinear(2 * features, 4 * features, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for matrix in self.gates.weight.split(2 * self.features):  # Glorot's scale is that of each matrix by itself
            nn.init.xavier_uniform_(matrix)

    def weights(self) -> SwitchWeights:
        weight, bias = (torch.cat([part[: 2 * self.features], part]) for part in (self.gates.weight, self.gates.bias))
        return SwitchWeights(weight, bias, self.candidates_weight, self.candidates_bias)


class TwoReluUnit(TwoLayerUnit):
    """A ReLU behind both layers in place of one: "ReLU on both FC layers does not work well"."""

    def gate_values(self, read_PE: Tensor) -> GateValues:
        return GateValues(F.relu(self.second(F.relu(self.first(read_PE)))))


class Mirrored(ShuffleExchange):
    """Riffles in the first half of a block, unriffles in the second: "the difference is insignificant".

    Its layers join cells that differ in the address bits 0, k - 1, ..., 1, ..., k - 1, 0 in place of 0, 1, ..., k - 1,
    ..., 1, 0. So it is the usual network on cells whose address bits from 1 on are in reverse order.
    """

    def run_batches(self, xs_BND: list[Tensor], padding: Tensor | None = None) -> list[Tensor]:
        def run(padded_BND: list[Tensor]) -> list[Tensor]:
            ys_BND = super(Mirrored, self).run_batches([reverse_bits(x_BND) for x_BND in padded_BND])
            return [reverse_bits(y_BND) for y_BND in ys_BND]

        return at_padded_lengths(run, xs_BND, self.pad, padding)


def reverse_bits(x_BND: Tensor) -> Tensor:
    """The cells by their address bits from 1 on in reverse order; its own inverse.

    >>> reverse_bits(torch.arange(16).view(1, 16, 1)).flatten().tolist()
    [0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15]
    """
    k = bits(x_BND.shape[1])
    return x_BND.unflatten(1, [2] * k).permute(0, *range(k - 1, 0, -1), k, k + 1).flatten(1, k)


class VariantModel(SequenceModel):
    """The paper's model with one of the variants; "unshared" has a unit for every layer, and so one length."""

    def __init__(
        self, symbols: int, classes: int, features: int, blocks: int = 1, *, variant: str, length: int, **options: Any
    ) -> None:
        UNITS.update({"one-reset": OneResetUnit, "two-relu": TwoReluUnit})
        super().__init__(symbols, classes, features, blocks, unit=variant if variant in UNITS else "gated", **options)
        if variant == "mirrored":
            self.network = Mirrored(features, blocks, **options)
        elif variant == "unshared":
            self.network = ShuffleExchange(features, blocks, sharing="none", length=length, **options)
