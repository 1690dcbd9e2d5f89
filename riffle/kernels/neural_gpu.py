"""The steps of the Neural GPU by the Triton kernels: one differentiable operator, ``riffle::neural_gpu``.

diagonal_gru.py has the kernels and says how their tensors are laid out. The gradients of the weights are products of
the library over the rows of all steps.
"""

# S = sequences, L = cells of all sequences with the one after each, D = feature maps, R = rows of all steps
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from riffle.kernels.diagonal_gru import steps_backward, steps_forward


class Form(NamedTuple):
    """How a kernel is compiled."""

    cells: int
    """Of a tile."""
    columns: int
    """Of a block; blocks of a product's columns have accumulators of their own."""
    inner: int
    """Elements of what a product sums over that are loaded at once."""
    warps: int
    stages: int


class _Groups(NamedTuple):
    """Batches of sequences as the kernels take them: odd numbers, for which Triton compiles no special case."""

    firsts: tuple[int, ...]
    widths: tuple[int, ...]
    cells: tuple[int, ...]
    rows: tuple[int, ...]


FORMS = {
    (48, torch.bfloat16): Form(64, 16, 16, 4, 6),
    (96, torch.bfloat16): Form(64, 32, 32, 8, 5),
}
"""Forms that were chosen by measurement, by feature maps and dtype: see benchmarks/neural_gpu.py."""


