"""Consecutive layers of one unit as one launch, for few pairs on GPUs with warpgroup products (sm_90).

All programs run at once (a cooperative launch), ``WAYS`` of them on each tile of ``GROUPS`` times ``ROWS`` pairs. A
program keeps its rows of the weights in shared memory, for all layers. In each of them it makes

    some columns of the reset gates, whose products r * a with the pairs go to memory, and of the update gates, from a,
    as many columns of the outputs, from the candidates that are formed of all columns of r * a of one cell.

Between the two lines it waits for the other programs of its tile, after the second for all programs: the shuffle brings
cells to other tiles. Those who have stored count themselves in a counter in memory; the warp that copies waits for its
count, and all that others made comes by that warp, or after it has seen the count. Counters are zero before a launch.
Every layer has rows of its own in ``states``, and the one buffer for r * a is written again only when all have read it.
"""

# D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair, a = what gates and candidates read
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
from riffle.kernels.gated_switch import _copied, _destination, _tanh
from riffle.kernels.hopper import PRODUCER, ROWS, WARPS, _lines, _sums
from riffle.kernels.hopper_wide import _allocate_biases, _bias, _reset, _round, _store_bias, _wait, _zeros
from riffle.kernels.tuning import ResidentForm

mbarrier, tma = hopper.mbarrier, hopper.tma
STEP = gl.constexpr(64)
"""Columns of the pairs that a place of the ring has."""
WAYS = gl.constexpr(8)
"""Programs of a tile."""
GROUPS = gl.constexpr(2)
"""Groups of warps of a program, each with ``ROWS`` pairs of the tile."""
SPACING = gl.constexpr(32)
"""Numbers from one counter to the next, so that no two share a line of the cache."""


@gluon.jit(do_not_specialize=["n_pairs", "n_layers"])
def layers_forward(
    d_gates, d_update, d_candidates, d_input, d_states, d_product, d_input_beside, d_states_beside, p_gates_bias,
    p_bias, p_input, p_states, p_product, p_counters, n_pairs, n_layers, starts, lengths, rates, FORM: gl.constexpr,
):  # fmt: skip
    """Gates, candidates, update and shuffle, layer after layer; ``states`` takes what each of them makes."""
    dtype: gl.constexpr = d_gates.dtype
    s_ring = gl.allocate_shared_memory(dtype, [FORM.STAGES * GROUPS, ROWS, STEP], d_input.layout)
    s_reset, s_beside, s_update, s_candidate, b_reset, b_update, b_candidate = (), (), (), (), (), (), ()
    for part in gl.static_range(len(FORM.WIDTHS)):
        s_reset += (gl.allocate_shared_memory(dtype, [FORM.STEPS, FORM.WIDTHS[part], STEP], d_gates.layout),)
        s_beside += (gl.allocate_shared_memory(dtype, [GROUPS, ROWS, FORM.WIDTHS[part]], d_input_beside.layout),)
        b_reset += (_allocate_biases(p_bias, 1, FORM.WIDTHS[part]),)
    for part in gl.static_range(len(FORM.OUTS)):
        s_update += (gl.allocate_shared_memory(dtype, [FORM.STEPS, FORM.OUTS[part], STEP], d_update.layout),)
        s_candidate += (gl.allocate_shared_memory(dtype, [FORM.STEPS, FORM.OUTS[part], STEP], d_candidates.layout),)
        b_update += (_allocate_biases(p_bias, 1, FORM.OUTS[part]),)
        b_candidate += (_allocate_biases(p_bias, 1, FORM.OUTS[part]),)
    barriers: gl.constexpr = mbarrier.MBarrierLayout()
    full = gl.allocate_shared_memory(gl.int64, [FORM.STAGES, 1], barriers)
    empty = gl.allocate_shared_memory(gl.int64, [FORM.STAGES, 1], barriers)
    ready = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], barriers)
    free = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], barriers)
    once = gl.allocate_shared_memory(gl.int64, [2, 1], barriers)
    for stage in gl.static_range(FORM.STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=GROUPS)
    for group in gl.static_range(GROUPS):
        mbarrier.init(ready.index(group), count=1)
        mbarrier.init(free.index(group), count=1)
        mbarrier.init(once.index(group), count=1)
    ring, beside = (s_ring, full, empty), (s_beside, ready, free)
    weights = (s_reset, s_update, s_candidate, once)
    biases = (b_reset, b_update, b_candidate, p_gates_bias, p_bias)
    coming = (d_gates, d_update, d_candidates, d_input, d_states, d_product, d_input_beside, d_states_beside)
    memory = (p_input, p_states, p_product, p_counters)
    shape = (n_pairs, n_layers, starts, lengths)
    gl.warp_specialize([
        (_consume, (0, weights, biases, ring, beside, memory, shape, FORM)),
        (_consume, (1, weights, biases, ring, beside, memory, shape, FORM)),
        (_produce, (coming, weights, ring, beside, p_counters, n_pairs, n_layers, FORM)),
    ], [4, 1], [FORM.REGISTERS, PRODUCER])  # fmt: skip


