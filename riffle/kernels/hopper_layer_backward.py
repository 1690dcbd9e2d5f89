"""The way back through a gated switch layer up to the gradients of the gates, in one launch (sm_90), in Triton's Gluon.

Gates are formed again on the chip, and candidates told from the layer's output as `gated_switch.update_backward` does:
what is read is the layer's input and output and the output's gradient. What is written is dG, dz, t, and of ds all but
what the gates' product adds. A program stays on its multiprocessor and takes tile after tile of ``GROUPS`` times
``ROWS`` pairs. Each group of four warps has ``ROWS`` pairs of its own. One more warp asks the copy engine for weights,
which all groups share, through a ring of ``STAGES`` places, and for what each group reads; all that leaves goes by the
copy engine, too. A tile has two phases:

    for each strip of a cell's columns: the update gates of both cells, then dG_u, dz and swapHalf(g * u), the first ds
    for each cell and chunk of the pair's columns: reset gates and dt_i = dz_i W_ci, then t_i, dG_ri and ds + dt_i * r_i

Pairs are in registers, the left operand of the gates' products, and so is ds; dz is in shared memory. Each block there
is filled again when what it held is no longer needed:

    a, then dG_u      dz, then ds      o and g of even strips      o and g of odd strips, then dG_r and t

A place of the ring has half of the weights of a gates' product, or those of a dt. While a product runs, the group does
what follows the one before it. Sums over pairs, for the gradients of biases, are products of a block that leaves with
a matrix that is one in one row: every block has a row of its own, which adds up over all tiles.

Cells of a tile must lie in the output as its pairs do, at equal distances: see :func:`serves`.
"""

# D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair, a = what was read, o = the layer's output, g = its
# gradient, t_i = r_i * a, z = the candidates before tanh
# d_ tensor descriptor, p_ pointer, s_ shared memory, b_ block, CAPITALS constexpr, those of a launch together in FORM
from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from riffle.kernels.descriptors import Constants, DescriptorLaunch, Matrix
from riffle.kernels.gated_switch import _destination, _follow, _keep_rows, _tanh
from riffle.kernels.hopper import (
    PRODUCER,
    ROWS,
    STRIP,
    WARPS,
    _allocate_biases,
    _bias,
    _operand,
    _source,
    _store_bias,
    _sums,
)
from riffle.kernels.tuning import LayerBackForm, multiprocessors

mbarrier, tma = hopper.mbarrier, hopper.tma
GROUPS = gl.constexpr(2)
"""Groups of a program."""
CHUNK = gl.constexpr(64)
"""Columns of the pair that the second phase makes at once."""
TOTALS = gl.constexpr(16)
"""Rows of the sums over pairs."""


