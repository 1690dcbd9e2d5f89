"""The plan of one switch layer: what depends on its shape alone, found once, with its launches bound to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import torch

from riffle.kernels.launches import Launch, keeps_sums
from riffle.kernels.tuning import (
    GRADIENT_PAIRS,
    PASS_ROWS,
    Blocks,
    LayerForm,
    layer_form,
    multiprocessors,
    pass_blocks,
    summing_rows,
    switch_blocks,
)


class Variants(dict[tuple[bool, ...], Launch]):
    """The launches of a kernel by some of its flags, each put together when it is first used."""

    def __init__(self, flags: Sequence[str], make: Callable[..., Launch]) -> None:
        super().__init__()
        self.flags, self.make = flags, make

    def __missing__(self, values: tuple[bool, ...]) -> Launch:
        self[values] = launch = self.make(**dict(zip(self.flags, values, strict=True)))
        return launch


class LayerPlan(NamedTuple):
    """All that a layer's launches need besides tensors."""

    pairs: int
    features: int
    keep: bool
    """Whether the forward pass fills a :class:`Kept`."""
    keep_sums: bool
    """Whether that has the candidates too; in 16 bits the layer's output serves."""
    skip_forward: Launch
    reset_forward: Launch
    update_forward: Launch
    switch_forward: Launch | None
    """Reset, candidates and update in one; None where the library's product serves better."""
    layer_forward: Variants | None
    """The whole layer in one, by ``SKIP`` and ``KEEP``; None where the chip cannot or others serve better."""
    update_backward: Variants
    """By ``OUT`` and ``MORE``."""
    reset_backward: Variants
    """By ``ADD``, ``MORE``, ``PRODUCT``, ``SKIP`` and ``COPY``."""
    skip_backward: Launch


