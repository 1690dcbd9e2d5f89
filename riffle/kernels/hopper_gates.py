"""The product for the gates of wide units, with what follows it in one launch, for GPUs with warpgroup products (sm_90).

Reset gates never leave the chip: their products r * a with the pairs do, from where the library's product makes
candidates of them. A program stays on its multiprocessor and takes tile after tile of ``GROUPS`` times ``ROWS`` pairs by
``COLUMNS`` gates. One warp copies pairs and weights through a ring of ``STAGES`` places in shared memory, each with
``STEP`` columns of them, and besides, while the product runs, the part of the pairs that the tile's reset gates
multiply: what leaves takes its place. Each group of four warps has ``ROWS`` pairs of the tile, and no group waits for
another: while one does what follows a product, the others multiply.
"""

# E = features per pair, i = 0, 1 the cell of a pair, a = what gates and candidates read
# d_ tensor descriptor, p_ pointer, s_ shared memory, b_ block, CAPITALS constexpr, those of a launch together in FORM
from __future__ import annotations

import sys

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from riffle.kernels.descriptors import Constants, DescriptorLaunch, Matrix
from riffle.kernels.gated_switch import _follow
from riffle.kernels.hopper import PRODUCER, ROWS, WARPS, _sums
from riffle.kernels.tuning import GatesForm, multiprocessors

mbarrier, tma = hopper.mbarrier, hopper.tma


@gluon.jit(do_not_specialize=["n_pairs"])
def gates_forward(d_read, d_weight, d_beside, d_product, d_gates, p_gates_bias, n_pairs, FORM: gl.constexpr):
    """r_i * a, and the update gates before the sigmoid and without their bias; ``d_beside`` is ``d_read`` once more."""
    dtype: gl.constexpr = d_read.dtype
    s_read = gl.allocate_shared_memory(dtype, [FORM.STAGES * FORM.GROUPS, ROWS, FORM.STEP], d_read.layout)
    s_weight = gl.allocate_shared_memory(dtype, [FORM.STAGES, FORM.COLUMNS, FORM.STEP], d_weight.layout)
    s_beside = gl.allocate_shared_memory(dtype, [FORM.GROUPS, ROWS, FORM.COLUMNS], d_beside.layout)
    barriers: gl.constexpr = mbarrier.MBarrierLayout()
    full = gl.allocate_shared_memory(gl.int64, [FORM.STAGES, 1], barriers)
    empty = gl.allocate_shared_memory(gl.int64, [FORM.STAGES, 1], barriers)
    ready = gl.allocate_shared_memory(gl.int64, [FORM.GROUPS, 1], barriers)
    free = gl.allocate_shared_memory(gl.int64, [FORM.GROUPS, 1], barriers)
    for stage in gl.static_range(FORM.STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=FORM.GROUPS)
    for group in gl.static_range(FORM.GROUPS):
        mbarrier.init(ready.index(group), count=1)
        mbarrier.init(free.index(group), count=1)
    # In float32: halves of the biases of the reset gates.
    rows: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    s_bias = gl.allocate_shared_memory(gl.float32, [FORM.RESETS, 1, FORM.COLUMNS], rows)
    line: gl.constexpr = gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [WARPS, 1], [1, 0]))
    for block in gl.static_range(FORM.RESETS):
        columns = block * FORM.COLUMNS + gl.arange(0, FORM.COLUMNS, layout=line)[None, :]
        s_bias.index(block).store(0.5 * gl.load(p_gates_bias + columns).to(gl.float32))
    ring, beside = (s_read, s_weight, full, empty), (s_beside, ready, free)
    leaving = (d_product, d_gates, s_bias)
    gl.warp_specialize([
        (_consume, (0, leaving, ring, beside, n_pairs, FORM)),
        (_consume, (1, leaving, ring, beside, n_pairs, FORM)),
        (_produce, (d_read, d_weight, d_beside, ring, beside, n_pairs, FORM)),
    ], [4, 1], [FORM.REGISTERS, PRODUCER])  # fmt: skip


@gluon.jit
def _tiles(n_pairs, FORM: gl.constexpr):
    """How many tiles there are; those of the same pairs follow each other."""
    return gl.cdiv(n_pairs, FORM.GROUPS * ROWS) * FORM.BLOCKS


@gluon.jit
def _produce(d_read, d_weight, d_beside, ring, beside, n_pairs, FORM: gl.constexpr):
    """Ask for what tile after tile needs, each when its place is free."""
    s_read, s_weight, full, empty = ring
    s_beside, ready, free = beside
    # What the launch before made is read after this: see tuning.DEPENDENT_LAUNCH.
    _follow(FORM.PDL)
    turn = 0
    for tile in range(gl.program_id(0), _tiles(n_pairs, FORM), gl.num_programs(0)):
        row, block = tile // FORM.BLOCKS * (FORM.GROUPS * ROWS), tile % FORM.BLOCKS
        for step in range(FORM.STEPS):
            stage = step % FORM.STAGES
            mbarrier.wait(empty.index(stage), (_round(turn, step, FORM) & 1) ^ 1)
            bar = full.index(stage)
            mbarrier.expect(bar, FORM.GROUPS * d_read.block_type.nbytes + d_weight.block_type.nbytes)
            column = step * FORM.STEP
            tma.async_copy_global_to_shared(d_weight, [block * FORM.COLUMNS, column], bar, s_weight.index(stage))
            for group in gl.static_range(FORM.GROUPS):
                place = s_read.index(stage * FORM.GROUPS + group)
                tma.async_copy_global_to_shared(d_read, [row + group * ROWS, column], bar, place)
            if step == FORM.STAGES:
                for group in gl.static_range(FORM.GROUPS):
                    mbarrier.wait(free.index(group), turn & 1)
                    mbarrier.expect(ready.index(group), d_beside.block_type.nbytes)
                    at = [row + group * ROWS, block * FORM.COLUMNS % FORM.E]
                    tma.async_copy_global_to_shared(d_beside, at, ready.index(group), s_beside.index(group))
        turn += 1  # noqa: SIM113  # the language has no enumerate


