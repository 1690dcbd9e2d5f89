"""Triton kernels of the gated switch layer: candidates, copy, dropout and shuffle in one pass, forward and backward.

The gates of all pairs are one matrix product, which the library does best. What follows is done here on tiles of pairs
while they are on the chip: sigmoids, reset, the candidates' product, tanh, swapHalf, update, dropout, and stores at
shuffled addresses, so that a shuffle is never a pass of its own. The backward kernels recompute all of it from the
layer's input. docs/kernels.md derives them.

A program takes a tile of ``BLOCK_P`` pairs and one of the two cells i. A cell's D columns are up to four blocks of
``BLOCK_D``, each with an accumulator of its own, so that a width such as 192 wastes nothing. ``EVEN`` says that tiles
and blocks divide the work exactly and no load needs a mask.
"""

# P = pairs, D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair; p_ pointer, b_ block, CAPITALS constexpr
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tanh(x, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    e = tl.exp(-2.0 * tl.abs(x))
    large = (1.0 - e) / (1.0 + e)
    # Near zero the difference would lose digits that the series keeps.
    small = x * (1.0 + x * x * (-1.0 / 3.0 + x * x * (2.0 / 15.0)))
    return tl.where(tl.abs(x) < 0.1, small, tl.where(x < 0, -large, large))


@triton.jit
def _sigmoid(x, FAST: tl.constexpr):
    if FAST:
        return 0.5 * _tanh(0.5 * x, FAST) + 0.5
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _load(pointers, mask, EVEN: tl.constexpr):
    if EVEN:
        return tl.load(pointers)
    return tl.load(pointers, mask=mask, other=0.0)


@triton.jit
def _store(pointers, value, mask, EVEN: tl.constexpr):
    if EVEN:
        tl.store(pointers, value.to(pointers.dtype.element_ty))
    else:
        tl.store(pointers, value.to(pointers.dtype.element_ty), mask=mask)


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
def _keep(p_seed, first, i, columns, rate, D: tl.constexpr, BLOCK_P: tl.constexpr):
    """What dropout multiplies outputs by, 0 or 1 / (1 - rate): the same for the same seed, forward and backward."""
    # Offsets are 32 bits wide: the high part of a pair's number goes into the seed.
    seed = tl.load(p_seed) + first // 1048576
    pairs = (first % 1048576).to(tl.int32) + tl.arange(0, BLOCK_P)
    return tl.where(tl.rand(seed, pairs[:, None] * (2 * D) + i * D + columns[None, :]) >= rate, 1.0 / (1.0 - rate), 0.0)


@triton.jit
def _weight(p_weight, i, block, inner, D: tl.constexpr, BLOCK_D: tl.constexpr, EVEN: tl.constexpr):
    """Columns ``block`` of the transposed W_c^i, for the rows ``inner``."""
    columns = block * BLOCK_D + tl.arange(0, BLOCK_D)
    mask = (inner < 2 * D)[:, None] & (columns < D)[None, :]
    return _load(p_weight + i * (2 * D * D) + columns[None, :] * (2 * D) + inner[:, None], mask, EVEN)


@triton.jit
def _products(
    p_gates, p_read, p_weight, inside, i,
    D: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_K: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """W_c^i (r^i * s) for a tile of pairs, in float32, as four blocks of columns of which ``BLOCKS`` are used."""
    E: tl.constexpr = 2 * D
    rows = tl.arange(0, BLOCK_P)
    b_sum0 = tl.zeros((BLOCK_P, BLOCK_D), dtype=tl.float32)
    b_sum1 = tl.zeros((BLOCK_P, BLOCK_D), dtype=tl.float32)
    b_sum2 = tl.zeros((BLOCK_P, BLOCK_D), dtype=tl.float32)
    b_sum3 = tl.zeros((BLOCK_P, BLOCK_D), dtype=tl.float32)
    for k in range(0, E, BLOCK_K):
        inner = k + tl.arange(0, BLOCK_K)
        mask = inside[:, None] & (inner < E)[None, :]
        b_reset = _load(p_gates + rows[:, None] * (3 * E) + i * E + inner[None, :], mask, EVEN)
        b_read = _load(p_read + rows[:, None] * E + inner[None, :], mask, EVEN)
        b_product = (_sigmoid(b_reset.to(tl.float32), FAST) * b_read.to(tl.float32)).to(p_read.dtype.element_ty)
        b_weight = _weight(p_weight, i, 0, inner, D, BLOCK_D, EVEN)
        b_sum0 = tl.dot(b_product, b_weight, b_sum0, input_precision=PRECISION)
        if BLOCKS > 1:
            b_weight = _weight(p_weight, i, 1, inner, D, BLOCK_D, EVEN)
            b_sum1 = tl.dot(b_product, b_weight, b_sum1, input_precision=PRECISION)
        if BLOCKS > 2:
            b_weight = _weight(p_weight, i, 2, inner, D, BLOCK_D, EVEN)
            b_sum2 = tl.dot(b_product, b_weight, b_sum2, input_precision=PRECISION)
        if BLOCKS > 3:
            b_weight = _weight(p_weight, i, 3, inner, D, BLOCK_D, EVEN)
            b_sum3 = tl.dot(b_product, b_weight, b_sum3, input_precision=PRECISION)
    return b_sum0, b_sum1, b_sum2, b_sum3


@triton.jit
def _copied(p_state, rows, columns, mask, i, D: tl.constexpr, SWAP: tl.constexpr, EVEN: tl.constexpr):
    """Cell i of swapHalf(s): its own first half, the other cell's second half."""
    p_cell = p_state + rows[:, None] * (2 * D) + columns[None, :]
    if SWAP:
        b_first = tl.load(p_cell + i * D, mask=mask & (columns < D // 2)[None, :], other=0.0)
        b_second = tl.load(p_cell + (1 - i) * D, mask=mask & (columns >= D // 2)[None, :], other=0.0)
        return b_first.to(tl.float32) + b_second.to(tl.float32)
    return _load(p_cell + i * D, mask, EVEN).to(tl.float32)


@triton.jit
def _finish(
    b_sum, block, p_gates, p_state, p_bias, p_out, p_seed, first, inside, i, cells, rate,
    D: tl.constexpr, TURN: tl.constexpr, SWAP: tl.constexpr, DROPOUT: tl.constexpr, FAST: tl.constexpr,
    EVEN: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """From a block of candidates to outputs in their places."""
    rows = tl.arange(0, BLOCK_P)
    columns = block * BLOCK_D + tl.arange(0, BLOCK_D)
    mask = inside[:, None] & (columns < D)[None, :]
    b_bias = tl.load(p_bias + i * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    b_candidate = _tanh(b_sum + b_bias[None, :], FAST)
    b_update = _load(p_gates + rows[:, None] * (6 * D) + 4 * D + i * D + columns[None, :], mask, EVEN)
    b_update = _sigmoid(b_update.to(tl.float32), FAST)
    b_copied = _copied(p_state, rows, columns, mask, i, D, SWAP, EVEN)
    b_out = b_candidate + b_update * (b_copied - b_candidate)
    if DROPOUT:
        b_out *= _keep(p_seed, first, i, columns, rate, D, BLOCK_P)
    row = _destination(first + rows, i, cells, TURN)
    _store(p_out + (row * D)[:, None] + columns[None, :], b_out, mask, EVEN)


@triton.jit
def switch_forward(
    p_gates, p_read, p_state, p_weight, p_bias, p_out, p_seed, n_pairs, cells, rate,
    D: tl.constexpr, TURN: tl.constexpr, SWAP: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_K: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Outputs of a tile of pairs, one of the two cells, stored where the shuffle wants them."""
    # Both cells of a tile follow each other, so that the second finds the pairs in cache.
    first = (tl.program_id(0) // 2).to(tl.int64) * BLOCK_P
    i = tl.program_id(0) % 2
    inside = first + tl.arange(0, BLOCK_P) < n_pairs
    p_gates += first * (6 * D)
    p_read += first * (2 * D)
    p_state += first * (2 * D)
    b_sums = _products(
        p_gates, p_read, p_weight, inside, i, D, PRECISION, FAST, EVEN, BLOCK_P, BLOCK_D, BLOCK_K, BLOCKS
    )
    for block in tl.static_range(BLOCKS):
        _finish(
            b_sums[block], block, p_gates, p_state, p_bias, p_out, p_seed, first, inside, i, cells, rate,
            D, TURN, SWAP, DROPOUT, FAST, EVEN, BLOCK_P, BLOCK_D,
        )  # fmt: skip


@triton.jit
def _finish_backward(
    b_sum, block, p_gates, p_state, p_bias, p_grad_out, p_grad_candidate, p_grad_state, p_sums, p_seed,
    first, inside, i, cells, rate,
    D: tl.constexpr, TURN: tl.constexpr, SWAP: tl.constexpr, DROPOUT: tl.constexpr, FAST: tl.constexpr,
    EVEN: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """From a block of candidates and the outputs' gradients to the gradients behind the update."""
    rows = tl.arange(0, BLOCK_P)
    columns = block * BLOCK_D + tl.arange(0, BLOCK_D)
    mask = inside[:, None] & (columns < D)[None, :]
    b_bias = tl.load(p_bias + i * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    b_candidate = _tanh(b_sum + b_bias[None, :], FAST)
    row = _destination(first + rows, i, cells, TURN)
    b_grad = _load(p_grad_out + (row * D)[:, None] + columns[None, :], mask, EVEN).to(tl.float32)
    if DROPOUT:
        b_grad *= _keep(p_seed, first, i, columns, rate, D, BLOCK_P)
    p_update = p_gates + rows[:, None] * (6 * D) + 4 * D + i * D + columns[None, :]
    b_update = _sigmoid(_load(p_update, mask, EVEN).to(tl.float32), FAST)
    b_copied = _copied(p_state, rows, columns, mask, i, D, SWAP, EVEN)
    b_grad_update = b_grad * (b_copied - b_candidate) * b_update * (1.0 - b_update)
    b_grad_candidate = b_grad * (1.0 - b_update) * (1.0 - b_candidate * b_candidate)
    b_grad_copied = (b_grad * b_update).to(p_grad_state.dtype.element_ty)
    _store(p_update, b_grad_update, mask, EVEN)
    cell = rows[:, None] * (2 * D) + columns[None, :]
    _store(p_grad_candidate + cell + i * D, b_grad_candidate, mask, EVEN)
    if SWAP:
        tl.store(p_grad_state + cell + i * D, b_grad_copied, mask=mask & (columns < D // 2)[None, :])
        tl.store(p_grad_state + cell + (1 - i) * D, b_grad_copied, mask=mask & (columns >= D // 2)[None, :])
    else:
        _store(p_grad_state + cell + i * D, b_grad_copied, mask, EVEN)
    tl.store(p_sums + 4 * D + i * D + columns, tl.sum(b_grad_update, axis=0), mask=columns < D)
    tl.store(p_sums + 6 * D + i * D + columns, tl.sum(b_grad_candidate, axis=0), mask=columns < D)


@triton.jit
def switch_backward_update(
    p_gates, p_read, p_state, p_weight, p_bias, p_grad_out, p_grad_candidate, p_grad_state, p_sums, p_seed,
    n_pairs, cells, rate,
    D: tl.constexpr, TURN: tl.constexpr, SWAP: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_K: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Through the update: gradients of the candidates' and the update gate's pre-activations and of the copied state.

    The update gates in ``p_gates`` are overwritten by their gradients; ``p_sums`` ``[tiles, 8 * D]`` takes each tile's
    share of the gradients of B_u (columns 4D to 6D) and B_c (6D to 8D).
    """
    tile = (tl.program_id(0) // 2).to(tl.int64)
    first = tile * BLOCK_P
    i = tl.program_id(0) % 2
    inside = first + tl.arange(0, BLOCK_P) < n_pairs
    p_gates += first * (6 * D)
    p_read += first * (2 * D)
    p_state += first * (2 * D)
    p_grad_candidate += first * (2 * D)
    p_grad_state += first * (2 * D)
    p_sums += tile * (8 * D)
    b_sums = _products(
        p_gates, p_read, p_weight, inside, i, D, PRECISION, FAST, EVEN, BLOCK_P, BLOCK_D, BLOCK_K, BLOCKS
    )
    for block in tl.static_range(BLOCKS):
        _finish_backward(
            b_sums[block], block, p_gates, p_state, p_bias, p_grad_out, p_grad_candidate, p_grad_state, p_sums, p_seed,
            first, inside, i, cells, rate, D, TURN, SWAP, DROPOUT, FAST, EVEN, BLOCK_P, BLOCK_D,
        )  # fmt: skip


@triton.jit
def switch_backward_reset(
    p_gates, p_read, p_weight, p_grad_candidate, p_grad_state, p_grad_read, p_product, p_sums, n_pairs,
    D: tl.constexpr, SKIP: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Through the candidates' product and the reset gates, for a tile of pairs and a block of columns.

    The reset gates in ``p_gates`` are overwritten by their gradients, ``p_product`` takes r^i * s for the gradient of
    W_c, and the gradient that reaches s this way is added to that of the copied state, or stored apart (``SKIP``).
    ``p_sums`` takes each tile's share of the gradients of B_r (columns 0 to 4D).
    """
    E: tl.constexpr = 2 * D
    # Blocks of columns of one tile follow each other, so that they find the candidates' gradients in cache.
    n_blocks: tl.constexpr = (E + BLOCK_E - 1) // BLOCK_E
    tile = (tl.program_id(0) // n_blocks).to(tl.int64)
    first = tile * BLOCK_P
    rows = tl.arange(0, BLOCK_P)
    columns = (tl.program_id(0) % n_blocks) * BLOCK_E + tl.arange(0, BLOCK_E)
    inside = first + rows < n_pairs
    mask = inside[:, None] & (columns < E)[None, :]
    pair = rows[:, None] * E + columns[None, :]
    p_gates += first * (3 * E)
    p_grad_candidate += first * E
    p_product += first * (2 * E)
    b_read = _load(p_read + first * E + pair, mask, EVEN).to(tl.float32)
    b_grad_read = tl.zeros((BLOCK_P, BLOCK_E), dtype=tl.float32)
    for i in tl.static_range(2):
        b_grad = tl.zeros((BLOCK_P, BLOCK_E), dtype=tl.float32)
        for k in range(0, D, BLOCK_K):
            inner = k + tl.arange(0, BLOCK_K)
            g_mask = inside[:, None] & (inner < D)[None, :]
            b_grad_candidate = _load(p_grad_candidate + rows[:, None] * E + i * D + inner[None, :], g_mask, EVEN)
            w_mask = (inner < D)[:, None] & (columns < E)[None, :]
            b_weight = _load(p_weight + i * D * E + inner[:, None] * E + columns[None, :], w_mask, EVEN)
            b_grad = tl.dot(b_grad_candidate, b_weight, b_grad, input_precision=PRECISION)
        p_reset = p_gates + rows[:, None] * (3 * E) + i * E + columns[None, :]
        b_reset = _sigmoid(_load(p_reset, mask, EVEN).to(tl.float32), FAST)
        b_product = b_reset * b_read
        b_grad_reset = b_grad * b_product * (1.0 - b_reset)
        b_grad_read += b_grad * b_reset
        _store(p_reset, b_grad_reset, mask, EVEN)
        _store(p_product + rows[:, None] * (2 * E) + i * E + columns[None, :], b_product, mask, EVEN)
        tl.store(p_sums + tile * (4 * D) + i * E + columns, tl.sum(b_grad_reset, axis=0), mask=columns < E)
    if SKIP:
        _store(p_grad_read + first * E + pair, b_grad_read, mask, EVEN)
    else:
        p_state = p_grad_state + first * E + pair
        _store(p_state, _load(p_state, mask, EVEN).to(tl.float32) + b_grad_read, mask, EVEN)
