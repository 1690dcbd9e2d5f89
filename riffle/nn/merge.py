"""Sequences of several lengths through the same layers, one layer at a time: :func:`riffle.kernels.merge.merge` says
which run together. On the fused kernels :mod:`riffle.kernels.operator` runs all of them in one call.
"""

# B = batch, N = cells (even), C = cells of some groups, one after the other, D = features per cell
from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from riffle.kernels.merge import MergedLayer, merge
from riffle.nn.execute import dropout_rate, regularise, walk
from riffle.nn.lengths import LengthGroups, concatenate, split
from riffle.shuffle import SHUFFLES, bits

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange

Skips = tuple[Tensor, ...] | None


def run_merged(network: ShuffleExchange, xs_BND: Sequence[Tensor]) -> list[Tensor]:
    """Run batches of sequences of one even length each, layers that share a unit together."""
    # Batches of one length make a group; longer ones come first, as :func:`merge` wants it.
    lengths = sorted({x_BND.shape[1] for x_BND in xs_BND}, reverse=True)
    members = [[index for index, x_BND in enumerate(xs_BND) if x_BND.shape[1] == length] for length in lengths]
    sequences = [sum(xs_BND[index].shape[0] for index in group) for group in members]
    ks = [bits(length) for length in lengths]
    groups = LengthGroups(sequences, lengths, [dropout_rate(network, k) for k in ks])
    layers = (merge.__wrapped__ if torch.compiler.is_compiling() else merge)(tuple(network.layers(k) for k in ks))

    def run_layer(index: int, layer: MergedLayer, cells: GroupedCells, skips: Skips) -> tuple[GroupedCells, Tensor]:
        x_CD = cells.take(layer.first, layer.end)
        skip_CD = cells.skip_input(layer, layers, skips)
        here = groups.select(layer.first, layer.end)
        cells.put(layer.first, layer.end, _switch(network, x_CD, layer.unit, layer.shuffle, skip_CD, here))
        return cells, x_CD

    cells = GroupedCells([concatenate([xs_BND[index].flatten(0, 1) for index in group]) for group in members])
    y_CD = walk(layers, cells, run_layer).take(0, len(members)).to(xs_BND[0].dtype)
    order = [index for group in members for index in group]
    parts = split(y_CD, [xs_BND[index].shape[0] * xs_BND[index].shape[1] for index in order])
    ys_BND = {index: part_CD.view_as(xs_BND[index]) for index, part_CD in zip(order, parts, strict=True)}
    return [ys_BND[index] for index in range(len(xs_BND))]


def _switch(
    network: ShuffleExchange, x_CD: Tensor, unit: str, shuffle: int, skip_CD: Tensor | None, groups: LengthGroups
) -> Tensor:
    """A switch layer of several groups as the units define it."""
    noise = network.noise if network.training else 0.0
    if network.pairwise:
        y_CD = network[unit](x_CD, skip_CD)
    else:
        parts = zip(split(x_CD, groups.sizes()), groups.cells, strict=True)
        y_CD = concatenate([network[unit](part_CD.unflatten(0, (-1, cells))).flatten(0, 1) for part_CD, cells in parts])
    ys_BND = []
    for part_CD, cells, rate in zip(split(y_CD, groups.sizes()), groups.cells, groups.dropout, strict=True):
        ys_BND.append(regularise(part_CD.unflatten(0, (-1, cells)), rate, noise))
    return concatenate([SHUFFLES[shuffle](y_BND).flatten(0, 1) for y_BND in ys_BND])


class GroupedCells:
    """The cells of all groups between layers, as pieces ``[C, D]`` that hold consecutive groups one after the other."""

    def __init__(self, groups: list[Tensor]) -> None:
        self.sizes = [x_CD.shape[0] for x_CD in groups]
        self.pieces = [(group, group + 1, x_CD) for group, x_CD in enumerate(groups)]

    def take(self, first: int, end: int) -> Tensor:
        """Remove the groups ``first`` to ``end - 1``; splits and concatenates only where pieces lie otherwise."""
        taken: list[tuple[int, int, Tensor]] = []
        left: list[tuple[int, int, Tensor]] = []
        for start, stop, x_CD in self.pieces:
            ranges = list(pairwise([start, *(border for border in (first, end) if start < border < stop), stop]))
            parts = split(x_CD, [sum(self.sizes[a:b]) for a, b in ranges])
            for (a, b), part_CD in zip(ranges, parts, strict=True):
                (taken if first <= a and b <= end else left).append((a, b, part_CD))
        self.pieces = left
        return concatenate([x_CD for _, _, x_CD in taken])

    def put(self, first: int, end: int, x_CD: Tensor) -> None:
        """Insert the groups ``first`` to ``end - 1``, which were taken before."""
        before = [piece for piece in self.pieces if piece[0] < first]
        self.pieces = [*before, (first, end, x_CD), *self.pieces[len(before) :]]

    def skip_input(self, layer: MergedLayer, layers: Sequence[MergedLayer], skips: Skips) -> Tensor | None:
        """What a layer's skip connection adds, from the inputs of the ``layers`` that ``layer.skip`` names."""
        if layer.skip is None or skips is None:
            return None
        parts = []
        for group, source, input_CD in zip(range(layer.first, layer.end), layer.skip, skips, strict=True):
            origin = layers[source]
            if (origin.first, origin.end) == (layer.first, layer.end) and set(layer.skip) == {source}:
                return input_CD
            start = sum(self.sizes[origin.first : group])
            parts.append(input_CD.narrow(0, start, self.sizes[group]))
        return concatenate(parts)
