"""From the candidates' gradients to those of the reset gates in one launch, for GPUs with warpgroup products (sm_90).

dt_i = dz_i W_ci never leaves the chip: what `gated_switch.reset_backward` does is the epilogue of that product. A
program stays on its multiprocessor, holds the weights of CHUNK columns of the pair in shared memory, and takes tile
after tile of ROWS pairs. Everything else goes through shared memory too, by the copy engine: one warp asks for dz and
for a stage of three to five blocks; eight warps replace what these held by what shall leave:

    a                                   t_0, or a itself where that is copied
    G_r0, G_r1                          dG_r0, dG_r1
    ds, where it is added to            ds + sum of dt_i * r_i
    the skip connection, or the         sum of dt_i * r_i, or
    gradient of one that began here     t_0 or t_1

What finds no room there leaves by a block that no stage has: when it is filled again, the copy before has read it.
"""

# D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair, a = what was read, t_i = r_i * a
# d_ tensor descriptor, p_ pointer, s_ shared memory, b_ block, CAPITALS constexpr, those of a launch together in FORM
from __future__ import annotations

import sys

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from riffle.kernels.descriptors import Constants, DescriptorLaunch, Matrix
from riffle.kernels.gated_switch import follow, tanh
from riffle.kernels.tuning import ProductForm, multiprocessors

mbarrier, tma = hopper.mbarrier, hopper.tma
ROWS = gl.constexpr(64)
"""Pairs of a tile."""
WARPS = gl.constexpr(4)
"""Warps that share the rows of a tile; twice as many share its columns, too."""


@gluon.jit(do_not_specialize=["n_pairs"])
def product_backward(
    d_grad_sum, d_weight, d_gates, d_grad_gates, d_read, d_product, d_grad_read, d_skip, d_more, d_copy, p_gates_bias,
    p_scale, p_more_scale, p_sums, n_pairs, FORM: gl.constexpr,
):  # fmt: skip
    """The gradients of the reset gates, t, and what the candidates add to the gradient of what was read.

    The flags are those of ``gated_switch.reset_backward``: what is read is ``d_read`` plus the scaled ``d_skip`` where
    ``SKIP``; its gradient is added to what ``d_grad_read`` holds where ``ADD``, and takes the scaled ``d_more`` where
    ``MORE``; ``PRODUCT`` stores t and ``COPY`` what was read. ``d_grad_gates`` may be the memory of ``d_gates``.
    ``p_sums`` ``[programs of a column * 4, 3E]`` takes each warp's share of the gradients of B_r, and where ``MORE`` of
    that scale's (columns 2E to 3E). ``STEP`` divides D and is the width of a block of dz; a tile's have one place.
    """
    dtype: gl.constexpr = d_read.dtype
    s_weight = gl.allocate_shared_memory(dtype, [FORM.STEPS, FORM.STEP, FORM.CHUNK], d_weight.layout)
    s_grad_sum = gl.allocate_shared_memory(dtype, [FORM.STEPS, ROWS, FORM.STEP], d_grad_sum.layout)
    # An allocation for each: the compiler sees that what is stored to one does not touch another.
    s_read = gl.allocate_shared_memory(dtype, [FORM.STAGES, ROWS, FORM.CHUNK], d_read.layout)
    s_reset_0 = gl.allocate_shared_memory(dtype, [FORM.STAGES, ROWS, FORM.CHUNK], d_read.layout)
    s_reset_1 = gl.allocate_shared_memory(dtype, [FORM.STAGES, ROWS, FORM.CHUNK], d_read.layout)
    s_add, s_skip, s_more, s_free_0, s_free_1 = s_read, s_read, s_read, s_read, s_read
    if FORM.ADD:
        s_add = gl.allocate_shared_memory(dtype, [FORM.STAGES, ROWS, FORM.CHUNK], d_read.layout)
    if FORM.SKIP:
        s_skip = gl.allocate_shared_memory(dtype, [FORM.STAGES, ROWS, FORM.CHUNK], d_read.layout)
    if FORM.MORE:
        s_more = gl.allocate_shared_memory(dtype, [FORM.STAGES, ROWS, FORM.CHUNK], d_read.layout)
    if FORM.FREE > 0:
        s_free_0 = gl.allocate_shared_memory(dtype, [1, ROWS, FORM.CHUNK], d_read.layout)
    if FORM.FREE > 1:
        s_free_1 = gl.allocate_shared_memory(dtype, [1, ROWS, FORM.CHUNK], d_read.layout)
    barriers: gl.constexpr = mbarrier.MBarrierLayout()
    full = gl.allocate_shared_memory(gl.int64, [FORM.STAGES, 1], barriers)
    empty = gl.allocate_shared_memory(gl.int64, [FORM.STAGES, 1], barriers)
    full_sum = gl.allocate_shared_memory(gl.int64, [1, 1], barriers)
    empty_sum = gl.allocate_shared_memory(gl.int64, [1, 1], barriers)
    loaded = gl.allocate_shared_memory(gl.int64, [1, 1], barriers)
    for stage in gl.static_range(FORM.STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    mbarrier.init(full_sum.index(0), count=1)
    mbarrier.init(empty_sum.index(0), count=1)
    mbarrier.init(loaded.index(0), count=1)
    # In float32: halves of the biases of both resets, then the scales.
    s_bias = gl.allocate_shared_memory(gl.float32, [4, 1, FORM.CHUNK], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    line: gl.constexpr = gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [2 * WARPS, 1], [1, 0]))
    columns = _column(FORM) + gl.arange(0, FORM.CHUNK, layout=line)[None, :]
    s_bias.index(0).store(0.5 * gl.load(p_gates_bias + columns).to(gl.float32))
    s_bias.index(1).store(0.5 * gl.load(p_gates_bias + FORM.E + columns).to(gl.float32))
    if FORM.SKIP:
        s_bias.index(2).store(gl.load(p_scale + columns % FORM.D))
    if FORM.MORE:
        s_bias.index(3).store(gl.load(p_more_scale + columns % FORM.D))
    blocks = (s_read, s_reset_0, s_reset_1, s_add, s_skip, s_more, s_free_0, s_free_1)
    stages = (blocks, full, empty)
    sums = (s_grad_sum, full_sum, empty_sum, s_weight, loaded)
    leaving = (d_grad_gates, d_product, d_grad_read, d_copy)
    coming = (d_grad_sum, d_weight, d_gates, d_read, d_grad_read, d_skip, d_more)
    gl.warp_specialize([
        (_consume, (leaving, p_sums, s_bias, stages, sums, n_pairs, FORM)),
        (_produce, (coming, stages, sums, n_pairs, FORM)),
    ], [1], [24])  # fmt: skip


