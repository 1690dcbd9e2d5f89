"""Consecutive layers of one unit as one launch, for few pairs on GPUs with warpgroup products (sm_90).

All programs run at once (a cooperative launch), ``WAYS`` of them on each tile of ``GROUPS`` times ``ROWS`` pairs. A
program keeps its rows of the weights in shared memory, for all layers. In each of them it makes

    some columns of the reset gates, whose products r * a with the pairs go to memory, and of the update gates, from a,
    as many columns of the outputs, from the candidates that are formed of all columns of r * a of one cell.

Between the two lines it waits for the other programs of its tile, after the second for all programs: the shuffle brings
cells to other tiles. Those who have stored count themselves in a counter in memory; the warp that copies waits for its
count, and all that others made comes by that warp, or after it has seen the count. Counters are zero before a launch.
Every layer has rows of its own in ``states``, and the one buffer for r * a is written again only when all have read it.

A skip connection is added by those who make a layer's input: they leave a of the next layer beside it, in one of two
buffers in turn.
"""

# D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair, a = what gates and candidates read, s + scale * skip;
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
from riffle.kernels.gated_switch import copied_columns, destination, tanh
from riffle.kernels.hopper import ROWS, WARPS, _lines, _sums

mbarrier, tma = hopper.mbarrier, hopper.tma
GROUPS = gl.constexpr(2)
"""Groups of warps of a program, each with ``ROWS`` pairs of the tile."""
STEP = gl.constexpr(64)
"""Columns of the pairs that a place of the ring has."""
STAGES = gl.constexpr(4)
"""Places of the ring."""
WAYS = gl.constexpr(8)
"""Programs of a tile, half of them for each cell."""
REGISTERS, PRODUCER = gl.constexpr(224), gl.constexpr(56)
"""Registers of a thread in the groups, and of one of the warp that copies."""
SPACING = gl.constexpr(32)
"""Numbers from one counter to the next, so that no two share a line of the cache."""


@gluon.jit(do_not_specialize=["n_pairs", "n_layers"])
def layers_forward(
    d_gates, d_update, d_candidates, d_input, d_reads, d_product, p_gates_bias, p_bias, p_input, p_states, p_reads,
    p_skips, p_scale, p_product, p_counters, n_pairs, n_layers, starts, lengths, rates, FORM: gl.constexpr,
):  # fmt: skip
    """Gates, candidates, update and shuffle, layer after layer; ``states`` takes what each of them makes.

    Without a skip connection all layers but the first read ``states``, and ``d_reads`` describes these.
    """
    dtype: gl.constexpr = d_gates.dtype
    s_ring = gl.allocate_shared_memory(dtype, [STAGES * GROUPS, ROWS, STEP], d_input.layout)
    s_gates, s_candidate, s_reset_bias, s_update_bias, s_bias = (), (), (), (), ()
    for block in gl.static_range(len(FORM.BLOCKS)):
        s_gates += (gl.allocate_shared_memory(dtype, [FORM.STEPS, FORM.BLOCKS[block], STEP], d_gates.layout),)
    for part in gl.static_range(len(FORM.WIDTHS)):
        s_reset_bias += (_allocate_biases(p_bias, 1, FORM.WIDTHS[part]),)
    for part in gl.static_range(len(FORM.OUTS)):
        s_candidate += (gl.allocate_shared_memory(dtype, [FORM.STEPS, FORM.OUTS[part], STEP], d_candidates.layout),)
        s_update_bias += (_allocate_biases(p_bias, 1, FORM.OUTS[part]),)
        s_bias += (_allocate_biases(p_bias, 1, FORM.OUTS[part]),)
    barriers: gl.constexpr = mbarrier.MBarrierLayout()
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barriers)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barriers)
    once = gl.allocate_shared_memory(gl.int64, [2, 1], barriers)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=GROUPS)
    for number in gl.static_range(2):
        mbarrier.init(once.index(number), count=1)
    ring, weights = (s_ring, full, empty), (s_gates, s_candidate, once)
    biases = (s_reset_bias, s_update_bias, s_bias, p_gates_bias, p_bias)
    coming = (d_gates, d_update, d_candidates, d_input, d_reads, d_product)
    memory = (p_input, p_states, p_reads, p_skips, p_scale, p_product, p_counters)
    shape = (n_pairs, n_layers, starts, lengths)
    gl.warp_specialize([
        (_consume, (0, weights, biases, ring, memory, shape, FORM)),
        (_consume, (1, weights, biases, ring, memory, shape, FORM)),
        (_produce, (coming, weights, ring, p_counters, n_pairs, n_layers, FORM)),
    ], [4, 1], [REGISTERS, PRODUCER])  # fmt: skip


