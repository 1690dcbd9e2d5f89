"""The gated switch layer as one launch, for GPUs with warpgroup matrix products (sm_90), in Triton's Gluon.

The gates never leave the chip. A program stays on its multiprocessor and takes tile after tile of ``GROUPS`` times 64
pairs. Each group of four warps has 64 pairs of its own; one more warp copies the weights, which all groups share,
through a ring of ``STAGES`` places in shared memory. For each of the two cells of a pair the products are

    reset gates, E // CHUNK chunks of CHUNK columns, whose products r * a with the pairs stay in registers, then
    D // OUT chunks of OUT columns of the candidates, from r * a, and of the update gates, from a,

and a place holds CHUNK rows of weights by E // SPLIT columns: those of a chunk of reset gates, or OUT rows each of
candidates and update gates. While a product runs, the group does what follows the one before it.

Sigmoids are halves of a tanh, which is one instruction: the candidates are formed from 2 r * a, and halved with it.
docs/kernels.md has the figures.
"""

# D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair, a = what gates and candidates read, s + scale * skip;
# d_ tensor descriptor, p_ pointer, s_ shared memory, b_ block, CAPITALS constexpr
from __future__ import annotations

import sys
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from riffle.kernels.gated_switch import _copied, _destination, _keep_rows, _tanh
from riffle.kernels.launches import Launch

mbarrier, tma = hopper.mbarrier, hopper.tma
ROWS = 64
"""Pairs of a group of four warps: the rows of a warpgroup's product."""
PRODUCER = gl.constexpr(24)
"""Registers of a thread of the warp that copies weights."""