# What is copied


@gluon.jit
def _produce(coming, weights, ring, beside, p_counters, n_pairs, n_layers, FORM: gl.constexpr):
    """Ask for the weights, then for what each layer reads, when those have stored it who make it."""
    d_gates, d_update, d_candidates, d_input, d_states, d_product, d_input_beside, d_states_beside = coming
    s_reset, s_update, s_candidate, once = weights
    tile, way = gl.program_id(0) // WAYS, gl.program_id(0) % WAYS
    LOADED: gl.constexpr = FORM.STEPS * (FORM.COLUMNS + 2 * FORM.OUTPUTS) * STEP * 2
    mbarrier.expect(once.index(0), LOADED)
    for step in range(FORM.STEPS):
        _ask_weights(d_gates, s_reset, FORM.WIDTHS, way * FORM.COLUMNS, step, once)
        _ask_weights(d_update, s_update, FORM.OUTS, 2 * FORM.E + way * FORM.OUTPUTS, step, once)
        _ask_weights(d_candidates, s_candidate, FORM.OUTS, way * FORM.OUTPUTS, step, once)
    p_tile = p_counters + (1 + tile) * SPACING
    row = tile * (GROUPS * ROWS)
    column = way * FORM.COLUMNS % FORM.E
    for layer in range(n_layers):
        if layer == 0:
            _ask(d_input, ring, row, 0, 0, 0, FORM.STAGES, FORM)
            _ask_beside(d_input_beside, beside, row, column, layer, FORM)
            _ask(d_input, ring, row, 0, 0, FORM.STAGES, FORM.STEPS, FORM)
        else:
            _await(p_counters, layer * (gl.num_programs(0) * GROUPS))
            before = (layer - 1) * n_pairs + row
            _ask(d_states, ring, before, 0, 2 * layer, 0, FORM.STAGES, FORM)
            _ask_beside(d_states_beside, beside, before, column, layer, FORM)
            _ask(d_states, ring, before, 0, 2 * layer, FORM.STAGES, FORM.STEPS, FORM)
        _await(p_tile, (layer + 1) * (WAYS * GROUPS))
        _ask(d_product, ring, row, way // (WAYS // 2) * FORM.E, 2 * layer + 1, 0, FORM.STEPS, FORM)


@gluon.jit
def _ask_weights(d_weight, parts, WIDTHS: gl.constexpr, row, step, once):
    """Ask for a program's rows of some weights, those columns that a step multiplies."""
    BOX: gl.constexpr = WIDTHS[len(WIDTHS) - 1]
    for part in gl.static_range(len(WIDTHS)):
        for box in gl.static_range(WIDTHS[part] // BOX):
            place = parts[part].index(step).slice(box * BOX, BOX, dim=0)
            at = [row + part * WIDTHS[0] + box * BOX, step * STEP]
            tma.async_copy_global_to_shared(d_weight, at, once.index(0), place)


@gluon.jit
def _ask(d_read, ring, row, column, turn, begin: gl.constexpr, end: gl.constexpr, FORM: gl.constexpr):
    """Ask for some steps of a product's left side, each when its place is free."""
    s_ring, full, empty = ring
    for step in range(begin, end):
        stage = step % FORM.STAGES
        mbarrier.wait(empty.index(stage), (_round(turn, step, FORM) & 1) ^ 1)
        mbarrier.expect(full.index(stage), GROUPS * d_read.block_type.nbytes)
        for group in gl.static_range(GROUPS):
            place = s_ring.index(stage * GROUPS + group)
            at = [row + group * ROWS, column + step * STEP]
            tma.async_copy_global_to_shared(d_read, at, full.index(stage), place)


@gluon.jit
def _ask_beside(d_beside, beside, row, column, layer, FORM: gl.constexpr):
    """Ask for those columns of the pairs whose reset gates a program makes."""
    s_beside, ready, free = beside
    BOX: gl.constexpr = FORM.WIDTHS[len(FORM.WIDTHS) - 1]
    for group in gl.static_range(GROUPS):
        mbarrier.wait(free.index(group), (layer & 1) ^ 1)
        mbarrier.expect(ready.index(group), FORM.COLUMNS // BOX * d_beside.block_type.nbytes)
        for part in gl.static_range(len(FORM.WIDTHS)):
            for box in gl.static_range(FORM.WIDTHS[part] // BOX):
                place = s_beside[part].index(group).slice(box * BOX, BOX, dim=1)
                at = [row + group * ROWS, column + part * FORM.WIDTHS[0] + box * BOX]
                tma.async_copy_global_to_shared(d_beside, at, ready.index(group), place)


# Counters in memory


@gluon.jit
def _await(p_counter, target):
    """Wait for a count; what those have stored who counted can then be copied."""
    count = _count(p_counter)
    while count < target:
        count = _count(p_counter)
    _fence_copies()


@gluon.jit
def _count(p_counter):
    """A counter, read from where all programs see it."""
    return gl.inline_asm_elementwise(
        "ld.acquire.gpu.global.s32 $0, [$1];", "=r,l", [p_counter], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def _fence_copies():
    """Copies after this see what ordinary stores have made."""
    gl.inline_asm_elementwise(
        "fence.proxy.async; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )  # fmt: skip


@gluon.jit
def _fence_stores():
    """Whoever sees what this thread does next sees what it has stored, by loads and by copies."""
    gl.inline_asm_elementwise(
        "fence.acq_rel.gpu; fence.proxy.async; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def _signal(p_counter):
    """Count a group whose threads all have stored."""
    _fence_stores()
    gl.thread_barrier()
    gl.atomic_add(p_counter, 1, sem="release", scope="gpu")


# What is computed


@gluon.jit
def _consume(group, weights, biases, ring, beside, memory, shape, FORM: gl.constexpr):
    """All layers on a group's pairs."""
    s_reset, s_update, s_candidate, once = weights
    s_reset_bias, s_update_bias, s_candidate_bias, _, _ = biases
    p_input, p_states, p_product, p_counters = memory
    n_pairs, n_layers, starts, lengths = shape
    s_beside, ready, free = beside
    tile, way = gl.program_id(0) // WAYS, gl.program_id(0) % WAYS
    if group == 0:
        _store_biases(biases, way, FORM)
        mbarrier.arrive(once.index(1), count=1)
    first = (tile * GROUPS + group).to(gl.int64) * ROWS
    i, begin = way // (WAYS // 2), way % (WAYS // 2) * FORM.OUTPUTS
    RESETS: gl.constexpr = len(FORM.WIDTHS)
    mbarrier.wait(once.index(0), 0)
    mbarrier.wait(once.index(1), 0)
    for layer in range(n_layers):
        sums = _multiply(s_reset + s_update, FORM.WIDTHS + FORM.OUTS, ring, group, 2 * layer, FORM)
        mbarrier.wait(ready.index(group), layer & 1)
        for part in gl.static_range(RESETS):
            s_out = s_beside[part].index(group)
            s_out.store(_reset(sums[part], s_out, s_reset_bias[part].index(0)))
        for part in gl.static_range(RESETS):
            _leave(p_product, s_beside[part].index(group), way * FORM.COLUMNS + part * FORM.WIDTHS[0], first, FORM)
        hopper.fence_async_shared()
        mbarrier.arrive(free.index(group), count=1)
        _signal(p_counters + (1 + tile) * SPACING)
        # While the others of the tile do the same.
        if layer == 0:
            p_state = p_input
        else:
            p_state = p_states + (layer - 1).to(gl.int64) * n_pairs * FORM.E
        b_update, b_copied = (), ()
        for part in gl.static_range(len(FORM.OUTS)):
            b_sum = 0.5 * sums[RESETS + part] + _bias(s_update_bias[part].index(0), FORM.OUTS[part])
            b_update += (0.5 * _tanh(b_sum, True) + 0.5,)
            b_copied += (_load_copied(p_state, begin + part * FORM.OUTS[0], i, first, FORM.OUTS[part], FORM),)
        sums = _multiply(s_candidate, FORM.OUTS, ring, group, 2 * layer + 1, FORM)
        p_out = p_states + layer.to(gl.int64) * n_pairs * FORM.E
        for part in gl.static_range(len(FORM.OUTS)):
            b_candidate = _tanh(sums[part] + _bias(s_candidate_bias[part].index(0), FORM.OUTS[part]), True)
            b_out = b_candidate + b_update[part] * (b_copied[part].to(gl.float32) - b_candidate)
            _store(p_out, b_out, begin + part * FORM.OUTS[0], i, first, starts, lengths, FORM)
        _signal(p_counters)


@gluon.jit
def _store_biases(biases, way, FORM: gl.constexpr):
    """Halves of those of the reset and update gates, and those of the candidates, of a program's columns."""
    s_reset, s_update, s_candidate, p_gates_bias, p_bias = biases
    for part in gl.static_range(len(FORM.WIDTHS)):
        p_reset = p_gates_bias + (way * FORM.COLUMNS + part * FORM.WIDTHS[0])
        _store_bias(s_reset[part].index(0), p_reset, 0.5, FORM.WIDTHS[part])
    for part in gl.static_range(len(FORM.OUTS)):
        column = way * FORM.OUTPUTS + part * FORM.OUTS[0]
        _store_bias(s_update[part].index(0), p_gates_bias + (2 * FORM.E + column), 0.5, FORM.OUTS[part])
        _store_bias(s_candidate[part].index(0), p_bias + column, 1.0, FORM.OUTS[part])


@gluon.jit
def _multiply(parts, WIDTHS: gl.constexpr, ring, group, turn, FORM: gl.constexpr):
    """The products of what comes through the ring with resident weights, in parts of some columns."""
    s_ring, full, empty = ring
    PARTS: gl.constexpr = len(WIDTHS)
    sums = ()
    for part in gl.static_range(PARTS):
        sums += (_zeros(WIDTHS[part]),)
    for step in range(FORM.STEPS):
        stage = step % FORM.STAGES
        mbarrier.wait(full.index(stage), _round(turn, step, FORM) & 1)
        left, started = s_ring.index(stage * GROUPS + group), ()
        for part in gl.static_range(PARTS):
            right = parts[part].index(step).permute((1, 0))
            started += (hopper.warpgroup_mma(left, right, sums[part], use_acc=step > 0, is_async=True),)
        sums = _wait(PARTS, started)
        if step > 0:
            mbarrier.arrive(empty.index((step - 1) % FORM.STAGES), count=1)
    sums = _wait(0, sums)
    mbarrier.arrive(empty.index((FORM.STEPS - 1) % FORM.STAGES), count=1)
    return sums


@gluon.jit
def _leave(p_product, s_out, begin, first, FORM: gl.constexpr):
    """A part of r * a from shared memory to where all programs of the tile find it."""
    lines: gl.constexpr = _lines(s_out.shape[1])
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, lines))
    columns = begin + gl.arange(0, s_out.shape[1], layout=gl.SliceLayout(0, lines))
    offsets = rows[:, None] * (2 * FORM.E) + columns[None, :]
    gl.store(p_product + first * (2 * FORM.E) + offsets, s_out.load(lines))


@gluon.jit
def _load_copied(p_state, begin, i, first, WIDTH: gl.constexpr, FORM: gl.constexpr):
    """A part of swapHalf(s), past the first-level cache, which may hold what was there before."""
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, _sums(WIDTH)))
    columns = begin + gl.arange(0, WIDTH, layout=gl.SliceLayout(0, _sums(WIDTH)))
    offsets = rows[:, None] * FORM.E + _copied(columns, i, FORM.D, FORM.SWAP)[None, :]
    return gl.load(p_state + first * FORM.E + offsets, cache_modifier=".cg")


@gluon.jit
def _store(p_out, b_out, begin, i, first, starts, lengths, FORM: gl.constexpr):
    """A part of the outputs to where the shuffle wants them."""
    WIDTH: gl.constexpr = b_out.shape[1]
    lines: gl.constexpr = _lines(WIDTH)
    numbers = gl.arange(0, ROWS, layout=gl.SliceLayout(1, lines))
    cells = _destination(first + numbers, i, starts, lengths, FORM.SHUFFLE)
    columns = begin + gl.arange(0, WIDTH, layout=gl.SliceLayout(0, lines))
    b_out = gl.convert_layout(b_out.to(p_out.dtype.element_ty), lines)
    gl.store(p_out + cells[:, None] * FORM.D + columns[None, :], b_out)


def parts(columns: int) -> tuple[int, ...]:
    """Blocks are powers of two wide: so many columns as the largest one and the rest.

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
    form: ResidentForm, pairs: int, features: int, groups: tuple[Any, ...], dtype: torch.dtype, *, layers: int,
    **flags: Any,
) -> DescriptorLaunch:  # fmt: skip
    """The launch of so many layers of a shape.

    It takes the weights of the gates twice, those of the candidates, the cells, the states of all layers, the products
    and once more cells and states, then the biases of gates and candidates, cells, states, products and counters.
    """
    pair, steps = 2 * features, 2 * features // STEP.value
    columns, outputs = 2 * pair // WAYS.value, pair // WAYS.value
    widths, outs = parts(columns), parts(outputs)
    assert steps % form.stages == 0 == pairs % tile_pairs()
    matrices = [
        Matrix(3 * pair, pair, widths[-1], STEP.value),
        Matrix(3 * pair, pair, outs[-1], STEP.value),
        Matrix(pair, pair, outs[-1], STEP.value),
        *(Matrix(rows, pair, ROWS.value, STEP.value) for rows in (pairs, layers * pairs)),
        Matrix(pairs, 2 * pair, ROWS.value, STEP.value),
        *(Matrix(rows, pair, ROWS.value, widths[-1]) for rows in (pairs, layers * pairs)),
    ]
    constants = Constants(
        D=features, E=pair, STAGES=form.stages, STEPS=steps, COLUMNS=columns, WIDTHS=widths, OUTPUTS=outputs,
        OUTS=outs, REGISTERS=240, **flags,
    )  # fmt: skip
    return DescriptorLaunch(
        sys.modules[__name__], "layers_forward", (pairs // tile_pairs() * WAYS.value,), matrices, dtype, pairs, layers,
        *groups, FORM=constants, num_warps=WARPS.value, maxnreg=168, launch_cooperative_grid=True,
    )  # fmt: skip