@gluon.jit(do_not_specialize=["n_pairs"])
def layer_backward(
    d_gates, d_update, d_candidates, d_state, d_out, d_grad_out, d_grad_gates, d_grad_update, d_grad_sum, d_product,
    d_grad_state, d_copy, p_gates_bias, p_more, p_began, p_scale, p_sums, p_seed, n_pairs, starts, lengths, rates,
    FORM: gl.constexpr,
):  # fmt: skip
    """The gradients of gates and candidates before their functions, t, and a part of that of the state.

    Where ``MORE``, the gradient of the outputs is the sum of two tensors. Where ``BEGAN``, a later layer's skip
    connection began here: of what that layer read, ``p_began`` is the gradient, which is scaled and added, and whose
    product with the state is the scale's gradient. ``COPY`` stores the state. ``p_sums`` ``[2 * programs, 5E]`` takes
    each group's share of the gradients of the gates' biases (columns 0 to 3E), of the candidates' (3E to 4E) and, where
    ``BEGAN``, of the scale's (4E to 5E).
    """
    dtype: gl.constexpr = d_state.dtype
    # Blocks of 64 columns, some of which are used as two strips.
    s_ring = gl.allocate_shared_memory(dtype, [FORM.STAGES * FORM.STRIPS, STRIP, CHUNK], d_candidates.layout)
    s_read = gl.allocate_shared_memory(dtype, [GROUPS * FORM.STRIPS, ROWS, CHUNK], d_product.layout)
    s_sum = gl.allocate_shared_memory(dtype, [GROUPS * FORM.STRIPS, ROWS, CHUNK], d_product.layout)
    # An allocation for each: the compiler sees that what is stored to one does not touch another.
    s_out_0 = gl.allocate_shared_memory(dtype, [GROUPS, ROWS, CHUNK], d_product.layout)
    s_grad_0 = gl.allocate_shared_memory(dtype, [GROUPS, ROWS, CHUNK], d_product.layout)
    s_out_1 = gl.allocate_shared_memory(dtype, [GROUPS, ROWS, CHUNK], d_product.layout)
    s_grad_1 = gl.allocate_shared_memory(dtype, [GROUPS, ROWS, CHUNK], d_product.layout)
    full, empty = _barriers(FORM.STAGES, 1), _barriers(FORM.STAGES, GROUPS)
    came, left = _barriers(GROUPS, 1), _barriers(GROUPS, 1)
    ready_0, free_0, ready_1, free_1 = (
        _barriers(GROUPS, 1),
        _barriers(GROUPS, 1),
        _barriers(GROUPS, 1),
        _barriers(GROUPS, 1),
    )
    known = _barriers(1, 1)
    s_reset_bias = _allocate_biases(p_gates_bias, 2 * FORM.STRIPS, CHUNK)
    s_update_bias = _allocate_biases(p_gates_bias, 2 * FORM.STRIPS, STRIP)
    s_scale = s_update_bias
    if FORM.BEGAN:
        s_scale = _allocate_biases(p_scale, FORM.STRIPS, STRIP)
    biases = (s_reset_bias, s_update_bias, known, p_gates_bias, s_scale)
    ring, read = (s_ring, full, empty), (s_read, came, left)
    around = ((s_out_0, s_grad_0, ready_0, free_0), (s_out_1, s_grad_1, ready_1, free_1))
    coming = (d_gates, d_update, d_candidates, d_state, d_out, d_grad_out)
    leaving = (d_grad_gates, d_grad_update, d_grad_sum, d_product, d_grad_state, d_copy)
    groups = (starts, lengths, rates)
    layer = (leaving, (p_more, p_began, p_scale, p_sums, p_seed), n_pairs, groups, ring, read, s_sum, around, biases)
    gl.warp_specialize([
        (_consume, (0, layer, d_state, FORM)),
        (_consume, (1, layer, d_state, FORM)),
        (_produce, (coming, n_pairs, groups, ring, read, around, FORM)),
    ], [4, 1], [240, PRODUCER])  # fmt: skip