@gluon.jit(do_not_specialize=["n_pairs"])
def layer_forward(
    d_gates, d_update, d_candidates, p_gates_bias, p_bias, p_state, p_skip, p_scale, p_kept, p_out, p_seed,
    n_pairs, starts, lengths, rates,
    D: gl.constexpr, SHUFFLE: gl.constexpr, SWAP: gl.constexpr, DROPOUT: gl.constexpr, SKIP: gl.constexpr,
    KEEP: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr, SPLIT: gl.constexpr, CHUNK: gl.constexpr,
    OUT: gl.constexpr, SHARED: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Gates, candidates, update, dropout and shuffle; where ``KEEP``, gates as ``launches.Kept`` has them, too.

    Where ``SHARED``, a lies in shared memory, else in registers.
    """
    E: gl.constexpr = 2 * D
    PARTS: gl.constexpr = E // CHUNK
    gl.static_assert(D % OUT == 0 and E % CHUNK == 0 and 2 * OUT == CHUNK and (PARTS + D // OUT) * SPLIT % STAGES == 0)
    s_ring = gl.allocate_shared_memory(d_gates.dtype, [STAGES * (PARTS // SPLIT), CHUNK, CHUNK], d_gates.layout)
    s_read = gl.allocate_shared_memory(d_gates.dtype, [GROUPS * PARTS if SHARED else 1, 64, CHUNK], d_gates.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=GROUPS)
    # In float32: halves of the biases of the reset gates, of the update gates, and the candidates' biases.
    rows: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    s_reset_bias = gl.allocate_shared_memory(gl.float32, [2 * PARTS, 1, CHUNK], rows)
    s_bias = gl.allocate_shared_memory(gl.float32, [2 * E // OUT, 1, OUT], rows)
    line: gl.constexpr = gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0]))
    for j in gl.static_range(2 * PARTS):
        columns = j * CHUNK + gl.arange(0, CHUNK, layout=line)[None, :]
        s_reset_bias.index(j).store(0.5 * gl.load(p_gates_bias + columns).to(gl.float32))
    for c in gl.static_range(E // OUT):
        columns = c * OUT + gl.arange(0, OUT, layout=line)[None, :]
        s_bias.index(c).store(0.5 * gl.load(p_gates_bias + 2 * E + columns).to(gl.float32))
        s_bias.index(E // OUT + c).store(gl.load(p_bias + columns).to(gl.float32))
    ring = (s_ring, full, empty)
    pairs = (p_state, p_skip, p_scale, p_kept, p_out, p_seed, n_pairs, s_read)
    layer = (pairs, (starts, lengths, rates), ring, (s_reset_bias, s_bias))
    # In full each time: the language loses what is constant when a tuple gets a name.
    if GROUPS == 1:
        gl.warp_specialize([
            (_consume, (0, layer, D, SHUFFLE, SWAP, DROPOUT, SKIP, KEEP, GROUPS, STAGES, SPLIT, CHUNK, OUT, SHARED)),
            (_produce, (d_gates, d_update, d_candidates, ring, n_pairs, D, GROUPS, STAGES, SPLIT, CHUNK, OUT)),
        ], [1], [PRODUCER])  # fmt: skip
    elif GROUPS == 2:
        gl.warp_specialize([
            (_consume, (0, layer, D, SHUFFLE, SWAP, DROPOUT, SKIP, KEEP, GROUPS, STAGES, SPLIT, CHUNK, OUT, SHARED)),
            (_consume, (1, layer, D, SHUFFLE, SWAP, DROPOUT, SKIP, KEEP, GROUPS, STAGES, SPLIT, CHUNK, OUT, SHARED)),
            (_produce, (d_gates, d_update, d_candidates, ring, n_pairs, D, GROUPS, STAGES, SPLIT, CHUNK, OUT)),
        ], [4, 1], [REGISTERS, PRODUCER])  # fmt: skip
    else:
        gl.warp_specialize([
            (_consume, (0, layer, D, SHUFFLE, SWAP, DROPOUT, SKIP, KEEP, GROUPS, STAGES, SPLIT, CHUNK, OUT, SHARED)),
            (_consume, (1, layer, D, SHUFFLE, SWAP, DROPOUT, SKIP, KEEP, GROUPS, STAGES, SPLIT, CHUNK, OUT, SHARED)),
            (_consume, (2, layer, D, SHUFFLE, SWAP, DROPOUT, SKIP, KEEP, GROUPS, STAGES, SPLIT, CHUNK, OUT, SHARED)),
            (_produce, (d_gates, d_update, d_candidates, ring, n_pairs, D, GROUPS, STAGES, SPLIT, CHUNK, OUT)),
        ], [4, 4, 1], [REGISTERS, REGISTERS, PRODUCER])  # fmt: skip


@gluon.jit
def _produce(
    d_gates, d_update, d_candidates, ring, n_pairs,
    D: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr, SPLIT: gl.constexpr, CHUNK: gl.constexpr,
    OUT: gl.constexpr,
):  # fmt: skip
    """Copy the weights of tile after tile into the ring, each when all groups have left its place."""
    E: gl.constexpr = 2 * D
    BLOCKS: gl.constexpr = E // CHUNK // SPLIT
    RESETS: gl.constexpr = E // CHUNK * SPLIT
    USES: gl.constexpr = RESETS + D // OUT * SPLIT
    s_ring, full, empty = ring
    for _ in range(gl.program_id(0), gl.cdiv(n_pairs, 64 * GROUPS), gl.num_programs(0)):
        for i in range(2):
            for use in range(USES):
                stage = use % STAGES
                mbarrier.wait(empty.index(stage), (_round(use, i, USES, STAGES) & 1) ^ 1)
                mbarrier.expect(full.index(stage), BLOCKS * d_gates.block_type.nbytes)
                for k in gl.static_range(BLOCKS):
                    block = s_ring.index(stage * BLOCKS + k)
                    column = (use % SPLIT * BLOCKS + k) * CHUNK
                    if use < RESETS:
                        row = i * E + use // SPLIT * CHUNK
                        tma.async_copy_global_to_shared(d_gates, [row, column], full.index(stage), block)
                    else:
                        row = i * D + (use - RESETS) // SPLIT * OUT
                        low, high = block.slice(0, OUT, dim=0), block.slice(OUT, OUT, dim=0)
                        tma.async_copy_global_to_shared(d_candidates, [row, column], full.index(stage), low)
                        tma.async_copy_global_to_shared(d_update, [2 * E + row, column], full.index(stage), high)


@gluon.jit
def _round(use, i, USES: gl.constexpr, STAGES: gl.constexpr):
    """How often the ring has gone round before cell i makes this use of it, but for an even number."""
    return use // STAGES + i * (USES // STAGES)


@gluon.jit
def _consume(
    group, layer,
    D: gl.constexpr, SHUFFLE: gl.constexpr, SWAP: gl.constexpr, DROPOUT: gl.constexpr, SKIP: gl.constexpr,
    KEEP: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr, SPLIT: gl.constexpr, CHUNK: gl.constexpr,
    OUT: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """The layer on a group's pairs of tile after tile."""
    pairs, groups, ring, biases = layer
    p_state, p_skip, p_scale, p_kept, p_out, p_seed, n_pairs, s_read = pairs
    PARTS: gl.constexpr = 2 * D // CHUNK
    LAST: gl.constexpr = D // OUT
    for tile in range(gl.program_id(0), gl.cdiv(n_pairs, 64 * GROUPS), gl.num_programs(0)):
        first = (tile * GROUPS + group).to(gl.int64) * 64
        inside = gl.minimum(n_pairs - first, 64).to(gl.int32)
        read = _read(p_state, p_skip, p_scale, s_read, group, first, inside, D, SKIP, CHUNK, SHARED)
        for i in range(2):
            products = ()
            reset = _start(read, ring, n_pairs, i, 0, 0, CHUNK, D, STAGES, SPLIT, CHUNK, OUT, SHARED)
            for j in gl.static_range(PARTS):
                ready = reset
                if j + 1 < PARTS:
                    reset = _start(read, ring, n_pairs, i, j + 1, 0, CHUNK, D, STAGES, SPLIT, CHUNK, OUT, SHARED)
                else:
                    update = _start(read, ring, n_pairs, i, PARTS, OUT, OUT, D, STAGES, SPLIT, CHUNK, OUT, SHARED)
                b_sum = hopper.warpgroup_mma_wait(PARTS, deps=(ready,))
                _release(ring, j, STAGES, SPLIT)
                b_product = _product(b_sum, read, j, i, p_kept, biases, first, inside, D, KEEP, CHUNK, SHARED)
                products += (b_product,)  # type: ignore[assignment]  # tuples grow here
            for c in gl.static_range(LAST):
                candidate = _start(products, ring, n_pairs, i, PARTS + c, 0, OUT, D, STAGES, SPLIT, CHUNK, OUT, False)
                b_copied = _load_copied(p_state, c, i, first, inside, D, SWAP, OUT)
                b_sum_update = hopper.warpgroup_mma_wait(PARTS, deps=(update,))
                b_update = _update(b_sum_update, c, i, p_kept, biases, first, inside, D, KEEP, OUT)
                if c + 1 < LAST:
                    update = _start(
                        read, ring, n_pairs, i, PARTS + c + 1, OUT, OUT, D, STAGES, SPLIT, CHUNK, OUT, SHARED
                    )
                    b_candidate = hopper.warpgroup_mma_wait(PARTS, deps=(candidate,))
                else:
                    b_candidate = hopper.warpgroup_mma_wait(0, deps=(candidate,))
                _release(ring, PARTS + c, STAGES, SPLIT)
                b_bias = biases[1].index((2 + i) * LAST + c).load(_sums(OUT))
                b_candidate = _tanh(0.5 * b_candidate + b_bias, True)
                b_out = b_candidate + b_update * (b_copied.to(gl.float32) - b_candidate)
                _store(p_out, p_seed, b_out, c, i, groups, first, inside, D, SHUFFLE, DROPOUT, OUT)


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
def _read(
    p_state, p_skip, p_scale, s_read, group, first, inside,
    D: gl.constexpr, SKIP: gl.constexpr, CHUNK: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """What gates and candidates read: chunks of columns, or shared memory and where the chunks begin there."""
    E: gl.constexpr = 2 * D
    layout: gl.constexpr = _lines(CHUNK) if SHARED else _sums(CHUNK)
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    mask = (rows < inside)[:, None]
    chunks = ()
    for k in gl.static_range(E // CHUNK):
        columns = k * CHUNK + gl.arange(0, CHUNK, layout=gl.SliceLayout(0, layout))
        offsets = rows[:, None] * E + columns[None, :]
        b_read = gl.load(p_state + first * E + offsets, mask=mask, other=0.0)
        if SKIP:
            b_skip = gl.load(p_skip + first * E + offsets, mask=mask, other=0.0).to(gl.float32)
            b_sum = b_read.to(gl.float32) + gl.load(p_scale + columns % D)[None, :] * b_skip
            b_read = b_sum.to(b_read.dtype)
        if SHARED:
            s_read.index(group * (E // CHUNK) + k).store(b_read)
        else:
            chunks += (b_read,)  # type: ignore[assignment]  # tuples grow here
    if SHARED:
        hopper.fence_async_shared()
    return (s_read, group * (E // CHUNK)) if SHARED else chunks


@gluon.jit
def _start(
    read, ring, n_pairs, i, use: gl.constexpr, row: gl.constexpr, WIDTH: gl.constexpr, D: gl.constexpr,
    STAGES: gl.constexpr, SPLIT: gl.constexpr, CHUNK: gl.constexpr, OUT: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """Start the product of what is read and ``WIDTH`` rows of the weights of a use, from ``row`` on."""
    s_ring, full, _ = ring
    BLOCKS: gl.constexpr = 2 * D // CHUNK // SPLIT
    USES: gl.constexpr = (2 * D // CHUNK + D // OUT) * SPLIT
    sums = gl.zeros((64, WIDTH), gl.float32, _sums(WIDTH))
    # No compiler knows that this is zero: it would compute all addresses ahead, and run out of registers.
    zero = (n_pairs + i + use) >> 31
    for part in gl.static_range(SPLIT):
        stage = (use * SPLIT + part) % STAGES + zero
        mbarrier.wait(full.index(stage), _round(use * SPLIT + part, i, USES, STAGES) & 1)
        for k in gl.static_range(BLOCKS):
            right = s_ring.index(stage * BLOCKS + k)
            if WIDTH < CHUNK:
                right = right.slice(row, WIDTH, dim=0)
            if SHARED:
                left = read[0].index(read[1] + part * BLOCKS + k + zero)
            else:
                left = gl.convert_layout(read[part * BLOCKS + k], _operand(WIDTH), assert_trivial=True)
            sums = hopper.warpgroup_mma(left, right.permute((1, 0)), sums, use_acc=part + k > 0, is_async=True)
    return sums


@gluon.jit
def _release(ring, use: gl.constexpr, STAGES: gl.constexpr, SPLIT: gl.constexpr):
    """Leave the places of a use."""
    for part in gl.static_range(SPLIT):
        mbarrier.arrive(ring[2].index((use * SPLIT + part) % STAGES), count=1)


@gluon.jit
def _product(
    b_sum, read, j: gl.constexpr, i, p_kept, biases, first, inside,
    D: gl.constexpr, KEEP: gl.constexpr, CHUNK: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """A chunk of 2 r^i * a."""
    if KEEP:
        _store_gates(p_kept, b_sum, i * (2 * D) + j * CHUNK, first, inside, D, CHUNK)
    b_read = read[0].index(read[1] + j).load(_sums(CHUNK)) if SHARED else read[j]
    b_bias = biases[0].index(i * (2 * D // CHUNK) + j).load(_sums(CHUNK))
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
def _update(
    b_sum, c: gl.constexpr, i, p_kept, biases, first, inside, D: gl.constexpr, KEEP: gl.constexpr, OUT: gl.constexpr
):  # fmt: skip
    """A chunk of the update gates."""
    if KEEP:
        _store_gates(p_kept, b_sum, (4 + i) * D + c * OUT, first, inside, D, OUT)
    b_bias = biases[1].index(i * (D // OUT) + c).load(_sums(OUT))
    return 0.5 * _tanh(0.5 * b_sum + b_bias, True) + 0.5


@gluon.jit
def _load_copied(
    p_state, c: gl.constexpr, i, first, inside, D: gl.constexpr, SWAP: gl.constexpr, OUT: gl.constexpr
):  # fmt: skip
    """A chunk of swapHalf(s)."""
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, _sums(OUT)))
    columns = c * OUT + gl.arange(0, OUT, layout=gl.SliceLayout(0, _sums(OUT)))
    offsets = rows[:, None] * (2 * D) + _copied(columns, i, D, SWAP)[None, :]
    return gl.load(p_state + first * (2 * D) + offsets, mask=(rows < inside)[:, None], other=0.0)


@gluon.jit
def _store(
    p_out, p_seed, b_out, c: gl.constexpr, i, groups, first, inside,
    D: gl.constexpr, SHUFFLE: gl.constexpr, DROPOUT: gl.constexpr, OUT: gl.constexpr,
):  # fmt: skip
    """A chunk of the outputs to where the shuffle wants them."""
    starts, lengths, rates = groups
    if DROPOUT:
        rows = gl.arange(0, 64, layout=gl.SliceLayout(1, _sums(OUT)))
        columns = c * OUT + gl.arange(0, OUT, layout=gl.SliceLayout(0, _sums(OUT)))
        b_out *= _keep_rows(p_seed, first, rows, i, columns, starts, rates, D)
    numbers = gl.arange(0, 64, layout=gl.SliceLayout(1, _lines(OUT)))
    cells = _destination(first + numbers, i, starts, lengths, SHUFFLE)
    places = cells[:, None] * D + c * OUT + gl.arange(0, OUT, layout=gl.SliceLayout(0, _lines(OUT)))[None, :]
    b_out = gl.convert_layout(b_out.to(p_out.dtype.element_ty), _lines(OUT))
    gl.store(p_out + places, b_out, mask=(numbers < inside)[:, None])


@gluon.jit
def _store_gates(p_kept, b_sum, column, first, inside, D: gl.constexpr, WIDTH: gl.constexpr):
    """A chunk of gates, before the sigmoid and without their bias."""
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, _lines(WIDTH)))
    columns = column + gl.arange(0, WIDTH, layout=gl.SliceLayout(0, _lines(WIDTH)))
    b_gates = gl.convert_layout(b_sum.to(p_kept.dtype.element_ty), _lines(WIDTH))
    offsets = rows[:, None] * (6 * D) + columns[None, :]
    gl.store(p_kept + first * (6 * D) + offsets, b_gates, mask=(rows < inside)[:, None])


class HopperLaunch(Launch):
    """One launch of the kernel of this file, which takes the weights as tensor descriptors."""

    __slots__ = ()
    kernels = sys.modules[__name__]

    def __call__(self, gates: Tensor, candidates: Tensor, *tensors: Tensor | None) -> None:
        """Launch it; ``gates`` and ``candidates`` are the weights as :class:`launches.UnitWeights` has them."""
        chunk, out, pair = self.constants["CHUNK"], self.constants["OUT"], gates.shape[1]
        rows, address, dtype = 3 * pair, gates.data_ptr(), gates.dtype
        super().__call__(
            describe(address, dtype, rows, pair, chunk, chunk), describe(address, dtype, rows, pair, out, chunk),
            describe(candidates.data_ptr(), dtype, pair, pair, out, chunk), *tensors,
        )  # fmt: skip


class Memory(NamedTuple):
    """Where a tensor lies: all that a descriptor needs of it, which so does not keep it."""

    address: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        """As a tensor has it."""
        return self.address


@lru_cache(maxsize=4096)
def describe(address: int, dtype: torch.dtype, rows: int, columns: int, *block: int) -> TensorDescriptor:
    """The descriptor of a matrix, for copies of blocks."""
    element = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}[dtype]
    layout = gl.NVMMASharedLayout.get_default_for(list(block), element)
    return TensorDescriptor(Memory(address, dtype), [rows, columns], [columns, 1], list(block), layout)