@gluon.jit
def _column(FORM: gl.constexpr):
    """The first of the columns of this program."""
    return gl.program_id(0) % FORM.PARTS * FORM.CHUNK


@gluon.jit
def _produce(coming, stages, sums, n_pairs, FORM: gl.constexpr):
    """Ask for the weights, then for what tile after tile needs, each when its place is free."""
    d_grad_sum, d_weight, d_gates, d_read, d_grad_read, d_skip, d_more = coming
    blocks, full, empty = stages
    s_grad_sum, full_sum, empty_sum, s_weight, loaded = sums
    column = _column(FORM)
    mbarrier.expect(loaded.index(0), FORM.STEPS * d_weight.block_type.nbytes)
    for k in gl.static_range(FORM.STEPS):
        tma.async_copy_global_to_shared(d_weight, [k * FORM.STEP, column], loaded.index(0), s_weight.index(k))
    # What the launch before made is read after this, and only weights before: see tuning.DEPENDENT_LAUNCH.
    follow(FORM.PDL)
    turn = 0
    for tile in range(gl.program_id(0) // FORM.PARTS, gl.cdiv(n_pairs, ROWS), gl.num_programs(0) // FORM.PARTS):
        row = tile * ROWS
        mbarrier.wait(empty_sum.index(0), (turn & 1) ^ 1)
        mbarrier.expect(full_sum.index(0), FORM.STEPS * d_grad_sum.block_type.nbytes)
        for k in gl.static_range(FORM.STEPS):
            tma.async_copy_global_to_shared(d_grad_sum, [row, k * FORM.STEP], full_sum.index(0), s_grad_sum.index(k))
        stage = turn % FORM.STAGES
        ready = full.index(stage)
        mbarrier.wait(empty.index(stage), (turn // FORM.STAGES & 1) ^ 1)
        mbarrier.expect(ready, FORM.BLOCKS * d_read.block_type.nbytes)
        tma.async_copy_global_to_shared(d_read, [row, column], ready, blocks[0].index(stage))
        tma.async_copy_global_to_shared(d_gates, [row, column], ready, blocks[1].index(stage))
        tma.async_copy_global_to_shared(d_gates, [row, FORM.E + column], ready, blocks[2].index(stage))
        if FORM.ADD:
            tma.async_copy_global_to_shared(d_grad_read, [row, column], ready, blocks[3].index(stage))
        if FORM.SKIP:
            tma.async_copy_global_to_shared(d_skip, [row, column], ready, blocks[4].index(stage))
        if FORM.MORE:
            tma.async_copy_global_to_shared(d_more, [row, column], ready, blocks[5].index(stage))
        turn += 1  # noqa: SIM113  # the language has no enumerate


@gluon.jit
def _consume(leaving, p_sums, s_bias, stages, sums, n_pairs, FORM: gl.constexpr):
    """The product and what follows it, tile after tile."""
    d_grad_gates, d_product, d_grad_read, d_copy = leaving
    blocks, full, empty = stages
    s_grad_sum, full_sum, empty_sum, s_weight, loaded = sums
    layout: gl.constexpr = _sums(FORM)
    column = _column(FORM)
    b_total_0 = _over_rows(gl.zeros((ROWS, FORM.CHUNK), gl.float32, layout))
    b_total_1 = b_total_0
    b_total_more = b_total_0
    mbarrier.wait(loaded.index(0), 0)
    turn = 0
    for tile in range(gl.program_id(0) // FORM.PARTS, gl.cdiv(n_pairs, ROWS), gl.num_programs(0) // FORM.PARTS):
        row = tile * ROWS
        mbarrier.wait(full_sum.index(0), turn & 1)
        grads = ()
        for i in gl.static_range(2):
            grad = gl.zeros((ROWS, FORM.CHUNK), gl.float32, layout)
            for k in gl.static_range(i * (FORM.STEPS // 2), (i + 1) * (FORM.STEPS // 2)):
                left, right = s_grad_sum.index(k), s_weight.index(k)
                grad = hopper.warpgroup_mma(left, right, grad, use_acc=k % (FORM.STEPS // 2) > 0, is_async=True)
            grads += (grad,)  # type: ignore[assignment]  # tuples grow here
        b_grads = hopper.warpgroup_mma_wait(0, deps=grads)
        mbarrier.arrive(empty_sum.index(0), count=1)
        # What the tile before left has gone by now: its stage is free, and so are the blocks of no stage.
        tma.store_wait(0)
        if turn > 0:
            mbarrier.arrive(empty.index((turn + FORM.STAGES - 1) % FORM.STAGES), count=1)
        stage = turn % FORM.STAGES
        mbarrier.wait(full.index(stage), turn // FORM.STAGES & 1)
        s_read = blocks[0].index(stage)
        s_reset_0 = blocks[1].index(stage)
        s_reset_1 = blocks[2].index(stage)
        s_sum = blocks[FORM.SUM].index(stage if FORM.SUM < 6 else 0)
        s_product_0 = blocks[FORM.PRODUCT_0].index(stage if FORM.PRODUCT_0 < 6 else 0)
        s_product_1 = blocks[FORM.PRODUCT_1].index(stage if FORM.PRODUCT_1 < 6 else 0)
        # All that the blocks hold is read before any of them is filled.
        b_read = s_read.load(layout)
        b_gates_0, b_gates_1 = s_reset_0.load(layout), s_reset_1.load(layout)
        b_sum = gl.zeros((ROWS, FORM.CHUNK), gl.float32, layout)
        if FORM.ADD:
            b_sum = blocks[3].index(stage).load(layout).to(gl.float32)
        if FORM.SKIP:
            b_skip = blocks[4].index(stage).load(layout).to(gl.float32)
            # Rounded like what the products read.
            b_read = (b_read.to(gl.float32) + s_bias.index(2).load(layout) * b_skip).to(b_read.dtype)
        if FORM.MORE:
            b_more = blocks[5].index(stage).load(layout).to(gl.float32)
            b_sum += s_bias.index(3).load(layout) * b_more
            b_total_more += _over_rows(b_more * b_read.to(gl.float32))
        b_product, b_grad, b_part = _reset(b_grads[0], b_gates_0, s_bias.index(0).load(layout), b_read)
        b_sum += b_part
        b_total_0 += _over_rows(b_grad)
        s_reset_0.store(b_grad.to(s_read.dtype))
        if FORM.COPY and FORM.SKIP:
            s_read.store(b_read)
        if FORM.PRODUCT:
            s_product_0.store(b_product.to(s_read.dtype))
        b_product, b_grad, b_part = _reset(b_grads[1], b_gates_1, s_bias.index(1).load(layout), b_read)
        b_sum += b_part
        b_total_1 += _over_rows(b_grad)
        s_reset_1.store(b_grad.to(s_read.dtype))
        if FORM.PRODUCT:
            s_product_1.store(b_product.to(s_read.dtype))
        s_sum.store(b_sum.to(s_read.dtype))
        hopper.fence_async_shared()
        tma.async_copy_shared_to_global(d_grad_gates, [row, column], s_reset_0)
        tma.async_copy_shared_to_global(d_grad_gates, [row, FORM.E + column], s_reset_1)
        tma.async_copy_shared_to_global(d_grad_read, [row, column], s_sum)
        if FORM.PRODUCT:
            tma.async_copy_shared_to_global(d_product, [row, column], s_product_0)
            tma.async_copy_shared_to_global(d_product, [row, FORM.E + column], s_product_1)
        if FORM.COPY:
            tma.async_copy_shared_to_global(d_copy, [row, column], s_read)
        turn += 1  # noqa: SIM113  # the language has no enumerate
    tma.store_wait(0)
    _store_total(p_sums, b_total_0, column, FORM)
    _store_total(p_sums, b_total_1, FORM.E + column, FORM)
    if FORM.MORE:
        _store_total(p_sums, b_total_more, 2 * FORM.E + column, FORM)


@gluon.jit
def _reset(b_grad, b_gates, b_half_bias, b_read):
    """t_i, the gradient of the reset gates, and what joins that of what was read."""
    b_reset = 0.5 * tanh(0.5 * b_gates.to(gl.float32) + b_half_bias, True) + 0.5
    b_product = b_reset * b_read.to(gl.float32)
    return b_product, b_grad * b_product * (1.0 - b_reset), b_grad * b_reset


@gluon.constexpr_function
def _sums(form):
    """The layout of sums: a warpgroup has half of the columns."""
    return gl.NVMMADistributedLayout([3, 0], [4, 2], [16, form.CHUNK.value // 2, 16])


@gluon.jit
def _over_rows(b_value):
    """Sums over the rows that a thread has."""
    return gl.sum(b_value.reshape([WARPS, 2, ROWS // (2 * WARPS), b_value.shape[1]]), axis=1)


@gluon.jit
def _store_total(p_sums, b_total, column, FORM: gl.constexpr):
    """The sums over a warp's rows."""
    b_total = gl.sum(b_total, axis=1)
    layout: gl.constexpr = b_total.type.layout
    warps = gl.program_id(0) // FORM.PARTS * WARPS + gl.arange(0, WARPS, layout=gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, FORM.CHUNK, layout=gl.SliceLayout(0, layout))
    gl.store(p_sums + warps[:, None] * (3 * FORM.E) + columns[None, :], b_total)


READ, ADD, SKIP, MORE, FREE = 0, 3, 4, 5, 6
"""Blocks of a stage by their numbers, and the first of those that no stage has."""


def constants(form: ProductForm, features: int, **flags: bool) -> Constants:
    """What the kernel is compiled for, with the blocks by which the sum and both t leave."""
    pair = 2 * features
    free = [*([] if flags["COPY"] else [READ]), *([MORE] if flags["MORE"] else []), FREE, FREE + 1]
    products = [free.pop(0) if flags["PRODUCT"] else READ for _ in range(2)]
    total = ADD if flags["ADD"] else SKIP if flags["SKIP"] else free.pop(0)
    used = {total, *products} & {FREE, FREE + 1}
    return Constants(
        D=features, E=pair, CHUNK=form.chunk, STEP=form.step, STAGES=form.stages, PARTS=pair // form.chunk,
        STEPS=pair // form.step, BLOCKS=3 + flags["ADD"] + flags["SKIP"] + flags["MORE"],
        SUM=total, PRODUCT_0=products[0], PRODUCT_1=products[1], FREE=len(used), **flags,
    )  # fmt: skip


def product_sum_rows(form: ProductForm, features: int, pairs: int, device: torch.device) -> int:
    """Rows of shares of sums that a launch leaves: four for each program of a column."""
    return WARPS.value * _programs(form, features, pairs, device)


def _programs(form: ProductForm, features: int, pairs: int, device: torch.device) -> int:
    """Programs that have the same columns."""
    most = multiprocessors(device) * form.chunk // (2 * features)
    return max(1, min(most, -(-pairs // ROWS.value)))


def product_launch(
    form: ProductForm,
    device: torch.device,
    pairs: int,
    features: int,
    dtype: torch.dtype,
    **flags: bool,
) -> DescriptorLaunch:
    """The launch for a layer's shape.

    It takes the gradients of the candidates, their weights, gates, where the gates' gradients go, what was read, where
    t goes, the gradient of what was read, the skip connection, the gradient of a later one, and where what was read
    goes; then the gates' bias, both skip connections' scales and where the sums go.
    """
    pair, chunk = 2 * features, form.chunk
    widths = (3 * pair, 3 * pair, pair, 2 * pair, pair, pair, pair, pair)
    matrices = [
        Matrix(pairs, pair, ROWS.value, form.step), Matrix(pair, pair, form.step, chunk),
        *(Matrix(pairs, width, ROWS.value, chunk) for width in widths),
    ]  # fmt: skip
    programs = _programs(form, features, pairs, device) * (pair // chunk)
    return DescriptorLaunch(
        sys.modules[__name__], "product_backward", (programs,), matrices, dtype, pairs,
        FORM=constants(form, features, **flags), num_warps=2 * WARPS.value, maxnreg=168, launch_pdl=flags["PDL"],
    )  # fmt: skip
