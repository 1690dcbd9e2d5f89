"""The forward pass of a wide gated layer in two launches: matrix products with what follows each of them.

The library's products leave gates and candidates to be read again by the passes of ``gated_switch.py``. Here the first
product goes on to r^i * s before it stores, and the second to the layer's outputs. Operands come by the tensor memory
accelerator. Gates are not kept, so this is for inference and for layers whose gates are formed again.
"""

# P = pairs, D = features per cell, E = 2 * D, i = 0, 1 the cell of a pair; d_ descriptor, p_ pointer, b_ block
# mixed [P, 3E]: r^0 * s, r^1 * s, and the update gates before the sigmoid and without their bias, as in gated_switch.py
from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from riffle.kernels.descriptors import DescriptorLaunch, Matrix, Memory
from riffle.kernels.gated_switch import _finish, _follow, _sigmoid
from riffle.kernels.tuning import ProductBlocks


@triton.jit
def reset_product(
    d_read, d_weight, d_factor, d_mixed, p_bias, n_pairs,
    E: tl.constexpr, FAST: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
    BAND: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The product for all gates; reset gates are multiplied with what was read, update gates stay as they are."""
    _follow(PDL)
    row, column = _place(n_pairs, 3 * E // BLOCK_C, BLOCK_P, BLOCK_C, BAND)
    b_sum = tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32)
    for k in range(0, E, BLOCK_K):
        b_sum = tl.dot(d_read.load([row, k]), d_weight.load([column, k]).T, b_sum)
    if column < 2 * E:
        b_bias = tl.load(p_bias + column + tl.arange(0, BLOCK_C)).to(tl.float32)
        b_sum = _sigmoid(b_sum + b_bias[None, :], FAST) * d_factor.load([row, column % E]).to(tl.float32)
    d_mixed.store([row, column], b_sum.to(d_mixed.dtype))


@triton.jit
def update_product(
    d_mixed, d_weight, p_mixed, p_gates_bias, p_state, p_bias, p_out, p_seed, n_pairs, starts, lengths, rates,
    D: tl.constexpr, SHUFFLE: tl.constexpr, SWAP: tl.constexpr, DROPOUT: tl.constexpr, FAST: tl.constexpr,
    EVEN: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr, BAND: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """The candidates' product, then tanh, swapHalf, update, dropout and the shuffle."""
    _follow(PDL)
    E: tl.constexpr = 2 * D
    row, column = _place(n_pairs, E // BLOCK_C, BLOCK_P, BLOCK_C, BAND)
    i = column // D
    b_sum = tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32)
    for k in range(0, E, BLOCK_K):
        b_sum = tl.dot(d_mixed.load([row, i * E + k]), d_weight.load([column, k]).T, b_sum)
    tile = (row // BLOCK_P).to(tl.int64)
    rows = tile * BLOCK_P + tl.arange(0, BLOCK_P)
    inside = (rows < n_pairs)[:, None]
    # A quarter of the columns at a time: the addresses of all would not fit into the registers.
    b_halves = _halve(b_sum, BLOCK_P, BLOCK_C)
    for half in tl.static_range(2):
        b_quarters = _halve(b_halves[half], BLOCK_P, BLOCK_C // 2)
        for quarter in tl.static_range(2):
            columns = column % D + (2 * half + quarter) * (BLOCK_C // 4) + tl.arange(0, BLOCK_C // 4)
            _finish(
                b_quarters[quarter], p_mixed, p_gates_bias, p_state, p_bias, p_out, p_seed, tile, rows, columns, inside,
                i, starts, lengths, rates, D, SHUFFLE, SWAP, DROPOUT, FAST, EVEN, BLOCK_P,
            )  # fmt: skip


@triton.jit
def _halve(b_block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The left and the right half of a block."""
    return tl.split(tl.permute(tl.reshape(b_block, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))


@triton.jit
def _place(n_pairs, blocks: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BAND: tl.constexpr):
    """First row and column of this program's tile: programs side by side share ``BAND`` tiles of rows."""
    program, tiles = tl.program_id(0), tl.cdiv(n_pairs, BLOCK_P)
    band = program // (BAND * blocks)
    height = tl.minimum(tiles - band * BAND, BAND)
    inside = program % (BAND * blocks)
    return (band * BAND + inside % height) * BLOCK_P, inside // height * BLOCK_C


class ProductLaunch(DescriptorLaunch):
    """One launch of a kernel of this file."""

    __slots__ = ()

    @staticmethod
    @lru_cache(maxsize=4096)
    def describe(address: int, dtype: torch.dtype, rows: int, columns: int, *block: int) -> TensorDescriptor:
        """The descriptor of a matrix for a kernel in Triton."""
        return TensorDescriptor(Memory(address, dtype), [rows, columns], [columns, 1], list(block))


def reset_launch(
    blocks: ProductBlocks, pairs: int, features: int, dtype: torch.dtype, *, PDL: bool
) -> DescriptorLaunch:
    """Takes what was read, the weights of the gates, what was read again, the mixed block and the biases."""
    pair = 2 * features
    rows = Matrix(pairs, pair, blocks.rows, blocks.step)
    matrices = [rows, Matrix(3 * pair, pair, blocks.columns, blocks.step), rows._replace(block_columns=blocks.columns)]
    matrices.append(Matrix(pairs, 3 * pair, blocks.rows, blocks.columns))
    return _launch("reset_product", blocks, matrices, dtype, pairs, 3 * pair, pairs, E=pair, PDL=PDL)


def update_launch(
    blocks: ProductBlocks, pairs: int, features: int, groups: tuple[Any, ...], dtype: torch.dtype, **flags: Any
) -> DescriptorLaunch:
    """Takes the mixed block, the candidates' weights, the mixed block again and what ``update_forward`` takes."""
    pair = 2 * features
    matrices = [Matrix(pairs, 3 * pair, blocks.rows, blocks.step), Matrix(pair, pair, blocks.columns, blocks.step)]
    even = pairs % blocks.rows == 0
    return _launch(
        "update_product", blocks, matrices, dtype, pairs, pair, pairs, *groups, D=features, EVEN=even, **flags
    )


def _launch(
    kernel: str,
    blocks: ProductBlocks,
    matrices: list[Matrix],
    dtype: torch.dtype,
    pairs: int,
    width: int,
    *numbers: Any,
    **constants: Any,
) -> DescriptorLaunch:
    return ProductLaunch(
        sys.modules[__name__], kernel, (triton.cdiv(pairs, blocks.rows) * (width // blocks.columns),), matrices, dtype,
        *numbers, FAST=True, BLOCK_P=blocks.rows, BLOCK_C=blocks.columns, BLOCK_K=blocks.step, BAND=blocks.band,
        num_warps=blocks.warps, num_stages=blocks.stages, **constants,
    )  # fmt: skip
