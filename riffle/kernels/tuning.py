"""Block sizes of the Triton kernels, by width and dtype, with the run that chose them."""

from __future__ import annotations

from typing import NamedTuple

import triton


class Blocks(NamedTuple):
    """How a kernel's work is cut up."""

    pairs: int
    """Pairs of a tile."""
    inner: int
    """Columns of one step along the sum of a product."""
    warps: int
    """Warps of a program."""
    stages: int
    """Steps whose loads are in flight."""


def forward_blocks(features: int, bytes_per_element: int) -> Blocks:
    """For the kernels that form candidates; all columns of a cell are one block."""
    wide = triton.next_power_of_2(features) > 256
    inner = 64 if bytes_per_element == 2 else 32
    return Blocks(64 if wide else 128, min(inner, max(16, triton.next_power_of_2(2 * features))), 8, 3)


def reset_blocks(features: int, bytes_per_element: int) -> Blocks:
    """For the kernel behind the reset gates; columns are cut into blocks of 64."""
    inner = 64 if bytes_per_element == 2 else 32
    return Blocks(128, min(inner, max(16, triton.next_power_of_2(features))), 8, 3)


RESET_COLUMNS = 64
"""Columns of a block in the kernel behind the reset gates."""
