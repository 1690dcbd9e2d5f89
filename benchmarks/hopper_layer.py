"""`riffle.kernels.hopper.layer_forward` in forms that were tried for training, where the gates are kept.

Kept gates leave through a place in shared memory by the copy engine (``STORE`` "copy"); "shared" fills that place and
copies nothing, "none" keeps nothing, which both are not the layer but tell where its time goes. Where ``LOOP``, the
chunks of candidates and update gates are a loop of the kernel instead of so many copies of its instructions, and no
product is started before the chunk in which it is used. Without skip connections and dropout; one or two groups.
"""

# D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair; names as in riffle/kernels/hopper.py
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from riffle.kernels.gated_switch import _copied, _destination, _tanh
from riffle.kernels.hopper import PRODUCER, RESET_BF16, RESET_FP16, _lines, _operand, _produce, _read, _round, _sums

mbarrier, tma = hopper.mbarrier, hopper.tma


@gluon.jit(do_not_specialize=["n_pairs"])
def layer_forward(
    d_gates, d_update, d_candidates, d_kept, d_kept_update, p_gates_bias, p_bias, p_state, p_out, n_pairs, starts,
    lengths,
    D: gl.constexpr, SHUFFLE: gl.constexpr, SWAP: gl.constexpr, STORE: gl.constexpr, GROUPS: gl.constexpr,
    STAGES: gl.constexpr, SPLIT: gl.constexpr, CHUNK: gl.constexpr, OUT: gl.constexpr, SHARED: gl.constexpr,
    REGISTERS: gl.constexpr, LOOP: gl.constexpr,
):  # fmt: skip
    """Gates, candidates, update and shuffle in one launch."""
    E: gl.constexpr = 2 * D
    PARTS: gl.constexpr = E // CHUNK
    # A product is started before the places of the one before it are left: there must be room for both.
    gl.static_assert(D % OUT == 0 and E % CHUNK == 0 and 2 * OUT == CHUNK and STAGES >= 2 * SPLIT)
    gl.static_assert((PARTS + D // OUT) * SPLIT % STAGES == 0)
    s_ring = gl.allocate_shared_memory(d_gates.dtype, [STAGES * (PARTS // SPLIT), CHUNK, CHUNK], d_gates.layout)
    s_read = gl.allocate_shared_memory(d_gates.dtype, [GROUPS * PARTS if SHARED else 1, 64, CHUNK], d_gates.layout)
    s_kept = gl.allocate_shared_memory(d_gates.dtype, [GROUPS, 64, CHUNK], d_gates.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=GROUPS)
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
    layer = (p_state, p_out, n_pairs, s_read, (d_kept, d_kept_update, s_kept), starts, lengths, ring,
             (s_reset_bias, s_bias))  # fmt: skip
    if GROUPS == 1:
        gl.warp_specialize([
            (_consume, (0, layer, D, SHUFFLE, SWAP, STORE, GROUPS, STAGES, SPLIT, CHUNK, OUT, SHARED, LOOP)),
            (_produce, (d_gates, d_update, d_candidates, ring, n_pairs, D, GROUPS, STAGES, SPLIT, CHUNK, OUT)),
        ], [1], [PRODUCER])  # fmt: skip
    else:
        gl.warp_specialize([
            (_consume, (0, layer, D, SHUFFLE, SWAP, STORE, GROUPS, STAGES, SPLIT, CHUNK, OUT, SHARED, LOOP)),
            (_consume, (1, layer, D, SHUFFLE, SWAP, STORE, GROUPS, STAGES, SPLIT, CHUNK, OUT, SHARED, LOOP)),
            (_produce, (d_gates, d_update, d_candidates, ring, n_pairs, D, GROUPS, STAGES, SPLIT, CHUNK, OUT)),
        ], [4, 1], [REGISTERS, PRODUCER])  # fmt: skip


@gluon.jit
def _consume(
    group, layer,
    D: gl.constexpr, SHUFFLE: gl.constexpr, SWAP: gl.constexpr, STORE: gl.constexpr, GROUPS: gl.constexpr,
    STAGES: gl.constexpr, SPLIT: gl.constexpr, CHUNK: gl.constexpr, OUT: gl.constexpr, SHARED: gl.constexpr,
    LOOP: gl.constexpr,
):  # fmt: skip
    """The layer on a group's pairs of tile after tile."""
    p_state, _, n_pairs, s_read, kept, _, _, ring, biases = layer
    PARTS: gl.constexpr = 2 * D // CHUNK
    LAST: gl.constexpr = D // OUT
    for tile in range(gl.program_id(0), gl.cdiv(n_pairs, 64 * GROUPS), gl.num_programs(0)):
        first = (tile * GROUPS + group).to(gl.int64) * 64
        inside = gl.minimum(n_pairs - first, 64).to(gl.int32)
        read = _read(p_state, None, None, s_read, group, first, inside, D, False, CHUNK, SHARED)
        for i in range(2):
            products = ()
            reset = _start(read, ring, n_pairs, i, 0, 0, CHUNK, D, STAGES, SPLIT, CHUNK, OUT, SHARED)
            for j in gl.static_range(PARTS):
                ready = reset
                if j + 1 < PARTS:
                    reset = _start(read, ring, n_pairs, i, j + 1, 0, CHUNK, D, STAGES, SPLIT, CHUNK, OUT, SHARED)
                elif not LOOP:
                    update = _start(read, ring, n_pairs, i, PARTS, OUT, OUT, D, STAGES, SPLIT, CHUNK, OUT, SHARED)
                b_sum = hopper.warpgroup_mma_wait(0 if LOOP and j + 1 == PARTS else PARTS, deps=(ready,))
                _release(ring, j, STAGES, SPLIT)
                b_product = _product(b_sum, read, j, i, kept, biases, first, group, D, STORE, CHUNK, SHARED)
                products += (b_product,)  # type: ignore[assignment]  # tuples grow here
            if LOOP:
                for c in range(LAST):
                    update = _start(read, ring, n_pairs, i, PARTS + c, OUT, OUT, D, STAGES, SPLIT, CHUNK, OUT, SHARED)
                    _finish(
                        c, update, True, products, read, layer, i, first, inside, group,
                        D, SHUFFLE, SWAP, STORE, STAGES, SPLIT, CHUNK, OUT, SHARED,
                    )  # fmt: skip
            else:
                for c in gl.static_range(LAST):
                    update = _finish(
                        c, update, c + 1 == LAST, products, read, layer, i, first, inside, group,
                        D, SHUFFLE, SWAP, STORE, STAGES, SPLIT, CHUNK, OUT, SHARED,
                    )  # fmt: skip


@gluon.jit
def _finish(
    c, update, ALONE: gl.constexpr, products, read, layer, i, first, inside, group,
    D: gl.constexpr, SHUFFLE: gl.constexpr, SWAP: gl.constexpr, STORE: gl.constexpr, STAGES: gl.constexpr,
    SPLIT: gl.constexpr, CHUNK: gl.constexpr, OUT: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """A chunk of the outputs; starts the next product for update gates, unless ``ALONE``."""
    p_state, p_out, n_pairs, _, kept, starts, lengths, ring, biases = layer
    PARTS: gl.constexpr = 2 * D // CHUNK
    candidate = _start(products, ring, n_pairs, i, PARTS + c, 0, OUT, D, STAGES, SPLIT, CHUNK, OUT, False)
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, _sums(OUT)))
    columns = c * OUT + gl.arange(0, OUT, layout=gl.SliceLayout(0, _sums(OUT)))
    offsets = rows[:, None] * (2 * D) + _copied(columns, i, D, SWAP)[None, :]
    b_copied = gl.load(p_state + first * (2 * D) + offsets, mask=(rows < inside)[:, None], other=0.0)
    b_sum_update = hopper.warpgroup_mma_wait(PARTS, deps=(update,))
    if STORE != "none":
        s_half = kept[2].index(group)._reinterpret(kept[1].dtype, [64, OUT], kept[1].layout)
        _store_gates(kept[1], s_half, b_sum_update, (4 + i) * D + c * OUT, first, STORE)
    b_bias = biases[1].index(i * (D // OUT) + c).load(_sums(OUT))
    b_update = 0.5 * _tanh(0.5 * b_sum_update + b_bias, True) + 0.5
    if ALONE:
        b_candidate = hopper.warpgroup_mma_wait(0, deps=(candidate,))
    else:
        update = _start(read, ring, n_pairs, i, PARTS + c + 1, OUT, OUT, D, STAGES, SPLIT, CHUNK, OUT, SHARED)
        b_candidate = hopper.warpgroup_mma_wait(PARTS, deps=(candidate,))
    _release(ring, PARTS + c, STAGES, SPLIT)
    b_bias = biases[1].index((2 + i) * (D // OUT) + c).load(_sums(OUT))
    b_candidate = _tanh(0.5 * b_candidate + b_bias, True)
    b_out = b_candidate + b_update * (b_copied.to(gl.float32) - b_candidate)
    numbers = gl.arange(0, 64, layout=gl.SliceLayout(1, _lines(OUT)))
    cells = _destination(first + numbers, i, starts, lengths, SHUFFLE)
    places = cells[:, None] * D + c * OUT + gl.arange(0, OUT, layout=gl.SliceLayout(0, _lines(OUT)))[None, :]
    b_out = gl.convert_layout(b_out.to(p_out.dtype.element_ty), _lines(OUT))
    gl.store(p_out + places, b_out, mask=(numbers < inside)[:, None])
    return update


@gluon.jit
def _start(
    read, ring, n_pairs, i, use, row: gl.constexpr, WIDTH: gl.constexpr, D: gl.constexpr,
    STAGES: gl.constexpr, SPLIT: gl.constexpr, CHUNK: gl.constexpr, OUT: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """As in the library, but a use may be a number that only the kernel knows."""
    s_ring, full, _ = ring
    BLOCKS: gl.constexpr = 2 * D // CHUNK // SPLIT
    USES: gl.constexpr = (2 * D // CHUNK + D // OUT) * SPLIT
    sums = gl.zeros((64, WIDTH), gl.float32, _sums(WIDTH))
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
def _release(ring, use, STAGES: gl.constexpr, SPLIT: gl.constexpr):
    """Leave the places of a use."""
    for part in gl.static_range(SPLIT):
        mbarrier.arrive(ring[2].index((use * SPLIT + part) % STAGES), count=1)


@gluon.jit
def _product(
    b_sum, read, j: gl.constexpr, i, kept, biases, first, group,
    D: gl.constexpr, STORE: gl.constexpr, CHUNK: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """A chunk of 2 r^i * a."""
    if STORE != "none":
        _store_gates(kept[0], kept[2].index(group), b_sum, i * (2 * D) + j * CHUNK, first, STORE)
    b_read = read[0].index(read[1] + j).load(_sums(CHUNK)) if SHARED else read[j]
    b_bias = biases[0].index(i * (2 * D // CHUNK) + j).load(_sums(CHUNK))
    CODE: gl.constexpr = RESET_BF16 if b_read.dtype == gl.bfloat16 else RESET_FP16
    return gl.inline_asm_elementwise(
        CODE, "=r,f,f,f,f,r", [b_sum, b_bias, b_read], dtype=b_read.dtype, is_pure=True, pack=2
    )


@gluon.jit
def _store_gates(d_kept, s_kept, b_sum, column, first, STORE: gl.constexpr):
    """A chunk of gates, before the sigmoid and without their bias."""
    if STORE == "copy":
        tma.store_wait(0)
    s_kept.store(b_sum.to(d_kept.dtype))
    hopper.fence_async_shared()
    if STORE == "copy":
        tma.async_copy_shared_to_global(d_kept, [first.to(gl.int32), column], s_kept)
