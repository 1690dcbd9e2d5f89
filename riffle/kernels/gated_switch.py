"""Triton kernels of the gated switch layer: candidates, copy, dropout and shuffle in one pass, forward and backward.

The gates of all pairs are one matrix product, which the library does best. What follows is done here on tiles of pairs
while they are on the chip: sigmoids, reset, the candidates' product, tanh, swapHalf, update, dropout, and stores at
shuffled addresses, so that a shuffle is never a pass of its own. The backward kernels recompute all of it from the
layer's input. docs/kernels.md derives them.
"""

# P = pairs, D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair; p_ pointer, b_ block value, CAPITALS constexpr
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def _destination(pair, i, cells, TURN: tl.constexpr):
    """The row to which the shuffle after this layer brings cell ``i`` of a pair, in a sequence of ``cells`` cells."""
    sequence = pair // (cells // 2)
    cell = 2 * (pair % (cells // 2)) + i
    if TURN == 1:
        cell = cell // 2 + i * (cells // 2)
    elif TURN == -1:
        cell = 2 * cell % cells + 2 * cell // cells
    return sequence * cells + cell


@triton.jit
def _keep(p_seed, first_pair, pairs, i, columns, rate, D: tl.constexpr):
    """What dropout multiplies the outputs by: 0, or 1 / (1 - rate). The same for the same seed, forward and backward."""
    # Offsets are 32 bits wide: the high part of a pair's number goes into the seed.
    seed = tl.load(p_seed) + first_pair // 1048576
    offset = (pairs % 1048576).to(tl.int32)[:, None] * (2 * D) + i * D + columns[None, :]
    return tl.where(tl.rand(seed, offset) >= rate, 1.0 / (1.0 - rate), 0.0)


@triton.jit
def _candidate(
    p_gates, p_read, p_weight, p_bias, pairs, inside, i,
    D: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """c^i = tanh(W_c^i (r^i * s) + B_c^i) for a tile of pairs, in float32."""
    E: tl.constexpr = 2 * D
    columns = tl.arange(0, BLOCK_D)
    b_sum = tl.zeros((BLOCK_P, BLOCK_D), dtype=tl.float32)
    for k in range(0, E, BLOCK_K):
        inner = k + tl.arange(0, BLOCK_K)
        mask = inside[:, None] & (inner < E)[None, :]
        b_reset = tl.load(p_gates + pairs[:, None] * (3 * E) + i * E + inner[None, :], mask=mask, other=0.0)
        b_read = tl.load(p_read + pairs[:, None] * E + inner[None, :], mask=mask, other=0.0)
        b_product = (_sigmoid(b_reset.to(tl.float32)) * b_read.to(tl.float32)).to(p_read.dtype.element_ty)
        w_mask = (inner < E)[:, None] & (columns < D)[None, :]
        b_weight = tl.load(p_weight + i * D * E + columns[None, :] * E + inner[:, None], mask=w_mask, other=0.0)
        b_sum = tl.dot(b_product, b_weight, b_sum, input_precision=PRECISION)
    b_bias = tl.load(p_bias + i * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    return _tanh(b_sum + b_bias[None, :])


@triton.jit
def _copied(p_state, pairs, inside, i, D: tl.constexpr, BLOCK_D: tl.constexpr, SWAP: tl.constexpr):
    """Cell i of swapHalf(s): its own first half, the other cell's second half."""
    columns = tl.arange(0, BLOCK_D)
    row = p_state + pairs[:, None] * (2 * D) + columns[None, :]
    if SWAP:
        straight = (columns < D // 2)[None, :]
        crossed = ((columns >= D // 2) & (columns < D))[None, :]
        b_first = tl.load(row + i * D, mask=inside[:, None] & straight, other=0.0)
        b_second = tl.load(row + (1 - i) * D, mask=inside[:, None] & crossed, other=0.0)
        return b_first.to(tl.float32) + b_second.to(tl.float32)
    return tl.load(row + i * D, mask=inside[:, None] & (columns < D)[None, :], other=0.0).to(tl.float32)


@triton.jit
def switch_forward(
    p_gates, p_read, p_state, p_weight, p_bias, p_out, p_seed, n_pairs, cells, rate,
    D: tl.constexpr, TURN: tl.constexpr, SWAP: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Outputs of a tile of pairs, one of the two cells, stored where the shuffle wants them."""
    # Both cells of a tile follow each other, so that the second finds the pairs in cache.
    first = (tl.program_id(0) // 2).to(tl.int64) * BLOCK_P
    i = tl.program_id(0) % 2
    pairs = first + tl.arange(0, BLOCK_P)
    inside = pairs < n_pairs
    columns = tl.arange(0, BLOCK_D)
    mask = inside[:, None] & (columns < D)[None, :]
    b_candidate = _candidate(
        p_gates, p_read, p_weight, p_bias, pairs, inside, i, D, BLOCK_P, BLOCK_D, BLOCK_K, PRECISION
    )
    b_update = tl.load(p_gates + pairs[:, None] * (6 * D) + 4 * D + i * D + columns[None, :], mask=mask, other=0.0)
    b_update = _sigmoid(b_update.to(tl.float32))
    b_copied = _copied(p_state, pairs, inside, i, D, BLOCK_D, SWAP)
    b_out = b_candidate + b_update * (b_copied - b_candidate)
    if DROPOUT:
        b_out *= _keep(p_seed, first, pairs, i, columns, rate, D)
    row = _destination(pairs, i, cells, TURN)
    tl.store(p_out + row[:, None] * D + columns[None, :], b_out.to(p_out.dtype.element_ty), mask=mask)


@triton.jit
def switch_backward_update(
    p_gates, p_read, p_state, p_weight, p_bias, p_grad_out, p_grad_candidate, p_grad_state, p_sums, p_seed,
    n_pairs, cells, rate,
    D: tl.constexpr, TURN: tl.constexpr, SWAP: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Through the update: gradients of the candidates' and the update gate's pre-activations and of the copied state.

    The update gates in ``p_gates`` are overwritten by their gradients; ``p_sums`` ``[tiles, 8 * D]`` takes each tile's
    share of the gradients of B_u (columns 4D to 6D) and B_c (6D to 8D).
    """
    tile = tl.program_id(0) // 2
    first = tile.to(tl.int64) * BLOCK_P
    i = tl.program_id(0) % 2
    pairs = first + tl.arange(0, BLOCK_P)
    inside = pairs < n_pairs
    columns = tl.arange(0, BLOCK_D)
    mask = inside[:, None] & (columns < D)[None, :]
    b_candidate = _candidate(
        p_gates, p_read, p_weight, p_bias, pairs, inside, i, D, BLOCK_P, BLOCK_D, BLOCK_K, PRECISION
    )
    row = _destination(pairs, i, cells, TURN)
    b_grad = tl.load(p_grad_out + row[:, None] * D + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    if DROPOUT:
        b_grad *= _keep(p_seed, first, pairs, i, columns, rate, D)
    p_update = p_gates + pairs[:, None] * (6 * D) + 4 * D + i * D + columns[None, :]
    b_update = _sigmoid(tl.load(p_update, mask=mask, other=0.0).to(tl.float32))
    b_copied = _copied(p_state, pairs, inside, i, D, BLOCK_D, SWAP)
    b_grad_update = b_grad * (b_copied - b_candidate) * b_update * (1.0 - b_update)
    b_grad_candidate = b_grad * (1.0 - b_update) * (1.0 - b_candidate * b_candidate)
    tl.store(p_update, b_grad_update.to(p_gates.dtype.element_ty), mask=mask)
    cell = pairs[:, None] * (2 * D) + columns[None, :]
    tl.store(p_grad_candidate + cell + i * D, b_grad_candidate.to(p_grad_candidate.dtype.element_ty), mask=mask)
    source = tl.where(columns < D // 2, i, 1 - i) if SWAP else tl.zeros((BLOCK_D,), dtype=tl.int32) + i
    b_grad_copied = (b_grad * b_update).to(p_grad_state.dtype.element_ty)
    tl.store(p_grad_state + cell + source[None, :] * D, b_grad_copied, mask=mask)
    sums = p_sums + tile.to(tl.int64) * (8 * D) + i * D + columns
    tl.store(sums + 4 * D, tl.sum(b_grad_update, axis=0), mask=columns < D)
    tl.store(sums + 6 * D, tl.sum(b_grad_candidate, axis=0), mask=columns < D)


@triton.jit
def switch_backward_reset(
    p_gates, p_read, p_weight, p_grad_candidate, p_grad_state, p_grad_read, p_product, p_sums, n_pairs,
    D: tl.constexpr, SKIP: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Through the candidates' product and the reset gates, for a tile of pairs and a block of columns.

    The reset gates in ``p_gates`` are overwritten by their gradients, ``p_product`` takes r^i * s for the gradient of
    W_c, and the gradient that reaches s this way is added to that of the copied state, or stored apart (``SKIP``).
    """
    E: tl.constexpr = 2 * D
    tile = tl.program_id(0)
    pairs = tile.to(tl.int64) * BLOCK_P + tl.arange(0, BLOCK_P)
    columns = tl.program_id(1) * BLOCK_E + tl.arange(0, BLOCK_E)
    inside = pairs < n_pairs
    mask = inside[:, None] & (columns < E)[None, :]
    pair = pairs[:, None] * E + columns[None, :]
    b_read = tl.load(p_read + pair, mask=mask, other=0.0).to(tl.float32)
    b_grad_read = tl.zeros((BLOCK_P, BLOCK_E), dtype=tl.float32)
    for i in tl.static_range(2):
        b_grad = tl.zeros((BLOCK_P, BLOCK_E), dtype=tl.float32)
        for k in range(0, D, BLOCK_K):
            inner = k + tl.arange(0, BLOCK_K)
            g_mask = inside[:, None] & (inner < D)[None, :]
            p_cell = p_grad_candidate + pairs[:, None] * E + i * D + inner[None, :]
            b_grad_candidate = tl.load(p_cell, mask=g_mask, other=0.0)
            w_mask = (inner < D)[:, None] & (columns < E)[None, :]
            b_weight = tl.load(p_weight + i * D * E + inner[:, None] * E + columns[None, :], mask=w_mask, other=0.0)
            b_grad = tl.dot(b_grad_candidate, b_weight, b_grad, input_precision=PRECISION)
        p_reset = p_gates + pairs[:, None] * (3 * E) + i * E + columns[None, :]
        b_reset = _sigmoid(tl.load(p_reset, mask=mask, other=0.0).to(tl.float32))
        b_product = b_reset * b_read
        b_grad_reset = b_grad * b_product * (1.0 - b_reset)
        b_grad_read += b_grad * b_reset
        tl.store(p_reset, b_grad_reset.to(p_gates.dtype.element_ty), mask=mask)
        p_out = p_product + pairs[:, None] * (2 * E) + i * E + columns[None, :]
        tl.store(p_out, b_product.to(p_product.dtype.element_ty), mask=mask)
        sums = p_sums + tile.to(tl.int64) * (8 * D) + i * E + columns
        tl.store(sums, tl.sum(b_grad_reset, axis=0), mask=columns < E)
    if SKIP:
        tl.store(p_grad_read + pair, b_grad_read.to(p_grad_read.dtype.element_ty), mask=mask)
    else:
        b_grad_state = tl.load(p_grad_state + pair, mask=mask, other=0.0).to(tl.float32) + b_grad_read
        tl.store(p_grad_state + pair, b_grad_state.to(p_grad_state.dtype.element_ty), mask=mask)
