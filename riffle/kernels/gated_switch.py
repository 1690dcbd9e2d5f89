"""Triton kernels of the gated switch layer: what happens between its matrix products, forward and backward.

The products over all pairs are the library's: gates, candidates, and their transposes on the way back. Between them,
each kernel here makes one pass over memory: reset gates, then tanh, swapHalf, update, dropout and the shuffle, which is
nothing but the address of a store. Where that pays (see tuning.py), `switch_forward` forms the candidates as well, so
that r * s never leaves the chip. docs/kernels.md derives the backward pass and counts the bytes.

A program takes a tile of ``BLOCK_P`` pairs and ``BLOCK_C`` columns; ``EVEN`` says that tiles divide the work exactly
and no load needs a mask. The pairs may come from several groups of sequences, which differ in length and in dropout
only: ``starts``, ``lengths`` and ``rates`` are tuples with an entry for each group. The first two are given as odd
numbers, a group's first cell plus 1 and a sequence's cells plus 1: Triton compiles a kernel anew for every pattern of
multiples of 16 among its arguments.

``GATES`` is 3, or 4 for the ablation "swap-gate", whose further gate chooses between the pair and the swapped pair to
be copied; ``SWAP`` then means nothing.
"""

# P = pairs, D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair; p_ pointer, b_ block, CAPITALS constexpr
# gates [P, GATES * E], before the sigmoid and without their bias: reset 0, reset 1, update, swap; read, state [P, E];
# product r * s [P, 2, E]; sum, the candidates before tanh and without their bias [P, 2, D]
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def reset_forward(
    p_gates, p_gates_bias, p_read, p_product, n_pairs,
    WIDTH: tl.constexpr, GATES: tl.constexpr, FAST: tl.constexpr, EVEN: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """What both candidates read: r^i * s."""
    follow(PDL)
    E: tl.constexpr = WIDTH
    _, rows, columns, mask = program_tile(n_pairs, E, BLOCK_P, BLOCK_C)
    b_read = load(p_read + rows[:, None] * E + columns[None, :], mask, EVEN)
    for i in tl.static_range(2):
        b_reset = _gate(p_gates, p_gates_bias, rows, i * E + columns, mask, E, GATES, FAST, EVEN)
        store(p_product + rows[:, None] * (2 * E) + i * E + columns[None, :], b_reset * b_read, mask, EVEN)


@triton.jit
def update_forward(
    p_gates, p_gates_bias, p_sum, p_state, p_bias, p_out, p_seed, n_pairs, starts, lengths, rates,
    WIDTH: tl.constexpr, GATES: tl.constexpr, SHUFFLE: tl.constexpr, SWAP: tl.constexpr, DROPOUT: tl.constexpr,
    FAST: tl.constexpr, EVEN: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """From the candidates' sums to the layer's outputs, each stored where the shuffle wants it."""
    follow(PDL)
    D: tl.constexpr = WIDTH
    i = tl.program_id(1)
    tile, rows, columns, mask = program_tile(n_pairs, D, BLOCK_P, BLOCK_C)
    b_sum = load(p_sum + rows[:, None] * (2 * D) + i * D + columns[None, :], mask, EVEN)
    _finish(
        b_sum, p_gates, p_gates_bias, p_state, p_bias, p_out, p_seed, tile, rows, columns, mask, i,
        starts, lengths, rates,
        D, GATES, SHUFFLE, SWAP, DROPOUT, FAST, EVEN, BLOCK_P,
    )  # fmt: skip


@triton.jit
def switch_forward(
    p_gates, p_gates_bias, p_read, p_state, p_weight, p_bias, p_out, p_seed, n_pairs, starts, lengths, rates,
    D: tl.constexpr, GATES: tl.constexpr, SHUFFLE: tl.constexpr, SWAP: tl.constexpr, DROPOUT: tl.constexpr,
    FAST: tl.constexpr, EVEN: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Reset, candidates' product and update in one: all columns of one of the two cells of a tile of pairs.

    ``BLOCK_C`` divides D, ``BLOCK_K`` divides E. A cell's columns are blocks of ``BLOCK_C``, each with an accumulator
    of its own, so that a width such as 192 wastes nothing.
    """
    follow(PDL)
    E: tl.constexpr = 2 * D
    # Both cells of a tile follow each other, so that the second finds the pairs in cache.
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    tile = (program // 2).to(tl.int64)
    i = program % 2
    rows = tile * BLOCK_P + tl.arange(0, BLOCK_P)
    inside = (rows < n_pairs)[:, None]
    b_sums = ()
    for _ in tl.static_range(D // BLOCK_C):
        b_sums += (tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32),)  # type: ignore[assignment]  # tuples grow here
    for k in range(0, E, BLOCK_K):
        inner = k + tl.arange(0, BLOCK_K)
        b_reset = _gate(p_gates, p_gates_bias, rows, i * E + inner, inside, E, GATES, FAST, EVEN)
        b_read = load(p_read + rows[:, None] * E + inner[None, :], inside, EVEN)
        b_product = (b_reset * b_read).to(p_read.dtype.element_ty)
        b_next = ()
        for block in tl.static_range(D // BLOCK_C):
            columns = block * BLOCK_C + tl.arange(0, BLOCK_C)
            b_weight = tl.load(p_weight + i * (E * D) + columns[None, :] * E + inner[:, None])
            b_next += (tl.dot(b_product, b_weight, b_sums[block]),)  # type: ignore[assignment]  # and here
        b_sums = b_next
    for block in tl.static_range(D // BLOCK_C):
        columns = block * BLOCK_C + tl.arange(0, BLOCK_C)
        _finish(
            b_sums[block], p_gates, p_gates_bias, p_state, p_bias, p_out, p_seed, tile, rows, columns, inside, i,
            starts, lengths, rates, D, GATES, SHUFFLE, SWAP, DROPOUT, FAST, EVEN, BLOCK_P,
        )  # fmt: skip


@triton.jit
def update_backward(
    p_gates, p_gates_bias, p_grad_gates, p_sum, p_out, p_state, p_bias, p_grad_out, p_more, p_grad_sum, p_grad_state,
    p_sums, p_seed, n_pairs, starts, lengths, rates,
    WIDTH: tl.constexpr, GATES: tl.constexpr, OUT: tl.constexpr, MORE: tl.constexpr, SHUFFLE: tl.constexpr,
    SWAP: tl.constexpr, DROPOUT: tl.constexpr, FAST: tl.constexpr, EVEN: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Through the update: gradients of the candidates' sums, the update gates and the copied state.

    The candidates come from their sums, or where ``OUT`` from the layer's outputs, which hold them mixed with the
    copied state. Where ``MORE``, the gradient of the outputs is the sum of two tensors. ``p_grad_gates`` takes the
    gradients of the update gates and may be ``p_gates``; ``p_sums`` ``[tiles, 10D]`` takes each tile's share of the
    gradients of B_u (columns 4D to 6D) and B_c (6D to 8D).
    """
    follow(PDL)
    D: tl.constexpr = WIDTH
    i = tl.program_id(1)
    tile, rows, columns, mask = program_tile(n_pairs, D, BLOCK_P, BLOCK_C)
    candidate = rows[:, None] * (2 * D) + i * D + columns[None, :]
    b_update = _gate(p_gates, p_gates_bias, rows, (4 + i) * D + columns, mask, 2 * D, GATES, FAST, EVEN)
    cell = rows[:, None] * (2 * D) + copied_columns(columns, i, D, SWAP)[None, :]
    b_copied = load(p_state + cell, mask, EVEN)
    b_grad, b_grad_update, b_grad_sum = _through_update(
        b_update, b_copied, p_sum, p_out, p_bias, p_grad_out, p_more, p_seed, tile, rows, columns, mask, i,
        starts, lengths, rates, D, OUT, MORE, SHUFFLE, DROPOUT, FAST, EVEN, BLOCK_P,
    )  # fmt: skip
    store(p_grad_gates + rows[:, None] * (2 * GATES * D) + (4 + i) * D + columns[None, :], b_grad_update, mask, EVEN)
    store(p_grad_sum + candidate, b_grad_sum, mask, EVEN)
    store(p_grad_state + cell, b_grad * b_update, mask, EVEN)
    _store_sum(p_sums + tile * (2 * (GATES + 2) * D) + (4 + i) * D + columns, b_grad_update, columns < D)
    _store_sum(p_sums + tile * (2 * (GATES + 2) * D) + (2 * GATES + i) * D + columns, b_grad_sum, columns < D)


@triton.jit
def swap_gate_backward(
    p_gates, p_gates_bias, p_grad_gates, p_sum, p_out, p_state, p_bias, p_grad_out, p_more, p_grad_sum, p_grad_state,
    p_sums, p_seed, n_pairs, starts, lengths, rates,
    WIDTH: tl.constexpr, GATES: tl.constexpr, OUT: tl.constexpr, MORE: tl.constexpr, SHUFFLE: tl.constexpr,
    SWAP: tl.constexpr, DROPOUT: tl.constexpr, FAST: tl.constexpr, EVEN: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """``update_backward`` where a swap gate chooses what is copied: the gradients of the swap gates as well.

    A program has both cells of its pairs, since what each of them holds may have been copied to either. ``p_sums``
    ``[tiles, 12D]`` takes each tile's share of the gradients of B_u (columns 4D to 6D), B_g (6D to 8D) and B_c (8D to
    10D).
    """
    follow(PDL)
    D: tl.constexpr = WIDTH
    tile, rows, columns, mask = program_tile(n_pairs, D, BLOCK_P, BLOCK_C)
    cell = rows[:, None] * (2 * D) + columns[None, :]
    gate = rows[:, None] * (2 * GATES * D) + columns[None, :]
    b_states = (load(p_state + cell, mask, EVEN), load(p_state + cell + D, mask, EVEN))
    b_straight_grads = ()
    b_crossed_grads = ()
    b_grads = ()
    for i in tl.static_range(2):
        b_update = _gate(p_gates, p_gates_bias, rows, (4 + i) * D + columns, mask, 2 * D, GATES, FAST, EVEN)
        b_straight = _gate(p_gates, p_gates_bias, rows, (6 + i) * D + columns, mask, 2 * D, GATES, FAST, EVEN)
        b_difference = b_states[i] - b_states[1 - i]
        b_copied = b_states[1 - i] + b_straight * b_difference
        b_grad, b_grad_update, b_grad_sum = _through_update(
            b_update, b_copied, p_sum, p_out, p_bias, p_grad_out, p_more, p_seed, tile, rows, columns, mask, i,
            starts, lengths, rates, D, OUT, MORE, SHUFFLE, DROPOUT, FAST, EVEN, BLOCK_P,
        )  # fmt: skip
        b_grad_copied = b_grad * b_update
        b_kept = b_grad_copied * b_straight
        b_grad_straight = b_kept * (1.0 - b_straight) * b_difference
        store(p_grad_gates + gate + (4 + i) * D, b_grad_update, mask, EVEN)
        store(p_grad_gates + gate + (6 + i) * D, b_grad_straight, mask, EVEN)
        store(p_grad_sum + cell + i * D, b_grad_sum, mask, EVEN)
        b_straight_grads += (b_kept,)  # type: ignore[assignment]  # tuples grow here
        b_crossed_grads += (b_grad_copied - b_kept,)  # type: ignore[assignment]  # and here
        b_grads += (b_grad_update, b_grad_straight, b_grad_sum)  # type: ignore[assignment]  # and here
    for i in tl.static_range(2):
        store(p_grad_state + cell + i * D, b_straight_grads[i] + b_crossed_grads[1 - i], mask, EVEN)
    p_sums += tile * (2 * (GATES + 2) * D) + columns
    for i in tl.static_range(2):
        for gradient in tl.static_range(3):
            _store_sum(p_sums + (4 + 2 * gradient + i) * D, b_grads[3 * i + gradient], columns < D)


@triton.jit
def reset_backward(
    p_gates, p_gates_bias, p_grad_gates, p_read, p_skip, p_scale, p_copy, p_product, p_grad_product, p_grad_read,
    p_more, p_more_scale, p_sums, n_pairs,
    WIDTH: tl.constexpr, GATES: tl.constexpr, ADD: tl.constexpr, MORE: tl.constexpr, PRODUCT: tl.constexpr,
    SKIP: tl.constexpr, COPY: tl.constexpr, FAST: tl.constexpr, EVEN: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Through the reset gates: their gradients, for which ``p_grad_gates`` may be ``p_gates``, and what was read's.

    Where ``SKIP``, what was read is ``p_read`` plus the scaled skip connection. Its gradients are added to what
    ``p_grad_read`` holds, where ``ADD``. Where ``MORE``, a later layer's skip connection began at ``p_read``: of what
    that layer read, ``p_more`` is the gradient, which is scaled and added, and whose product with ``p_read`` is the
    scale's gradient. ``PRODUCT`` stores r^i * s, for the gradient of W_c, and ``COPY`` what was read, for that of the
    gates' weight. ``p_sums`` ``[tiles, (GATES + 2) * E]`` takes each tile's share of the gradients of B_r (columns 0 to
    2E) and, where ``MORE``, of the scale (the last E).
    """
    follow(PDL)
    E: tl.constexpr = WIDTH
    tile, rows, columns, mask = program_tile(n_pairs, E, BLOCK_P, BLOCK_C)
    pair = rows[:, None] * E + columns[None, :]
    b_read = load(p_read + pair, mask, EVEN)
    if SKIP:
        # Rounded like what the products read.
        b_read += _scale(p_scale, columns, E) * load(p_skip + pair, mask, EVEN)
        b_read = b_read.to(p_copy.dtype.element_ty).to(tl.float32)
    b_grad_read = tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32)
    if ADD:
        b_grad_read += load(p_grad_read + pair, mask, EVEN)
    if MORE:
        b_more = load(p_more + pair, mask, EVEN)
        b_grad_read += _scale(p_more_scale, columns, E) * b_more
    b_grad_resets = ()
    for i in tl.static_range(2):
        product = rows[:, None] * (2 * E) + i * E + columns[None, :]
        b_reset = _gate(p_gates, p_gates_bias, rows, i * E + columns, mask, E, GATES, FAST, EVEN)
        b_grad = load(p_grad_product + product, mask, EVEN)
        b_product = b_reset * b_read
        b_grad_reset = b_grad * b_product * (1.0 - b_reset)
        b_grad_read += b_grad * b_reset
        b_grad_resets += (b_grad_reset,)  # type: ignore[assignment]  # tuples grow here
        store(p_grad_gates + rows[:, None] * (GATES * E) + i * E + columns[None, :], b_grad_reset, mask, EVEN)
        if PRODUCT:
            store(p_product + product, b_product, mask, EVEN)
    store(p_grad_read + pair, b_grad_read, mask, EVEN)
    if COPY:
        store(p_copy + pair, b_read, mask, EVEN)
    # Sums come last: the warps wait for each other, and no load should wait with them.
    p_sums += tile * ((GATES + 2) * E) + columns
    for i in tl.static_range(2):
        _store_sum(p_sums + i * E, b_grad_resets[i], columns < E)
    if MORE:
        _store_sum(p_sums + (GATES + 1) * E, b_more * b_read, columns < E)


@triton.jit
def skip_forward(
    p_state, p_skip, p_scale, p_read, n_cells,
    WIDTH: tl.constexpr, EVEN: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """What gates and candidates read: s + scale * skip."""
    follow(PDL)
    _, rows, columns, mask = program_tile(n_cells, WIDTH, BLOCK_P, BLOCK_C)
    cell = rows[:, None] * WIDTH + columns[None, :]
    b_scale = tl.load(p_scale + columns, mask=columns < WIDTH, other=0.0)
    b_read = load(p_state + cell, mask, EVEN) + b_scale[None, :] * load(p_skip + cell, mask, EVEN)
    store(p_read + cell, b_read, mask, EVEN)


@triton.jit
def skip_backward(
    p_skip, p_scale, p_grad_read, p_grad_state, p_grad_skip, p_sums, n_pairs,
    WIDTH: tl.constexpr, GATES: tl.constexpr, EVEN: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Through s + scale * skip: gradients of the skipped cells and of the scale; that of s joins the copied state's."""
    follow(PDL)
    E: tl.constexpr = WIDTH
    tile, rows, columns, mask = program_tile(n_pairs, E, BLOCK_P, BLOCK_C)
    pair = rows[:, None] * E + columns[None, :]
    b_grad = load(p_grad_read + pair, mask, EVEN)
    store(p_grad_skip + pair, b_grad * _scale(p_scale, columns, E), mask, EVEN)
    store(p_grad_state + pair, b_grad + load(p_grad_state + pair, mask, EVEN), mask, EVEN)
    p_sums += tile * ((GATES + 2) * E) + (GATES + 1) * E + columns
    _store_sum(p_sums, b_grad * load(p_skip + pair, mask, EVEN), columns < E)


@triton.jit
def follow(PDL: tl.constexpr):
    """Where ``PDL``, wait for the launch before this one, then let the next one begin: see tuning.DEPENDENT_LAUNCH."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def program_tile(n_rows, WIDTH: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr):
    """This program's tile: its number along the rows, its rows, its columns, and which of its elements exist."""
    # Last rows first: of what the product before wrote, the cache holds the end.
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    blocks: tl.constexpr = (WIDTH + BLOCK_C - 1) // BLOCK_C
    tile = (program // blocks).to(tl.int64)
    rows = tile * BLOCK_P + tl.arange(0, BLOCK_P)
    columns = (program % blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
    return tile, rows, columns, (rows < n_rows)[:, None] & (columns < WIDTH)[None, :]


@triton.jit
def _store_sum(pointers, b_value, mask):
    tl.store(pointers, tl.sum(b_value, axis=0), mask=mask)


@triton.jit
def _finish(
    b_sum, p_gates, p_gates_bias, p_state, p_bias, p_out, p_seed, tile, rows, columns, mask, i, starts, lengths, rates,
    D: tl.constexpr, GATES: tl.constexpr, SHUFFLE: tl.constexpr, SWAP: tl.constexpr, DROPOUT: tl.constexpr,
    FAST: tl.constexpr, EVEN: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """From a block of the candidates' sums to outputs in their places."""
    b_candidate = _candidate(b_sum, p_bias, columns, i, D, FAST)
    b_update = _gate(p_gates, p_gates_bias, rows, (4 + i) * D + columns, mask, 2 * D, GATES, FAST, EVEN)
    if GATES == 4:
        b_straight = _gate(p_gates, p_gates_bias, rows, (6 + i) * D + columns, mask, 2 * D, GATES, FAST, EVEN)
        cell = rows[:, None] * (2 * D) + columns[None, :]
        b_other = load(p_state + cell + (1 - i) * D, mask, EVEN)
        b_copied = b_other + b_straight * (load(p_state + cell + i * D, mask, EVEN) - b_other)
    else:
        b_copied = load(p_state + rows[:, None] * (2 * D) + copied_columns(columns, i, D, SWAP)[None, :], mask, EVEN)
    b_out = b_candidate + b_update * (b_copied - b_candidate)
    if DROPOUT:
        b_out *= random_scale(p_seed, tile * BLOCK_P, i, columns, starts, rates, D, BLOCK_P, DROPOUT)
    row = destination(rows, i, starts, lengths, SHUFFLE)
    store(p_out + row[:, None] * D + columns[None, :], b_out, mask, EVEN)


@triton.jit
def _through_update(
    b_update, b_copied, p_sum, p_out, p_bias, p_grad_out, p_more, p_seed, tile, rows, columns, mask, i,
    starts, lengths, rates,
    D: tl.constexpr, OUT: tl.constexpr, MORE: tl.constexpr, SHUFFLE: tl.constexpr, DROPOUT: tl.constexpr,
    FAST: tl.constexpr, EVEN: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """The gradients of cell i's output before dropout, its update gates before the sigmoid, its candidates' sums."""
    out = destination(rows, i, starts, lengths, SHUFFLE)[:, None] * D + columns[None, :]
    b_grad = load(p_grad_out + out, mask, EVEN)
    if MORE:
        b_grad += load(p_more + out, mask, EVEN)
    b_rest = 1.0 - b_update
    if OUT:
        b_out = load(p_out + out, mask, EVEN)
    if DROPOUT:
        b_scale = random_scale(p_seed, tile * BLOCK_P, i, columns, starts, rates, D, BLOCK_P, DROPOUT)
        b_grad *= b_scale
        if OUT:
            b_out = tl.where(b_scale != 0.0, b_out / b_scale, 0.0)  # where it was dropped, its gradient is zero
    if OUT:
        # With o = u * s + (1 - u) * c: (1 - u) (s - c) = s - o, and (1 - u) c = o - u * s.
        b_part = b_out - b_update * b_copied
        b_grad_update = b_grad * b_update * (b_copied - b_out)
        b_slope = b_rest - b_part * b_part / tl.maximum(b_rest, 1e-6)
        b_grad_sum = b_grad * tl.minimum(tl.maximum(b_slope, 0.0), b_rest)
    else:
        candidate = rows[:, None] * (2 * D) + i * D + columns[None, :]
        b_candidate = _candidate(load(p_sum + candidate, mask, EVEN), p_bias, columns, i, D, FAST)
        b_grad_update = b_grad * (b_copied - b_candidate) * b_update * b_rest
        b_grad_sum = b_grad * b_rest * (1.0 - b_candidate * b_candidate)
    return b_grad, b_grad_update, b_grad_sum


@triton.jit
def _scale(p_scale, columns, E: tl.constexpr):
    """The scale of a skip connection for columns of a pair: the same for both cells."""
    return tl.load(p_scale + columns % (E // 2), mask=columns < E, other=0.0)[None, :]


@triton.jit
def _candidate(b_sum, p_bias, columns, i, D: tl.constexpr, FAST: tl.constexpr):
    b_bias = tl.load(p_bias + i * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    return tanh(b_sum + b_bias[None, :], FAST)


@triton.jit
def _gate(
    p_gates, p_gates_bias, rows, columns, mask,
    E: tl.constexpr, GATES: tl.constexpr, FAST: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Gates: their bias is added here, since the library's product is faster without."""
    b_bias = tl.load(p_gates_bias + columns, mask=columns < GATES * E, other=0.0).to(tl.float32)
    b_gate = load(p_gates + rows[:, None] * (GATES * E) + columns[None, :], mask, EVEN)
    return sigmoid(b_gate + b_bias[None, :], FAST)


@triton.jit
def copied_columns(columns, i, D: tl.constexpr, SWAP: tl.constexpr):
    """Where in a pair the features lie that cell i of swapHalf(s) takes: its own first half, the other's second."""
    if SWAP:
        return columns + tl.where(columns < D // 2, i * D, (1 - i) * D)
    return columns + i * D


@triton.jit
def destination(pair, i, starts, lengths, SHUFFLE: tl.constexpr):
    """The row to which the shuffle after this layer brings cell ``i`` of a pair, in sequences of ``lengths`` cells."""
    if SHUFFLE == 0:
        return 2 * pair + i
    cells = _of_group(pair, starts, lengths) - 1
    half = cells // 2
    local = (pair - _of_group(pair, starts, starts) // 2).to(tl.int32) % half
    if SHUFFLE == 1:
        cell = local + i * half
    else:
        cell = 2 * local + i
        cell = 2 * cell - tl.where(cell >= half, cells - 1, 0)
    return 2 * (pair - local) + cell


@triton.jit
def _of_group(pair, starts, values):
    """Of ``values``, one for each group of sequences, that of the pair's group."""
    value = values[0]
    for group in tl.static_range(1, len(values)):
        value = tl.where(2 * pair >= starts[group] - 1, values[group], value)
    return value


NOISE = tl.constexpr(2)
"""Of ``DROPOUT``: noise in its place. Dropout is 1, neither is 0."""


@triton.jit
def random_scale(
    p_seed, first, i, columns, starts, rates, D: tl.constexpr, BLOCK_P: tl.constexpr, DROPOUT: tl.constexpr
):
    """What dropout or noise multiplies outputs by: the same for the same seed, forward and backward."""
    return random_scale_of_rows(p_seed, first, tl.arange(0, BLOCK_P), i, columns, starts, rates, D, DROPOUT)


@triton.jit
def random_scale_of_rows(p_seed, first, rows, i, columns, starts, rates, D: tl.constexpr, DROPOUT: tl.constexpr):
    """The same for the pairs ``first + rows``: 0 or 1 / (1 - rate) by dropout, 1 + rate * (about normal) by noise."""
    # Numbers of elements are 32 bits wide: the high part of a pair's number goes into the seed.
    seed = scramble((tl.load(p_seed) + first // 1048576).to(tl.uint32))
    pairs = (first % 1048576).to(tl.uint32) + rows.to(tl.uint32)
    element = pairs[:, None] * (2 * D) + (i * D + columns).to(tl.uint32)[None, :]
    # A counter scrambled twice is random enough and costs a tenth of a cryptographic cipher's rounds.
    random = scramble(scramble(element) + seed)
    rate = _of_group(first + rows[:, None], starts, rates)
    if DROPOUT == NOISE:
        # Four bytes add up to nearly a normal number, of mean 510 and variance 4 * (256**2 - 1) / 12.
        total = (random & 255) + ((random >> 8) & 255) + ((random >> 16) & 255) + (random >> 24)
        return 1.0 + rate * ((total.to(tl.float32) - 510.0) * 0.006765875)
    uniform = (random >> 8).to(tl.float32) * 5.9604644775390625e-08  # 2**-24
    return tl.where(uniform >= rate, 1.0 / (1.0 - rate), 0.0)


@triton.jit
def scramble(x):
    """Mix the bits of 32-bit numbers, one to one (the last steps of MurmurHash3)."""
    x ^= x >> 16
    x *= 0x85EBCA6B
    x ^= x >> 13
    x *= 0xC2B2AE35
    return x ^ (x >> 16)


@triton.jit
def tanh(x, FAST: tl.constexpr):
    """In float32; ``FAST`` right to 11 bits, in one instruction."""
    if FAST:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    e = tl.exp(-2.0 * tl.abs(x))
    large = (1.0 - e) / (1.0 + e)
    # Near zero the difference would lose digits that the series keeps.
    small = x * (1.0 + x * x * (-1.0 / 3.0 + x * x * (2.0 / 15.0)))
    return tl.where(tl.abs(x) < 0.1, small, tl.where(x < 0, -large, large))


@triton.jit
def sigmoid(x, FAST: tl.constexpr):
    """In float32, by :func:`tanh` where ``FAST``."""
    if FAST:
        return 0.5 * tanh(0.5 * x, FAST) + 0.5
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def load(pointers, mask, EVEN: tl.constexpr):
    """Elements of a tile in float32, zero where they do not exist."""
    if EVEN:
        return tl.load(pointers).to(tl.float32)
    return tl.load(pointers, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store(pointers, value, mask, EVEN: tl.constexpr):
    """Store a tile in the dtype of the tensor, those of its elements that exist."""
    if EVEN:
        tl.store(pointers, value.to(pointers.dtype.element_ty))
    else:
        tl.store(pointers, value.to(pointers.dtype.element_ty), mask=mask)