@lru_cache(maxsize=4096)
def plan_layer(
    sequences: tuple[int, ...],
    cells: tuple[int, ...],
    dropout: tuple[float, ...],
    features: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    shuffle: int,
    swap: bool,
    keep: bool,
) -> LayerPlan:
    """Plan the layer of a shape.

    Args:
        sequences: How many sequences each group has.
        cells: How many cells each of a group's sequences has: even numbers, falling from group to group.
        dropout: For each group, the share of output features set to zero.
        features: Features per cell.
        dtype: That of the cells.
        device: Theirs; a compiled kernel belongs to one.
        shuffle: +1 unriffle, -1 riffle, 0 none.
        swap: Whether the copied pair exchanges its second halves.
        keep: Whether gates and candidates are kept for the backward pass.
    """
    assert sorted(cells, reverse=True) == list(cells), "longer sequences come first"
    counts = [count * length // 2 for count, length in zip(sequences, cells, strict=True)]
    pairs, groups = sum(counts), group_numbers(counts, cells, dropout)
    fast: dict[str, Any] = {
        "FAST": dtype != torch.float32
    }  # tanh right to 11 bits, which is more than 16-bit numbers hold
    flags: dict[str, Any] = {"SHUFFLE": shuffle, "SWAP": swap, "DROPOUT": any(dropout), **fast}
    summing: dict[str, Any] = {"tile_rows": summing_rows(pairs)} | fast
    update_summing = flags | summing
    blocks = switch_blocks(2 * pairs, features, dtype)
    update = (pairs, features, groups)
    form = layer_form(pairs, features, dtype, device, keep=keep)
    layer_flags = {name: flag for name, flag in flags.items() if name != "FAST"}
    return LayerPlan(
        pairs,
        features,
        keep,
        keep_sums=keep and keeps_sums(dtype),
        skip_forward=one_pass("skip_forward", 2 * pairs, features),
        reset_forward=one_pass("reset_forward", pairs, 2 * features, **fast),
        update_forward=one_pass("update_forward", *update, **flags),
        switch_forward=None if blocks is None else _switch(blocks, *update, **flags),
        layer_forward=form and Variants(("SKIP", "KEEP"), partial(_layer, form, device, *update, **layer_flags)),
        update_backward=Variants(("OUT", "MORE"), partial(one_pass, "update_backward", *update, **update_summing)),
        reset_backward=Variants(
            ("ADD", "MORE", "PRODUCT", "SKIP", "COPY"),
            partial(one_pass, "reset_backward", pairs, 2 * features, **summing),
        ),
        skip_backward=one_pass("skip_backward", pairs, 2 * features, tile_rows=summing["tile_rows"]),
    )


def group_numbers(
    counts: Sequence[int], cells: tuple[int, ...], dropout: tuple[float, ...]
) -> tuple[tuple[Any, ...], ...]:
    """What the kernels are told of each group: where it begins and how long its sequences are, as odd numbers."""
    starts = tuple(2 * start + 1 for start in accumulate(counts, initial=0))
    # A kernel belongs to a number of groups. Lengths that are no powers of two may be many, and with empty groups at
    # the end a few kernels serve all numbers.
    powers = all(length & (length - 1) == 0 for length in cells)
    empty = 0 if powers else next(size for size in (1, 4, 16, 64, len(cells)) if size >= len(cells)) - len(cells)
    lengths = (*(length + 1 for length in cells), *[3] * empty)
    return (*starts[:-1], *[starts[-1]] * empty), lengths, (*dropout, *[0.0] * empty)


def one_pass(
    kernel: str,
    rows: int,
    width: int,
    groups: tuple[Any, ...] = (),
    launch: Callable[..., Launch] = Launch,
    tile_rows: int = PASS_ROWS,
    **flags: Any,
) -> Launch:
    """A kernel that makes one pass over memory, on tiles of ``rows`` by ``width``; with groups for both cells."""
    blocks = pass_blocks(width, tile_rows)
    return launch(
        kernel,
        (_ceil_div(rows, blocks.rows) * _ceil_div(width, blocks.columns), 2 if groups else 1),
        rows,
        *groups,
        WIDTH=width,
        EVEN=rows % blocks.rows == 0 and width % blocks.columns == 0,
        BLOCK_P=blocks.rows,
        BLOCK_C=blocks.columns,
        **blocks.options,
        **flags,
    )


def _switch(blocks: Blocks, pairs: int, features: int, groups: tuple[Any, ...], **flags: Any) -> Launch:
    return Launch(
        "switch_forward",
        (2 * _ceil_div(pairs, blocks.rows),),
        pairs,
        *groups,
        D=features,
        EVEN=pairs % blocks.rows == 0,
        BLOCK_P=blocks.rows,
        BLOCK_C=blocks.columns,
        **blocks.options,
        **flags,
    )


def _layer(
    form: LayerForm, device: torch.device, pairs: int, features: int, groups: tuple[Any, ...], **flags: Any
) -> Launch:
    from riffle.kernels.hopper import ROWS, HopperLaunch

    programs = min(_ceil_div(pairs, form.groups * ROWS), multiprocessors(device))
    return HopperLaunch("layer_forward", (programs,), pairs, *groups, D=features, **form.options(features), **flags)


class GradientShare(NamedTuple):
    """Where a layer leaves what the gradients of its unit's weights are products of.

    Layers of one unit leave it one after the other, so that one product over the pairs of all of them follows.
    """

    first: int
    """The first of the layer's pairs among those of these layers."""
    pairs: int
    """Of all these layers."""
    first_tile: int
    """The same for tiles of the passes."""
    tiles: int
    number: int
    """Of these layers among those that share something."""
    last: bool
    """Whether this layer is the last to leave something."""
    first_summing: int
    """The first of the layer's tiles that leave shares of sums, which are of :func:`tuning.summing_rows`,"""
    summing_tiles: int
    """and how many there are of all these layers."""


def share_gradients(plans: Sequence[LayerPlan], units: Sequence[Hashable]) -> list[GradientShare]:
    """For layers in the order of the backward pass, and what tells their units apart: which of them share products."""
    batches: list[list[int]] = []
    for _, group in groupby(range(len(plans)), key=lambda layer: units[layer]):
        batch: list[int] = []
        for plan in (plans[layer] for layer in group):
            # Rows of other widths would begin where no kernel expects them.
            if batch and (sum(batch) + plan.pairs > GRADIENT_PAIRS or plan.features % 8):
                batches.append(batch)
                batch = []
            batch.append(plan.pairs)
        batches.append(batch)
    return [share for number, batch in enumerate(batches) for share in _shares(batch, number)]


def _shares(pairs: Sequence[int], number: int) -> Iterator[GradientShare]:
    tiles = [_ceil_div(count, PASS_ROWS) for count in pairs]
    summing = [_ceil_div(count, summing_rows(count)) for count in pairs]
    for layer in range(len(pairs)):
        yield GradientShare(
            sum(pairs[:layer]), sum(pairs), sum(tiles[:layer]), sum(tiles), number, last=layer == len(pairs) - 1,
            first_summing=sum(summing[:layer]), summing_tiles=sum(summing),
        )  # fmt: skip


def _ceil_div(size: int, block: int) -> int:
    """How many blocks hold ``size``."""
    return -(-size // block)
