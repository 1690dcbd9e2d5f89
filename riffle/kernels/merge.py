"""Which layers of several schedules run together, and where their cells lie.

To a switch unit a pair is a pair, whatever sequence it comes from. Networks of different lengths apply the same units
in the same order, the longer ones more often. So the layers of the longest serve all: a shorter group joins the forward
half of a block late and leaves the reverse half early, and in between it waits. All meet in the middle of a block, and
all take the last layer together. For 64, 16 and 8 cells and one block, a column for each merged layer::

    64 cells   F F F F F R R R R R L        F = 0_forward, R = 0_reverse, L = last
    16 cells   . . F F F R R R . . L
     8 cells   . . . F F R R . . . L

A layer reads consecutive rows of one region of memory and writes to another. Where a group joins, its cells are copied
to the rows after those of the others, which were written to a region with room for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from riffle.shuffle import Layer

INPUT, OUTPUT = 0, 1
"""The regions of memory that hold what enters and what leaves, all groups one after the other."""


@dataclass(frozen=True)
class MergedLayer:
    """One switch layer of consecutive groups at once, and the shuffle after it, each group's in its own length."""

    unit: str
    shuffle: int
    first: int
    """The first group that takes part."""
    end: int
    """The group after the last that does."""
    skip: tuple[int, ...] | None
    """For each of these groups, the merged layer whose input is added, scaled; None without a skip connection."""


@lru_cache(maxsize=256)
def merge(schedules: tuple[tuple[Layer, ...], ...]) -> tuple[MergedLayer, ...]:
    """The layers of all groups, longer sequences first, in an order that serves each group's own.

    >>> from riffle.shuffle import schedule
    >>> for layer in merge((schedule(3), schedule(2))):
    ...     print(f"{layer.unit}, groups {layer.first} to {layer.end - 1}")
    0_forward, groups 0 to 0
    0_forward, groups 0 to 1
    0_reverse, groups 0 to 1
    0_reverse, groups 0 to 0
    last, groups 0 to 1
    """
    merged: list[MergedLayer] = []
    done = [0] * len(schedules)
    merged_index: list[list[int]] = [[] for _ in schedules]  # the merged layer of each layer of each group
    for counts in _unit_runs(schedules):
        longest = max(counts.values())
        first, end = min(counts), max(counts) + 1
        assert len(counts) == end - first, "a group in between does not take part"
        shuffle = schedules[first][done[first]].shuffle
        for step in range(longest):
            # Late in a run of unriffles, early in one of riffles: a group is with the others around the middle.
            least = longest - step if shuffle == 1 else step + 1
            active = [group for group in range(first, end) if counts[group] >= least]
            assert active == list(range(first, first + len(active))), "a shorter group takes part without a longer one"
            own = [schedules[group][done[group]] for group in active]
            skips = tuple(
                merged_index[group][layer.skip]
                for group, layer in zip(active, own, strict=True)
                if layer.skip is not None
            )
            assert len(skips) in (0, len(active)), "a group has no skip connection where another has one"
            for group in active:
                merged_index[group].append(len(merged))
                done[group] += 1
            merged.append(MergedLayer(own[0].unit, shuffle, first, first + len(active), skips or None))
    return tuple(merged)


def _unit_runs(schedules: Sequence[tuple[Layer, ...]]) -> list[dict[int, int]]:
    """Runs of layers with one unit, in an order that serves all groups: how many layers of it each group has."""
    keys: list[tuple[str, int, bool]] = []
    runs: list[dict[int, int]] = []
    for group, layers in enumerate(schedules):
        position, previous = -1, None
        for layer in layers:
            key = (layer.unit, layer.shuffle, layer.skip is not None)
            if key != previous:
                ahead = [index for index in range(position + 1, len(keys)) if keys[index] == key]
                position = ahead[0] if ahead else position + 1
                if not ahead:
                    keys.insert(position, key)
                    runs.insert(position, {})
            runs[position][group] = runs[position].get(group, 0) + 1
            previous = key
    return runs