@gluon.jit
def _part():
    """Of a program: its tile, its cell, and its number among the programs of both."""
    way = gl.program_id(0) % WAYS
    return gl.program_id(0) // WAYS, way // (WAYS // 2), way % (WAYS // 2)


@gluon.jit
def _column(way, part: gl.constexpr, FORM: gl.constexpr):
    """Where in a cell's reset gates a part of a program's columns begins: first come the first parts of all."""
    return part * (WAYS // 2 * FORM.WIDTHS[0]) + way * FORM.WIDTHS[part]


@gluon.jit
def _step_of(position, way, FORM: gl.constexpr):
    """Which columns of a come at a position: those last of which a program has the reset gates.

    Where the parts of a program are as wide as a step and half of that, these are two steps: ``way``, one of the first
    WAYS // 2, and one of those after them, in which two programs have their second parts.
    """
    HALF: gl.constexpr = WAYS // 2
    LAST: gl.constexpr = FORM.STEPS - 1
    if FORM.LAST == 1:
        return (way + 1 + position) % FORM.STEPS
    else:
        # The other steps of each kind, in turn, then the own of the first kind and that of the second.
        first = (way + 1 + position) % HALF
        second = HALF + (way // 2 + 2 + position - HALF) % (FORM.STEPS - HALF)
        step = gl.where(position < HALF - 1, first, second)
        return gl.where(position == LAST - 1, way, gl.where(position == LAST, HALF + way // 2, step))


# What is copied


@gluon.jit
def _produce(coming, weights, ring, p_counters, n_pairs, n_layers, FORM: gl.constexpr):
    """Ask for the weights, then for what each layer reads, when those have stored it who make it."""
    d_gates, d_update, d_candidates, d_input, d_reads, d_product = coming
    s_gates, s_candidate, once = weights
    tile, i, way = _part()
    LOADED: gl.constexpr = FORM.STEPS * (FORM.COLUMNS + 2 * FORM.OUTPUTS) * STEP * 2
    mbarrier.expect(once.index(0), LOADED)
    output = i * FORM.D + way * FORM.OUTPUTS
    for step in range(FORM.STEPS):
        for part in gl.static_range(len(FORM.WIDTHS)):
            row = i * FORM.E + _column(way, part, FORM)
            _ask_weights(d_gates, s_gates, part * FORM.WIDTHS[0], FORM.WIDTHS[part], row, step, once, FORM.BLOCKS)
        for part in gl.static_range(len(FORM.OUTS)):
            row = output + part * FORM.OUTS[0]
            _ask_weights(d_candidates, s_candidate, part * FORM.OUTS[0], FORM.OUTS[part], row, step, once, FORM.OUTS)
            row += 2 * FORM.E
            _ask_weights(
                d_update, s_gates, FORM.COLUMNS + part * FORM.OUTS[0], FORM.OUTS[part], row, step, once, FORM.BLOCKS
            )
    row = tile * (GROUPS * ROWS)
    for layer in range(n_layers):
        if layer == 0:
            _ask(d_input, ring, row, 0, way, True, 0, FORM)
        else:
            _await(p_counters, layer * (gl.num_programs(0) * GROUPS))
            before = ((layer - 1) & 1 if FORM.SKIP else layer - 1) * n_pairs + row
            _ask(d_reads, ring, before, 0, way, True, 2 * layer, FORM)
        _await(p_counters + (1 + tile) * SPACING, (layer + 1) * (WAYS * GROUPS))
        _ask(d_product, ring, row, i * FORM.E, way, False, 2 * layer + 1, FORM)


@gluon.jit
def _ask_weights(
    d_weight, blocks, BEGIN: gl.constexpr, WIDTH: gl.constexpr, row, step, once, BLOCKS: gl.constexpr
):  # fmt: skip
    """Ask for some rows of weights, those columns that a step multiplies, to a part of one of two blocks."""
    BOX: gl.constexpr = d_weight.block_type.shape[0]
    BLOCK: gl.constexpr = BEGIN // BLOCKS[0]
    for box in gl.static_range(WIDTH // BOX):
        place = blocks[BLOCK].index(step).slice(BEGIN - BLOCK * BLOCKS[0] + box * BOX, BOX, dim=0)
        tma.async_copy_global_to_shared(d_weight, [row + box * BOX, step * STEP], once.index(0), place)


@gluon.jit
def _ask(d_read, ring, row, column, way, OWN: gl.constexpr, turn, FORM: gl.constexpr):
    """Ask for a product's left side, step by step, each when its place is free; where ``OWN``, own columns last."""
    s_ring, full, empty = ring
    for position in range(FORM.STEPS):
        stage, parity = _place(turn, position, FORM)
        step = _step_of(position, way, FORM) if OWN else position
        mbarrier.wait(empty.index(stage), parity ^ 1)
        mbarrier.expect(full.index(stage), GROUPS * d_read.block_type.nbytes)
        for group in gl.static_range(GROUPS):
            place = s_ring.index(stage * GROUPS + group)
            at = [row + group * ROWS, column + step * STEP]
            tma.async_copy_global_to_shared(d_read, at, full.index(stage), place)


@gluon.jit
def _place(turn, position, FORM: gl.constexpr):
    """The place of the ring that a step of a product takes, and the parity of the rounds before."""
    use = turn * FORM.STEPS + position
    return use % STAGES, use // STAGES & 1


# Counters in memory


@gluon.jit
def _await(p_counter, target):
    """Wait for a count; what those have stored who counted can then be copied."""
    count = _count(p_counter)
    while count < target:
        count = _count(p_counter)
    _fence()


@gluon.jit
def _count(p_counter):
    """A counter, read from where all programs see it."""
    return gl.inline_asm_elementwise(
        "ld.acquire.gpu.global.s32 $0, [$1];", "=r,l", [p_counter], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def _fence():
    """What this thread has stored, or knows to be stored, can be copied."""
    gl.inline_asm_elementwise(
        "fence.proxy.async; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )  # fmt: skip


@gluon.jit
def _signal(p_counter):
    """Count a group whose threads all have stored: whoever sees the count sees what was stored before the barrier."""
    _fence()
    gl.thread_barrier()
    gl.atomic_add(p_counter, 1, sem="release", scope="gpu")


# What is computed


@gluon.jit
def _consume(group, weights, biases, ring, memory, shape, FORM: gl.constexpr):
    """All layers on a group's pairs."""
    s_gates, s_candidate, once = weights
    s_reset_bias, s_update_bias, s_bias, _, _ = biases
    p_input, p_states, p_reads, p_skips, p_scale, p_product, p_counters = memory
    n_pairs, n_layers, starts, lengths = shape
    tile, i, way = _part()
    if group == 0:
        _store_biases(biases, i, way, FORM)
        mbarrier.arrive(once.index(1), count=1)
    first = (tile * GROUPS + group).to(gl.int64) * ROWS
    begin = way * FORM.OUTPUTS
    RESETS: gl.constexpr = len(FORM.WIDTHS)
    mbarrier.wait(once.index(0), 0)
    mbarrier.wait(once.index(1), 0)
    for layer in range(n_layers):
        sums = _multiply(s_gates, FORM.BLOCKS, ring, group, way, True, 2 * layer, FORM)
        if len(FORM.BLOCKS) < RESETS + len(FORM.OUTS):
            low, high = _halves(sums[0])
            middle = _halves(high)
            sums = (low, middle[0], middle[1], sums[1])
        b_reads = _read_own(ring, group, way, 2 * layer, FORM)
        for part in gl.static_range(RESETS):
            b_product = _reset(sums[part], b_reads[part], s_reset_bias[part].index(0))
            _leave(p_product, b_product, i * FORM.E + _column(way, part, FORM), first, FORM)
        _signal(p_counters + (1 + tile) * SPACING)
        # While the others of the tile do the same.
        numbers = layer.to(gl.int64) * n_pairs * FORM.E  # type: ignore[attr-defined]  # a number of the language
        p_state = p_input if layer == 0 else p_states + (numbers - n_pairs * FORM.E)
        b_updates, b_copied, b_skips = (), (), ()
        for part in gl.static_range(len(FORM.OUTS)):
            b_sum = 0.5 * sums[RESETS + part] + _bias(s_update_bias[part].index(0), FORM.OUTS[part])
            b_updates += (0.5 * tanh(b_sum, True) + 0.5,)
            b_copied += (_load_copied(p_state, begin + part * FORM.OUTS[0], i, first, FORM.OUTS[part], FORM),)
            if FORM.SKIP:
                cells, columns = _out(begin + part * FORM.OUTS[0], i, first, starts, lengths, FORM.OUTS[part], FORM)
                b_skips += (gl.load(p_skips + numbers + (cells * FORM.D + columns)),)
        sums = _multiply(s_candidate, FORM.OUTS, ring, group, way, False, 2 * layer + 1, FORM)
        for part in gl.static_range(len(FORM.OUTS)):
            b_candidate = tanh(sums[part] + _bias(s_bias[part].index(0), FORM.OUTS[part]), True)
            b_out = b_candidate + b_updates[part] * (b_copied[part].to(gl.float32) - b_candidate)
            b_out = gl.convert_layout(b_out.to(p_states.dtype.element_ty), _lines(FORM.OUTS[part]))
            cells, columns = _out(begin + part * FORM.OUTS[0], i, first, starts, lengths, FORM.OUTS[part], FORM)
            gl.store(p_states + numbers + (cells * FORM.D + columns), b_out)
            if FORM.SKIP:
                b_read = b_out.to(gl.float32) + gl.load(p_scale + columns) * b_skips[part].to(gl.float32)
                p_read = p_reads + (layer & 1).to(gl.int64) * n_pairs * FORM.E
                gl.store(p_read + (cells * FORM.D + columns), b_read.to(p_states.dtype.element_ty))
        _signal(p_counters)


@gluon.jit
def _store_biases(biases, i, way, FORM: gl.constexpr):
    """Halves of those of the reset and update gates, and those of the candidates, of a program's columns."""
    s_reset, s_update, s_candidate, p_gates_bias, p_bias = biases
    for part in gl.static_range(len(FORM.WIDTHS)):
        p_reset = p_gates_bias + (i * FORM.E + _column(way, part, FORM))
        _store_bias(s_reset[part].index(0), p_reset, 0.5, FORM.WIDTHS[part])
    for part in gl.static_range(len(FORM.OUTS)):
        column = i * FORM.D + way * FORM.OUTPUTS + part * FORM.OUTS[0]
        _store_bias(s_update[part].index(0), p_gates_bias + (2 * FORM.E + column), 0.5, FORM.OUTS[part])
        _store_bias(s_candidate[part].index(0), p_bias + column, 1.0, FORM.OUTS[part])


@gluon.jit
def _multiply(parts, WIDTHS: gl.constexpr, ring, group, way, OWN: gl.constexpr, turn, FORM: gl.constexpr):
    """The products of what comes through the ring with resident weights, in parts of some columns.

    Where ``OWN``, the last places are not left: :func:`_read_own` does it.
    """
    s_ring, full, empty = ring
    PARTS: gl.constexpr = len(WIDTHS)
    LAST: gl.constexpr = FORM.LAST if OWN else 0
    sums = _zeros(WIDTHS)
    for position in range(FORM.STEPS):
        stage, parity = _place(turn, position, FORM)
        step = _step_of(position, way, FORM) if OWN else position
        mbarrier.wait(full.index(stage), parity)
        left, started = s_ring.index(stage * GROUPS + group), ()
        for part in gl.static_range(PARTS):
            right = parts[part].index(step).permute((1, 0))
            started += (hopper.warpgroup_mma(left, right, sums[part], use_acc=position > 0, is_async=True),)
        sums = _wait(PARTS, started)
        if position > 0 and position <= FORM.STEPS - LAST:
            before, _ = _place(turn, position - 1, FORM)
            mbarrier.arrive(empty.index(before), count=1)
    sums = _wait(0, sums)
    if LAST == 0:
        before, _ = _place(turn, FORM.STEPS - 1, FORM)
        mbarrier.arrive(empty.index(before), count=1)
    return sums


@gluon.jit
def _read_own(ring, group, way, turn, FORM: gl.constexpr):
    """Those columns of a whose reset gates a program makes, from the last places of the ring, which are then left."""
    s_ring, _, empty = ring
    b_reads = ()
    for part in gl.static_range(FORM.LAST):
        stage, _ = _place(turn, FORM.STEPS - FORM.LAST + part, FORM)
        b_read = s_ring.index(stage * GROUPS + group).load(_sums(STEP))
        mbarrier.arrive(empty.index(stage), count=1)
        if FORM.WIDTHS[part] < STEP:
            low, high = _halves(b_read)
            b_read = gl.where(way % 2 == 0, low, high)
        b_reads += (b_read,)
    return b_reads


@gluon.jit
def _halves(b_all):
    """The first and the second half of a block's columns, which every thread has of its rows."""
    HALF: gl.constexpr = b_all.shape[1] // 2
    low, high = gl.split(b_all.reshape([ROWS, 2, HALF]).permute(0, 2, 1))
    low = gl.convert_layout(low, _sums(HALF), assert_trivial=True)
    return low, gl.convert_layout(high, _sums(HALF), assert_trivial=True)


@gluon.jit
def _leave(p_product, b_product, begin, first, FORM: gl.constexpr):
    """A part of r * a to where all programs of the tile find it."""
    lines: gl.constexpr = _lines(b_product.shape[1])
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, lines))
    columns = begin + gl.arange(0, b_product.shape[1], layout=gl.SliceLayout(0, lines))
    offsets = rows[:, None] * (2 * FORM.E) + columns[None, :]
    gl.store(p_product + first * (2 * FORM.E) + offsets, gl.convert_layout(b_product, lines))


@gluon.jit
def _load_copied(p_state, begin, i, first, WIDTH: gl.constexpr, FORM: gl.constexpr):
    """A part of swapHalf(s), past the first-level cache, which may hold what was there before."""
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, _sums(WIDTH)))
    columns = begin + gl.arange(0, WIDTH, layout=gl.SliceLayout(0, _sums(WIDTH)))
    offsets = rows[:, None] * FORM.E + copied_columns(columns, i, FORM.D, FORM.SWAP)[None, :]
    return gl.load(p_state + first * FORM.E + offsets, cache_modifier=".cg")


@gluon.jit
def _out(begin, i, first, starts, lengths, WIDTH: gl.constexpr, FORM: gl.constexpr):
    """Cells and columns to which the shuffle brings a part of the outputs."""
    lines: gl.constexpr = _lines(WIDTH)
    numbers = gl.arange(0, ROWS, layout=gl.SliceLayout(1, lines))
    cells = destination(first + numbers, i, starts, lengths, FORM.SHUFFLE)
    columns = begin + gl.arange(0, WIDTH, layout=gl.SliceLayout(0, lines))
    return cells[:, None], columns[None, :]


# Biases, sums, reset gates


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
def _zeros(WIDTHS: gl.constexpr):
    """What the sums of parts begin with."""
    sums = ()
    for part in gl.static_range(len(WIDTHS)):
        sums += (gl.full([ROWS, WIDTHS[part]], 0, gl.float32, _sums(WIDTHS[part])),)
    return sums


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


def parts(columns: int) -> tuple[int, ...]:
    """Columns as blocks, which are powers of two wide: the largest one and the rest.

    >>> parts(96), parts(64)
    ((64, 32), (64,))
    """
    largest = 1 << (columns.bit_length() - 1)
    rest = columns - largest
    assert rest & (rest - 1) == 0
    return (largest, rest) if rest else (largest,)


def tile_pairs() -> int:
    """Pairs of a tile: a launch takes a multiple of them."""
    return GROUPS.value * ROWS.value


def counters(pairs: int) -> int:
    """Numbers that a launch counts in, zero before it."""
    return (1 + pairs // tile_pairs()) * SPACING.value


def layers_launch(
    pairs: int,
    features: int,
    groups: tuple[Any, ...],
    dtype: torch.dtype,
    *,
    layers: int,
    **flags: Any,
) -> DescriptorLaunch:
    """The launch of several layers of one shape.

    It takes the weights of the gates twice, those of the candidates, what the first layer reads, what the others read
    and the products, then the biases of gates and candidates, the cells, the states of all layers, room for what two
    layers read, the cells that skip connections add, all layers' but the first one's, their scale, the products and the
    counters.
    """
    pair, steps = 2 * features, 2 * features // STEP.value
    columns, outputs = 2 * pair // WAYS.value, pair // WAYS.value
    widths, outs = parts(columns), parts(outputs)
    # The columns of a of which a program has the reset gates are one step, or one and half of another.
    assert widths in ((STEP.value,), (STEP.value, STEP.value // 2))
    assert pairs % tile_pairs() == 0
    # One product for the parts that are a power of two together: what is read is read once for all of them.
    blocks = (sum(widths) + outs[0], outs[1]) if len(outs) > 1 else (*widths, *outs)
    matrices = [
        Matrix(3 * pair, pair, widths[-1], STEP.value),
        Matrix(3 * pair, pair, outs[-1], STEP.value),
        Matrix(pair, pair, outs[-1], STEP.value),
        Matrix(pairs, pair, ROWS.value, STEP.value),
        Matrix((2 if flags["SKIP"] else layers) * pairs, pair, ROWS.value, STEP.value),
        Matrix(pairs, 2 * pair, ROWS.value, STEP.value),
    ]
    constants = Constants(
        D=features, E=pair, STEPS=steps, COLUMNS=columns, WIDTHS=widths, OUTPUTS=outputs, OUTS=outs, BLOCKS=blocks,
        LAST=len(widths), **flags,
    )  # fmt: skip
    return DescriptorLaunch(
        sys.modules[__name__], "layers_forward", (pairs // tile_pairs() * WAYS.value,), matrices, dtype, pairs, layers,
        *groups, FORM=constants, num_warps=WARPS.value, maxnreg=168, launch_cooperative_grid=True,
    )  # fmt: skip