@gluon.jit
def _round(turn, step, FORM: gl.constexpr):
    """How often the ring has gone round before a step of a tile."""
    return turn * (FORM.STEPS // FORM.STAGES) + step // FORM.STAGES


@gluon.jit
def _consume(group, leaving, ring, beside, n_pairs, FORM: gl.constexpr):
    """The product on a group's pairs, and what follows it, tile after tile."""
    d_product, d_gates, s_bias = leaving
    empty = ring[3]
    s_beside, ready, free = beside
    s_out = s_beside.index(group)
    layout: gl.constexpr = _sums(FORM.COLUMNS)
    turn = 0
    for tile in range(gl.program_id(0), _tiles(n_pairs, FORM), gl.num_programs(0)):
        row, block = tile // FORM.BLOCKS * (FORM.GROUPS * ROWS) + group * ROWS, tile % FORM.BLOCKS
        sums = gl.zeros((ROWS, FORM.COLUMNS), gl.float32, layout)
        sums = _multiply(sums, ring, group, turn, 0, FORM)
        # What the tile before left has gone by now.
        tma.store_wait(0)
        mbarrier.arrive(free.index(group), count=1)
        for step in range(1, FORM.STEPS):
            sums = _multiply(sums, ring, group, turn, step, FORM)
            mbarrier.arrive(empty.index((step - 1) % FORM.STAGES), count=1)
        b_sum = hopper.warpgroup_mma_wait(0, deps=(sums,))
        mbarrier.arrive(empty.index((FORM.STEPS - 1) % FORM.STAGES), count=1)
        mbarrier.wait(ready.index(group), turn & 1)
        if block < FORM.RESETS:
            b_read = s_out.load(layout)
            b_bias = s_bias.index(block).load(layout)
            CODE: gl.constexpr = RESET_BF16 if b_read.dtype == gl.bfloat16 else RESET_FP16
            b_product = gl.inline_asm_elementwise(
                CODE, "=r,f,f,f,f,r", [b_sum, b_bias, b_read], dtype=b_read.dtype, is_pure=True, pack=2
            )
            s_out.store(b_product)
            hopper.fence_async_shared()
            tma.async_copy_shared_to_global(d_product, [row, block * FORM.COLUMNS], s_out)
        else:
            s_out.store(b_sum.to(d_gates.dtype))
            hopper.fence_async_shared()
            tma.async_copy_shared_to_global(d_gates, [row, block * FORM.COLUMNS], s_out)
        turn += 1  # noqa: SIM113  # the language has no enumerate
    tma.store_wait(0)


@gluon.jit
def _multiply(sums, ring, group, turn, step, FORM: gl.constexpr):
    """Start a step of the product, when all steps but the one before it are done."""
    s_read, s_weight, full, _ = ring
    stage = step % FORM.STAGES
    mbarrier.wait(full.index(stage), _round(turn, step, FORM) & 1)
    left, right = s_read.index(stage * FORM.GROUPS + group), s_weight.index(stage).permute((1, 0))
    started = hopper.warpgroup_mma(left, right, sums, use_acc=step > 0, is_async=True)
    return hopper.warpgroup_mma_wait(1, deps=(started,))


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


def gates_launch(
    form: GatesForm, device: torch.device, pairs: int, features: int, dtype: torch.dtype, *, pdl: bool
) -> DescriptorLaunch:
    """The launch for a layer's shape.

    It takes what is read, the weights of the gates, what is read once more, where products go, where update gates go,
    and the gates' bias.
    """
    pair = 2 * features
    steps, blocks = pair // form.step, 3 * pair // form.columns
    assert steps % form.stages == 0 < steps // form.stages - 1
    assert pair % form.columns == 0
    wide = [Matrix(pairs, width, ROWS.value, form.columns) for width in (pair, 2 * pair, 3 * pair)]
    constants = Constants(
        E=pair, GROUPS=2, STAGES=form.stages, STEP=form.step, STEPS=steps, COLUMNS=form.columns, BLOCKS=blocks,
        RESETS=2 * pair // form.columns, REGISTERS=240, PDL=pdl,
    )  # fmt: skip
    programs = min(-(-pairs // (2 * ROWS.value)) * blocks, multiprocessors(device))
    return DescriptorLaunch(
        sys.modules[__name__], "gates_forward", (programs,),
        [Matrix(pairs, pair, ROWS.value, form.step), Matrix(3 * pair, pair, form.columns, form.step), *wide],
        dtype, pairs, FORM=constants, num_warps=WARPS.value, maxnreg=168, launch_pdl=pdl,
    )  # fmt: skip