@gluon.jit
def _barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """So many, each of which waits for so many arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for number in gl.static_range(COUNT):
        mbarrier.init(barriers.index(number), count=ARRIVALS)
    return barriers


@gluon.jit
def _strip(s_blocks, number, d_strip):
    """A strip of the columns that blocks have, as the descriptor copies it."""
    s_block = s_blocks.index(number // 2)
    return s_block._reinterpret(s_block.dtype, [2, ROWS, STRIP], d_strip.layout).index(number % 2)


@gluon.jit
def _tiles(n_pairs):
    """How many tiles hold the pairs."""
    return gl.cdiv(n_pairs, GROUPS * ROWS)


# The warp that asks


@gluon.jit
def _produce(coming, n_pairs, groups, ring, read, around, FORM: gl.constexpr):
    """Ask for what tile after tile needs, each when its place is free."""
    # What the launch before made is read after this: see tuning.DEPENDENT_LAUNCH.
    _follow(FORM.PDL)
    turn = 0
    for tile in range(gl.program_id(0), _tiles(n_pairs), gl.num_programs(0)):
        if turn == 0:
            _ask_pairs(coming, read, tile, turn)
            _ask_around(coming, around[0], groups, tile, 0, FORM.EVEN * turn, FORM)
        for use in range(FORM.USES):
            _ask_weights(coming, ring, turn * FORM.USES + use, use, FORM)
            # What follows never waits for something that needs more weights than have been asked for.
            if use == (3 if FORM.STRIPS > 1 else -1):
                _ask_around(coming, around[1], groups, tile, 1, turn + 1, FORM)
            if use == (5 if FORM.STRIPS > 2 else -1):
                _ask_around(coming, around[0], groups, tile, 2, 2 * turn + 1, FORM)
            if use == FORM.NEXT:
                following = tile + gl.num_programs(0)
                if following < _tiles(n_pairs):
                    _ask_pairs(coming, read, following, turn + 1)
                    _ask_around(coming, around[0], groups, following, 0, FORM.EVEN * (turn + 1), FORM)
        turn += 1  # noqa: SIM113  # the language has no enumerate


@gluon.jit
def _ask_weights(coming, ring, count, use, FORM: gl.constexpr):
    """Weights of one use of the ring: the first two of each strip are of update gates, then come threes."""
    d_gates, d_update, d_candidates, _, _, _ = coming
    s_ring, full, empty = ring
    stage = count % FORM.STAGES
    bar = full.index(stage)
    mbarrier.wait(empty.index(stage), (count // FORM.STAGES & 1) ^ 1)
    mbarrier.expect(bar, FORM.STRIPS * d_gates.block_type.nbytes)
    later = use - 2 * FORM.STRIPS
    i, part, kind = later // (3 * FORM.STRIPS), later // 3 % FORM.STRIPS, later % 3
    for k in gl.static_range(FORM.STRIPS):
        block = s_ring.index(stage * FORM.STRIPS + k)
        rows = block._reinterpret(block.dtype, [CHUNK, STRIP], d_gates.layout)
        if later < 0:
            row, column = 2 * FORM.E + use // 2 * STRIP, (use % 2 * FORM.STRIPS + k) * STRIP
            tma.async_copy_global_to_shared(d_update, [row, column], bar, rows.slice(0, STRIP, dim=0))
            tma.async_copy_global_to_shared(d_update, [row + FORM.D, column], bar, rows.slice(STRIP, STRIP, dim=0))
        elif kind < 2:
            at = [i * FORM.E + part * CHUNK, (kind * FORM.STRIPS + k) * STRIP]
            tma.async_copy_global_to_shared(d_gates, at, bar, rows)
        else:
            tma.async_copy_global_to_shared(d_candidates, [i * FORM.D + k * STRIP, part * CHUNK], bar, block)


@gluon.jit
def _ask_pairs(coming, read, tile, count):
    """Each group's pairs of a tile."""
    d_state = coming[3]
    s_read, came, left = read
    STRIPS: gl.constexpr = s_read.shape[0] // GROUPS * 2
    for group in gl.static_range(GROUPS):
        mbarrier.wait(left.index(group), (count & 1) ^ 1)
        mbarrier.expect(came.index(group), STRIPS * d_state.block_type.nbytes)
        for k in gl.static_range(STRIPS):
            at = [(tile * GROUPS + group) * ROWS, k * STRIP]
            place = _strip(s_read, group * STRIPS + k, d_state)
            tma.async_copy_global_to_shared(d_state, at, came.index(group), place)


