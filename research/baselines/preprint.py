"""The network of the authors' code at the time of the preprint, which may have made the paper's curves.

It is wired as the paper's network. Its weights are shared otherwise, and its skip connections begin at the outputs of
layers. Of ``2**k`` cells::

    address bits            0      1 ... k-2      k-1    k-2 ... 1     0
    layers of a block     first     forward     middle    reverse     last

The last layer of a block is the first one of the next; only the network as a whole has a layer ``first``. Middle layers
do not exchange halves. Each layer reads, beside its input, the output of the same layer one block before, and a last
layer that of the first layer or of the last one before it. So a network of a single block has a skip connection too,
from its first layer to its last, where the paper's and the released one have none.
"""

# B = batch, N = cells of a sequence, C = cells of all sequences, D = features per cell
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from riffle.kernels import Backend, resolve
from riffle.kernels.merge import MergedLayer, merge
from riffle.models.base import SymbolModel
from riffle.models.sequence import EMBEDDING_RANGE, EMBEDDING_SCALE, look_up
from riffle.nn.execute import compute_dtype, regularise, walk
from riffle.nn.lengths import LengthGroups, at_padded_lengths, concatenate, split
from riffle.nn.merge import GroupedCells
from riffle.nn.switch import SwitchUnit
from riffle.shuffle import SHUFFLES, Layer, bits


@lru_cache(maxsize=256)
def preprint_schedule(k: int, blocks: int = 1) -> tuple[Layer, ...]:
    """The layers on ``2**k`` cells; ``skip`` names the layer whose *output* is added, before the shuffle after it.

    >>> [(layer.unit, layer.bit) for layer in preprint_schedule(3)]
    [('first', 0), ('0_forward', 1), ('0_middle', 2), ('0_reverse', 1), ('0_last', 0)]
    >>> [layer.skip for layer in preprint_schedule(3, blocks=2)]
    [None, None, None, None, 0, 1, 2, 3, 4]
    """
    if k == 1:
        return (Layer("first", 0, 0, None),)
    units, addresses = ["first"], [0]
    for block in range(blocks):
        units += [f"{block}_forward"] * (k - 2) + [f"{block}_middle"] + [f"{block}_reverse"] * (k - 2)
        units.append(f"{block}_last")
        addresses += [*range(1, k), *range(k - 2, -1, -1)]
    period = 2 * (k - 1)  # layers from a last one to the next
    layers = []
    for index, (unit, bit) in enumerate(zip(units, addresses, strict=True)):
        shuffle = 0 if index == len(units) - 1 else addresses[index + 1] - bit
        source = index - period
        layers.append(Layer(unit, bit, shuffle, source if source >= 0 else None))
    return tuple(layers)


SwitchLayer = Callable[[Tensor, MergedLayer, Tensor | None, LengthGroups], Tensor]
"""``switch(x_CD, layer, skip_CD, groups)``: the unit on adjacent cells, dropout or noise, and the shuffle."""


