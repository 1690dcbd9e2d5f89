"""Triton kernels of the residual switch layer: what happens around its two matrix products, forward and backward.

With hidden x = Z s [P, H], x^ its rows with mean 0 and variance 1, z = x^ + B_Z; units of all cells read + written:

    features_forward    g = GELU(z) = z sigmoid(1.702 z)                                                   2 + 2
    residual_forward    o = sigmoid(2 S) s + h (W g + B), dropout, shuffle                                 2 + 1
    residual_backward   dc = h do   ds = sigmoid(2 S) do   dS, dB by tiles                                 2 + 2
    features_backward   dz = dg GELU'(z)   dx = (dz - mean dz - x^ mean(dz x^)) / deviation   g again      4 + 4

Below ``tuning.FEWEST_RESIDUAL_PAIRS`` a warp of the first and the last has rows of its own, up to 1,024 numbers wide
(``WARP_ROWS``), from there on four warps share two rows. Tiles, groups and dropout are those of gated_switch.py.
"""

# P = pairs, D = features per cell, E = 2 * D, H = 4 * D, i = 0, 1 the cell of a pair; p_ pointer, b_ block, CAPITALS
# constexpr; hidden [P, H] before the normalisation, active [P, H] after GELU, candidate [P, E] without its bias,
# state [P, E]
from __future__ import annotations

import triton
import triton.language as tl

from riffle.kernels.gated_switch import destination, follow, load, program_tile, random_scale, sigmoid, store


