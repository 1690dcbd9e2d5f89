"""Triton kernels of the Neural GPU: all steps of a sequence in one launch forward, and in one back.

A step's convolutions couple the cells of one sequence only, so a program takes a sequence and makes its n steps alone:
a batch needs no launch for each step. :class:`research.baselines.neural_gpu.DiagonalGRU` is the definition, and
neural_gpu.py launches the kernels.

What a step reads and what it writes are other addresses, and where cells read their neighbours, a barrier of the
program's threads comes between. The loops over steps and over a sequence's tiles are `while` loops: Triton loads the
operands of a `for` loop's products ahead, which is right among the products of a tile and wrong among steps.

**Layout.** A sequence of n cells has an area of n * (n + 1) rows in each tensor that is kept for the backward pass:
those of a step are a cell that stays zero and the n cells; a last row of all is zero. So a cell and its two neighbours
lie side by side, a convolution over three cells is one product that reads overlapping rows, and the gradient of its
weight is three products over all rows of all sequences. Cells that come in and go out have no such rows.
"""

# S = sequences, C = cells of all sequences, D = feature maps, R = rows of all steps, see above; x, the cells before the
# first nonlinearity, and out [C, D]; scratch [2, C, D], of even and odd steps; states, products r * s and candidates
# [R + 1, D], gates [R + 1, 2D], reset and update; candidates and gates before their nonlinearity. Groups are sequences
# of one width: their first sequences, widths, first cells and first rows are given as odd numbers, as gated_switch.py
# has them, and the scales of their saturation. p_ pointer, b_ block, CAPITALS constexpr.
from __future__ import annotations

import triton
import triton.language as tl

from riffle.kernels.gated_switch import load, scramble, store

LIMIT = tl.constexpr(0.9)
"""Arguments of nonlinearities outside ±0.9 are saturated."""
CANDIDATE, INPUT = tl.constexpr(0), tl.constexpr(0x9E3779B9)
"""Offsets of the dropout seed: for the candidates and for the input cells."""


