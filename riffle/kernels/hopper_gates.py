"""The gates formed again on the way back, and the way back through the update, in one launch (sm_90).

The product for the gates has `gated_switch.update_backward` as its epilogue: of the update gates only their gradients
leave the chip, and reset gates go to where `hopper_backward.product_backward` reads them.

A program stays on its multiprocessor and takes tile after tile: ``GROUPS`` times ``ROWS`` pairs and one of their two
cells, of which it makes three blocks of D columns, one of update gates and two of reset gates. What is read stays in
shared memory for all three, while one warp copies weights through a ring of ``STAGES`` places, ``STEP`` columns at a
time. Each of two groups of four warps multiplies ``ROWS`` pairs of the tile. Reset gates go to memory straight from
their registers. Update gates go to shared memory, where a third group takes them: while the others form the reset
gates, it does all the rest, chunk after chunk of a block's columns, and has asked for what the next chunk needs.
"""

# D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair, a = what was read, s = the layer's input, o its output
# d_ tensor descriptor, p_ pointer, s_ shared memory, b_ block, CAPITALS constexpr, those of a launch together in FORM
from __future__ import annotations

import sys
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from riffle.kernels.descriptors import Constants, DescriptorLaunch, Matrix
from riffle.kernels.gated_switch import _copied, _destination, _follow, _keep_rows, _tanh
from riffle.kernels.hopper import PRODUCER, ROWS, WARPS, _lines, _sums
from riffle.kernels.hopper_wide import STEP, _round
from riffle.kernels.tuning import GatesForm, multiprocessors

mbarrier, tma = hopper.mbarrier, hopper.tma
GROUPS = gl.constexpr(2)
"""Groups of warps that multiply."""
BLOCKS = gl.constexpr(3)
"""Of a tile; the first has the update gates."""
CHUNKS = gl.constexpr(3)
"""Of a block's columns: two have their sums together, as tensors have powers of two for sizes."""
HALF = gl.constexpr(32)
"""Pairs of a chunk that the third group takes at once."""


@gluon.jit(do_not_specialize=["n_pairs"])
def gates_backward(
    d_read, d_weight_two, d_weight, p_gates_bias, p_grad_gates, p_out, p_state, p_grad_out, p_more, p_grad_sum,
    p_grad_state, p_sums, p_seed, n_pairs, starts, lengths, rates, FORM: gl.constexpr,
):  # fmt: skip
    """Reset gates, and the gradients of the candidates' sums, the update gates and the copied state.

    ``MORE`` and ``p_sums`` are those of ``gated_switch.update_backward``, with the candidates from the layer's outputs
    and tiles of ``ROWS`` pairs. ``d_weight_two`` has blocks of two chunks, ``d_weight`` of one. Reset gates go to
    ``p_grad_gates`` as they are.
    """
    dtype: gl.constexpr = d_read.dtype
    s_read = gl.allocate_shared_memory(dtype, [FORM.STEPS * GROUPS, ROWS, STEP], d_read.layout)
    s_weight_two = gl.allocate_shared_memory(dtype, [FORM.STAGES, 2 * FORM.CHUNK, STEP], d_weight_two.layout)
    s_weight = gl.allocate_shared_memory(dtype, [FORM.STAGES, FORM.CHUNK, STEP], d_weight.layout)
    lines: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, FORM.CHUNK], dtype)
    s_update = gl.allocate_shared_memory(dtype, [GROUPS * CHUNKS, ROWS, FORM.CHUNK], lines)
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
    ring, updates = (s_read, s_weight_two, s_weight, full, empty), (s_update, ready, free)
    coming = (p_state, p_out, p_grad_out, p_more, p_gates_bias, p_seed)
    leaving = (p_grad_gates, p_grad_sum, p_grad_state, p_sums)
    sequences = (n_pairs, starts, lengths, rates)
    gl.warp_specialize([
        (_multiply, (0, ring, updates, p_grad_gates, n_pairs, FORM)),
        (_multiply, (1, ring, updates, p_grad_gates, n_pairs, FORM)),
        (_update, (updates, coming, leaving, sequences, FORM)),
        (_produce, (d_read, d_weight_two, d_weight, ring, n_pairs, FORM)),
    ], [4, 4, 1], [FORM.REGISTERS, FORM.UPDATE, PRODUCER])  # fmt: skip