@triton.jit
def features_forward(
    p_hidden, p_bias, p_active, n_pairs,
    H: tl.constexpr, EPSILON: tl.constexpr, FAST: tl.constexpr, EVEN: tl.constexpr, TILE_P: tl.constexpr,
    WARP_ROWS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Normalise the features of each pair, add the bias, and apply GELU; rows are cut into blocks of columns."""
    follow(PDL)
    tile = (tl.num_programs(0) - 1 - tl.program_id(0)).to(tl.int64)  # last rows first, as in gated_switch.py
    b_biases = _vector(p_bias, H, WARP_ROWS, BLOCK_P, BLOCK_C)
    for step in range(TILE_P // BLOCK_P):
        rows = tile * TILE_P + step * BLOCK_P + tl.arange(0, BLOCK_P)
        b_centred = _centred(_rows(p_hidden, rows, n_pairs, H, EVEN, BLOCK_C), H, BLOCK_C)
        b_rate = _rate(b_centred, H, EPSILON)
        for block in tl.static_range(len(b_centred)):
            at, mask = _block(rows, block, n_pairs, H, BLOCK_C)
            b_active = _gelu(b_centred[block] * b_rate[:, None] + b_biases[block].to(tl.float32), FAST)[0]
            store(p_active + at, b_active, mask, EVEN)


@triton.jit
def features_backward(
    p_hidden, p_bias, p_grad, p_active, p_grad_biases, n_pairs,
    H: tl.constexpr, EPSILON: tl.constexpr, FAST: tl.constexpr, EVEN: tl.constexpr, TILE_P: tl.constexpr,
    WARP_ROWS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Through GELU and the normalisation: ``p_grad`` holds the gradient of active and takes that of hidden.

    ``p_active`` takes what :func:`features_forward` stored, for the gradient of W, and ``p_grad_biases``
    ``[tiles, 2H]`` each tile's share of the gradient of B_Z (columns 0 to H).
    """
    follow(PDL)
    tile = (tl.num_programs(0) - 1 - tl.program_id(0)).to(tl.int64)
    b_before = () if WARP_ROWS else _vector(p_bias, H, WARP_ROWS, BLOCK_P, BLOCK_C)
    b_sums = ()
    for _ in tl.static_range((H + BLOCK_C - 1) // BLOCK_C):
        b_sum = tl.zeros((BLOCK_P if WARP_ROWS else 1, BLOCK_C), dtype=tl.float32)
        b_sums += (b_sum,)  # type: ignore[assignment]  # tuples grow here
    for step in range(TILE_P // BLOCK_P):
        rows = tile * TILE_P + step * BLOCK_P + tl.arange(0, BLOCK_P)
        b_hidden = _rows(p_hidden, rows, n_pairs, H, EVEN, BLOCK_C)
        # A warp with whole rows asks for all it needs at once, and has no registers left to hold the bias for long.
        b_grad_active = _rows(p_grad, rows, n_pairs, H, EVEN, BLOCK_C) if WARP_ROWS else ()
        b_biases = _vector(p_bias, H, WARP_ROWS, BLOCK_P, BLOCK_C) if WARP_ROWS else b_before
        b_centred = _centred(b_hidden, H, BLOCK_C)
        b_rate = _rate(b_centred, H, EPSILON)
        b_grads = ()
        b_next = ()
        b_mean = tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32)
        b_along = tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32)
        for block in tl.static_range(len(b_sums)):
            at, mask = _block(rows, block, n_pairs, H, BLOCK_C)
            b_unit = b_centred[block] * b_rate[:, None]
            b_active, b_slope = _gelu(b_unit + b_biases[block].to(tl.float32), FAST)
            b_grad = (b_grad_active[block] if WARP_ROWS else load(p_grad + at, mask, EVEN)) * b_slope
            store(p_active + at, b_active, mask, EVEN)
            b_grads += (b_grad,)  # type: ignore[assignment]  # and here
            # Warps with rows of their own wait for each other at the end alone.
            b_share = b_grad if WARP_ROWS else tl.sum(b_grad, axis=0, keep_dims=True)
            b_next += (b_sums[block] + b_share,)  # type: ignore[assignment]
            b_mean += b_grad
            b_along += b_grad * b_unit
        b_sums = b_next
        b_row_mean = tl.sum(b_mean, axis=1) / H
        b_row_along = tl.sum(b_along, axis=1) / H * b_rate
        for block in tl.static_range(len(b_sums)):
            at, mask = _block(rows, block, n_pairs, H, BLOCK_C)
            b_grad_unit = b_grads[block] - b_row_mean[:, None] - b_centred[block] * b_row_along[:, None]
            store(p_grad + at, b_rate[:, None] * b_grad_unit, mask, EVEN)
    for block in tl.static_range(len(b_sums)):
        columns = block * BLOCK_C + tl.arange(0, BLOCK_C)
        tl.store(p_grad_biases + tile * (2 * H) + columns, tl.sum(b_sums[block], axis=0), mask=columns < H)


@triton.jit
def residual_forward(
    p_candidate, p_bias, p_state, p_residual, p_out, p_seed, n_pairs, starts, lengths, rates,
    WIDTH: tl.constexpr, SCALE: tl.constexpr, SHUFFLE: tl.constexpr, DROPOUT: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add the candidate to the scaled pair, and store each cell where the shuffle wants it."""
    follow(PDL)
    D: tl.constexpr = WIDTH
    i = tl.program_id(1)
    tile, rows, columns, mask = program_tile(n_pairs, D, BLOCK_P, BLOCK_C)
    b_candidate = load(p_candidate + rows[:, None] * (2 * D) + i * D + columns[None, :], mask, EVEN)
    b_bias = tl.load(p_bias + i * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    b_state = load(p_state + rows[:, None] * (2 * D) + i * D + columns[None, :], mask, EVEN)
    b_kept = _kept(p_residual, i * D + columns, columns < D)
    b_out = b_kept[None, :] * b_state + SCALE * (b_candidate + b_bias[None, :])
    if DROPOUT:
        b_out *= random_scale(p_seed, tile * BLOCK_P, i, columns, starts, rates, D, BLOCK_P, DROPOUT)
    row = destination(rows, i, starts, lengths, SHUFFLE)
    store(p_out + row[:, None] * D + columns[None, :], b_out, mask, EVEN)


@triton.jit
def residual_backward(
    p_state, p_residual, p_grad_out, p_grad_candidate, p_grad_state, p_copy, p_grad_biases, p_seed, n_pairs,
    starts, lengths, rates,
    WIDTH: tl.constexpr, SCALE: tl.constexpr, COPY: tl.constexpr, SHUFFLE: tl.constexpr, DROPOUT: tl.constexpr,
    EVEN: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Through that sum: gradients of the candidate and of the pair; ``COPY`` stores the pair, for the gradient of Z.

    ``p_grad_biases`` ``[tiles, 8D]`` takes each tile's share of the gradients of B (columns 4D to 6D) and S (6D to 8D).
    """
    follow(PDL)
    D: tl.constexpr = WIDTH
    i = tl.program_id(1)
    tile, rows, columns, mask = program_tile(n_pairs, D, BLOCK_P, BLOCK_C)
    at = rows[:, None] * (2 * D) + i * D + columns[None, :]
    b_state = load(p_state + at, mask, EVEN)
    row = destination(rows, i, starts, lengths, SHUFFLE)
    b_grad = load(p_grad_out + row[:, None] * D + columns[None, :], mask, EVEN)
    b_kept = _kept(p_residual, i * D + columns, columns < D)
    if DROPOUT:
        b_grad *= random_scale(p_seed, tile * BLOCK_P, i, columns, starts, rates, D, BLOCK_P, DROPOUT)
    b_grad_candidate = SCALE * b_grad
    store(p_grad_candidate + at, b_grad_candidate, mask, EVEN)
    store(p_grad_state + at, b_kept[None, :] * b_grad, mask, EVEN)
    if COPY:
        store(p_copy + at, b_state, mask, EVEN)
    p_grad_bias = p_grad_biases + tile * (8 * D) + i * D + columns
    b_grad_residual = tl.sum(b_grad * b_state, axis=0) * 2.0 * b_kept * (1.0 - b_kept)
    tl.store(p_grad_bias + 4 * D, tl.sum(b_grad_candidate, axis=0), mask=columns < D)
    tl.store(p_grad_bias + 6 * D, b_grad_residual, mask=columns < D)


@triton.jit
def _kept(p_residual, columns, inside):
    """The part of a pair that is kept, sigmoid(2 S)."""
    return sigmoid(2.0 * tl.load(p_residual + columns, mask=inside, other=0.0), False)


@triton.jit
def _block(rows, block, n_pairs, H: tl.constexpr, BLOCK_C: tl.constexpr):
    """Where a block of columns of some rows lies, and which of its elements exist."""
    columns = block * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = (rows < n_pairs)[:, None]
    if H % BLOCK_C:
        mask = mask & (columns < H)[None, :]
    return rows[:, None] * H + columns[None, :], mask


@triton.jit
def _rows(p_x, rows, n_pairs, H: tl.constexpr, EVEN: tl.constexpr, BLOCK_C: tl.constexpr):
    """Rows in float32, block by block."""
    b_blocks = ()
    for block in tl.static_range((H + BLOCK_C - 1) // BLOCK_C):
        at, mask = _block(rows, block, n_pairs, H, BLOCK_C)
        b_blocks += (load(p_x + at, mask, EVEN),)  # type: ignore[assignment]  # tuples grow here
    return b_blocks


@triton.jit
def _vector(p_x, H: tl.constexpr, WARP_ROWS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr):
    """A vector to be added to rows, block by block: where every warp has rows of its own, a copy for each of them."""
    b_blocks = ()
    for block in tl.static_range((H + BLOCK_C - 1) // BLOCK_C):
        columns = block * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
        if WARP_ROWS:
            columns += tl.zeros((BLOCK_P, 1), dtype=tl.int32)
        b_blocks += (tl.load(p_x + columns, mask=columns < H, other=0.0),)  # type: ignore[assignment]  # and here
    return b_blocks


@triton.jit
def _centred(b_hidden, H: tl.constexpr, BLOCK_C: tl.constexpr):
    """Rows with mean 0, and zero past their end."""
    b_sum = b_hidden[0]
    for block in tl.static_range(1, len(b_hidden)):
        b_sum += b_hidden[block]  # blocks first: threads then exchange numbers once
    b_mean = tl.sum(b_sum, axis=1) / H
    b_centred = ()
    for block in tl.static_range(len(b_hidden)):
        b_block = b_hidden[block] - b_mean[:, None]
        if H % BLOCK_C:
            columns = block * BLOCK_C + tl.arange(0, BLOCK_C)
            b_block = tl.where((columns < H)[None, :], b_block, 0.0)
        b_centred += (b_block,)  # type: ignore[assignment]  # and here
    return b_centred


@triton.jit
def _rate(b_centred, H: tl.constexpr, EPSILON: tl.constexpr):
    """What rows with mean 0 are multiplied by, so that their variance is 1."""
    b_square = b_centred[0] * b_centred[0]
    for block in tl.static_range(1, len(b_centred)):
        b_square += b_centred[block] * b_centred[block]
    return 1.0 / tl.sqrt(tl.sum(b_square, axis=1) / H + EPSILON)


@triton.jit
def _gelu(x, FAST: tl.constexpr):
    """x * sigmoid(1.702 x), and its derivative."""
    b_gate = sigmoid(1.702 * x, FAST)
    b_out = x * b_gate
    return b_out, b_gate + 1.702 * b_out * (1.0 - b_gate)
