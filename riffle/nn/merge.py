"""Sequences of several lengths through the same layers: which layers of their schedules are run together.

To a switch unit a pair is a pair, whatever sequence it comes from. Networks of different lengths apply the same units
in the same order, the longer ones more often. So the layers of the longest serve all: a shorter group joins the forward
half of a block late and leaves the reverse half early, and in between it waits. All meet in the middle of a block, and
all take the last layer together. For 64, 16 and 8 cells and one block, a column for each merged layer::

    64 cells   F F F F F R R R R R L        F = 0_forward, R = 0_reverse, L = last
    16 cells   . . F F F R R R . . L
     8 cells   . . . F F R R . . . L
"""

# C = cells of some groups, one after the other, D = features per cell
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from riffle.shuffle import Layer


class Groups(NamedTuple):
    """Sequences of several lengths, those of one length next to each other and longer ones first."""

    sequences: list[int]
    """How many sequences each group has."""
    cells: list[int]
    """How many cells each of a group's sequences has."""
    dropout: list[float]
    """The rate of dropout after each of a group's layers."""

    def sizes(self) -> list[int]:
        """The cells of each group."""
        return [sequences * cells for sequences, cells in zip(self.sequences, self.cells, strict=True)]

    def take(self, first: int, end: int) -> Groups:
        """The groups ``first`` to ``end - 1``."""
        return Groups(self.sequences[first:end], self.cells[first:end], self.dropout[first:end])


class MergedSwitch(Protocol):
    """A switch layer of the named unit on cells of some groups, dropout or noise, and the shuffle ``turn`` of each."""

    def __call__(self, x_CD: Tensor, unit: str, shuffle: int, skip_CD: Tensor | None, groups: Groups) -> Tensor: ...


def run_merged(
    xs_BND: Sequence[Tensor],
    schedules: Sequence[tuple[Layer, ...]],
    dropout: Sequence[float],
    switch: MergedSwitch,
    compute: torch.dtype,
) -> list[Tensor]:
    """Run several batches, layers that share a unit together, with cells of the dtype ``compute`` between them."""
    # Batches of one length make a group; longer ones come first, as the kernels want it.
    lengths = sorted({x_BND.shape[1] for x_BND in xs_BND}, reverse=True)
    members = [[index for index, x_BND in enumerate(xs_BND) if x_BND.shape[1] == length] for length in lengths]
    sequences = [sum(xs_BND[index].shape[0] for index in group) for group in members]
    groups = Groups(sequences, lengths, [dropout[group[0]] for group in members])
    plan = merge([schedules[group[0]] for group in members])
    cells = Cells([join([xs_BND[index].to(compute).flatten(0, 1) for index in group]) for group in members])
    last_use = {skip: index for index, layer in enumerate(plan) for skip in layer.skip or ()}
    kept: dict[int, Tensor] = {}
    for index, layer in enumerate(plan):
        x_CD = cells.take(layer.first, layer.end)
        if index in last_use:
            kept[index] = x_CD
        skip_CD = cells.skipped(layer, plan, kept)
        y_CD = switch(x_CD, layer.unit, layer.shuffle, skip_CD, groups.take(layer.first, layer.end))
        cells.put(layer.first, layer.end, y_CD)
        kept = {skip: kept_CD for skip, kept_CD in kept.items() if last_use[skip] > index}
    y_CD = cells.take(0, len(members)).to(xs_BND[0].dtype)
    order = [index for group in members for index in group]
    parts = cut(y_CD, [xs_BND[index].shape[0] * xs_BND[index].shape[1] for index in order])
    ys_BND = {index: part_CD.view_as(xs_BND[index]) for index, part_CD in zip(order, parts, strict=True)}
    return [ys_BND[index] for index in range(len(xs_BND))]


@dataclass(frozen=True)
class MergedLayer:
    """One switch layer of consecutive groups at once, and the shuffle after it, each group's in its own length."""

    unit: str
    """Which switch unit."""
    shuffle: int
    """The shuffle that follows, see :class:`~riffle.shuffle.Layer`."""
    first: int
    """The first group that takes part."""
    end: int
    """The group after the last that does."""
    layers: tuple[int, ...]
    """Which layer of its own schedule this is to each of these groups."""
    skip: tuple[int, ...] | None
    """For each of these groups, the merged layer whose input is added, scaled; None without a skip connection."""