class Piece(NamedTuple):
    """Consecutive rows of a region."""

    region: int
    row: int
    rows: int

    def part(self, row: int, rows: int) -> Piece:
        """Some of the rows, counted from the first one."""
        return Piece(self.region, self.row + row, rows)


class Copy(NamedTuple):
    """Rows to be copied."""

    source: Piece
    target: Piece


class Step(NamedTuple):
    """Where a layer finds the cells of its groups and where it puts them."""

    before: tuple[Copy, ...]
    source: Piece
    target: Piece
    after: tuple[Copy, ...]


class Placement(NamedTuple):
    """Where the cells of all groups lie from layer to layer."""

    steps: tuple[Step, ...]
    regions: tuple[int, ...]
    """The rows of each region."""


def place(spans: Sequence[tuple[int, int]], sizes: Sequence[int]) -> Placement:
    """Find room for the cells of all groups from layer to layer, with as few copies as can be.

    Args:
        spans: For each layer the first of the consecutive groups that take part, and the one after the last.
        sizes: The rows of each group.

    >>> place([(0, 1), (0, 2), (0, 1)], [4, 2]).regions  # the second group joins, and its result is copied
    (6, 6, 6, 6)
    """
    offsets = (0, *accumulate(sizes))
    following = _following_steps(spans, len(sizes))
    current = {group: Piece(INPUT, offsets[group], size) for group, size in enumerate(sizes)}
    regions = [offsets[-1], offsets[-1]]
    room_for: dict[int, int] = {}  # the step for which a region has more rows than were written to it
    steps = []
    for index, (first, end) in enumerate(spans):
        groups, rows = range(first, end), offsets[end] - offsets[first]
        source = Piece(current[first].region, current[first].row, rows)
        before = []
        if any(current[group] != source.part(offsets[group] - offsets[first], sizes[group]) for group in groups):
            if room_for.get(source.region) != index:
                regions.append(rows)
                source = Piece(len(regions) - 1, 0, rows)
            for group in groups:
                rows_there = source.part(offsets[group] - offsets[first], sizes[group])
                if current[group] != rows_there:
                    before.append(Copy(current[group], rows_there))
        next_steps = {following[index].get(group) for group in groups}
        after = []
        if next_steps == {None}:
            target = Piece(OUTPUT, offsets[first], rows)
        else:
            step = min(step for step in next_steps if step is not None)
            joined = spans[step][0] == first and spans[step][1] > end
            if joined:
                room_for[len(regions)] = step
            regions.append(offsets[spans[step][1]] - offsets[first] if joined else rows)
            target = Piece(len(regions) - 1, 0, rows)
        for group in groups:
            current[group] = target.part(offsets[group] - offsets[first], sizes[group])
            if target.region != OUTPUT and following[index].get(group) is None:
                after.append(Copy(current[group], Piece(OUTPUT, offsets[group], sizes[group])))
        steps.append(Step(tuple(before), source, target, tuple(after)))
    return Placement(tuple(steps), tuple(regions))


def _following_steps(spans: Sequence[tuple[int, int]], groups: int) -> list[dict[int, int]]:
    """For each layer, the next layer of each group."""
    upcoming: dict[int, int] = {}
    following: list[dict[int, int]] = []
    for index in range(len(spans) - 1, -1, -1):
        following.append(dict(upcoming))
        upcoming |= dict.fromkeys(range(*spans[index]), index)
    return following[::-1]


def adjacent(pieces: Sequence[Piece]) -> list[Piece]:
    """The same rows in as few pieces as can be.

    >>> adjacent([Piece(2, 0, 4), Piece(2, 4, 2), Piece(3, 6, 1)])
    [Piece(region=2, row=0, rows=6), Piece(region=3, row=6, rows=1)]
    """
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and (last.region, last.row + last.rows) == (piece.region, piece.row):
            joined[-1] = last._replace(rows=last.rows + piece.rows)
        else:
            joined.append(piece)
    return joined
