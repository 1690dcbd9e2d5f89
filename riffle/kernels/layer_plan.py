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
    dependent_launch,
    is_resident,
    layer_form,
    pass_blocks,
    product_form,
    summing_rows,
    switch_blocks,
)


class Variants(dict[tuple[int, ...], Launch]):
    """The launches of a kernel by some of its flags or numbers, each put together when it is first used."""

    def __init__(self, flags: Sequence[str], make: Callable[..., Launch]) -> None:
        super().__init__()
        self.flags, self.make = flags, make

    def __missing__(self, values: tuple[int, ...]) -> Launch:
        self[values] = launch = self.make(**dict(zip(self.flags, values, strict=True)))
        return launch


class LayerPlan(NamedTuple):
    """All that a layer's launches need besides tensors."""

    pairs: int
    features: int
    gates: int
    """Gates as wide as a pair: 3, or 4 with a swap gate."""
    keep: bool
    """Whether the forward pass fills a :class:`Kept`."""
    keep_sums: bool
    """Whether the candidates are kept, too; in 16 bits they are formed from the layer's output."""
    skip_forward: Launch
    reset_forward: Launch
    update_forward: Launch
    switch_forward: Launch | None
    """Reset, candidates and update in one; None where the library's product serves better."""
    layer_forward: Launch | None
    """The whole layer in one; None where the chip cannot or others serve better."""
    layers_forward: Variants | None
    """Several consecutive layers like this one, by their number; None where the GPU has no such kernel or one launch
    each is faster."""
    update_backward: Variants
    """By ``OUT``, ``MORE`` and ``PDL``."""
    reset_backward: Variants
    """By ``ADD``, ``MORE``, ``PRODUCT``, ``SKIP`` and ``COPY``."""
    product_backward: Variants | None
    """The product before it as well, by the same flags; None where the library's product serves better."""
    tile_rows: int
    """Pairs of a tile in the passes that store a partial sum per tile."""
    sum_rows: int
    """Rows of partial sums that ``product_backward`` stores; 0 without it."""
    skip_backward: Launch
    dependent: bool
    """Whether launches may begin before the ones before them have ended (:data:`tuning.DEPENDENT_LAUNCH`)."""


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
    skip: bool = False,
    first: bool = True,
    noise: bool = False,
    gates: int = 3,
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
        skip: Whether there is a skip connection.
        first: Whether no other layer of the pass comes before.
        noise: Whether ``dropout`` has standard deviations of multiplicative noise instead.
        gates: 3, or 4 where a swap gate chooses what is copied; kernels written for three gates then serve no layer.
    """
    assert sorted(cells, reverse=True) == list(cells), "longer sequences come first"
    counts = [count * length // 2 for count, length in zip(sequences, cells, strict=True)]
    pairs, groups = sum(counts), group_numbers(counts, cells, dropout)
    dependent = dependent_launch(device)
    # tanh right to 11 bits, which is more than 16-bit numbers hold
    fast: dict[str, Any] = {"GATES": gates, "FAST": dtype != torch.float32, "PDL": dependent}
    around: dict[str, Any] = {"SHUFFLE": shuffle, "SWAP": swap, "DROPOUT": dropout_kind(dropout, noise)}
    tiles = summing_rows(pairs)
    flags = around | fast
    summing: dict[str, Any] = {"GATES": gates, "tile_rows": tiles, "FAST": dtype != torch.float32}
    update_summing = around | summing
    has_swap_gate = gates == 4
    blocks = switch_blocks(2 * pairs, features, dtype)
    update = (pairs, features, groups)
    layer = layer_form(pairs, features, dtype, device, keep=keep, skip=skip) if not has_swap_gate else None
    product = product_form(pairs, features, dtype, device) if not has_swap_gate else None
    layer_forward, layers_forward, product_backward, sum_rows = None, None, None, 0
    if layer is not None:
        from riffle.kernels.hopper import layer_launch

        layer_forward = layer_launch(
            layer, device, *update, dtype, SKIP=skip, KEEP=keep, PDL=dependent and not first, **around
        )
    if not (has_swap_gate or keep) and not any(dropout) and is_resident(pairs, features, dtype, device):
        from riffle.kernels.hopper_resident import layers_launch

        make = partial(layers_launch, *update, dtype, SHUFFLE=shuffle, SWAP=swap, SKIP=skip)
        layers_forward = Variants(("layers",), make)
    if product is not None:
        from riffle.kernels.hopper_backward import product_launch, product_sum_rows

        sum_rows = product_sum_rows(product, features, pairs, device)
        make = partial(product_launch, product, device, pairs, features, dtype, PDL=dependent)
        product_backward = Variants(("ADD", "MORE", "PRODUCT", "SKIP", "COPY"), make)
    update_backward = partial(one_pass, "update_backward", *update, **update_summing)
    if has_swap_gate:
        update_backward = partial(one_pass, "swap_gate_backward", *update, both=True, **update_summing)
        # Two states and a further gate: with the registers that three gates need, these would spill.
        blocks = blocks and blocks._replace(options=blocks.options | {"maxnreg": None})
    return LayerPlan(
        pairs,
        features,
        gates,
        keep,
        keep_sums=keep and keeps_sums(dtype),
        skip_forward=one_pass("skip_forward", 2 * pairs, features, PDL=dependent),
        reset_forward=one_pass("reset_forward", pairs, 2 * features, **fast),
        update_forward=one_pass("update_forward", *update, **flags),
        switch_forward=None if blocks is None else _switch(blocks, *update, **flags),
        layer_forward=layer_forward,
        layers_forward=layers_forward,
        update_backward=Variants(("OUT", "MORE", "PDL"), update_backward),
        reset_backward=Variants(
            ("ADD", "MORE", "PRODUCT", "SKIP", "COPY"),
            partial(one_pass, "reset_backward", pairs, 2 * features, PDL=dependent, **summing),
        ),
        product_backward=product_backward,
        tile_rows=tiles,
        sum_rows=sum_rows,
        skip_backward=one_pass("skip_backward", pairs, 2 * features, GATES=gates, tile_rows=tiles, PDL=dependent),
        dependent=dependent,
    )


def dropout_kind(rates: tuple[float, ...], noise: bool) -> int:
    """The kernels' flag ``DROPOUT``: 0 for none, 1 for dropout, 2 for noise in its place."""
    return (2 if noise else 1) if any(rates) else 0


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
    both: bool = False,
    **flags: Any,
) -> Launch:
    """A kernel that makes one pass over memory, on tiles of ``rows`` by ``width``.

    With groups there are programs for each of both cells, or for ``both`` together, which have twice the warps.
    """
    blocks = pass_blocks(width, tile_rows)
    options = blocks.options | {"num_warps": 2 * blocks.options["num_warps"]} if both else blocks.options
    return launch(
        kernel,
        (_ceil_div(rows, blocks.rows) * _ceil_div(width, blocks.columns), 2 if groups and not both else 1),
        rows,
        *groups,
        WIDTH=width,
        EVEN=rows % blocks.rows == 0 and width % blocks.columns == 0,
        BLOCK_P=blocks.rows,
        BLOCK_C=blocks.columns,
        **options,
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


class GradientShare(NamedTuple):
    """Where a layer stores the two factors of its unit's weight gradients.

    Consecutive layers of one unit, a run, store them one below the other, for one product over all pairs of the run.
    """

    number: int
    """The number of the run."""
    place: int
    """The layer's place in the run."""
    last: bool
    """Whether the layer is the last of the run."""
    first: int
    """The layer's first pair among those of the run."""
    pairs: int
    """Pairs of the run."""
    rows: tuple[int, ...]
    """Pairs of each layer of the run."""
    summing: tuple[int, ...]
    """Tiles with partial sums, of each layer."""
    sums: tuple[int, ...]
    """``sum_rows`` of each layer's plan."""
    fresh: bool
    """Whether the unit's gradients are still empty: the backward pass begins with this run of the unit."""


def share_gradients(plans: Sequence[LayerPlan], units: Sequence[Hashable]) -> list[GradientShare]:
    """Which layers, given in the order of the backward pass with a key for their units, share products."""
    batches: list[list[LayerPlan]] = []
    fresh: list[bool] = []
    seen: set[Hashable] = set()
    # Layers with ``product_backward`` leave other sums than those without.
    for (unit, _), group in groupby(range(len(plans)), key=lambda layer: (units[layer], plans[layer].sum_rows > 0)):
        batch: list[LayerPlan] = []
        for plan in (plans[layer] for layer in group):
            # Rows of other widths would begin where no kernel expects them.
            if batch and (sum(other.pairs for other in batch) + plan.pairs > GRADIENT_PAIRS or plan.features % 8):
                batches.append(batch)
                batch = []
            batch.append(plan)
        batches.append(batch)
        fresh += [unit not in seen, *[False] * (len(batches) - len(fresh) - 1)]
        seen.add(unit)
    return [share for number, batch in enumerate(batches) for share in _shares(batch, number, fresh[number])]


def _shares(plans: Sequence[LayerPlan], number: int, fresh: bool) -> Iterator[GradientShare]:
    rows = tuple(plan.pairs for plan in plans)
    summing = tuple(_ceil_div(plan.pairs, plan.tile_rows) for plan in plans)
    sums = tuple(plan.sum_rows for plan in plans)
    for index in range(len(plans)):
        yield GradientShare(
            number, index, index == len(plans) - 1, sum(rows[:index]), sum(rows), rows, summing, sums, fresh
        )  # fmt: skip


def _ceil_div(size: int, block: int) -> int:
    """How many blocks hold ``size``."""
    return -(-size // block)