class PreprintNetwork(SymbolModel):
    """The network of the preprint's code between an embedding and an output layer.

    Args:
        symbols: Size of the input alphabet.
        classes: Size of the output alphabet.
        features: Feature maps per cell.
        blocks: Beneš blocks.
        dropout, noise, backend: See :class:`~riffle.nn.network.ShuffleExchange`.
    """

    def __init__(
        self,
        symbols: int,
        classes: int,
        features: int,
        blocks: int = 1,
        *,
        dropout: float = 0.0,
        noise: float = 0.0,
        backend: Backend = "auto",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.blocks, self.dropout, self.noise, self.backend = blocks, dropout, noise, backend
        self.embedding = nn.Embedding(symbols, features, **factory)
        self.units = nn.ModuleDict()
        for layer in preprint_schedule(3, blocks):  # three bits have every kind of layer
            if layer.unit not in self.units:
                swap = not layer.unit.endswith("middle")
                self.units[layer.unit] = SwitchUnit(features, skip=layer.skip is not None, swap=swap, **factory)
        self.output = nn.Linear(features, classes, **factory)
        nn.init.uniform_(self.embedding.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def run(self, batches: Sequence[Tensor]) -> list[Tensor]:
        table = torch.tanh(EMBEDDING_SCALE * self.embedding.weight)

        def run(batches: list[Tensor]) -> list[Tensor]:
            cells = look_up(table, torch.cat([x_BN.flatten() for x_BN in batches]))
            parts = split(cells, [x_BN.numel() for x_BN in batches])
            return self._score([part.view(*x_BN.shape, -1) for part, x_BN in zip(parts, batches, strict=True)])

        return at_padded_lengths(run, batches, "power")

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        return at_padded_lengths(self._score, [x_BND], "power")[0]

    def _score(self, xs_BND: list[Tensor]) -> list[Tensor]:
        """Score batches of powers of two of cells, all of them together."""
        order = sorted(range(len(xs_BND)), key=lambda index: -xs_BND[index].shape[1])  # as :func:`merge` wants it
        ordered = [xs_BND[index] for index in order]
        ks = [bits(x_BND.shape[1]) for x_BND in ordered]
        dropout = [self.dropout / k if self.training else 0.0 for k in ks]
        groups = LengthGroups([x_BND.shape[0] for x_BND in ordered], [2**k for k in ks], dropout)
        plan = merge(tuple(preprint_schedule(k, self.blocks) for k in ks))
        sources = {source for layer in plan for source in layer.skip or ()}
        fused = resolve(self.backend, ordered[0]) == "fused"
        switch = self._fused_layer(compute_dtype(ordered[0])) if fused else self._reference_layer()

        def run_layer(
            index: int, layer: MergedLayer, state: GroupedCells, skips: tuple[Tensor, ...] | None
        ) -> tuple[GroupedCells, Tensor | None]:
            x_CD, skip_CD = state.take(layer.first, layer.end), state.skip_input(layer, plan, skips)
            here = groups.select(layer.first, layer.end)
            y_CD = switch(x_CD, layer, skip_CD, here)
            state.put(layer.first, layer.end, y_CD)
            return state, _shuffle(y_CD, -layer.shuffle, here) if index in sources else None

        state = walk(plan, GroupedCells([x_BND.flatten(0, 1) for x_BND in ordered]), run_layer)
        scores = split(self.output(state.take(0, len(order)).to(xs_BND[0].dtype)), groups.sizes())
        by_index = dict(zip(order, scores, strict=True))
        return [by_index[index].view(*x_BND.shape[:2], -1) for index, x_BND in enumerate(xs_BND)]

    def _reference_layer(self) -> SwitchLayer:
        """The layer as the unit defines it."""
        noise = self.noise if self.training else 0.0

        def layer(x_CD: Tensor, layer: MergedLayer, skip_CD: Tensor | None, groups: LengthGroups) -> Tensor:
            parts = split(self.units[layer.unit](x_CD, skip_CD), groups.sizes())
            rates = zip(parts, groups.dropout, strict=True)
            return _shuffle(concatenate([regularise(part, rate, noise) for part, rate in rates]), layer.shuffle, groups)

        return layer

    def _fused_layer(self, dtype: torch.dtype) -> SwitchLayer:
        """The layer on the fused kernels, which compute in ``dtype``; a unit's parameters are packed once."""
        from riffle.kernels.fused import PackedUnit, pack, switch_and_shuffle

        noise = self.noise if self.training else 0.0
        packed: dict[str, PackedUnit] = {}

        def layer(x_CD: Tensor, layer: MergedLayer, skip_CD: Tensor | None, groups: LengthGroups) -> Tensor:
            unit: Any = self.units[layer.unit]
            if layer.unit not in packed:
                packed[layer.unit] = pack(unit.weights(), unit.skip_scale, dtype)
            return switch_and_shuffle(
                x_CD.to(dtype),
                packed[layer.unit],
                sequences=groups.sequences,
                cells=groups.cells,
                shuffle=layer.shuffle,
                swap=unit.swap,
                skip_CD=skip_CD,
                dropout=groups.dropout,
                noise=noise,
                recompute=False,
            )

        return layer


def _shuffle(x_CD: Tensor, shuffle: int, groups: LengthGroups) -> Tensor:
    """Every sequence shuffled by itself: +1 unriffle, -1 riffle, 0 none."""
    shapes = zip(split(x_CD, groups.sizes()), groups.cells, strict=True)
    return concatenate([SHUFFLES[shuffle](part.unflatten(0, (-1, cells))).flatten(0, 1) for part, cells in shapes])
