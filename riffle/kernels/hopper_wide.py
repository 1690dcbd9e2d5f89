"""Layers of 384 features as two launches, for GPUs with warpgroup products (sm_90): products with what follows them.

`gates_forward` is the product for the gates. Reset gates never leave the chip: their products r * a with the pairs do.
`candidates_forward` makes candidates of these, and with the update gates the layer's output.

A program stays on its multiprocessor and takes tile after tile of ``GROUPS`` times ``ROWS`` pairs by some columns. One
warp copies what is multiplied through a ring of ``STAGES`` places in shared memory, ``STEP`` columns at a time, and
besides, while the product runs, what the tile needs after it: what leaves takes its place. Each group of four warps has
``ROWS`` pairs of the tile, and waits for another only where the ring is full: while one does what follows a product,
the other multiplies.
"""

# E = features per pair, i = 0, 1 the cell of a pair, a = what gates and candidates read
# d_ tensor descriptor, p_ pointer, s_ shared memory, b_ block, CAPITALS constexpr, those of a launch together in FORM
# Tuples grow here:
# mypy: disable-error-code="assignment"
from __future__ import annotations

import sys
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from riffle.kernels.descriptors import Constants, DescriptorLaunch, Matrix
from riffle.kernels.gated_switch import destination, follow, random_scale_of_rows, tanh
from riffle.kernels.hopper import PRODUCER, ROWS, WARPS, _lines, _sums
from riffle.kernels.tuning import WideForm, multiprocessors

mbarrier, tma = hopper.mbarrier, hopper.tma
STEP = gl.constexpr(64)
"""Columns of the pairs that a place of the ring has."""
GROUPS = gl.constexpr(2)
"""Groups of warps of a program, each with ``ROWS`` pairs of the tile."""
REGISTERS = gl.constexpr(240)
"""Of a thread in the groups."""
PARTS = {256: (256,), 192: (128, 64)}
"""Columns of a tile as blocks, which are powers of two wide."""
STAGES = {256: 3, 192: 4}
"""Places of the ring that such tiles of gates leave room for."""


@gluon.jit(do_not_specialize=["n_pairs"])
def gates_forward(d_read, d_weight, d_beside, d_product, d_gates, p_gates_bias, n_pairs, FORM: gl.constexpr):
    """r_i * a, and the update gates before the sigmoid and without their bias; ``d_beside`` is ``d_read`` once more.

    The columns of a tile are one part or two. What is copied of them has ``BOX`` columns, those of the last part.
    """
    dtype: gl.constexpr = d_read.dtype
    s_read = gl.allocate_shared_memory(dtype, [FORM.STAGES * GROUPS, ROWS, STEP], d_read.layout)
    s_weight, s_beside, s_bias = (), (), ()
    for part in gl.static_range(len(FORM.WIDTHS)):
        s_weight += (gl.allocate_shared_memory(dtype, [FORM.STAGES, FORM.WIDTHS[part], STEP], d_weight.layout),)
        s_beside += (gl.allocate_shared_memory(dtype, [GROUPS, ROWS, FORM.WIDTHS[part]], d_beside.layout),)
        s_bias += (_allocate_biases(p_gates_bias, FORM.RESETS, FORM.WIDTHS[part]),)
    full, empty, ready, free, known = _barriers(FORM)
    ring, beside = (s_read, s_weight, full, empty), (s_beside, ready, free)
    leaving = (d_product, d_gates, s_bias, known, p_gates_bias)
    gl.warp_specialize([
        (_consume, (0, leaving, ring, beside, n_pairs, FORM)),
        (_consume, (1, leaving, ring, beside, n_pairs, FORM)),
        (_produce, (d_read, d_weight, d_beside, ring, beside, n_pairs, FORM)),
    ], [4, 1], [REGISTERS, PRODUCER])  # fmt: skip