def find_form(features: int, widest: int, dtype: torch.dtype, device: torch.device) -> Form:
    """The form of the kernels."""
    form = FORMS.get((features, dtype))
    if form is None:
        block = 16
        while block < 64 and features % (2 * block) == 0:
            block *= 2
        # More cells would have more accumulators than registers.
        form = Form(64 if features <= 192 else 32, block, block, 4 if block == 16 else 8, 3)
    stages = form.stages
    if device.type == "cuda":
        columns = 2 * triton.cdiv(features, form.columns) * form.columns
        stage = (form.cells + columns) * form.inner * dtype.itemsize
        stages = max(1, min(stages, shared_memory(device) // stage))
    return form._replace(cells=min(form.cells, max(16, triton.next_power_of_2(widest))), stages=stages)


@lru_cache
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program can have."""
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


def kept_rows(batches: Sequence[int], widths: Sequence[int]) -> int:
    """Rows of all steps of all sequences, R."""
    return sum(batch * width * (width + 1) for batch, width in zip(batches, widths, strict=True))


def _groups(batches: Sequence[int], widths: Sequence[int]) -> _Groups:
    shapes = list(zip(batches, widths, strict=True))
    numbers = (
        [batch for batch, _ in shapes],
        [batch * (width + 1) for batch, width in shapes],
        [batch * width * (width + 1) for batch, width in shapes],
    )
    firsts, cells, rows = (tuple(2 * first + 1 for first in accumulate(sizes[:-1], initial=0)) for sizes in numbers)
    return _Groups(firsts, tuple(2 * width + 1 for width in widths), cells, rows)


def _constants(features: int, seed: Tensor | None, form: Form) -> dict[str, Any]:
    return {
        "D": features,
        "DROPOUT": seed is not None,
        # Products of float32 numbers follow torch's setting.
        "PRECISION": "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        "BLOCK_N": form.cells,
        "BLOCK_C": form.columns,
        "BLOCK_K": form.inner,
        "num_warps": form.warps,
        "num_stages": form.stages,
    }


def _flipped(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight of the transposed convolution: ``[D, 3 * out]`` for one of ``[out, 3 * D]``."""
    outputs, inputs = weight.shape
    return weight.to(dtype).view(outputs, 3, inputs // 3).flip(1).permute(2, 1, 0).reshape(inputs // 3, 3 * outputs)


def _weight_gradient(grad: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of a convolution's weight and bias, over all rows but the first, which is zero."""
    count, dtype = grad.shape[0] - 2, torch.float32
    grad_t = grad[1:-1].t()
    taps = [read[tap : tap + count] for tap in range(3)]
    if grad.dtype == dtype:
        products = [torch.mm(grad_t, tap) for tap in taps]
    else:
        products = [torch.mm(grad_t, tap, out_dtype=dtype) for tap in taps]
    return torch.cat(products, dim=1), grad[1:-1].sum(0, dtype=dtype)


@torch.library.custom_op("riffle::neural_gpu", mutates_args=())
def _steps(
    state_LD: Tensor,
    active_L: Tensor,
    gates_weight: Tensor,
    gates_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    seed: Tensor | None,
    batches: list[int],
    widths: list[int],
    dropout: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    cells, features = state_LD.shape
    out_LD, states, products, gates, candidates, saturation_S = _empty_results(state_LD, batches, widths, dtype)
    form = find_form(features, max(widths), dtype, state_LD.device)
    parameters = [parameter.to(dtype) for parameter in (gates_weight, gates_bias, weight, bias)]
    scratch = state_LD.new_empty(2, cells, features)
    with torch.cuda.device_of(state_LD):
        steps_forward[(sum(batches),)](
            state_LD, active_L, *parameters, seed, out_LD, saturation_S, scratch, states, products, gates, candidates,
            dropout, cells, *_groups(batches, widths), **_constants(features, seed, form),
        )  # fmt: skip
    return out_LD, saturation_S, states, products, gates, candidates


def _empty_results(state_LD: Tensor, batches: list[int], widths: list[int], dtype: torch.dtype) -> tuple[Tensor, ...]:
    rows, features = kept_rows(batches, widths) + 1, state_LD.shape[1]
    kept = (state_LD.new_empty(rows, count * features, dtype=dtype) for count in (1, 1, 2, 1))
    # The kernel leaves out the cell after each sequence.
    return torch.zeros_like(state_LD), *kept, state_LD.new_empty(sum(batches))


@_steps.register_fake
def _(state_LD: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    batches, widths, _, dtype = rest[-4:]
    out_LD, *kept, saturation_S = _empty_results(state_LD, batches, widths, dtype)
    return out_LD, saturation_S, *kept


@torch.library.custom_op("riffle::neural_gpu_backward", mutates_args=())
def _steps_backward(
    grad_LD: Tensor,
    grad_saturation_S: Tensor,
    active_L: Tensor,
    gates_weight: Tensor,
    weight: Tensor,
    seed: Tensor | None,
    states: Tensor,
    products: Tensor,
    gates: Tensor,
    candidates: Tensor,
    batches: list[int],
    widths: list[int],
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    (cells, features), dtype = grad_LD.shape, states.dtype
    scratch = grad_LD.new_zeros(2, cells, features)
    grad_gates, grad_candidates = torch.empty_like(gates), torch.empty_like(candidates)
    form = find_form(features, max(widths), dtype, grad_LD.device)
    with torch.cuda.device_of(grad_LD):
        steps_backward[(sum(batches),)](
            grad_LD, grad_saturation_S, active_L, _flipped(gates_weight, dtype), _flipped(weight, dtype), seed,
            states, gates, candidates, scratch, grad_gates, grad_candidates, dropout, cells,
            *_groups(batches, widths), **_constants(features, seed, form),
        )  # fmt: skip
    return scratch[0].clone(), *_weight_gradient(grad_gates, states), *_weight_gradient(grad_candidates, products)


@_steps_backward.register_fake
def _(grad_LD: Tensor, grad_saturation_S: Tensor, active_L: Tensor, gates: Tensor, weight: Tensor, *rest: Any) -> Any:
    parameters = (gates, gates[:, 0], weight, weight[:, 0])
    return grad_LD.new_empty(grad_LD.shape), *(grad_LD.new_empty(parameter.shape) for parameter in parameters)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, active_L, gates_weight, _, weight, _, seed, ctx.batches, ctx.widths, ctx.dropout, _ = inputs
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(active_L, gates_weight, weight, seed, *output)


def _backward(ctx: Any, grad_LD: Tensor | None, grad_S: Tensor | None, *_: None) -> tuple[Any, ...]:
    active_L, gates_weight, weight, seed, out_LD, saturation_S, *kept = ctx.saved_tensors
    grad_LD = torch.zeros_like(out_LD) if grad_LD is None else grad_LD.contiguous()
    grad_S = torch.zeros_like(saturation_S) if grad_S is None else grad_S.contiguous()
    grad_state_LD, *gradients = _steps_backward(
        grad_LD, grad_S, active_L, gates_weight, weight, seed, *kept, ctx.batches, ctx.widths, ctx.dropout
    )
    return (grad_state_LD, None, *gradients, None, None, None, None, None)


_steps.register_autograd(_backward, setup_context=_setup_context)


def run_steps(
    state_LD: Tensor,
    active_L: Tensor,
    parameters: Sequence[Tensor],
    shapes: Sequence[tuple[int, int]],
    *,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """The cells after as many steps as their sequence has cells, ``[L, D]``, and the saturation of each sequence.

    Args:
        state_LD: The cells of all batches, those of each sequence followed by one more, in float32.
        active_L: 1 for a cell that takes part, 0 for one that is kept at zero, in float32.
        parameters: The gates' weight and bias, and the candidate's, in float32.
        shapes: Sequences and cells of each batch, longer ones first, since they take longest.
        dropout: Dropout rate of the candidates.
        dtype: Of the products' operands, and of what is kept for the backward pass.
    """
    seed = torch.randint(2**31, (1,), device=state_LD.device) if dropout else None
    batches, widths = (list(sizes) for sizes in zip(*shapes, strict=True))
    out_LD, saturation_S, *_ = _steps(
        state_LD.contiguous(), active_L, *parameters, seed, batches, widths, dropout, dtype
    )
    return out_LD, saturation_S
