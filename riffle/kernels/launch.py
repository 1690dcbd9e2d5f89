"""The Triton kernels as functions of tensors: buffers for their results, grids and block sizes."""

# P = pairs, D = features per cell, E = 2 * D features per pair, C = 2 * P cells
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from riffle.kernels import gated_switch
from riffle.kernels.tuning import PASS_ROWS, Blocks, pass_blocks


class LayerLayout(NamedTuple):
    """Where a layer's outputs go and which of them are dropped, for groups of sequences one after the other."""

    starts: tuple[int, ...]
    """The first pair of each group."""
    lengths: tuple[int, ...]
    """Cells of a group's sequences: powers of two, falling."""
    rates: tuple[float, ...]
    """Dropout of each group."""
    seed: Tensor | None
    """Seed of the dropout; None for none."""
    shuffle: int
    """The shuffle: +1 unriffle, -1 riffle, 0 none."""
    swap: bool
    """Whether the copied pair exchanges its second halves."""

    @property
    def flags(self) -> dict[str, Any]:
        """What the kernels are compiled for."""
        return {"SHUFFLE": self.shuffle, "SWAP": self.swap, "DROPOUT": self.seed is not None}


def switch(
    gates: Tensor,
    read_PE: Tensor,
    state_PE: Tensor,
    weight: Tensor,
    bias: Tensor,
    route: LayerLayout,
    blocks: Blocks,
    sum_2PD: Tensor,
) -> Tensor:
    """The layer's outputs ``[C, D]`` from its gates in one launch, which fills the candidates' sums unless empty."""
    pairs, features = state_PE.shape[0], state_PE.shape[1] // 2
    out_CD = state_PE.new_empty(2 * pairs, features)
    gated_switch.switch_forward[(2 * _ceil(pairs, blocks.rows),)](
        gates, read_PE, state_PE, weight, bias, sum_2PD, out_CD, route.seed, pairs, *route[:3],
        D=features, KEEP=sum_2PD.numel() > 0, FAST=_fast(state_PE), EVEN=pairs % blocks.rows == 0,
        BLOCK_P=blocks.rows, BLOCK_C=blocks.columns, **blocks.options, **route.flags,
    )  # fmt: skip
    return out_CD


def reset(gates: Tensor, read_PE: Tensor) -> Tensor:
    """What the candidates read, r^i * s, as ``[2, P, E]``."""
    product_2PE = read_PE.new_empty(2, *read_PE.shape)
    _pass(gated_switch.reset_forward, read_PE, gates, read_PE, product_2PE, FAST=_fast(read_PE))
    return product_2PE


def update(gates: Tensor, sum_2PD: Tensor, state_PE: Tensor, bias: Tensor, route: LayerLayout) -> Tensor:
    """The layer's outputs ``[C, D]`` from the candidates' sums."""
    out_CD = torch.empty_like(sum_2PD).flatten(0, 1)
    arguments = (gates, sum_2PD, state_PE, bias, out_CD)
    _pass(gated_switch.update_forward, sum_2PD[0], *arguments, route=route, FAST=_fast(state_PE))
    return out_CD


def update_backward(
    gates: Tensor,
    sum_2PD: Tensor,
    state_PE: Tensor,
    bias: Tensor,
    grad_CD: Tensor,
    grad_biases: Tensor,
    route: LayerLayout,
) -> tuple[Tensor, Tensor]:
    """Gradients of the candidates' sums and of the copied state; overwrites u by its gradient."""
    grad_sum_2PD, grad_state_PE = torch.empty_like(sum_2PD), torch.empty_like(state_PE)
    arguments = (gates, sum_2PD, state_PE, bias, grad_CD, grad_sum_2PD, grad_state_PE, grad_biases)
    _pass(gated_switch.update_backward, sum_2PD[0], *arguments, route=route, FAST=_fast(state_PE))
    return grad_sum_2PD, grad_state_PE


def reset_backward(
    gates: Tensor,
    read_PE: Tensor,
    grad_product_2PE: Tensor,
    product_2PE: Tensor,
    grad_read_PE: Tensor,
    grad_biases: Tensor,
    *,
    add: bool,
    fill: bool,
) -> None:
    """Overwrites r by its gradient; fills the gradient of what was read, or adds to it, and r^i * s if asked to."""
    arguments = (gates, read_PE, product_2PE, grad_product_2PE, grad_read_PE, grad_biases)
    _pass(gated_switch.reset_backward, read_PE, *arguments, ADD=add, PRODUCT=fill, FAST=_fast(read_PE))


def skip(state_CD: Tensor, skip_CD: Tensor, scale_D: Tensor) -> Tensor:
    """What gates and candidates read, s + scale * skip."""
    read_CD = torch.empty_like(state_CD)
    _pass(gated_switch.skip_forward, state_CD, state_CD, skip_CD, scale_D, read_CD)
    return read_CD


def skip_backward(
    skip_CD: Tensor, scale_D: Tensor, grad_read_CD: Tensor, grad_state_CD: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the skipped cells and of their scale; adds the gradient of what was read to the state's."""
    grad_skip_CD, grad_scales = torch.empty_like(grad_read_CD), shares(skip_CD, skip_CD.shape[1])
    arguments = (skip_CD, scale_D, grad_read_CD, grad_state_CD, grad_skip_CD, grad_scales)
    _pass(gated_switch.skip_backward, skip_CD, *arguments)
    return grad_skip_CD, grad_scales.sum(0)


def shares(rows: Tensor, width: int) -> Tensor:
    """A row of float32 for each tile of a pass over ``rows``, to be summed over the tiles in a fixed order."""
    tiles = _ceil(rows.shape[0], PASS_ROWS)
    return torch.empty(tiles, width, dtype=torch.float32, device=rows.device)


def _pass(kernel: Any, tiled: Tensor, *arguments: Tensor, route: LayerLayout | None = None, **flags: bool) -> None:
    """Launch a kernel that makes one pass, on tiles of a matrix of the shape of ``tiled``."""
    rows, width = tiled.shape
    if rows == 0:
        return
    blocks = pass_blocks(width)
    seed, groups = ((), ()) if route is None else ((route.seed,), route[:3])
    # A pass that needs a route goes over a cell's columns, for both cells of a pair.
    kernel[(_ceil(rows, blocks.rows) * _ceil(width, blocks.columns), 1 if route is None else 2)](
        *arguments, *seed, rows, *groups, WIDTH=width,
        EVEN=rows % blocks.rows == 0 and width % blocks.columns == 0,
        BLOCK_P=blocks.rows, BLOCK_C=blocks.columns, **blocks.options, **flags, **(route.flags if route else {}),
    )  # fmt: skip


def _fast(x: Tensor) -> bool:
    """Whether tanh may be approximate: right to 11 bits, which 16-bit numbers do not hold."""
    return x.dtype != torch.float32


def _ceil(size: int, block: int) -> int:
    """How many blocks hold ``size``; Triton's own function for it takes microseconds."""
    return -(-size // block)
