"""From the candidates' gradients to those of the reset gates in one launch, for GPUs with warpgroup products (sm_90).

dt_i = dz_i W_ci never leaves the chip: `gated_switch.reset_backward` is the epilogue of that product. A program stays
on its multiprocessor, holds the weights of ``CHUNKS`` chunks of ``CHUNK`` columns of the pair in shared memory, and
takes tile after tile of 64 pairs. Everything else goes through shared memory too, by the copy engine: one warp asks for
dz and, for each chunk, for a stage of four blocks; eight warps replace what these held by what shall leave,

    a -> t_0      G_r0 -> dG_r0      G_r1 -> dG_r1      ds -> ds + sum of dt_i * r_i      and a fifth block: t_1.

Forms that were tried: from the last tile to the first (``REVERSE``), and a stage left as soon as the copies out of it
have read it (``EARLY``) instead of after the next product.
"""

# D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair, a = the pairs, t_i = r_i * a
# d_ tensor descriptor, p_ pointer, s_ shared memory, b_ block, CAPITALS constexpr
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from riffle.kernels.gated_switch import _tanh

mbarrier, tma = hopper.mbarrier, hopper.tma
ROWS = 64
"""Pairs of a tile."""


@gluon.jit(do_not_specialize=["n_pairs"])
def product_backward(
    d_grad_sum, d_weight, d_gates, d_grad_gates, d_read, d_product, d_grad_read, p_gates_bias, p_sums, n_pairs,
    D: gl.constexpr, CHUNK: gl.constexpr, CHUNKS: gl.constexpr, STEP: gl.constexpr, STAGES: gl.constexpr,
    DEPTH: gl.constexpr, REVERSE: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    """The gradients of the reset gates, t, and what the candidates add to the gradient of what was read.

    ``d_grad_gates`` may be the memory of ``d_gates``, and ``d_grad_read`` is added to. ``p_sums``
    ``[programs of a column, 4, 2E]`` takes each warp's share of the gradients of B_r. ``STEP`` divides D and is the
    width of a block of dz, of which ``DEPTH`` tiles have room, and chunks ``STAGES``.
    """
    E: gl.constexpr = 2 * D
    STEPS: gl.constexpr = E // STEP
    dtype: gl.constexpr = d_read.dtype
    gl.static_assert(D % STEP == 0 and E % (CHUNK * CHUNKS) == 0)
    s_weight = gl.allocate_shared_memory(dtype, [CHUNKS * STEPS, STEP, CHUNK], d_weight.layout)
    s_grad_sum = gl.allocate_shared_memory(dtype, [DEPTH * STEPS, 64, STEP], d_grad_sum.layout)
    # An allocation for each: the compiler sees that what is stored to one does not touch another.
    s_read = gl.allocate_shared_memory(dtype, [STAGES, 64, CHUNK], d_read.layout)
    s_reset_0 = gl.allocate_shared_memory(dtype, [STAGES, 64, CHUNK], d_read.layout)
    s_reset_1 = gl.allocate_shared_memory(dtype, [STAGES, 64, CHUNK], d_read.layout)
    s_grad_read = gl.allocate_shared_memory(dtype, [STAGES, 64, CHUNK], d_read.layout)
    s_product = gl.allocate_shared_memory(dtype, [STAGES, 64, CHUNK], d_read.layout)
    barriers: gl.constexpr = mbarrier.MBarrierLayout()
    loaded = gl.allocate_shared_memory(gl.int64, [1, 1], barriers)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barriers)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barriers)
    full_sum = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], barriers)
    empty_sum = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], barriers)
    mbarrier.init(loaded.index(0), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    for stage in gl.static_range(DEPTH):
        mbarrier.init(full_sum.index(stage), count=1)
        mbarrier.init(empty_sum.index(stage), count=1)
    # In float32: halves of the biases.
    s_bias = gl.allocate_shared_memory(gl.float32, [2 * CHUNKS, 1, CHUNK], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    line: gl.constexpr = gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [8, 1], [1, 0]))
    for c in gl.static_range(CHUNKS):
        columns = _column(c, D, CHUNK, CHUNKS) + gl.arange(0, CHUNK, layout=line)[None, :]
        for i in gl.static_range(2):
            s_bias.index(2 * c + i).store(0.5 * gl.load(p_gates_bias + i * E + columns).to(gl.float32))
    stages = ((s_read, s_reset_0, s_reset_1, s_grad_read, s_product), full, empty)
    sums = (s_grad_sum, full_sum, empty_sum)
    weights = (s_weight, loaded)
    gl.warp_specialize([
        (_consume, (d_grad_gates, d_product, d_grad_read, p_sums, s_bias, stages, sums, weights, n_pairs,
                    D, CHUNK, CHUNKS, STEP, STAGES, DEPTH, REVERSE, EARLY)),
        (_produce, (d_grad_sum, d_weight, d_gates, d_read, d_grad_read, stages, sums, weights, n_pairs,
                    D, CHUNK, CHUNKS, STEP, STAGES, DEPTH, REVERSE, EARLY)),
    ], [1], [24])  # fmt: skip


