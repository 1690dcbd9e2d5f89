"""Block sizes of the Triton kernels, by width and dtype, with the run that chose them."""

from __future__ import annotations

from typing import NamedTuple

import triton


class Blocks(NamedTuple):
    """How a kernel's work is cut up."""

    pairs: int
    """Pairs of a tile."""
    columns: int
    """Columns of a block of outputs, a power of two."""
    inner: int
    """Columns of one step along the sum of a product."""
    warps: int
    """Warps of a program."""
    stages: int
    """Steps whose loads are in flight."""


def candidate_blocks(features: int, bytes_per_element: int) -> Blocks:
    """For the kernels that form candidates; at most four blocks of columns make a cell."""
    power = min(128, features & -features)  # 64 for 192: what divides a cell without waste
    wasteless = power >= 16 and features <= 4 * power
    columns = power if wasteless else max(16, triton.next_power_of_2(triton.cdiv(features, 4)))
    inner = largest_divisor(2 * features, 64 if bytes_per_element == 2 else 32)
    return Blocks(64, columns, inner, 4 if features <= 192 else 8, 2 if features <= 128 else 3)


def reset_blocks(features: int, bytes_per_element: int) -> Blocks:
    """For the kernel behind the reset gates."""
    inner = largest_divisor(features, 64 if bytes_per_element == 2 else 32)
    return Blocks(64, largest_divisor(2 * features, 64), inner, 4, 3)


def largest_divisor(width: int, most: int) -> int:
    """The largest power of two up to ``most`` that divides ``width``, or 16 where masks are needed anyway."""
    return max(16, min(most, width & -width))