@gluon.jit
def _allocate_biases(p_bias, COUNT: gl.constexpr, WIDTH: gl.constexpr):
    """Room for the biases of some chunks of columns, each in the order in which threads have their columns."""
    layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    return gl.allocate_shared_memory(p_bias.dtype.element_ty, [COUNT, 4, WIDTH // 8, 2], layout)


@gluon.constexpr_function
def _spread(width):
    """The layout of biases in that order: four threads, pairs of columns of each, the two of a pair."""
    return gl.BlockedLayout([1, width // 8, 2], [4, 8, 1], [1, 1, 4], [0, 1, 2])


@gluon.jit
def _store_bias(s_bias, p_bias, scale: gl.constexpr, WIDTH: gl.constexpr):
    """The biases of a chunk of columns, whose pairs four threads have in turn, times 1 or a half."""
    layout: gl.constexpr = _spread(WIDTH)
    threads = gl.arange(0, 4, layout=gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    pairs = gl.arange(0, WIDTH // 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, layout)))[None, :, None]
    columns = gl.arange(0, 2, layout=gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    b_bias = gl.load(p_bias + (8 * pairs + 2 * threads + columns))
    s_bias.store((scale * b_bias.to(gl.float32)).to(b_bias.dtype))


@gluon.jit
def _bias(s_bias, WIDTH: gl.constexpr):
    """The biases of a chunk of columns in float32: a thread reads those of its columns at once."""
    b_bias = s_bias.load(_spread(WIDTH)).permute(1, 0, 2).reshape([WIDTH])
    layout: gl.constexpr = gl.SliceLayout(0, _sums(WIDTH))
    return gl.convert_layout(b_bias, layout, assert_trivial=True).to(gl.float32)[None, :]


@gluon.jit
def _barriers(FORM: gl.constexpr):
    """For places of the ring that are filled and left, for what each group has besides, and for the biases."""
    barriers: gl.constexpr = mbarrier.MBarrierLayout()
    full = gl.allocate_shared_memory(gl.int64, [FORM.STAGES, 1], barriers)
    empty = gl.allocate_shared_memory(gl.int64, [FORM.STAGES, 1], barriers)
    ready = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], barriers)
    free = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], barriers)
    for stage in gl.static_range(FORM.STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=GROUPS)
    for group in gl.static_range(GROUPS):
        mbarrier.init(ready.index(group), count=1)
        mbarrier.init(free.index(group), count=1)
    known = gl.allocate_shared_memory(gl.int64, [1, 1], barriers)
    mbarrier.init(known.index(0), count=1)
    return full, empty, ready, free, known


@gluon.jit
def _tiles(n_pairs, FORM: gl.constexpr):
    """How many tiles there are; those of the same pairs follow each other."""
    return gl.cdiv(n_pairs, GROUPS * ROWS) * FORM.BLOCKS


@gluon.jit
def _produce(d_read, d_weight, d_beside, ring, beside, n_pairs, FORM: gl.constexpr):
    """Ask for what tile after tile needs, each when its place is free."""
    s_read, s_weight, full, empty = ring
    s_beside, ready, free = beside
    WEIGHTS: gl.constexpr = FORM.COLUMNS // FORM.BOX * d_weight.block_type.nbytes
    # What the launch before made is read after this: see tuning.DEPENDENT_LAUNCH.
    follow(FORM.PDL)
    turn = 0
    for tile in range(gl.program_id(0), _tiles(n_pairs, FORM), gl.num_programs(0)):
        row, block = tile // FORM.BLOCKS * (GROUPS * ROWS), tile % FORM.BLOCKS
        for step in range(FORM.STEPS):
            stage = step % FORM.STAGES
            mbarrier.wait(empty.index(stage), (_round(turn, step, FORM) & 1) ^ 1)
            bar = full.index(stage)
            mbarrier.expect(bar, GROUPS * d_read.block_type.nbytes + WEIGHTS)
            column = step * STEP
            for box in gl.static_range(FORM.COLUMNS // FORM.BOX):
                at = [block * FORM.COLUMNS + box * FORM.BOX, column]
                tma.async_copy_global_to_shared(d_weight, at, bar, _box(s_weight, stage, box, 0, FORM))
            for group in gl.static_range(GROUPS):
                place = s_read.index(stage * GROUPS + group)
                tma.async_copy_global_to_shared(d_read, [row + group * ROWS, column], bar, place)
            if step == FORM.STAGES:
                for group in gl.static_range(GROUPS):
                    mbarrier.wait(free.index(group), turn & 1)
                    mbarrier.expect(ready.index(group), FORM.COLUMNS // FORM.BOX * d_beside.block_type.nbytes)
                    for box in gl.static_range(FORM.COLUMNS // FORM.BOX):
                        at = [row + group * ROWS, block * FORM.COLUMNS % FORM.E + box * FORM.BOX]
                        to = _box(s_beside, group, box, 1, FORM)
                        tma.async_copy_global_to_shared(d_beside, at, ready.index(group), to)
        turn += 1  # noqa: SIM113  # the language has no enumerate


@gluon.jit
def _box(parts, place, box: gl.constexpr, dim: gl.constexpr, FORM: gl.constexpr):
    """``BOX`` of a tile's columns, which lie in one of its parts."""
    PART: gl.constexpr = box * FORM.BOX // FORM.WIDTHS[0]
    return parts[PART].index(place).slice(box * FORM.BOX - PART * FORM.WIDTHS[0], FORM.BOX, dim=dim)


@gluon.jit
def _round(turn, step, FORM: gl.constexpr):
    """How often the ring has gone round before a step of a tile."""
    return turn * (FORM.STEPS // FORM.STAGES) + step // FORM.STAGES


@gluon.jit
def _consume(group, leaving, ring, beside, n_pairs, FORM: gl.constexpr):
    """The product on a group's pairs, and what follows it, tile after tile."""
    d_product, d_gates, s_bias, known, p_gates_bias = leaving
    empty = ring[3]
    s_beside, ready, free = beside
    if group == 0:
        for place in gl.static_range(FORM.RESETS):
            _store_biases(s_bias, place, p_gates_bias + place * FORM.COLUMNS, 0.5, FORM.WIDTHS)
        mbarrier.arrive(known.index(0), count=1)
    turn = 0
    for tile in range(gl.program_id(0), _tiles(n_pairs, FORM), gl.num_programs(0)):
        row, block = tile // FORM.BLOCKS * (GROUPS * ROWS) + group * ROWS, tile % FORM.BLOCKS
        sums = _multiply(_zeros(FORM.WIDTHS), ring, group, turn, 0, FORM)
        # What the tile before left has gone by now.
        tma.store_wait(0)
        mbarrier.arrive(free.index(group), count=1)
        for step in range(1, FORM.STEPS):
            sums = _multiply(sums, ring, group, turn, step, FORM)
            mbarrier.arrive(empty.index((step - 1) % FORM.STAGES), count=1)
        sums = _wait(0, sums)
        mbarrier.arrive(empty.index((FORM.STEPS - 1) % FORM.STAGES), count=1)
        mbarrier.wait(known.index(0), 0)
        mbarrier.wait(ready.index(group), turn & 1)
        if block < FORM.RESETS:
            for part in gl.static_range(len(FORM.WIDTHS)):
                s_out = s_beside[part].index(group)
                b_read = s_out.load(_sums(FORM.WIDTHS[part]))
                s_out.store(_reset(sums[part], b_read, s_bias[part].index(block)))
            _leave(d_product, s_beside, group, row, block, FORM)
        else:
            for part in gl.static_range(len(FORM.WIDTHS)):
                s_beside[part].index(group).store(sums[part].to(d_gates.dtype))
            _leave(d_gates, s_beside, group, row, block, FORM)
        turn += 1  # noqa: SIM113  # the language has no enumerate
    tma.store_wait(0)


@gluon.jit
def _leave(d_out, s_beside, group, row, block, FORM: gl.constexpr):
    """Start the copy of what a group has made."""
    hopper.fence_async_shared()
    for box in gl.static_range(FORM.COLUMNS // FORM.BOX):
        at = [row, block * FORM.COLUMNS + box * FORM.BOX]
        tma.async_copy_shared_to_global(d_out, at, _box(s_beside, group, box, 1, FORM))


@gluon.jit
def _zeros(WIDTHS: gl.constexpr):
    """What the sums of parts begin with."""
    sums = ()
    for part in gl.static_range(len(WIDTHS)):
        sums += (gl.full([ROWS, WIDTHS[part]], 0, gl.float32, _sums(WIDTHS[part])),)
    return sums


@gluon.jit
def _store_biases(s_bias, place, p_bias, scale: gl.constexpr, WIDTHS: gl.constexpr):
    """Those of a tile's columns; one group does it for both, while the first weights and pairs are on their way."""
    for part in gl.static_range(len(WIDTHS)):
        _store_bias(s_bias[part].index(place), p_bias + part * WIDTHS[0], scale, WIDTHS[part])


@gluon.jit
def _multiply(sums, ring, group, turn, step, FORM: gl.constexpr):
    """Start a step of the product, when all steps but the one before it are done."""
    s_read, s_weight, full, _ = ring
    stage = step % FORM.STAGES
    mbarrier.wait(full.index(stage), _round(turn, step, FORM) & 1)
    left, started = s_read.index(stage * GROUPS + group), ()
    for part in gl.static_range(len(FORM.WIDTHS)):
        right = s_weight[part].index(stage).permute((1, 0))
        started += (hopper.warpgroup_mma(left, right, sums[part], use_acc=step > 0, is_async=True),)
    return _wait(len(FORM.WIDTHS), started)


@gluon.jit
def _wait(outstanding: gl.constexpr, started):
    """The sums of the parts, when all products but the given number are done."""
    sums = hopper.warpgroup_mma_wait(outstanding, deps=started)
    return (sums,) if len(started) == 1 else sums


@gluon.jit
def _reset(b_sum, b_read, s_bias):
    """r_i * a of a part's columns."""
    b_bias = _bias(s_bias, b_sum.shape[1])
    CODE: gl.constexpr = RESET_BF16 if b_read.dtype == gl.bfloat16 else RESET_FP16
    return gl.inline_asm_elementwise(
        CODE, "=r,f,f,f,f,r", [b_sum, b_bias, b_read], dtype=b_read.dtype, is_pure=True, pack=2
    )


_RESET = """{{
    .reg .f32 x0, x1;
    .reg .b32 t, h;
    fma.rn.f32 x0, $1, 0f3F000000, $3;
    fma.rn.f32 x1, $2, 0f3F000000, $4;
    tanh.approx.f32 x0, x0;
    tanh.approx.f32 x1, x1;
    cvt.rn.{type}x2.f32 t, x1, x0;
    mov.b32 h, {half};
    mul.rn.{type}x2 h, $5, h;
    fma.rn.{type}x2 $0, t, h, h;
}}"""
RESET_BF16 = gl.constexpr(_RESET.format(type="bf16", half="0x3F003F00"))
RESET_FP16 = gl.constexpr(_RESET.format(type="f16", half="0x38003800"))
"""sigmoid(x + bias) a = tanh((x + bias) / 2) a / 2 + a / 2 for two neighbours, the last step in 16 bits."""


@gluon.jit(do_not_specialize=["n_pairs"])
def candidates_forward(
    d_product, d_weight_a, d_weight_b, d_gates_a, d_gates_b, d_state_a, d_state_b, p_gates_bias, p_bias, p_out, p_seed,
    n_pairs, starts, lengths, rates, FORM: gl.constexpr,
):  # fmt: skip
    """Candidates, update, dropout and shuffle, from r_i * a and the update gates.

    A tile has half of the features of one cell, in two parts.
    """
    dtype: gl.constexpr = d_product.dtype
    d_weight, d_gates, d_state = (d_weight_a, d_weight_b), (d_gates_a, d_gates_b), (d_state_a, d_state_b)
    s_product = gl.allocate_shared_memory(dtype, [FORM.STAGES * GROUPS, ROWS, STEP], d_product.layout)
    s_weight, s_gates, s_state, s_bias = (), (), (), ()
    for part in gl.static_range(2):
        s_weight += (gl.allocate_shared_memory(dtype, [FORM.STAGES, FORM.WIDTHS[part], STEP], d_weight[part].layout),)
        s_gates += (gl.allocate_shared_memory(dtype, [GROUPS, ROWS, FORM.WIDTHS[part]], d_gates[part].layout),)
        s_state += (gl.allocate_shared_memory(dtype, [GROUPS, ROWS, FORM.WIDTHS[part]], d_state[part].layout),)
        s_bias += (_allocate_biases(p_bias, 2 * FORM.BLOCKS, FORM.WIDTHS[part]),)
    full, empty, ready, free, known = _barriers(FORM)
    ring, beside = (s_product, s_weight, full, empty), (s_gates, s_state, ready, free)
    out = (p_out, p_seed, s_bias, starts, lengths, rates, known, p_gates_bias, p_bias)
    coming = (d_product, d_weight, d_gates, d_state)
    gl.warp_specialize([
        (_consume_candidates, (0, out, ring, beside, n_pairs, FORM)),
        (_consume_candidates, (1, out, ring, beside, n_pairs, FORM)),
        (_produce_candidates, (coming, ring, beside, n_pairs, FORM)),
    ], [4, 1], [REGISTERS, PRODUCER])  # fmt: skip


@gluon.jit
def _produce_candidates(coming, ring, beside, n_pairs, FORM: gl.constexpr):
    """Ask for what tile after tile needs, each when its place is free."""
    d_product, d_weight, d_gates, d_state = coming
    s_product, s_weight, full, empty = ring
    s_gates, s_state, ready, free = beside
    WEIGHTS: gl.constexpr = d_weight[0].block_type.nbytes + d_weight[1].block_type.nbytes
    BESIDE: gl.constexpr = 2 * (d_gates[0].block_type.nbytes + d_gates[1].block_type.nbytes)
    follow(FORM.PDL)
    turn = 0
    for tile in range(gl.program_id(0), _tiles(n_pairs, FORM), gl.num_programs(0)):
        row, block = tile // FORM.BLOCKS * (GROUPS * ROWS), tile % FORM.BLOCKS
        i, half = block // 2, block % 2
        first = block * (FORM.D // 2)
        for step in range(FORM.STEPS):
            stage = step % FORM.STAGES
            mbarrier.wait(empty.index(stage), (_round(turn, step, FORM) & 1) ^ 1)
            bar = full.index(stage)
            mbarrier.expect(bar, GROUPS * d_product.block_type.nbytes + WEIGHTS)
            column = step * STEP
            for part in gl.static_range(2):
                at = [first + part * FORM.WIDTHS[0], column]
                tma.async_copy_global_to_shared(d_weight[part], at, bar, s_weight[part].index(stage))
            for group in gl.static_range(GROUPS):
                place = s_product.index(stage * GROUPS + group)
                at = [row + group * ROWS, i * FORM.E + column]
                tma.async_copy_global_to_shared(d_product, at, bar, place)
            if step == FORM.STAGES:
                update = 2 * FORM.E + first
                # Half of the features of swapHalf(s).
                copied = (i ^ half if FORM.SWAP else i) * FORM.D + half * (FORM.D // 2)
                for group in gl.static_range(GROUPS):
                    top, bar = row + group * ROWS, ready.index(group)
                    mbarrier.wait(free.index(group), (turn & 1) ^ 1)
                    mbarrier.expect(bar, BESIDE)
                    for part in gl.static_range(2):
                        at = [top, update + part * FORM.WIDTHS[0]]
                        tma.async_copy_global_to_shared(d_gates[part], at, bar, s_gates[part].index(group))
                    for part in gl.static_range(2):
                        at = [top, copied + part * FORM.WIDTHS[0]]
                        tma.async_copy_global_to_shared(d_state[part], at, bar, s_state[part].index(group))
        turn += 1  # noqa: SIM113  # the language has no enumerate


@gluon.jit
def _consume_candidates(group, out, ring, beside, n_pairs, FORM: gl.constexpr):
    """The product on a group's pairs, and what follows it, tile after tile."""
    empty = ring[3]
    s_gates, s_state, ready, free = beside
    _, _, s_bias, _, _, _, known, p_gates_bias, p_bias = out
    if group == 0:
        # Halves of those of the update gates, then those of the candidates.
        for place in gl.static_range(FORM.BLOCKS):
            p_update = p_gates_bias + 2 * FORM.E + place * (FORM.D // 2)
            _store_biases(s_bias, place, p_update, 0.5, FORM.WIDTHS)
            _store_biases(s_bias, FORM.BLOCKS + place, p_bias + place * (FORM.D // 2), 1.0, FORM.WIDTHS)
        mbarrier.arrive(known.index(0), count=1)
    turn = 0
    for tile in range(gl.program_id(0), _tiles(n_pairs, FORM), gl.num_programs(0)):
        first, block = (tile // FORM.BLOCKS * GROUPS + group).to(gl.int64) * ROWS, tile % FORM.BLOCKS
        sums = _zeros(FORM.WIDTHS)
        for step in range(FORM.STEPS):
            sums = _multiply(sums, ring, group, turn, step, FORM)
            if step > 0:
                mbarrier.arrive(empty.index((step - 1) % FORM.STAGES), count=1)
        sums = _wait(0, sums)
        mbarrier.arrive(empty.index((FORM.STEPS - 1) % FORM.STAGES), count=1)
        mbarrier.wait(known.index(0), 0)
        mbarrier.wait(ready.index(group), turn & 1)
        here = (first, block, gl.minimum(n_pairs - first, ROWS).to(gl.int32))
        for part in gl.static_range(2):
            _finish(part, sums[part], s_gates[part].index(group), s_state[part].index(group), here, out, FORM)
        hopper.fence_async_shared()
        mbarrier.arrive(free.index(group), count=1)
        turn += 1  # noqa: SIM113  # the language has no enumerate


@gluon.jit
def _finish(part: gl.constexpr, b_sum, s_gates, s_state, here, out, FORM: gl.constexpr):
    """A part of the outputs to where the shuffle wants them: it goes there by the place of what was copied."""
    p_out, p_seed, biases, starts, lengths, rates, _, _, _ = out
    first, block, inside = here
    s_bias = biases[part]
    WIDTH: gl.constexpr = b_sum.shape[1]
    layout: gl.constexpr = _sums(WIDTH)
    i, begin = block // 2, block % 2 * (FORM.D // 2) + part * FORM.WIDTHS[0]
    b_update = 0.5 * s_gates.load(layout).to(gl.float32) + _bias(s_bias.index(block), WIDTH)
    b_update = 0.5 * tanh(b_update, True) + 0.5
    b_candidate = tanh(b_sum + _bias(s_bias.index(FORM.BLOCKS + block), WIDTH), True)
    b_out = b_candidate + b_update * (s_state.load(layout).to(gl.float32) - b_candidate)
    if FORM.DROPOUT:
        rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
        columns = begin + gl.arange(0, WIDTH, layout=gl.SliceLayout(0, layout))
        b_out *= random_scale_of_rows(p_seed, first, rows, i, columns, starts, rates, FORM.D, FORM.DROPOUT)
    s_state.store(b_out.to(s_state.dtype))
    lines: gl.constexpr = _lines(WIDTH)
    numbers = gl.arange(0, ROWS, layout=gl.SliceLayout(1, lines))
    cells = destination(first + numbers, i, starts, lengths, FORM.SHUFFLE)
    columns = begin + gl.arange(0, WIDTH, layout=gl.SliceLayout(0, lines))
    at = p_out + cells[:, None] * FORM.D + columns[None, :]
    gl.store(at, s_state.load(lines), mask=(numbers < inside)[:, None])


def gates_launch(
    form: WideForm, device: torch.device, pairs: int, features: int, dtype: torch.dtype, *, pdl: bool
) -> DescriptorLaunch:
    """The launch for a layer's shape.

    It takes what is read, the weights of the gates, what is read once more, where products go, where update gates go,
    and the gates' bias.
    """
    pair = 2 * features
    steps, blocks, stages = pair // STEP.value, 3 * pair // form.columns, STAGES[form.columns]
    assert steps % stages == 0 < steps // stages - 1
    assert pair % form.columns == 0
    widths = PARTS[form.columns]
    wide = [Matrix(pairs, width, ROWS.value, widths[-1]) for width in (pair, 2 * pair, 3 * pair)]
    constants = Constants(
        E=pair, STAGES=stages, STEPS=steps, COLUMNS=form.columns, WIDTHS=widths, BOX=widths[-1], BLOCKS=blocks,
        RESETS=2 * pair // form.columns, PDL=pdl,
    )  # fmt: skip
    programs = min(-(-pairs // (2 * ROWS.value)) * blocks, multiprocessors(device))
    return DescriptorLaunch(
        sys.modules[__name__], "gates_forward", (programs,),
        [Matrix(pairs, pair, ROWS.value, STEP.value), Matrix(3 * pair, pair, widths[-1], STEP.value), *wide],
        dtype, pairs, FORM=constants, num_warps=WARPS.value, maxnreg=168, launch_pdl=pdl,
    )  # fmt: skip


def candidates_launch(
    device: torch.device,
    pairs: int,
    features: int,
    groups: tuple[Any, ...],
    dtype: torch.dtype,
    **flags: Any,
) -> DescriptorLaunch:
    """The launch for a layer's shape.

    It takes products r_i * a, the weights of the candidates twice, gates twice and pairs twice, then the biases of
    gates and candidates, the output and the seed.
    """
    pair, steps, parts = 2 * features, 2 * features // STEP.value, PARTS[features // 2]
    matrices = [
        Matrix(pairs, 2 * pair, ROWS.value, STEP.value),
        *(Matrix(pair, pair, part, STEP.value) for part in parts),
        *(Matrix(pairs, width, ROWS.value, part) for width in (3 * pair, pair) for part in parts),
    ]
    # Update gates and copied values take the room of a fourth place.
    constants = Constants(D=features, E=pair, STAGES=3, STEPS=steps, WIDTHS=parts, BLOCKS=4, **flags)
    programs = min(-(-pairs // (2 * ROWS.value)) * 4, multiprocessors(device))
    return DescriptorLaunch(
        sys.modules[__name__], "candidates_forward", (programs,), matrices, dtype, pairs, *groups,
        FORM=constants, num_warps=WARPS.value, maxnreg=168, launch_pdl=flags["PDL"],
    )  # fmt: skip