@gluon.jit
def _column(c, D: gl.constexpr, CHUNK: gl.constexpr, CHUNKS: gl.constexpr):
    """The first column of a chunk of this program."""
    return (gl.program_id(0) % (2 * D // (CHUNK * CHUNKS)) * CHUNKS + c) * CHUNK


@gluon.jit
def _produce(
    d_grad_sum, d_weight, d_gates, d_read, d_grad_read, stages, sums, weights, n_pairs,
    D: gl.constexpr, CHUNK: gl.constexpr, CHUNKS: gl.constexpr, STEP: gl.constexpr, STAGES: gl.constexpr,
    DEPTH: gl.constexpr, REVERSE: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    """Ask for the weights, then for what tile after tile needs, each when its place is free."""
    s_stages, full, empty = stages
    s_grad_sum, full_sum, empty_sum = sums
    s_weight, loaded = weights
    E: gl.constexpr = 2 * D
    STEPS: gl.constexpr = E // STEP
    PARTS: gl.constexpr = E // (CHUNK * CHUNKS)
    mbarrier.expect(loaded.index(0), CHUNKS * STEPS * d_weight.block_type.nbytes)
    for c in gl.static_range(CHUNKS):
        for k in gl.static_range(STEPS):
            place = [k * STEP, _column(c, D, CHUNK, CHUNKS)]
            tma.async_copy_global_to_shared(d_weight, place, loaded.index(0), s_weight.index(c * STEPS + k))
    number, turn = 0, 0
    tiles = gl.cdiv(n_pairs, 64)
    for index in range(gl.program_id(0) // PARTS, tiles, gl.num_programs(0) // PARTS):
        tile = tiles - 1 - index if REVERSE else index
        depth = number % DEPTH
        mbarrier.wait(empty_sum.index(depth), (number // DEPTH & 1) ^ 1)
        mbarrier.expect(full_sum.index(depth), STEPS * d_grad_sum.block_type.nbytes)
        for k in gl.static_range(STEPS):
            block = s_grad_sum.index(depth * STEPS + k)
            tma.async_copy_global_to_shared(d_grad_sum, [tile * 64, k * STEP], full_sum.index(depth), block)
        number += 1  # noqa: SIM113
        for chunk in range(CHUNKS):
            column = _column(chunk, D, CHUNK, CHUNKS)
            stage = turn % STAGES
            ready = full.index(stage)
            mbarrier.wait(empty.index(stage), (turn // STAGES & 1) ^ 1)
            mbarrier.expect(ready, 4 * d_read.block_type.nbytes)
            tma.async_copy_global_to_shared(d_read, [tile * 64, column], ready, s_stages[0].index(stage))
            tma.async_copy_global_to_shared(d_gates, [tile * 64, column], ready, s_stages[1].index(stage))
            tma.async_copy_global_to_shared(d_gates, [tile * 64, E + column], ready, s_stages[2].index(stage))
            tma.async_copy_global_to_shared(d_grad_read, [tile * 64, column], ready, s_stages[3].index(stage))
            turn += 1


@gluon.jit
def _consume(
    d_grad_gates, d_product, d_grad_read, p_sums, s_bias, stages, sums, weights, n_pairs,
    D: gl.constexpr, CHUNK: gl.constexpr, CHUNKS: gl.constexpr, STEP: gl.constexpr, STAGES: gl.constexpr,
    DEPTH: gl.constexpr, REVERSE: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    """The product and what follows it, chunk after chunk of tile after tile."""
    s_stages, full, empty = stages
    s_grad_sum, full_sum, empty_sum = sums
    s_weight, loaded = weights
    E: gl.constexpr = 2 * D
    STEPS: gl.constexpr = E // STEP
    PARTS: gl.constexpr = E // (CHUNK * CHUNKS)
    layout: gl.constexpr = _sums(CHUNK)
    totals = ()
    for _ in gl.static_range(2 * CHUNKS):
        totals += (_over_rows(gl.zeros((64, CHUNK), gl.float32, layout)),)  # type: ignore[assignment]  # tuples grow here
    mbarrier.wait(loaded.index(0), 0)
    number, turn = 0, 0
    tiles = gl.cdiv(n_pairs, 64)
    for index in range(gl.program_id(0) // PARTS, tiles, gl.num_programs(0) // PARTS):
        tile = tiles - 1 - index if REVERSE else index
        depth = number % DEPTH
        mbarrier.wait(full_sum.index(depth), number // DEPTH & 1)
        new_totals = ()
        for c in gl.static_range(CHUNKS):
            grads = ()
            for i in gl.static_range(2):
                grad = gl.zeros((64, CHUNK), gl.float32, layout)
                for k in gl.static_range(i * (STEPS // 2), (i + 1) * (STEPS // 2)):
                    left, right = s_grad_sum.index(depth * STEPS + k), s_weight.index(c * STEPS + k)
                    grad = hopper.warpgroup_mma(left, right, grad, use_acc=k % (STEPS // 2) > 0, is_async=True)
                grads += (grad,)  # type: ignore[assignment]  # and here
            b_grads = hopper.warpgroup_mma_wait(0, deps=grads)
            if c + 1 == CHUNKS:
                mbarrier.arrive(empty_sum.index(depth), count=1)
            if not EARLY:
                # What the chunk before left in its stage has gone by now.
                tma.store_wait(0)
                if turn > 0:
                    mbarrier.arrive(empty.index((turn + STAGES - 1) % STAGES), count=1)
            stage = turn % STAGES
            mbarrier.wait(full.index(stage), turn // STAGES & 1)
            blocks = (s_stages[0].index(stage), s_stages[1].index(stage), s_stages[2].index(stage),
                      s_stages[3].index(stage), s_stages[4].index(stage))  # fmt: skip
            new_totals += _reset(b_grads, blocks, s_bias, totals, c, layout)
            hopper.fence_async_shared()
            column = _column(c, D, CHUNK, CHUNKS)
            tma.async_copy_shared_to_global(d_product, [tile * 64, column], blocks[0])
            tma.async_copy_shared_to_global(d_grad_gates, [tile * 64, column], blocks[1])
            tma.async_copy_shared_to_global(d_product, [tile * 64, E + column], blocks[4])
            tma.async_copy_shared_to_global(d_grad_gates, [tile * 64, E + column], blocks[2])
            tma.async_copy_shared_to_global(d_grad_read, [tile * 64, column], blocks[3])
            if EARLY:
                tma.store_wait(0)
                mbarrier.arrive(empty.index(stage), count=1)
            turn += 1
        totals = new_totals
        number += 1  # noqa: SIM113
    tma.store_wait(0)
    for c in gl.static_range(CHUNKS):
        for i in gl.static_range(2):
            _store_total(p_sums, totals[2 * c + i], i * E + _column(c, D, CHUNK, CHUNKS), E, PARTS)


@gluon.jit
def _reset(b_grads, blocks, s_bias, totals, c: gl.constexpr, layout: gl.constexpr):
    """Replace the blocks of a stage; the sums of the reset gates' gradients with those of this tile."""
    s_read, s_reset_0, s_reset_1, s_grad_read, s_product = blocks
    dtype: gl.constexpr = s_read.dtype
    b_read, b_gates_0, b_gates_1 = s_read.load(layout), s_reset_0.load(layout), s_reset_1.load(layout)
    b_grad_read = s_grad_read.load(layout)
    b_reset = _sigmoid_of_half(0.5 * b_gates_0.to(gl.float32) + s_bias.index(2 * c).load(layout))
    b_product = b_reset * b_read.to(gl.float32)
    b_grad_0 = b_grads[0] * b_product * (1.0 - b_reset)
    b_sum = b_grads[0] * b_reset
    b_total_0 = totals[2 * c] + _over_rows(b_grad_0)
    s_read.store(b_product.to(dtype))
    s_reset_0.store(b_grad_0.to(dtype))
    b_reset = _sigmoid_of_half(0.5 * b_gates_1.to(gl.float32) + s_bias.index(2 * c + 1).load(layout))
    b_product = b_reset * b_read.to(gl.float32)
    b_grad_1 = b_grads[1] * b_product * (1.0 - b_reset)
    b_sum += b_grads[1] * b_reset + b_grad_read.to(gl.float32)
    b_total_1 = totals[2 * c + 1] + _over_rows(b_grad_1)
    s_product.store(b_product.to(dtype))
    s_reset_1.store(b_grad_1.to(dtype))
    s_grad_read.store(b_sum.to(dtype))
    return b_total_0, b_total_1


@gluon.constexpr_function
def _sums(width):
    """The layout of sums of ``width`` columns: a warpgroup has half of them."""
    return gl.NVMMADistributedLayout([3, 0], [4, 2], [16, width // 2, 16])


@gluon.jit
def _sigmoid_of_half(b_half):
    return 0.5 * _tanh(b_half, True) + 0.5


@gluon.jit
def _over_rows(b_value):
    """Sums over the rows that a thread has."""
    return gl.sum(b_value.reshape([4, 2, 8, b_value.shape[1]]), axis=1)


@gluon.jit
def _store_total(p_sums, b_total, column, E: gl.constexpr, PARTS: gl.constexpr):
    """The sums over a warp's rows."""
    b_total = gl.sum(b_total, axis=1)
    layout: gl.constexpr = b_total.type.layout
    warps = gl.program_id(0) // PARTS * 4 + gl.arange(0, 4, layout=gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, b_total.shape[1], layout=gl.SliceLayout(0, layout))
    gl.store(p_sums + warps[:, None] * (2 * E) + columns[None, :], b_total)