@triton.jit
def steps_forward(
    p_x, p_active, p_gates_weight, p_gates_bias, p_weight, p_bias, p_seed, p_out, p_saturation, p_scratch,
    p_states, p_products, p_gates, p_candidates, input_rate, rate, n_cells, firsts, widths, cells, rows, scales,
    D: tl.constexpr, DROPOUT: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """All steps of one sequence.

    ``p_saturation`` ``[S]`` takes the scaled sum of max(|x| - 0.9, 0) over the arguments x of all nonlinearities;
    those of the first one, the cells that come in, count once for each step.
    """
    width, first_cell, first_row, scale = _sequence(firsts, widths, cells, rows, scales)
    p_x, p_out, p_active = p_x + first_cell * D, p_out + first_cell * D, p_active + first_cell
    p_scratch += first_cell * D
    area = first_row * D
    p_states, p_products, p_candidates = p_states + area, p_products + area, p_candidates + area
    p_gates += first_row * (2 * D)
    other = n_cells.to(tl.int64) * D
    _clear(p_states, width, D, BLOCK_N, BLOCK_C)
    _clear(p_products, width, D, BLOCK_N, BLOCK_C)
    b_saturation = tl.zeros((BLOCK_N, BLOCK_C), dtype=tl.float32)
    n = 0
    while n < width:
        for block in tl.static_range((D + BLOCK_C - 1) // BLOCK_C):
            at, mask, cell, _ = _tile(n, block, width, D, BLOCK_N, BLOCK_C)
            b_x = load(p_x + at, mask, False)
            b_saturation += width * _excess(b_x)
            b_state = _clip(b_x) * _active(p_active, cell, width)
            if DROPOUT:
                b_state *= _keep(p_seed, INPUT, first_cell * D, at, input_rate)
            store(p_scratch + at, b_state, mask, False)
            store(p_states + D + at, b_state, mask, False)
        n += BLOCK_N
    tl.debug_barrier()
    step = 0
    while step < width:
        row = step * (width + 1).to(tl.int64)  # the zero cell before the step's cells
        p_step_gates, p_step_products = p_gates + (row + 1) * (2 * D), p_products + (row + 1) * D
        p_step_candidates, p_next_states = p_candidates + (row + 1) * D, p_states + (row + width + 2) * D
        p_now, p_next = p_scratch + (step % 2) * other, p_scratch + ((step + 1) % 2) * other
        n = 0
        while n < width:
            b_sums = _convolve(p_states + row * D, p_gates_weight, n, width, 2, D, D, BLOCK_N, BLOCK_C, BLOCK_K)
            for block in tl.static_range(len(b_sums) // 2):
                at, mask, cell, columns = _tile(n, block, width, D, BLOCK_N, BLOCK_C)
                gates = cell[:, None] * (2 * D) + columns[None, :]
                b_reset = _argument(b_sums[block], p_gates_bias, columns, D, p_gates)
                b_update = _argument(b_sums[block + len(b_sums) // 2], p_gates_bias + D, columns, D, p_gates)
                b_saturation += tl.where(mask, _excess(b_reset) + _excess(b_update), 0.0)
                b_state = load(p_now + at, mask, False)
                store(p_step_products + at, _gate(b_reset) * b_state, mask, False)
                store(p_step_gates + gates, b_reset, mask, False)
                store(p_step_gates + D + gates, b_update, mask, False)
            n += BLOCK_N
        tl.debug_barrier()
        n = 0
        while n < width:
            b_sums = _convolve(p_products + row * D, p_weight, n, width, 1, D, D, BLOCK_N, BLOCK_C, BLOCK_K)
            for block in tl.static_range(len(b_sums)):
                at, mask, cell, columns = _tile(n, block, width, D, BLOCK_N, BLOCK_C)
                b_argument = _argument(b_sums[block], p_bias, columns, D, p_candidates)
                b_saturation += tl.where(mask, _excess(b_argument), 0.0)
                b_candidate = _clip(b_argument)
                if DROPOUT:
                    b_candidate *= _keep(p_seed, CANDIDATE, (first_row + row) * D, at, rate)
                gates = cell[:, None] * (2 * D) + columns[None, :]
                b_update = _gate(load(p_step_gates + D + gates, mask, False))
                # The diagonal gates: where a feature's copy comes from.
                source = cell[:, None] + _origin(columns, D)[None, :]
                b_moved = load(p_now + at + _origin(columns, D)[None, :] * D, mask & _within(source, width), False)
                b_next = b_candidate + b_update * (b_moved - b_candidate)
                b_next *= _active(p_active, cell, width)
                store(p_step_candidates + at, b_argument, mask, False)
                store(p_next + at, b_next, mask, False)
                if step + 1 < width:
                    store(p_next_states + at, b_next, mask, False)
                else:
                    store(p_out + at, b_next, mask, False)
            n += BLOCK_N
        tl.debug_barrier()
        step += 1
    tl.store(p_saturation + tl.program_id(0), scale * tl.sum(b_saturation))


@triton.jit
def steps_backward(
    p_grad_out, p_grad_saturation, p_x, p_active, p_gates_weight, p_weight, p_seed, p_states, p_gates, p_candidates,
    p_scratch, p_grad_x, p_grad_gates, p_grad_candidates, input_rate, rate, n_cells,
    firsts, widths, cells, rows, scales,
    D: tl.constexpr, DROPOUT: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Back through all steps of one sequence, to the gradients of all arguments of nonlinearities.

    The gradient of the state after an even number of steps is in the first half of ``p_scratch``. The weights are those
    of the transposed convolutions.
    """
    width, first_cell, first_row, scale = _sequence(firsts, widths, cells, rows, scales)
    p_grad_out, p_scratch, p_active = p_grad_out + first_cell * D, p_scratch + first_cell * D, p_active + first_cell
    p_x, p_grad_x = p_x + first_cell * D, p_grad_x + first_cell * D
    area = first_row * D
    p_states, p_candidates, p_gates = p_states + area, p_candidates + area, p_gates + 2 * area
    p_grad_candidates, p_grad_gates = p_grad_candidates + area, p_grad_gates + 2 * area
    other = n_cells.to(tl.int64) * D
    grad_saturation = scale * tl.load(p_grad_saturation + tl.program_id(0))
    _clear(p_grad_candidates, width, D, BLOCK_N, BLOCK_C)
    _clear(p_grad_gates, width, 2 * D, BLOCK_N, BLOCK_C)
    n = 0
    while n < width:
        for block in tl.static_range((D + BLOCK_C - 1) // BLOCK_C):
            at, mask, _, _ = _tile(n, block, width, D, BLOCK_N, BLOCK_C)
            store(p_scratch + (width % 2) * other + at, load(p_grad_out + at, mask, False), mask, False)
        n += BLOCK_N
    tl.debug_barrier()
    step = width - 1
    while step >= 0:
        row = step * (width + 1).to(tl.int64)
        p_step_states, p_step_gates = p_states + (row + 1) * D, p_gates + (row + 1) * (2 * D)
        p_step_candidates, p_step_grad_gates = p_candidates + (row + 1) * D, p_grad_gates + (row + 1) * (2 * D)
        p_step_grad_candidates = p_grad_candidates + (row + 1) * D
        p_grad_next, p_grad_now = p_scratch + ((step + 1) % 2) * other, p_scratch + (step % 2) * other
        n = 0
        while n < width:  # candidates and update gates
            for block in tl.static_range((D + BLOCK_C - 1) // BLOCK_C):
                at, mask, cell, columns = _tile(n, block, width, D, BLOCK_N, BLOCK_C)
                update = D + cell[:, None] * (2 * D) + columns[None, :]
                b_grad = load(p_grad_next + at, mask, False)
                b_grad *= _active(p_active, cell, width)
                b_argument = load(p_step_candidates + at, mask, False)
                b_update = load(p_step_gates + update, mask, False)
                b_moved = load(p_step_states + at + _origin(columns, D)[None, :] * D, mask, False)
                b_candidate, b_grad_candidate = _clip(b_argument), b_grad * (1.0 - _gate(b_update))
                if DROPOUT:
                    b_keep = _keep(p_seed, CANDIDATE, (first_row + row) * D, at, rate)
                    b_candidate *= b_keep
                    b_grad_candidate *= b_keep
                b_grad_update = 0.5 * b_grad * (b_moved - b_candidate)
                b_grad_candidate = _through_clip(b_grad_candidate, b_argument, grad_saturation)
                b_grad_update = _through_clip(b_grad_update, b_update, grad_saturation)
                store(p_step_grad_candidates + at, b_grad_candidate, mask, False)
                store(p_step_grad_gates + update, b_grad_update, mask, False)
            n += BLOCK_N
        tl.debug_barrier()
        n = 0
        while n < width:  # reset gates
            b_sums = _convolve(p_grad_candidates + row * D, p_weight, n, width, 1, D, D, BLOCK_N, BLOCK_C, BLOCK_K)
            for block in tl.static_range(len(b_sums)):
                at, mask, cell, columns = _tile(n, block, width, D, BLOCK_N, BLOCK_C)
                reset = cell[:, None] * (2 * D) + columns[None, :]
                b_reset, b_state = load(p_step_gates + reset, mask, False), load(p_step_states + at, mask, False)
                b_grad_reset = _through_clip(0.5 * b_sums[block] * b_state, b_reset, grad_saturation)
                store(p_step_grad_gates + reset, b_grad_reset, mask, False)
                # The gradients of features that the diagonal gates copied return to the cells they came from.
                origin = _origin(columns, D)
                target = cell[:, None] - origin[None, :]
                copied = mask & _within(target, width)
                b_copy = load(p_grad_next + at - origin[None, :] * D, copied, False)
                b_copy *= _gate(load(p_step_gates + D + reset - origin[None, :] * (2 * D), copied, False))
                b_copy *= tl.load(p_active + target, mask=copied, other=0.0)
                store(p_grad_now + at, b_sums[block] * _gate(b_reset) + b_copy, mask, False)
            n += BLOCK_N
        tl.debug_barrier()
        n = 0
        while n < width:  # what the gates have read
            b_sums = _convolve(
                p_grad_gates + row * (2 * D), p_gates_weight, n, width, 1, 2 * D, D, BLOCK_N, BLOCK_C, BLOCK_K
            )
            for block in tl.static_range(len(b_sums)):
                at, mask, _, _ = _tile(n, block, width, D, BLOCK_N, BLOCK_C)
                store(p_grad_now + at, load(p_grad_now + at, mask, False) + b_sums[block], mask, False)
            n += BLOCK_N
        tl.debug_barrier()
        step -= 1
    n = 0
    while n < width:
        for block in tl.static_range((D + BLOCK_C - 1) // BLOCK_C):
            at, mask, cell, _ = _tile(n, block, width, D, BLOCK_N, BLOCK_C)
            b_grad = load(p_scratch + at, mask, False) * _active(p_active, cell, width)
            if DROPOUT:
                b_grad *= _keep(p_seed, INPUT, first_cell * D, at, input_rate)
            b_grad_x = _through_clip(b_grad, load(p_x + at, mask, False), width * grad_saturation)
            store(p_grad_x + at, b_grad_x, mask, False)
        n += BLOCK_N


@triton.jit
def _sequence(firsts, widths, cells, rows, scales):
    """This program's sequence: its width, its first cell, the first row of its area, the scale of its saturation."""
    sequence, scale = tl.program_id(0), scales[0]
    before, width, cell, row = firsts[0] // 2, widths[0] // 2, cells[0] // 2, rows[0] // 2
    for group in tl.static_range(1, len(firsts)):
        inside = sequence >= firsts[group] // 2
        before, width = tl.where(inside, firsts[group] // 2, before), tl.where(inside, widths[group] // 2, width)
        cell, row = tl.where(inside, cells[group] // 2, cell), tl.where(inside, rows[group] // 2, row)
        scale = tl.where(inside, scales[group], scale)
    number = (sequence - before).to(tl.int64)
    return width, cell + number * width, row + number * width * (width + 1), scale


@triton.jit
def _tile(n, block, width, D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr):
    """Offsets of some cells from ``n`` on and of a block of their columns, what of it exists, the cells and columns."""
    cell, columns = n + tl.arange(0, BLOCK_N), block * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = (cell < width)[:, None]
    if D % BLOCK_C:
        mask = mask & (columns < D)[None, :]
    return cell[:, None] * D + columns[None, :], mask, cell, columns


@triton.jit
def _active(p_active, cell, width):
    """1 for cells that take part, 0 for those that are kept at zero."""
    return tl.load(p_active + cell, mask=cell < width, other=0.0)[:, None]


@triton.jit
def _clear(p_rows, width, WIDTH: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr):
    """Zero the cell before those of each step, and the one after the last step, as the next sequence's program does."""
    n = 0
    while n <= width:
        step = n + tl.arange(0, BLOCK_N)
        for column in tl.static_range(0, WIDTH, BLOCK_C):
            columns = column + tl.arange(0, BLOCK_C)
            at = step.to(tl.int64)[:, None] * ((width + 1) * WIDTH) + columns[None, :]
            mask = (step <= width)[:, None] & (columns < WIDTH)[None, :]
            store(p_rows + at, tl.zeros((BLOCK_N, BLOCK_C), dtype=tl.float32), mask, False)
        n += BLOCK_N


@triton.jit
def _convolve(
    p_read, p_weight, n, width, GATES: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Some cells' products with a weight ``[GATES * D, 3 * WIDTH]``, in blocks of columns.

    ``p_read`` is the zero cell before the first cell: a cell's left neighbour, the cell itself and its right neighbour
    are ``3 * WIDTH`` numbers side by side.
    """
    blocks: tl.constexpr = (D + BLOCK_C - 1) // BLOCK_C
    cell = n + tl.arange(0, BLOCK_N)
    b_sums = ()
    for _ in tl.static_range(GATES * blocks):
        b_sums += (tl.zeros((BLOCK_N, BLOCK_C), dtype=tl.float32),)  # type: ignore[assignment]  # tuples grow here
    for k in range(0, 3 * WIDTH, BLOCK_K):
        inner = k + tl.arange(0, BLOCK_K)
        mask = (cell < width)[:, None]
        if 3 * WIDTH % BLOCK_K:
            mask = mask & (inner < 3 * WIDTH)[None, :]
        b_read = tl.load(p_read + cell[:, None] * WIDTH + inner[None, :], mask=mask, other=0.0)
        b_next = ()
        for block in tl.static_range(GATES * blocks):
            columns = block % blocks * BLOCK_C + tl.arange(0, BLOCK_C)
            p_block = p_weight + (block // blocks * D + columns)[None, :] * (3 * WIDTH) + inner[:, None]
            if D % BLOCK_C or 3 * WIDTH % BLOCK_K:
                exists = (columns < D)[None, :] & (inner < 3 * WIDTH)[:, None]
                b_weight = tl.load(p_block, mask=exists, other=0.0)
            else:
                b_weight = tl.load(p_block)
            b_sum = tl.dot(b_read, b_weight, b_sums[block], input_precision="ieee")
            b_next += (b_sum,)  # type: ignore[assignment]  # and here
        b_sums = b_next
    return b_sums


@triton.jit
def _argument(b_sum, p_bias, columns, D: tl.constexpr, p_kept):
    """A nonlinearity's argument, rounded as it is kept."""
    b_bias = tl.load(p_bias + columns, mask=columns < D, other=0.0).to(tl.float32)
    return (b_sum + b_bias[None, :]).to(p_kept.dtype.element_ty).to(tl.float32)


@triton.jit
def _clip(x):
    """Clip to ±1; NaN stays NaN, so that the loss shows it."""
    x = tl.maximum(x, -1.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.minimum(x, 1.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _gate(x):
    return 0.5 * _clip(x) + 0.5


@triton.jit
def _excess(x):
    """How far an argument lies outside ±0.9."""
    return tl.maximum(tl.abs(x) - LIMIT, 0.0)


@triton.jit
def _through_clip(b_grad, x, grad_excess):
    """The gradient of an argument, from the gradients of its value clipped to ±1 and of its excess."""
    b_sign = tl.where(x > LIMIT, 1.0, tl.where(x < -LIMIT, -1.0, 0.0))
    return tl.where(tl.abs(x) < 1.0, b_grad, 0.0) + grad_excess * b_sign


@triton.jit
def _origin(columns, D: tl.constexpr):
    """Where the diagonal gates copy a feature from: the cell, its left neighbour (-1) or its right one (1)."""
    MOVED: tl.constexpr = D // 3
    return tl.where(columns < D - 2 * MOVED, 0, tl.where(columns < D - MOVED, -1, 1))


@triton.jit
def _within(cell, width):
    return (cell >= 0) & (cell < width)


@triton.jit
def _keep(p_seed, STREAM: tl.constexpr, first, at, rate):
    """What dropout multiplies elements by, 0 or 1 / (1 - rate): the same for the same seed, forward and backward."""
    # Element numbers have 32 bits: their high part goes into the seed, see gated_switch.py.
    seed = scramble((tl.load(p_seed) + STREAM + (first >> 32)).to(tl.uint32))
    elements = (first & 0xFFFFFFFF).to(tl.uint32) + at.to(tl.uint32)
    random = (scramble(scramble(elements) + seed) >> 8).to(tl.float32) * 5.9604644775390625e-08
    return tl.where(random >= rate, 1.0 / (1.0 - rate), 0.0)
