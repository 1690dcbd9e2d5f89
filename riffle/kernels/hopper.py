"""The gated switch layer as one launch, for GPUs with warpgroup matrix products (sm_90), in Triton's Gluon.

The gates never leave the chip, unless they are kept for the backward pass. A program stays on its multiprocessor and
takes tile after tile of ``GROUPS`` times ``ROWS`` pairs. Each group of four warps has ``ROWS`` pairs of its own; one
more warp copies the weights, which all groups share, through a ring of ``STAGES`` places in shared memory. For each of
the two cells of a pair the products are

    reset gates, PARTS chunks of CHUNK columns, whose products r * a with the pairs stay in registers, then
    LAST chunks of OUT columns of the candidates, from r * a, and of the update gates, from a,

and a place holds CHUNK rows of weights by E // SPLIT columns: those of a chunk of reset gates, or OUT rows each of
candidates and update gates. While a product runs, the group does what follows the one before it. ``LOOP`` makes the
second line a loop of the kernel: fewer instructions, which the instruction cache holds, but no product for update gates
is then started before the chunk before it is done.

Kept gates leave through a place in shared memory by the copy engine. For few pairs, four programs (``WAYS``) share a
tile: each has one of the cells, and half of the columns that the second line makes.

Sigmoids are halves of a tanh, which is one instruction: the candidates are formed from 2 r * a, and halved with it.
docs/kernels.md has the figures.
"""

# D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair, a = what gates and candidates read, s + scale * skip;
# d_ tensor descriptor, p_ pointer, s_ shared memory, b_ block, CAPITALS constexpr, those of a launch together in FORM
from __future__ import annotations

import sys
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from riffle.kernels.descriptors import Constants, DescriptorLaunch, Matrix
from riffle.kernels.gated_switch import copied_columns, destination, follow, random_scale_of_rows, tanh
from riffle.kernels.tuning import LayerForm, multiprocessors

mbarrier, tma = hopper.mbarrier, hopper.tma
PRODUCER = gl.constexpr(24)
"""Registers of a thread of the warp that copies weights."""
ROWS = gl.constexpr(64)
"""Pairs of a group, 16 for each of its warps."""
WARPS = gl.constexpr(4)
"""Warps of a group."""
STRIP = gl.constexpr(32)
"""Columns of the blocks by which pairs come ahead, as many as a chunk of outputs has."""