def merge(schedules: Sequence[tuple[Layer, ...]]) -> list[MergedLayer]:
    """The layers of all groups in an order that serves each group's own, with as few merged layers as the longest has.

    Args:
        schedules: One for each group, longer sequences first.

    >>> from riffle.shuffle import schedule
    >>> for layer in merge([schedule(3), schedule(2)]):
    ...     print(layer.unit, f"groups {layer.first} to {layer.end - 1}, layers {layer.layers}")
    0_forward groups 0 to 0, layers (0,)
    0_forward groups 0 to 1, layers (1, 0)
    0_reverse groups 0 to 1, layers (2, 1)
    0_reverse groups 0 to 0, layers (3,)
    last groups 0 to 1, layers (4, 2)
    """
    merged: list[MergedLayer] = []
    done = [0] * len(schedules)
    when: list[list[int]] = [[] for _ in schedules]  # of each layer of each group, the merged layer it belongs to
    for counts in _stretches(schedules):
        longest = max(counts.values())
        first, end = min(counts), max(counts) + 1
        assert len(counts) == end - first, "a group in between does not take part"
        shuffle = schedules[first][done[first]].shuffle
        for step in range(longest):
            # Late in a stretch of unriffles, early in one of riffles: a group is with the others around the middle.
            least = longest - step if shuffle == 1 else step + 1
            active = [group for group in range(first, end) if counts[group] >= least]
            assert active == list(range(first, first + len(active))), "a shorter group takes part without a longer one"
            own = [schedules[group][done[group]] for group in active]
            skips = [
                when[group][layer.skip] for group, layer in zip(active, own, strict=True) if layer.skip is not None
            ]
            assert len(skips) in (0, len(active)), "a group has no skip connection where another has one"
            for group in active:
                when[group].append(len(merged))
            layers = tuple(done[group] for group in active)
            skip = tuple(skips) if skips else None
            merged.append(MergedLayer(own[0].unit, shuffle, first, first + len(active), layers, skip))
            for group in active:
                done[group] += 1
    return merged


def _stretches(schedules: Sequence[tuple[Layer, ...]]) -> list[dict[int, int]]:
    """Runs of layers with one unit, in an order that serves all groups: how many layers of it each group has."""
    keys: list[tuple[str, int, bool]] = []
    stretches: list[dict[int, int]] = []
    for group, layers in enumerate(schedules):
        place, before = -1, None
        for layer in layers:
            key = (layer.unit, layer.shuffle, layer.skip is not None)
            if key != before:
                ahead = [index for index in range(place + 1, len(keys)) if keys[index] == key]
                place = ahead[0] if ahead else place + 1
                if not ahead:
                    keys.insert(place, key)
                    stretches.insert(place, {})
            stretches[place][group] = stretches[place].get(group, 0) + 1
            before = key
    return stretches


class Cells:
    """The cells of all groups between layers, as pieces ``[C, D]`` that hold consecutive groups one after the other.

    Args:
        groups: The cells of each group.
    """

    def __init__(self, groups: list[Tensor]) -> None:
        self.sizes = [x_CD.shape[0] for x_CD in groups]
        self.pieces = [(group, group + 1, x_CD) for group, x_CD in enumerate(groups)]

    def take(self, first: int, end: int) -> Tensor:
        """Remove the groups ``first`` to ``end - 1``; cuts and joins pieces only where they lie otherwise."""
        taken: list[tuple[int, int, Tensor]] = []
        left: list[tuple[int, int, Tensor]] = []
        for start, stop, x_CD in self.pieces:
            cuts = [start, *(border for border in (first, end) if start < border < stop), stop]
            parts = list(pairwise(cuts))
            for (a, b), part_CD in zip(parts, cut(x_CD, [sum(self.sizes[a:b]) for a, b in parts]), strict=True):
                (taken if first <= a and b <= end else left).append((a, b, part_CD))
        self.pieces = left
        return join([x_CD for _, _, x_CD in taken])

    def put(self, first: int, end: int, x_CD: Tensor) -> None:
        """Put the groups ``first`` to ``end - 1`` back in their place."""
        before = [piece for piece in self.pieces if piece[0] < first]
        self.pieces = [*before, (first, end, x_CD), *self.pieces[len(before) :]]

    def skipped(self, layer: MergedLayer, plan: Sequence[MergedLayer], kept: dict[int, Tensor]) -> Tensor | None:
        """What a layer's skip connection brings, from the inputs that were ``kept`` of earlier layers."""
        if layer.skip is None:
            return None
        parts = []
        for group, source in zip(range(layer.first, layer.end), layer.skip, strict=True):
            origin = plan[source]
            if (origin.first, origin.end) == (layer.first, layer.end) and set(layer.skip) == {source}:
                return kept[source]
            start = sum(self.sizes[origin.first : group])
            parts.append(kept[source].narrow(0, start, self.sizes[group]))
        return join(parts)


def join(parts: Sequence[Tensor]) -> Tensor:
    """The parts one after the other; a single one as it is."""
    return torch.cat(list(parts)) if len(parts) > 1 else parts[0]


def cut(x_CD: Tensor, sizes: list[int]) -> Sequence[Tensor]:
    """The inverse of :func:`join`; one split for all parts, so that its gradient is one concatenation."""
    return x_CD.split(sizes) if len(sizes) > 1 else [x_CD]