@gluon.jit
def _tiles(n_pairs):
    """How many tiles there are."""
    return 2 * gl.cdiv(n_pairs, GROUPS * ROWS)


@gluon.jit
def _turns(n_pairs):
    """How many of them this program has."""
    return gl.cdiv(_tiles(n_pairs) - gl.program_id(0), gl.num_programs(0))


@gluon.jit
def _tile(turn, n_pairs):
    """The first pair of a tile, and its cell: last pairs first, as what was made before begins with the first ones."""
    tile = _tiles(n_pairs) - 1 - gl.program_id(0) - turn * gl.num_programs(0)
    return tile // 2 * (GROUPS * ROWS), tile % 2


@gluon.jit
def _column(i, block, FORM: gl.constexpr):
    """The first of a block's columns among the gates'."""
    return gl.where(block == 0, 2 * FORM.E + i * FORM.D, i * FORM.E + (block - 1) * FORM.D)


@gluon.jit
def _produce(d_read, d_weight_two, d_weight, ring, n_pairs, FORM: gl.constexpr):
    """Ask for what block after block needs, each when its place is free."""
    s_read, s_weight_two, s_weight, full, empty = ring
    WEIGHTS: gl.constexpr = CHUNKS * d_weight.block_type.nbytes
    # What the launch before made is read after this: see tuning.DEPENDENT_LAUNCH.
    _follow(FORM.PDL)
    for turn in range(BLOCKS * _turns(n_pairs)):
        row, i = _tile(turn // BLOCKS, n_pairs)
        line = _column(i, turn % BLOCKS, FORM)
        for step in range(FORM.STEPS):
            stage, column = step % FORM.STAGES, step * STEP
            mbarrier.wait(empty.index(stage), (_round(turn, step, FORM) & 1) ^ 1)
            bar = full.index(stage)
            if turn % BLOCKS == 0:
                # The tile before, whose last block has left places of the ring since, does not need its own any more.
                mbarrier.expect(bar, WEIGHTS + GROUPS * d_read.block_type.nbytes)
                for group in gl.static_range(GROUPS):
                    place = s_read.index(step * GROUPS + group)
                    tma.async_copy_global_to_shared(d_read, [row + group * ROWS, column], bar, place)
            else:
                mbarrier.expect(bar, WEIGHTS)
            tma.async_copy_global_to_shared(d_weight_two, [line, column], bar, s_weight_two.index(stage))
            tma.async_copy_global_to_shared(d_weight, [line + 2 * FORM.CHUNK, column], bar, s_weight.index(stage))


@gluon.jit
def _multiply(group, ring, updates, p_gates, n_pairs, FORM: gl.constexpr):
    """The product on a group's pairs, block after block."""
    s_read, s_weight_two, s_weight, full, empty = ring
    s_update, ready, free = updates
    _follow(FORM.PDL)
    for turn in range(BLOCKS * _turns(n_pairs)):
        row, i = _tile(turn // BLOCKS, n_pairs)
        sums_two = gl.zeros((ROWS, 2 * FORM.CHUNK), gl.float32, _sums(2 * FORM.CHUNK))
        sums = gl.zeros((ROWS, FORM.CHUNK), gl.float32, _sums(FORM.CHUNK))
        for step in range(FORM.STEPS):
            stage = step % FORM.STAGES
            mbarrier.wait(full.index(stage), _round(turn, step, FORM) & 1)
            left = s_read.index(step * GROUPS + group)
            right_two, right = s_weight_two.index(stage).permute((1, 0)), s_weight.index(stage).permute((1, 0))
            started_two = hopper.warpgroup_mma(left, right_two, sums_two, use_acc=step > 0, is_async=True)
            started = hopper.warpgroup_mma(left, right, sums, use_acc=step > 0, is_async=True)
            sums_two, sums = hopper.warpgroup_mma_wait(2, deps=(started_two, started))
            if step > 0:
                mbarrier.arrive(empty.index((step - 1) % FORM.STAGES), count=1)
        b_two, b_sum = hopper.warpgroup_mma_wait(0, deps=(sums_two, sums))
        mbarrier.arrive(empty.index((FORM.STEPS - 1) % FORM.STAGES), count=1)
        b_two, b_sum = b_two.to(s_update.dtype), b_sum.to(s_update.dtype)
        if turn % BLOCKS == 0:
            b_low, b_high = gl.split(b_two.reshape([ROWS, 2, FORM.CHUNK]).permute(0, 2, 1))
            place = group * CHUNKS
            mbarrier.wait(free.index(group), (turn // BLOCKS & 1) ^ 1)
            s_update.index(place).store(gl.convert_layout(b_low, _sums(FORM.CHUNK), assert_trivial=True))
            s_update.index(place + 1).store(gl.convert_layout(b_high, _sums(FORM.CHUNK), assert_trivial=True))
            s_update.index(place + 2).store(b_sum)
            mbarrier.arrive(ready.index(group), count=1)
        else:
            first, column = row + group * ROWS, _column(i, turn % BLOCKS, FORM)
            _store_gates(p_gates, b_two, first, column, n_pairs, FORM)
            _store_gates(p_gates, b_sum, first, column + 2 * FORM.CHUNK, n_pairs, FORM)


@gluon.jit
def _store_gates(p_gates, b_gates, first, column, n_pairs, FORM: gl.constexpr):
    """Gates, before the sigmoid and without their bias, by 16 bytes a thread: a warp has the rows that it had."""
    layout: gl.constexpr = _rows(b_gates.shape[1])
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, b_gates.shape[1], layout=gl.SliceLayout(0, layout))
    at = p_gates + first.to(gl.int64) * (3 * FORM.E) + (rows[:, None] * (3 * FORM.E) + columns[None, :])
    gl.store(at, gl.convert_layout(b_gates, layout), mask=(rows < n_pairs - first)[:, None])


@gluon.constexpr_function
def _rows(width):
    """A layout of rows of ``width`` columns that differs from that of sums within a warp only."""
    columns = [[0, 8 << bit] for bit in range((width // 8).bit_length() - 1)]
    bases = [*columns[:3], [1, 0], [2, 0], [4, 0], [8, 0], *columns[3:]]
    return gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], *bases[5:]], bases[:5], [[16, 0], [32, 0]], [], [64, width]
    )


@gluon.jit
def _update(updates, coming, leaving, sequences, FORM: gl.constexpr):
    """What follows the product for update gates, chunk after chunk, those of both groups in turn."""
    s_update, ready, free = updates
    n_pairs = sequences[0]
    s_halves = s_update._reinterpret(s_update.dtype, [2 * GROUPS * CHUNKS, HALF, FORM.CHUNK], s_update.layout)
    _follow(FORM.PDL)
    chunks = GROUPS * CHUNKS * _turns(n_pairs)
    low = _load(_place(0, 0, n_pairs, FORM), coming, sequences, FORM)
    high = _load(_place(0, 1, n_pairs, FORM), coming, sequences, FORM)
    for number in range(chunks):
        following = gl.minimum(number + 1, chunks - 1)
        part = number % (GROUPS * CHUNKS)
        group, phase = part // CHUNKS, number // (GROUPS * CHUNKS) & 1
        if part % CHUNKS == 0:
            mbarrier.wait(ready.index(group), phase)
        here = _place(number, 0, n_pairs, FORM)
        low_sums = _finish(low, s_halves.index(2 * part), here, coming, leaving, sequences, FORM)
        low = _load(_place(following, 0, n_pairs, FORM), coming, sequences, FORM)
        here = _place(number, 1, n_pairs, FORM)
        high_sums = _finish(high, s_halves.index(2 * part + 1), here, coming, leaving, sequences, FORM)
        high = _load(_place(following, 1, n_pairs, FORM), coming, sequences, FORM)
        if part % CHUNKS == CHUNKS - 1:
            mbarrier.arrive(free.index(group), count=1)
        _store_sums(leaving[3], low_sums, high_sums, here, n_pairs, FORM)


@gluon.jit
def _place(number, half: gl.constexpr, n_pairs, FORM: gl.constexpr):
    """Of half of a chunk: its first pair, its cell and the first of its columns."""
    part = number % (GROUPS * CHUNKS)
    row, i = _tile(number // (GROUPS * CHUNKS), n_pairs)
    return row + part // CHUNKS * ROWS + half * HALF, i, part % CHUNKS * FORM.CHUNK


@gluon.jit
def _elements(here, n_pairs, FORM: gl.constexpr):
    """Its rows, which of them exist, and its columns among those of a cell."""
    row, _, column = here
    layout: gl.constexpr = _lines(FORM.CHUNK)
    rows = gl.arange(0, HALF, layout=gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, FORM.CHUNK, layout=gl.SliceLayout(0, layout))
    return rows, (rows < n_pairs - row)[:, None], columns


@gluon.jit
def _load(here, coming, sequences, FORM: gl.constexpr):
    """What half of a chunk of update gates needs besides: gradients, output, copied state, bias."""
    p_state, p_out, p_grad_out, p_more, p_gates_bias, _ = coming
    n_pairs, starts, lengths, _ = sequences
    row, i, _ = here
    rows, mask, columns = _elements(here, n_pairs, FORM)
    first = row.to(gl.int64)
    cells = _destination(first + rows, i, starts, lengths, FORM.SHUFFLE)
    out = cells[:, None] * FORM.D + columns[None, :]
    b_grad = gl.load(p_grad_out + out, mask=mask, other=0.0)
    b_more = b_grad
    if FORM.MORE:
        b_more = gl.load(p_more + out, mask=mask, other=0.0)
    b_out = gl.load(p_out + out, mask=mask, other=0.0)
    copied = rows[:, None] * FORM.E + _copied(columns, i, FORM.D, FORM.SWAP)[None, :]
    b_copied = gl.load(p_state + first * FORM.E + copied, mask=mask, other=0.0)
    b_bias = gl.load(p_gates_bias + 2 * FORM.E + i * FORM.D + columns)
    return b_grad, b_more, b_out, b_copied, b_bias


@gluon.jit
def _finish(loaded, s_gates, here, coming, leaving, sequences, FORM: gl.constexpr):
    """The gradients of half of a chunk, as ``gated_switch.update_backward`` has them, and sums over a thread's rows."""
    b_grad, b_more, b_out, b_copied, b_bias = loaded
    p_grad_gates, p_grad_sum, p_grad_state, _ = leaving
    n_pairs, starts, _, rates = sequences
    row, i, _ = here
    rows, mask, columns = _elements(here, n_pairs, FORM)
    first = row.to(gl.int64)
    dtype: gl.constexpr = b_grad.dtype
    b_half = 0.5 * s_gates.load(_lines(FORM.CHUNK)).to(gl.float32) + 0.5 * b_bias.to(gl.float32)[None, :]
    b_tanh = _tanh(b_half, True)
    b_update, b_rest = 0.5 + 0.5 * b_tanh, 0.5 - 0.5 * b_tanh
    b_grad, b_out, b_copied = b_grad.to(gl.float32), b_out.to(gl.float32), b_copied.to(gl.float32)
    if FORM.MORE:
        b_grad += b_more.to(gl.float32)
    if FORM.DROPOUT:
        b_keep = _keep_rows(coming[5], first, rows, i, columns, starts, rates, FORM.D)
        b_grad *= b_keep
        b_out = gl.where(b_keep > 0.0, b_out / b_keep, 0.0)
    b_part = b_out - b_update * b_copied
    b_grad_update = b_grad * b_update * (b_copied - b_out)
    b_inverse = gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [gl.maximum(b_rest, 1e-6)], dtype=gl.float32, is_pure=True, pack=1
    )
    b_grad_sum = b_grad * gl.maximum(b_rest - b_part * b_part * b_inverse, 0.0)
    gates = rows[:, None] * (3 * FORM.E) + (2 * FORM.E + i * FORM.D + columns)[None, :]
    gl.store(p_grad_gates + first * (3 * FORM.E) + gates, b_grad_update.to(dtype), mask=mask)
    candidates = rows[:, None] * FORM.E + (i * FORM.D + columns)[None, :]
    gl.store(p_grad_sum + first * FORM.E + candidates, b_grad_sum.to(dtype), mask=mask)
    copied = rows[:, None] * FORM.E + _copied(columns, i, FORM.D, FORM.SWAP)[None, :]
    gl.store(p_grad_state + first * FORM.E + copied, (b_grad * b_update).to(dtype), mask=mask)
    return _over_rows(b_grad_update), _over_rows(b_grad_sum)


@gluon.jit
def _over_rows(b_value):
    """Sums over the rows that a thread has."""
    OTHERS: gl.constexpr = 1024 // b_value.shape[1]
    return gl.sum(b_value.reshape([HALF // OTHERS, OTHERS, b_value.shape[1]]), axis=0)


@gluon.jit
def _store_sums(p_sums, low, high, here, n_pairs, FORM: gl.constexpr):
    """Sums over the rows of both halves."""
    row, i, column = here
    b_grad_update, b_grad_sum = gl.reduce((low[0] + high[0], low[1] + high[1]), 0, _add)
    columns = column + gl.arange(0, FORM.CHUNK, layout=b_grad_sum.type.layout)
    tile = (row // ROWS).to(gl.int64)
    p_sums += tile * (5 * FORM.E) + i * FORM.D
    if tile * ROWS < n_pairs:
        gl.store(p_sums + (2 * FORM.E + columns), b_grad_update)
        gl.store(p_sums + (3 * FORM.E + columns), b_grad_sum)


@gluon.jit
def _add(a, b, c, d):
    return a + c, b + d


def gates_launch(
    form: GatesForm,
    device: torch.device,
    pairs: int,
    features: int,
    groups: tuple[Any, ...],
    dtype: torch.dtype,
    **flags: Any,
) -> DescriptorLaunch:
    """The launch for a layer's shape.

    It takes what was read and the weights of the gates twice, then the gates' bias, where reset gates and the gradients
    of update gates go, the output, the pairs, the gradient of the output and what is added to it, where the gradients
    of the candidates' sums and of the pairs go, where sums go, and the seed.
    """
    pair, chunk = 2 * features, features // CHUNKS.value
    steps = pair // STEP.value
    assert steps % form.stages == 0
    assert chunk & (chunk - 1) == 0
    matrices = [
        Matrix(pairs, pair, ROWS.value, STEP.value),
        *(Matrix(3 * pair, pair, rows, STEP.value) for rows in (2 * chunk, chunk)),
    ]
    constants = Constants(
        D=features, E=pair, CHUNK=chunk, STAGES=form.stages, STEPS=steps, REGISTERS=144, UPDATE=200, **flags
    )
    programs = min(2 * -(-pairs // (GROUPS.value * ROWS.value)), multiprocessors(device))
    return DescriptorLaunch(
        sys.modules[__name__], "gates_backward", (programs,), matrices, dtype, pairs, *groups,
        FORM=constants, num_warps=WARPS.value, maxnreg=128, launch_pdl=flags["PDL"],
    )  # fmt: skip