@gluon.jit(do_not_specialize=["n_pairs"])
def layer_forward(
    d_gates, d_update, d_candidates, d_kept, d_kept_update, d_state, p_gates_bias, p_bias, p_state, p_skip, p_scale,
    p_out, p_seed, n_pairs, starts, lengths, rates, FORM: gl.constexpr,
):  # fmt: skip
    """Gates, candidates, update, dropout and shuffle; where ``KEEP``, gates as ``launches.Kept`` has them, too.

    Where ``SHARED``, a lies in shared memory, else in registers. ``AHEAD`` is for how many tiles of each group pairs
    have room in shared memory, where the copy engine brings them ahead; 0 where the groups load them.
    """
    PLACES: gl.constexpr = FORM.STAGES * FORM.BLOCKS
    READ: gl.constexpr = FORM.GROUPS * FORM.PARTS if FORM.SHARED else 1
    s_ring = gl.allocate_shared_memory(d_gates.dtype, [PLACES, FORM.CHUNK, FORM.CHUNK], d_gates.layout)
    s_read = gl.allocate_shared_memory(d_gates.dtype, [READ, ROWS, FORM.CHUNK], d_gates.layout)
    if FORM.KEEP:
        s_kept = gl.allocate_shared_memory(d_gates.dtype, [FORM.GROUPS, ROWS, FORM.CHUNK], d_gates.layout)
    else:
        s_kept = s_read
    full = gl.allocate_shared_memory(gl.int64, [FORM.STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [FORM.STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(FORM.STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=FORM.GROUPS)
    s_ahead, came, left = s_read, full, empty
    if FORM.AHEAD > 0:
        ROOM: gl.constexpr = FORM.GROUPS * FORM.AHEAD
        s_ahead = gl.allocate_shared_memory(d_gates.dtype, [ROOM * (FORM.E // STRIP), ROWS, STRIP], d_state.layout)
        came = gl.allocate_shared_memory(gl.int64, [ROOM, 1], mbarrier.MBarrierLayout())
        left = gl.allocate_shared_memory(gl.int64, [ROOM, 1], mbarrier.MBarrierLayout())
        for place in gl.static_range(ROOM):
            mbarrier.init(came.index(place), count=1)
            mbarrier.init(left.index(place), count=1)
    # In float32: halves of the biases of the reset gates, of the update gates, and the candidates' biases.
    rows: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    CHUNKS: gl.constexpr = FORM.E // FORM.OUT
    s_reset_bias = gl.allocate_shared_memory(gl.float32, [2 * FORM.PARTS, 1, FORM.CHUNK], rows)
    s_bias = gl.allocate_shared_memory(gl.float32, [2 * CHUNKS, 1, FORM.OUT], rows)
    line: gl.constexpr = gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [WARPS, 1], [1, 0]))
    for j in gl.static_range(2 * FORM.PARTS):
        columns = j * FORM.CHUNK + gl.arange(0, FORM.CHUNK, layout=line)[None, :]
        s_reset_bias.index(j).store(0.5 * gl.load(p_gates_bias + columns).to(gl.float32))
    for c in gl.static_range(CHUNKS):
        columns = c * FORM.OUT + gl.arange(0, FORM.OUT, layout=line)[None, :]
        s_bias.index(c).store(0.5 * gl.load(p_gates_bias + 2 * FORM.E + columns).to(gl.float32))
        s_bias.index(CHUNKS + c).store(gl.load(p_bias + columns).to(gl.float32))
    ring = (s_ring, full, empty)
    ahead = (s_ahead, came, left)
    pairs = (p_state, p_skip, p_scale, p_out, p_seed, n_pairs, s_read, ahead)
    layer = (pairs, (d_kept, d_kept_update, s_kept), (starts, lengths, rates), ring, (s_reset_bias, s_bias))
    weights = (d_gates, d_update, d_candidates, d_state, ahead)
    if FORM.GROUPS == 1:
        gl.warp_specialize([
            (_consume, (0, layer, FORM)), (_produce, (weights, ring, n_pairs, FORM)),
        ], [1], [PRODUCER])  # fmt: skip
    elif FORM.GROUPS == 2:
        gl.warp_specialize([
            (_consume, (0, layer, FORM)), (_consume, (1, layer, FORM)), (_produce, (weights, ring, n_pairs, FORM)),
        ], [4, 1], [FORM.REGISTERS, PRODUCER])  # fmt: skip
    else:
        gl.warp_specialize([
            (_consume, (0, layer, FORM)), (_consume, (1, layer, FORM)), (_consume, (2, layer, FORM)),
            (_produce, (weights, ring, n_pairs, FORM)),
        ], [4, 4, 1], [FORM.REGISTERS, FORM.REGISTERS, PRODUCER])  # fmt: skip


@gluon.jit
def _produce(weights, ring, n_pairs, FORM: gl.constexpr):
    """Copy the weights of tile after tile into the ring, each when all groups have left its place."""
    d_gates, d_update, d_candidates, d_state, ahead = weights
    s_ring, full, empty = ring
    first_cell, first_chunk = _part(FORM)
    follow(FORM.PDL and FORM.AHEAD > 0)
    turn = 0
    for tile in range(gl.program_id(0) // FORM.WAYS, _tiles(n_pairs, FORM), gl.num_programs(0) // FORM.WAYS):
        if FORM.AHEAD > 0:
            _ask_ahead(d_state, ahead, tile, turn, FORM)
        turn += 1  # noqa: SIM113  # the language has no enumerate
        for cell in range(FORM.CELLS):
            i = first_cell + cell
            for use in range(FORM.USES):
                stage = use % FORM.STAGES
                mbarrier.wait(empty.index(stage), (_round(use, cell, FORM) & 1) ^ 1)
                mbarrier.expect(full.index(stage), FORM.BLOCKS * d_gates.block_type.nbytes)
                for k in gl.static_range(FORM.BLOCKS):
                    block = s_ring.index(stage * FORM.BLOCKS + k)
                    column = (use % FORM.SPLIT * FORM.BLOCKS + k) * FORM.CHUNK
                    if use < FORM.RESETS:
                        row = i * FORM.E + use // FORM.SPLIT * FORM.CHUNK
                        tma.async_copy_global_to_shared(d_gates, [row, column], full.index(stage), block)
                    else:
                        row = i * FORM.D + (first_chunk + (use - FORM.RESETS) // FORM.SPLIT) * FORM.OUT
                        low, high = block.slice(0, FORM.OUT, dim=0), block.slice(FORM.OUT, FORM.OUT, dim=0)
                        tma.async_copy_global_to_shared(d_candidates, [row, column], full.index(stage), low)
                        tma.async_copy_global_to_shared(d_update, [2 * FORM.E + row, column], full.index(stage), high)


@gluon.jit
def _ask_ahead(d_state, ahead, tile, turn, FORM: gl.constexpr):
    """Ask for each group's pairs of a tile, when those that had their place have been read."""
    s_ahead, came, left = ahead
    STRIPS: gl.constexpr = FORM.E // STRIP
    for group in gl.static_range(FORM.GROUPS):
        place = group * FORM.AHEAD + turn % FORM.AHEAD
        mbarrier.wait(left.index(place), (turn // FORM.AHEAD & 1) ^ 1)
        mbarrier.expect(came.index(place), STRIPS * d_state.block_type.nbytes)
        for k in gl.static_range(STRIPS):
            at = [(tile * FORM.GROUPS + group) * ROWS, k * STRIP]
            tma.async_copy_global_to_shared(d_state, at, came.index(place), s_ahead.index(place * STRIPS + k))


@gluon.jit
def _tiles(n_pairs, FORM: gl.constexpr):
    """How many tiles hold the pairs."""
    return gl.cdiv(n_pairs, ROWS * FORM.GROUPS)


@gluon.jit
def _part(FORM: gl.constexpr):
    """The first cell, and the first chunk of outputs, of which this program makes ``CELLS`` and ``LAST``."""
    if FORM.WAYS == 1:
        return 0, 0
    else:
        way = gl.program_id(0) % FORM.WAYS
        return way % 2, way // 2 * FORM.LAST


@gluon.jit
def _round(use, cell, FORM: gl.constexpr):
    """How often the ring has gone round before a cell makes this use of it, but for an even number."""
    return use // FORM.STAGES + cell * (FORM.USES // FORM.STAGES)


@gluon.jit
def _consume(group, layer, FORM: gl.constexpr):
    """The layer on a group's pairs of tile after tile."""
    pairs, _, _, ring, _ = layer
    p_state, p_skip, p_scale, _, _, n_pairs, s_read, ahead = pairs
    first_cell, first_chunk = _part(FORM)
    # What the launch before made is read after this, and only weights before: see tuning.DEPENDENT_LAUNCH.
    follow(FORM.PDL)
    turn = 0
    for tile in range(gl.program_id(0) // FORM.WAYS, _tiles(n_pairs, FORM), gl.num_programs(0) // FORM.WAYS):
        first = (tile * FORM.GROUPS + group).to(gl.int64) * ROWS
        inside = gl.minimum(n_pairs - first, ROWS).to(gl.int32)
        strip = 0
        if FORM.AHEAD > 0:
            place = group * FORM.AHEAD + turn % FORM.AHEAD
            strip = place * (FORM.E // STRIP)
            mbarrier.wait(ahead[1].index(place), turn // FORM.AHEAD & 1)
            read = _read_ahead(ahead[0], strip, FORM)
        else:
            read = _read(p_state, p_skip, p_scale, s_read, group, first, inside, FORM)
        unknown = n_pairs + tile
        for cell in range(FORM.CELLS):
            here = (first_cell + cell, first_chunk, first, inside, group, cell, unknown, strip)
            products = ()
            reset = _start(read, ring, here, 0, 0, FORM.CHUNK, FORM.SHARED, FORM)
            for j in gl.static_range(FORM.PARTS):
                ready = reset
                if j + 1 < FORM.PARTS:
                    reset = _start(read, ring, here, j + 1, 0, FORM.CHUNK, FORM.SHARED, FORM)
                    b_sum = hopper.warpgroup_mma_wait(FORM.PARTS, deps=(ready,))
                elif not FORM.LOOP:
                    update = _start(read, ring, here, FORM.PARTS, FORM.OUT, FORM.OUT, FORM.SHARED, FORM)
                    b_sum = hopper.warpgroup_mma_wait(FORM.PARTS, deps=(ready,))
                else:
                    b_sum = hopper.warpgroup_mma_wait(0, deps=(ready,))
                _release(ring, j, FORM)
                products += (_product(b_sum, read, j, layer, here, FORM),)  # type: ignore[assignment]  # tuples grow
            if FORM.LOOP:
                for c in range(FORM.LAST):
                    update = _start(read, ring, here, FORM.PARTS + c, FORM.OUT, FORM.OUT, FORM.SHARED, FORM)
                    _finish(c, update, True, products, read, layer, here, FORM)
            else:
                for c in gl.static_range(FORM.LAST):
                    update = _finish(c, update, c + 1 == FORM.LAST, products, read, layer, here, FORM)
        if FORM.AHEAD > 0:
            mbarrier.arrive(ahead[2].index(group * FORM.AHEAD + turn % FORM.AHEAD), count=1)
        turn += 1  # noqa: SIM113  # the language has no enumerate
    if FORM.KEEP:
        tma.store_wait(0)


@gluon.constexpr_function
def _sums(width):
    """The layout of sums of ``width`` columns."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, width, 16])


@gluon.constexpr_function
def _operand(width):
    """The layout of the left operand of such sums: in 16 bits, the same numbers in the same registers."""
    return gl.DotOperandLayout(0, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, width, 16]), 2)


@gluon.constexpr_function
def _lines(width):
    """A layout of rows of ``width`` columns in which a thread has 16 bytes of a row."""
    return gl.BlockedLayout([1, 8], [256 // width, width // 8], [4, 1], [1, 0])


@gluon.jit
def _read(p_state, p_skip, p_scale, s_read, group, first, inside, FORM: gl.constexpr):
    """What gates and candidates read: chunks of columns, or shared memory and where the chunks begin there."""
    layout: gl.constexpr = _lines(FORM.CHUNK) if FORM.SHARED else _sums(FORM.CHUNK)
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    mask = (rows < inside)[:, None]
    chunks = ()
    for k in gl.static_range(FORM.PARTS):
        columns = k * FORM.CHUNK + gl.arange(0, FORM.CHUNK, layout=gl.SliceLayout(0, layout))
        offsets = rows[:, None] * FORM.E + columns[None, :]
        b_read = gl.load(p_state + first * FORM.E + offsets, mask=mask, other=0.0)
        if FORM.SKIP:
            b_skip = gl.load(p_skip + first * FORM.E + offsets, mask=mask, other=0.0).to(gl.float32)
            b_sum = b_read.to(gl.float32) + gl.load(p_scale + columns % FORM.D)[None, :] * b_skip
            b_read = b_sum.to(b_read.dtype)
        if FORM.SHARED:
            s_read.index(group * FORM.PARTS + k).store(b_read)
        else:
            chunks += (b_read,)  # type: ignore[assignment]  # tuples grow here
    if FORM.SHARED:
        hopper.fence_async_shared()
    return (s_read, group * FORM.PARTS) if FORM.SHARED else chunks


@gluon.jit
def _read_ahead(s_ahead, strip, FORM: gl.constexpr):
    """The same from where the copy engine brought it, where nothing is added to it."""
    chunks = ()
    for k in gl.static_range(FORM.PARTS):
        low, high = s_ahead.index(strip + 2 * k).load(_sums(STRIP)), s_ahead.index(strip + 2 * k + 1).load(_sums(STRIP))
        b_read = gl.join(low, high).permute(0, 2, 1).reshape([ROWS, 2 * STRIP])
        chunks += (gl.convert_layout(b_read, _sums(2 * STRIP), assert_trivial=True),)  # type: ignore[assignment]
    return chunks


@gluon.jit
def _start(
    read, ring, here, use, row: gl.constexpr, WIDTH: gl.constexpr, SHARED: gl.constexpr, FORM: gl.constexpr
):  # fmt: skip
    """Start the product of what is read and ``WIDTH`` rows of the weights of a use, from ``row`` on."""
    s_ring, full, _ = ring
    _, _, _, _, _, cell, unknown, _ = here
    sums = gl.zeros((ROWS, WIDTH), gl.float32, _sums(WIDTH))
    # No compiler knows that this is zero: it would compute all addresses ahead, and run out of registers.
    zero = (unknown + cell + use) >> 31
    for part in gl.static_range(FORM.SPLIT):
        stage = (use * FORM.SPLIT + part) % FORM.STAGES + zero
        mbarrier.wait(full.index(stage), _round(use * FORM.SPLIT + part, cell, FORM) & 1)
        for k in gl.static_range(FORM.BLOCKS):
            right = s_ring.index(stage * FORM.BLOCKS + k)
            if WIDTH < FORM.CHUNK:
                right = right.slice(row, WIDTH, dim=0)
            if SHARED:
                left = read[0].index(read[1] + part * FORM.BLOCKS + k + zero)
            else:
                left = gl.convert_layout(read[part * FORM.BLOCKS + k], _operand(WIDTH), assert_trivial=True)
            sums = hopper.warpgroup_mma(left, right.permute((1, 0)), sums, use_acc=part + k > 0, is_async=True)
    return sums


@gluon.jit
def _release(ring, use, FORM: gl.constexpr):
    """Leave the places of a use."""
    for part in gl.static_range(FORM.SPLIT):
        mbarrier.arrive(ring[2].index((use * FORM.SPLIT + part) % FORM.STAGES), count=1)


@gluon.jit
def _product(b_sum, read, j: gl.constexpr, layer, here, FORM: gl.constexpr):
    """A chunk of 2 r^i * a."""
    _, kept, _, _, biases = layer
    i, _, first, _, group, _, _, _ = here
    if FORM.KEEP:
        _store_gates(kept[0], kept[2].index(group), b_sum, i * FORM.E + j * FORM.CHUNK, first)
    b_read = read[0].index(read[1] + j).load(_sums(FORM.CHUNK)) if FORM.SHARED else read[j]
    b_bias = biases[0].index(i * FORM.PARTS + j).load(_sums(FORM.CHUNK))
    CODE: gl.constexpr = RESET_BF16 if b_read.dtype == gl.bfloat16 else RESET_FP16
    return gl.inline_asm_elementwise(
        CODE, "=r,f,f,f,f,r", [b_sum, b_bias, b_read], dtype=b_read.dtype, is_pure=True, pack=2
    )


_RESET = """{{
    .reg .f32 x0, x1;
    .reg .b32 t;
    fma.rn.f32 x0, $1, 0f3F000000, $3;
    fma.rn.f32 x1, $2, 0f3F000000, $4;
    tanh.approx.f32 x0, x0;
    tanh.approx.f32 x1, x1;
    cvt.rn.{type}x2.f32 t, x1, x0;
    fma.rn.{type}x2 $0, t, $5, $5;
}}"""
RESET_BF16, RESET_FP16 = gl.constexpr(_RESET.format(type="bf16")), gl.constexpr(_RESET.format(type="f16"))
"""2 sigmoid(x + bias) a = tanh((x + bias) / 2) a + a for two neighbours, the last step in 16 bits."""


@gluon.jit
def _finish(c, update, ALONE: gl.constexpr, products, read, layer, here, FORM: gl.constexpr):
    """Chunk c of the outputs; starts the next product for update gates, unless ``ALONE``."""
    pairs, kept, groups, ring, biases = layer
    p_state, _, _, p_out, p_seed, _, _, ahead = pairs
    i, first_chunk, first, inside, group, _, _, strip = here
    CHUNKS: gl.constexpr = FORM.D // FORM.OUT
    chunk = first_chunk + c
    candidate = _start(products, ring, here, FORM.PARTS + c, 0, FORM.OUT, False, FORM)
    b_copied = _load_copied(p_state, ahead[0], strip, c, chunk, i, first, inside, FORM)
    b_sum = hopper.warpgroup_mma_wait(FORM.PARTS, deps=(update,))
    if FORM.KEEP:
        s_half = kept[2].index(group)._reinterpret(kept[1].dtype, [ROWS, FORM.OUT], kept[1].layout)
        _store_gates(kept[1], s_half, b_sum, (4 + i) * FORM.D + chunk * FORM.OUT, first)
    b_update = 0.5 * tanh(0.5 * b_sum + biases[1].index(i * CHUNKS + chunk).load(_sums(FORM.OUT)), True) + 0.5
    if ALONE:
        b_candidate = hopper.warpgroup_mma_wait(0, deps=(candidate,))
    else:
        update = _start(read, ring, here, FORM.PARTS + c + 1, FORM.OUT, FORM.OUT, FORM.SHARED, FORM)
        b_candidate = hopper.warpgroup_mma_wait(FORM.PARTS, deps=(candidate,))
    _release(ring, FORM.PARTS + c, FORM)
    b_bias = biases[1].index((2 + i) * CHUNKS + chunk).load(_sums(FORM.OUT))
    b_candidate = tanh(0.5 * b_candidate + b_bias, True)
    b_out = b_candidate + b_update * (b_copied.to(gl.float32) - b_candidate)
    _store(p_out, p_seed, b_out, chunk, i, groups, first, inside, FORM)
    return update


@gluon.jit
def _load_copied(p_state, s_ahead, strip, c, chunk, i, first, inside, FORM: gl.constexpr):
    """A chunk of swapHalf(s)."""
    SOURCE: gl.constexpr = _source(c, FORM.OUT, FORM.D // 2, FORM.SWAP) if FORM.AHEAD > 0 else -1
    if SOURCE >= 0:
        cell = 1 - i if SOURCE == 1 else i
        return s_ahead.index(strip + cell * (FORM.D // STRIP) + c).load(_sums(FORM.OUT))
    else:
        rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, _sums(FORM.OUT)))
        columns = chunk * FORM.OUT + gl.arange(0, FORM.OUT, layout=gl.SliceLayout(0, _sums(FORM.OUT)))
        offsets = rows[:, None] * FORM.E + copied_columns(columns, i, FORM.D, FORM.SWAP)[None, :]
        return gl.load(p_state + first * FORM.E + offsets, mask=(rows < inside)[:, None], other=0.0)


@gluon.constexpr_function
def _source(c, width, half, swap):
    """From which cell a chunk of swapHalf(s) comes: 0 the same, 1 the other, -1 both, and so not from one strip."""
    if (c + 1) * width <= half or not swap:
        return 0
    return 1 if c * width >= half else -1


@gluon.jit
def _store(p_out, p_seed, b_out, chunk, i, groups, first, inside, FORM: gl.constexpr):
    """A chunk of the outputs to where the shuffle wants them."""
    starts, lengths, rates = groups
    if FORM.DROPOUT:
        rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, _sums(FORM.OUT)))
        columns = chunk * FORM.OUT + gl.arange(0, FORM.OUT, layout=gl.SliceLayout(0, _sums(FORM.OUT)))
        b_out *= random_scale_of_rows(p_seed, first, rows, i, columns, starts, rates, FORM.D, FORM.DROPOUT)
    layout: gl.constexpr = _lines(FORM.OUT)
    numbers = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    cells = destination(first + numbers, i, starts, lengths, FORM.SHUFFLE)
    columns = chunk * FORM.OUT + gl.arange(0, FORM.OUT, layout=gl.SliceLayout(0, layout))
    b_out = gl.convert_layout(b_out.to(p_out.dtype.element_ty), layout)
    gl.store(p_out + cells[:, None] * FORM.D + columns[None, :], b_out, mask=(numbers < inside)[:, None])


@gluon.jit
def _store_gates(d_kept, s_kept, b_sum, column, first):
    """A chunk of gates, before the sigmoid and without their bias; rows beyond the last pair are not copied."""
    tma.store_wait(0)
    s_kept.store(b_sum.to(d_kept.dtype))
    hopper.fence_async_shared()
    tma.async_copy_shared_to_global(d_kept, [first.to(gl.int32), column], s_kept)


def constants(form: LayerForm, features: int, **flags: Any) -> Constants:
    """What the kernel is compiled for."""
    chunk, pair = form.chunk(features), 2 * features
    out, parts = chunk // 2, pair // chunk
    last = features // out // (1 if form.ways == 1 else 2)
    uses = (parts + last) * form.split
    assert parts % form.split == 0
    # A product is started before the places of the one before it are left: there must be room for both.
    assert form.stages >= 2 * form.split
    # Programs that go on to another tile go on where the ring began.
    assert form.ways > 1 or uses % form.stages == 0
    assert not form.ahead or (out == STRIP.value and not (form.shared or form.loop) and form.ways == 1)
    return Constants(
        D=features, E=pair, GROUPS=form.groups, STAGES=form.stages, SPLIT=form.split, CHUNK=chunk,
        OUT=out, PARTS=parts, LAST=last, BLOCKS=parts // form.split, RESETS=parts * form.split, USES=uses,
        SHARED=form.shared, LOOP=form.loop, WAYS=form.ways, CELLS=2 if form.ways == 1 else 1,
        REGISTERS=form.registers[0], AHEAD=0 if flags["SKIP"] else form.ahead, **flags,
    )  # fmt: skip


def layer_launch(
    form: LayerForm,
    device: torch.device,
    pairs: int,
    features: int,
    groups: tuple[Any, ...],
    dtype: torch.dtype,
    **flags: Any,
) -> DescriptorLaunch:
    """The launch for a layer's shape.

    It takes the weights of the gates twice, those of the candidates, the kept gates twice and the cells, then the
    biases of gates and candidates, the cells, the skip connection with its scale, the output and the seed.
    """
    chunk, pair = form.chunk(features), 2 * features
    weights = [Matrix(3 * pair, pair, height, chunk) for height in (chunk, chunk // 2)]
    weights.append(Matrix(pair, pair, chunk // 2, chunk))
    kept = [Matrix(pairs, 3 * pair, ROWS.value, width) for width in (chunk, chunk // 2)]
    tiles = -(-pairs // (form.groups * ROWS.value))
    programs = min(tiles, multiprocessors(device)) if form.ways == 1 else tiles * form.ways
    return DescriptorLaunch(
        sys.modules[__name__], "layer_forward", (programs,),
        [*weights, *kept, Matrix(pairs, pair, ROWS.value, STRIP.value)], dtype, pairs, *groups,
        FORM=constants(form, features, **flags), num_warps=WARPS.value, maxnreg=form.registers[1],
        launch_pdl=flags["PDL"],
    )  # fmt: skip