@gluon.jit
def _ask_around(coming, around, groups, tile, c: gl.constexpr, count, FORM: gl.constexpr):
    """Each group's strip of both cells' outputs and their gradients, from where the shuffle brought them."""
    _, _, _, _, d_out, d_grad_out = coming
    s_out, s_grad, ready, free = around
    starts, lengths, _ = groups
    for group in gl.static_range(GROUPS):
        bar = ready.index(group)
        mbarrier.wait(free.index(group), (count & 1) ^ 1)
        mbarrier.expect(bar, 4 * d_out.block_type.nbytes)
        first = (tile * GROUPS + group).to(gl.int64) * ROWS
        for i in gl.static_range(2):
            cell = _destination(first, i, starts, lengths, FORM.SHUFFLE)
            at = [(cell // FORM.STRIDE).to(gl.int32), (cell % FORM.STRIDE).to(gl.int32) * FORM.D + c * STRIP]
            tma.async_copy_global_to_shared(d_out, at, bar, _strip(s_out, 2 * group + i, d_out))
            tma.async_copy_global_to_shared(d_grad_out, at, bar, _strip(s_grad, 2 * group + i, d_out))


# The groups that compute


@gluon.jit
def _consume(group, layer, d_strip, FORM: gl.constexpr):
    """Both phases on a group's pairs, tile after tile."""
    leaving, pointers, n_pairs, _, ring, pairs, s_sum, around, biases = layer
    s_read, came, _ = pairs
    s_reset_bias, s_update_bias, known, p_gates_bias, s_scale = biases
    total = gl.zeros((TOTALS, CHUNK), gl.float32, _totals())
    _follow(FORM.PDL)
    if group == 0:
        for number in gl.static_range(2 * FORM.STRIPS):
            _store_bias(s_reset_bias.index(number), p_gates_bias + number * CHUNK, 0.5, CHUNK)
            _store_bias(s_update_bias.index(number), p_gates_bias + 2 * FORM.E + number * STRIP, 0.5, STRIP)
        if FORM.BEGAN:
            for number in gl.static_range(FORM.STRIPS):
                _store_bias(s_scale.index(number), pointers[2] + number * STRIP, 1.0, STRIP)
        mbarrier.arrive(known.index(0), count=1)
    turn = 0
    for tile in range(gl.program_id(0), _tiles(n_pairs), gl.num_programs(0)):
        first = (tile * GROUPS + group).to(gl.int64) * ROWS
        # No compiler knows that this is zero: it would keep the left operands of all sums in registers.
        zero = (n_pairs + tile) >> 31
        here = (group, first, turn, zero)
        mbarrier.wait(came.index(group), turn & 1)
        read = ()
        for k in gl.static_range(2 * FORM.STRIPS):
            place = _strip(s_read, group * (2 * FORM.STRIPS) + k, d_strip)
            read += (place.load(_sums(STRIP)),)  # type: ignore[assignment]  # tuples grow here
        gates = _start_gates(read, ring, turn * FORM.USES, d_strip, FORM)
        mbarrier.wait(known.index(0), 0)
        # Of what the tile before left, only ds may still be on its way.
        tma.store_wait(FORM.STRIPS)
        if FORM.STRIPS > 1:
            mbarrier.arrive(around[1][3].index(group), count=1)
        if FORM.COPY:
            for k in gl.static_range(2 * FORM.STRIPS):
                place = _strip(s_read, group * (2 * FORM.STRIPS) + k, d_strip)
                tma.async_copy_shared_to_global(leaving[5], [first.to(gl.int32), k * STRIP], place)
        grads, total = _go_through_update(read, gates, total, here, layer, d_strip, FORM)
        for i in range(2):
            grads, total = _go_through_reset(i, read, grads, total, here, layer, d_strip, FORM)
        for j in gl.static_range(FORM.STRIPS):
            s_sum.index(group * FORM.STRIPS + j).store(grads[j])
        hopper.fence_async_shared()
        for j in gl.static_range(FORM.STRIPS):
            place = s_sum.index(group * FORM.STRIPS + j)
            tma.async_copy_shared_to_global(leaving[4], [first.to(gl.int32), j * CHUNK], place)
        turn += 1  # noqa: SIM113  # the language has no enumerate
    tma.store_wait(0)
    p_sums = pointers[3] + (gl.program_id(0) * GROUPS + group) * (5 * FORM.E)
    _store_totals(p_sums, total, FORM)


@gluon.jit
def _go_through_update(read, gates, total, here, layer, d_strip, FORM: gl.constexpr):
    """The first phase, whose first product has been started: chunks of ds, and the sums over pairs."""
    leaving, _, _, _, ring, pairs, s_sum, around, _ = layer
    s_read = pairs[0]
    group, first, turn, zero = here
    row = first.to(gl.int32)
    low, high = (), ()
    for c in gl.static_range(FORM.STRIPS):
        b_gates = hopper.warpgroup_mma_wait(0, deps=(gates,))
        _release(ring, turn * FORM.USES + 2 * c, 2, FORM)
        if c + 1 < FORM.STRIPS:
            gates = _start_gates(read, ring, turn * FORM.USES + 2 * c + 2, d_strip, FORM)
        s_out, s_grad, ready, free = around[c % 2]
        mbarrier.wait(ready.index(group), (turn * (FORM.EVEN if c % 2 == 0 else 1) + c // 2) & 1)
        b_out_0 = _strip(s_out, 2 * group, d_strip).load(_sums(STRIP))
        b_out_1 = _strip(s_out, 2 * group + 1, d_strip).load(_sums(STRIP))
        b_grad_0 = _strip(s_grad, 2 * group, d_strip).load(_sums(STRIP))
        b_grad_1 = _strip(s_grad, 2 * group + 1, d_strip).load(_sums(STRIP))
        if c % 2 == 0 and not FORM.BEGAN:
            mbarrier.arrive(free.index(group), count=1)
        if c == 0:
            # The places of pairs and of ds are to be filled.
            tma.store_wait(0)
        b_gates_0, b_gates_1 = _halves(b_gates)
        b_copied_0, b_copied_1 = _swap(read[c], read[FORM.STRIPS + c], c, FORM)
        b_state_0 = _update(b_gates_0, b_copied_0, b_out_0, b_grad_0, 0, c, here, layer, d_strip, FORM)
        b_state_1 = _update(b_gates_1, b_copied_1, b_out_1, b_grad_1, 1, c, here, layer, d_strip, FORM)
        b_state_0, b_state_1 = _swap(b_state_0, b_state_1, c, FORM)
        if FORM.BEGAN:
            b_state_0 = _add_began(b_state_0, read[c], s_out, 0, c, here, layer, d_strip, FORM)
            b_state_1 = _add_began(b_state_1, read[FORM.STRIPS + c], s_out, 1, c, here, layer, d_strip, FORM)
            total = _add_sums(total, _load_strips(s_out, 2 * group, 1, d_strip), 4 * FORM.STRIPS + c + zero)
        low += (b_state_0,)  # type: ignore[assignment]  # tuples grow here
        high += (b_state_1,)  # type: ignore[assignment]
        hopper.fence_async_shared()
        if c % 2 == 0 and FORM.BEGAN:
            mbarrier.arrive(free.index(group), count=1)
        for i in gl.static_range(2):
            number, column = (2 * group + i) * FORM.STRIPS + c, i * FORM.D + c * STRIP
            tma.async_copy_shared_to_global(leaving[1], [row, 2 * FORM.E + column], _strip(s_read, number, d_strip))
            tma.async_copy_shared_to_global(leaving[2], [row, column], _strip(s_sum, number, d_strip))
        number = 2 * group * FORM.STRIPS + c
        total = _add_sums(total, _load_strips(s_read, number, FORM.STRIPS, d_strip), 2 * FORM.STRIPS + c + zero)
        total = _add_sums(total, _load_strips(s_sum, number, FORM.STRIPS, d_strip), 3 * FORM.STRIPS + c + zero)
    strips = low + high
    grads = ()
    for j in gl.static_range(FORM.STRIPS):
        grads += (_join(strips[2 * j], strips[2 * j + 1]),)  # type: ignore[assignment]
    return grads, total


@gluon.jit
def _update(b_gates, b_copied, b_out, b_grad, i, c: gl.constexpr, here, layer, d_strip, FORM: gl.constexpr):
    """A strip of dG_u and dz to where they leave, and of the gradient of what was copied."""
    _, pointers, n_pairs, groups, _, pairs, s_sum, _, biases = layer
    p_more, _, _, _, p_seed = pointers
    starts, lengths, rates = groups
    s_read = pairs[0]
    group, first, _, _ = here
    b_bias = _bias(biases[1].index(i * FORM.STRIPS + c), STRIP)
    b_update = 0.5 * _tanh(0.5 * b_gates + b_bias, True) + 0.5
    b_copied, b_out, b_grad = _unpacked(b_copied), _unpacked(b_out), _unpacked(b_grad)
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, _sums(STRIP)))
    columns = c * STRIP + gl.arange(0, STRIP, layout=gl.SliceLayout(0, _sums(STRIP)))
    if FORM.MORE:
        cells = _destination(first + rows, i, starts, lengths, FORM.SHUFFLE)
        inside = (first + rows < n_pairs)[:, None]
        b_grad += gl.load(p_more + cells[:, None] * FORM.D + columns[None, :], mask=inside, other=0.0).to(gl.float32)
    if FORM.DROPOUT:
        b_keep = _keep_rows(p_seed, first, rows, i, columns, starts, rates, FORM.D)
        b_grad *= b_keep
        b_out = gl.where(b_keep > 0.0, b_out / b_keep, 0.0)  # where it was dropped, its gradient is zero
    # As in gated_switch.update_backward.
    b_rest = 1.0 - b_update
    b_part = b_out - b_update * b_copied
    b_state = b_grad * b_update
    b_slope = b_rest - b_part * b_part * _inverse(gl.maximum(b_rest, 1e-6))
    b_grad_sum = b_grad * gl.minimum(gl.maximum(b_slope, 0.0), b_rest)
    number = (2 * group + i) * FORM.STRIPS + c
    _strip(s_read, number, d_strip).store((b_state * (b_copied - b_out)).to(s_read.dtype))
    _strip(s_sum, number, d_strip).store(b_grad_sum.to(s_read.dtype))
    return b_state.to(s_read.dtype)


@gluon.jit
def _unpacked(b_value):
    """In float32. The compiler must not keep these instead of what is packed, for which alone there are registers."""
    CODE: gl.constexpr = UNPACK_BF16 if b_value.dtype == gl.bfloat16 else UNPACK_FP16
    return gl.inline_asm_elementwise(CODE, "=f,=f,r", [b_value], dtype=gl.float32, is_pure=False, pack=2)


UNPACK_BF16 = gl.constexpr("""{
    .reg .b32 x;
    shl.b32 x, $2, 16;
    mov.b32 $0, x;
    and.b32 x, $2, 0xFFFF0000;
    mov.b32 $1, x;
}""")
UNPACK_FP16 = gl.constexpr("""{
    .reg .b16 low, high;
    mov.b32 {low, high}, $2;
    cvt.f32.f16 $0, low;
    cvt.f32.f16 $1, high;
}""")


@gluon.jit
def _add(b_value, b_packed):
    """Add numbers in float32, rounded, to others in 16 bits."""
    CODE: gl.constexpr = ADD_BF16 if b_packed.dtype == gl.bfloat16 else ADD_FP16
    return gl.inline_asm_elementwise(CODE, "=r,f,f,r", [b_value, b_packed], dtype=b_packed.dtype, is_pure=True, pack=2)


_ADD = """{{
    .reg .b32 x;
    cvt.rn.{type}x2.f32 x, $2, $1;
    add.rn.{type}x2 $0, x, $3;
}}"""
ADD_BF16, ADD_FP16 = gl.constexpr(_ADD.format(type="bf16")), gl.constexpr(_ADD.format(type="f16"))


@gluon.jit
def _inverse(x):
    """1 / x in one instruction, right to 23 bits."""
    return gl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def _swap(b_0, b_1, c: gl.constexpr, FORM: gl.constexpr):
    """swapHalf on a strip of both cells."""
    SOURCE: gl.constexpr = _source(c, STRIP, FORM.D // 2, FORM.SWAP)
    if SOURCE == 0:
        return b_0, b_1
    elif SOURCE == 1:
        return b_1, b_0
    else:
        columns = c * STRIP + gl.arange(0, STRIP, layout=gl.SliceLayout(0, _sums(STRIP)))
        own = (columns < FORM.D // 2)[None, :]
        return gl.where(own, b_0, b_1), gl.where(own, b_1, b_0)


@gluon.jit
def _add_began(b_state, b_read, s_out, i, c: gl.constexpr, here, layer, d_strip, FORM: gl.constexpr):
    """Add the scaled gradient of what a later layer read to a strip of ds; store what is summed for the scale."""
    _, pointers, n_pairs, _, _, _, _, _, biases = layer
    group, first, _, _ = here
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, _sums(STRIP)))
    columns = i * FORM.D + c * STRIP + gl.arange(0, STRIP, layout=gl.SliceLayout(0, _sums(STRIP)))
    offsets = rows[:, None] * FORM.E + columns[None, :]
    b_began = gl.load(pointers[1] + first * FORM.E + offsets, mask=(first + rows < n_pairs)[:, None], other=0.0)
    b_began = _unpacked(b_began)
    _strip(s_out, 2 * group + i, d_strip).store((b_began * _unpacked(b_read)).to(s_out.dtype))
    return _add(_bias(biases[4].index(c), STRIP) * b_began, b_state)


@gluon.jit
def _go_through_reset(i, read, grads, total, here, layer, d_strip, FORM: gl.constexpr):
    """The second phase of a cell: chunks of ds, and the sums over pairs."""
    leaving, _, _, _, ring, pairs, s_sum, around, biases = layer
    s_read, _, left = pairs
    group, first, turn, zero = here
    row = first.to(gl.int32)
    s_grad_gates, s_product = around[1][0].index(group), around[1][1].index(group)
    use = turn * FORM.USES + 2 * FORM.STRIPS + i * (3 * FORM.STRIPS)
    gates = _start_gates(read, ring, use, d_strip, FORM)
    states = ()
    for j in gl.static_range(FORM.STRIPS):
        grad = _start_grad(s_sum, ring, (2 * group + i) * FORM.STRIPS, use + 3 * j + 2, d_strip, FORM)
        b_gates = hopper.warpgroup_mma_wait(FORM.STRIPS, deps=(gates,))
        _release(ring, use + 3 * j, 2, FORM)
        b_reset = 0.5 * _tanh(0.5 * b_gates + _bias(biases[0].index(i * FORM.STRIPS + j), CHUNK), True) + 0.5
        if j + 1 < FORM.STRIPS:
            gates = _start_gates(read, ring, use + 3 * j + 3, d_strip, FORM)
            b_grad = hopper.warpgroup_mma_wait(2 * FORM.STRIPS, deps=(grad,))
        else:
            b_grad = hopper.warpgroup_mma_wait(0, deps=(grad,))
        _release(ring, use + 3 * j + 2, 1, FORM)
        states += (_add(b_grad * b_reset, grads[j]),)  # type: ignore[assignment]  # tuples grow here
        tma.store_wait(0)
        if i == (0 if j == 0 else -1):
            # All dG_u have gone, too.
            mbarrier.arrive(left.index(group), count=1)
        b_product = b_reset * _unpacked(_join(read[2 * j], read[2 * j + 1]))
        s_product.store(b_product.to(s_read.dtype))
        s_grad_gates.store((b_grad * b_product * (1.0 - b_reset)).to(s_read.dtype))
        hopper.fence_async_shared()
        column = i * FORM.E + j * CHUNK
        tma.async_copy_shared_to_global(leaving[3], [row, column], s_product)
        tma.async_copy_shared_to_global(leaving[0], [row, column], s_grad_gates)
        total = _add_sums(total, s_grad_gates.load(gl.DotOperandLayout(1, _totals(), 2)), i * FORM.STRIPS + j + zero)
    return states, total


@gluon.jit
def _start_gates(read, ring, count, d_strip, FORM: gl.constexpr):
    """Start a product of the pairs and the weights of two uses."""
    s_ring, full, _ = ring
    sums = gl.zeros((ROWS, CHUNK), gl.float32, _sums(CHUNK))
    for part in gl.static_range(2):
        stage = (count + part) % FORM.STAGES
        mbarrier.wait(full.index(stage), (count + part) // FORM.STAGES & 1)
        for k in gl.static_range(FORM.STRIPS):
            block = s_ring.index(stage * FORM.STRIPS + k)
            right = block._reinterpret(block.dtype, [CHUNK, STRIP], d_strip.layout).permute((1, 0))
            left = gl.convert_layout(read[part * FORM.STRIPS + k], _operand(CHUNK), assert_trivial=True)
            sums = hopper.warpgroup_mma(left, right, sums, use_acc=part + k > 0, is_async=True)
    return sums


@gluon.jit
def _start_grad(s_sum, ring, begin, count, d_strip, FORM: gl.constexpr):
    """Start the product of dz_i, whose strips begin there, and the weights of a use."""
    s_ring, full, _ = ring
    sums = gl.zeros((ROWS, CHUNK), gl.float32, _sums(CHUNK))
    stage = count % FORM.STAGES
    mbarrier.wait(full.index(stage), count // FORM.STAGES & 1)
    for k in gl.static_range(FORM.STRIPS):
        left = _strip(s_sum, begin + k, d_strip)
        right = s_ring.index(stage * FORM.STRIPS + k)
        sums = hopper.warpgroup_mma(left, right, sums, use_acc=k > 0, is_async=True)
    return sums


@gluon.jit
def _release(ring, count, USES: gl.constexpr, FORM: gl.constexpr):
    """Leave the places of some uses."""
    for use in gl.static_range(USES):
        mbarrier.arrive(ring[2].index((count + use) % FORM.STAGES), count=1)


@gluon.jit
def _join(low, high):
    """Two strips side by side."""
    b_joined = gl.join(low, high).permute(0, 2, 1).reshape([ROWS, CHUNK])
    return gl.convert_layout(b_joined, _sums(CHUNK), assert_trivial=True)


@gluon.jit
def _halves(b_chunk):
    """The other way round."""
    low, high = gl.split(b_chunk.reshape([ROWS, 2, STRIP]).permute(0, 2, 1))
    low = gl.convert_layout(low, _sums(STRIP), assert_trivial=True)
    return low, gl.convert_layout(high, _sums(STRIP), assert_trivial=True)


@gluon.constexpr_function
def _totals():
    """The layout of sums over pairs: every warp has a part of the columns."""
    return gl.NVMMADistributedLayout([2, 0], [1, 4], [16, 8])


@gluon.jit
def _load_strips(s_blocks, number, DISTANCE: gl.constexpr, d_strip):
    """Two strips side by side, to be summed: those of both cells."""
    layout: gl.constexpr = gl.DotOperandLayout(1, _totals(), 2)
    low = _strip(s_blocks, number, d_strip).load(layout)
    high = _strip(s_blocks, number + DISTANCE, d_strip).load(layout)
    b_joined = gl.join(low, high).permute(0, 2, 1).reshape([ROWS, CHUNK])
    return gl.convert_layout(b_joined, layout, assert_trivial=True)


@gluon.jit
def _add_sums(total, right, number):
    """Add the sums over the rows of a block to one row of the sums."""
    layout: gl.constexpr = gl.DotOperandLayout(0, _totals(), 2)
    rows = gl.arange(0, TOTALS, layout=gl.SliceLayout(1, layout))[:, None]
    inner = gl.arange(0, ROWS, layout=gl.SliceLayout(0, layout))[None, :]
    left = gl.where(rows + 0 * inner == number, 1.0, 0.0).to(right.dtype)
    return hopper.mma_v2(left, right, total)


@gluon.jit
def _store_totals(p_sums, total, FORM: gl.constexpr):
    """The sums: rows of reset gates, then of strips of both cells: update gates, candidates, and a scale."""
    rows = gl.arange(0, TOTALS, layout=gl.SliceLayout(1, _totals()))[:, None]
    columns = gl.arange(0, CHUNK, layout=gl.SliceLayout(0, _totals()))[None, :]
    later = rows - 2 * FORM.STRIPS
    strips = (2 + later // FORM.STRIPS) * FORM.E + later % FORM.STRIPS * STRIP + columns // STRIP * FORM.D
    offsets = gl.where(later < 0, rows * CHUNK + columns, strips + columns % STRIP)
    gl.store(p_sums + offsets, total, mask=rows + 0 * columns < (5 if FORM.BEGAN else 4) * FORM.STRIPS)


STRIDES = {1: 1, -1: 4, 0: 2}
"""By the shuffle, how far apart in its output the cells of neighbouring pairs are."""


def serves(cells: Sequence[int]) -> bool:
    """Whether the cells of every tile lie at equal distances in the output, in sequences of so many cells."""
    return all(length % (4 * ROWS.value) == 0 for length in cells)


def back_sum_rows(pairs: int, device: torch.device) -> int:
    """Rows of shares of sums that a launch leaves: one for each group."""
    return GROUPS.value * _programs(pairs, device)


def _programs(pairs: int, device: torch.device) -> int:
    return min(-(-pairs // (GROUPS.value * ROWS.value)), multiprocessors(device))


def back_launch(
    form: LayerBackForm,
    device: torch.device,
    pairs: int,
    features: int,
    groups: tuple[Any, ...],
    dtype: torch.dtype,
    **flags: Any,
) -> DescriptorLaunch:
    """The launch for a layer's shape.

    It takes the weights of the gates twice, those of the candidates, the cells, the output and its gradient, where the
    gates' gradients go twice, where those of the candidates, t and the gradient of the cells go, and where the cells
    go; then the gates' bias, what is added to the output's gradient, the gradient of what a later layer read and that
    skip connection's scale, where the sums go, and the seed.
    """
    pair, strips, stride = 2 * features, features // STRIP.value, STRIDES[flags["SHUFFLE"]]
    assert features % STRIP.value == 0 < strips <= 3
    # A product is started before the places of the one before it are left: there must be room for both.
    assert form.stages >= 3
    strip, chunk = (ROWS.value, STRIP.value), (ROWS.value, CHUNK.value)
    around = Matrix(2 * pairs // stride, stride * features, *strip)
    matrices = [
        Matrix(3 * pair, pair, CHUNK.value, STRIP.value), Matrix(3 * pair, pair, STRIP.value, STRIP.value),
        Matrix(pair, pair, STRIP.value, CHUNK.value), Matrix(pairs, pair, *strip), around, around,
        Matrix(pairs, 3 * pair, *chunk), Matrix(pairs, 3 * pair, *strip), Matrix(pairs, pair, *strip),
        Matrix(pairs, 2 * pair, *chunk), Matrix(pairs, pair, *chunk), Matrix(pairs, pair, *strip),
    ]  # fmt: skip
    uses = 8 * strips
    constants = Constants(
        D=features, E=pair, STAGES=form.stages, STRIPS=strips, USES=uses, STRIDE=stride,
        EVEN=(strips + 1) // 2, NEXT=min(2 * strips + 8, uses - 1), **flags,
    )  # fmt: skip
    return DescriptorLaunch(
        sys.modules[__name__], "layer_backward", (_programs(pairs, device),), matrices, dtype, pairs, *groups,
        FORM=constants, num_warps=WARPS.value, maxnreg=168, launch_pdl=flags["PDL"],
    )  # fmt: skip
