"""The steps of the Neural GPU by the Triton kernels: one differentiable operator, ``riffle::neural_gpu``.

diagonal_gru.py has the kernels and says how their tensors are laid out. The gradients of the weights are products of
the library over the rows of all steps.
"""

# S = sequences, C = cells of all sequences, D = feature maps, R = rows of all steps
from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.runtime import driver

from research.baselines.diagonal_gru import steps_backward, steps_forward


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


FORMS = {(48, torch.bfloat16): Form(64, 16, 16, 4, 6), (96, torch.bfloat16): Form(64, 32, 64, 8, 4)}
"""The fastest of some forms by feature maps and dtype, without spilled registers."""


def find_form(features: int, widest: int, dtype: torch.dtype, device: torch.device) -> Form:
    """The form of the kernels."""
    form = FORMS.get((features, dtype))
    if form is None:
        block, widest_block = 16, 64 if dtype.itemsize == 2 else 32
        while block < widest_block and features % (2 * block) == 0:
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
    index = torch.cuda.current_device() if device.index is None else device.index
    return int(driver.active.utils.get_device_properties(index)["max_shared_mem"])


PARTS = 128
"""Parts at most into which the rows of all steps are cut for the gradients of the weights, a power of two."""


def kept_rows(batches: Sequence[int], widths: Sequence[int]) -> int:
    """Rows of all steps of all sequences, R."""
    return sum(batch * width * (width + 1) for batch, width in zip(batches, widths, strict=True))


def _groups(batches: Sequence[int], widths: Sequence[int]) -> _Groups:
    shapes = list(zip(batches, widths, strict=True))
    numbers = (
        [batch for batch, _ in shapes],
        [batch * width for batch, width in shapes],
        [batch * width * (width + 1) for batch, width in shapes],
    )
    firsts, cells, rows = (tuple(2 * first + 1 for first in accumulate(sizes[:-1], initial=0)) for sizes in numbers)
    return _Groups(firsts, tuple(2 * width + 1 for width in widths), cells, rows)


def _constants(features: int, seed: Tensor | None, form: Form) -> dict[str, Any]:
    return {
        "D": features,
        "DROPOUT": seed is not None,
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
    """The gradients of a convolution's weight and bias over all rows; ``read`` has one row more at its start."""
    rows = grad.shape[0] - 1
    # The sums are long and the weight is small: summing parts of the rows separately occupies the whole GPU.
    parts = math.gcd(rows, PARTS)
    grad_PGK = grad[:rows].unflatten(0, (parts, -1)).mT
    taps = [read[tap : tap + rows].unflatten(0, (parts, -1)) for tap in range(3)]
    if grad.dtype == torch.float32:
        products = [torch.bmm(grad_PGK, read_PKD) for read_PKD in taps]
    else:
        products = [torch.bmm(grad_PGK, read_PKD, out_dtype=torch.float32) for read_PKD in taps]
    return torch.cat([product_PGD.sum(0) for product_PGD in products], dim=1), grad[:rows].sum(0, dtype=torch.float32)


@torch.library.custom_op("riffle::neural_gpu", mutates_args=())
def _steps(
    x_CD: Tensor,
    active_C: Tensor,
    gates_weight: Tensor,
    gates_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    seed: Tensor | None,
    batches: list[int],
    widths: list[int],
    scales: list[float],
    input_dropout: float,
    dropout: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    cells, features = x_CD.shape
    results = _empty_results(x_CD, batches, widths, dtype)
    parameters = [parameter.to(dtype) for parameter in (gates_weight, gates_bias, weight, bias)]
    out_CD, saturation_S, states, products, *arguments = results
    for tensor in (states, products):
        tensor[:1].zero_()
    form = find_form(features, max(widths), dtype, x_CD.device)
    with torch.cuda.device_of(x_CD):
        steps_forward[(sum(batches),)](
            x_CD, active_C, *parameters, seed, out_CD, saturation_S, x_CD.new_empty(2, cells, features),
            states[1:], products[1:], *arguments, input_dropout, dropout, cells,
            *_groups(batches, widths), tuple(scales), **_constants(features, seed, form),
        )  # fmt: skip
    return results


def _empty_results(x_CD: Tensor, batches: list[int], widths: list[int], dtype: torch.dtype) -> Any:
    rows, features = kept_rows(batches, widths), x_CD.shape[1]
    # The inputs of the convolutions begin with one more row: the left neighbour of the first row.
    sizes = ((rows + 2, 1), (rows + 2, 1), (rows + 1, 2), (rows + 1, 1))
    kept = (x_CD.new_empty(size, count * features, dtype=dtype) for size, count in sizes)
    return torch.empty_like(x_CD), x_CD.new_empty(sum(batches)), *kept


@_steps.register_fake
def _steps_fake(x_CD: Tensor, *rest: Any) -> Any:
    batches, widths, _, _, _, dtype = rest[-6:]
    return _empty_results(x_CD, batches, widths, dtype)


@torch.library.custom_op("riffle::neural_gpu_backward", mutates_args=())
def _steps_backward(
    grad_CD: Tensor,
    grad_saturation_S: Tensor,
    x_CD: Tensor,
    active_C: Tensor,
    gates_weight: Tensor,
    weight: Tensor,
    seed: Tensor | None,
    states: Tensor,
    products: Tensor,
    gates: Tensor,
    candidates: Tensor,
    batches: list[int],
    widths: list[int],
    scales: list[float],
    input_dropout: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    (cells, features), dtype = grad_CD.shape, states.dtype
    grad_x_CD, scratch = torch.empty_like(x_CD), grad_CD.new_empty(2, cells, features)
    grad_gates, grad_candidates = torch.empty_like(gates), torch.empty_like(candidates)
    form = find_form(features, max(widths), dtype, x_CD.device)
    with torch.cuda.device_of(x_CD):
        steps_backward[(sum(batches),)](
            grad_CD, grad_saturation_S, x_CD, active_C, _flipped(gates_weight, dtype), _flipped(weight, dtype), seed,
            states[1:], gates, candidates, scratch, grad_x_CD, grad_gates, grad_candidates,
            input_dropout, dropout, cells, *_groups(batches, widths), tuple(scales),
            **_constants(features, seed, form),
        )  # fmt: skip
    return grad_x_CD, *_weight_gradient(grad_gates, states), *_weight_gradient(grad_candidates, products)


@_steps_backward.register_fake
def _steps_backward_fake(
    grad_CD: Tensor, grad_S: Tensor, x_CD: Tensor, active_C: Tensor, gates: Tensor, weight: Tensor, *rest: Any
) -> Any:
    parameters = (gates, gates[:, 0], weight, weight[:, 0])
    return torch.empty_like(x_CD), *(x_CD.new_empty(parameter.shape) for parameter in parameters)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x_CD, active_C, gates_weight, _, weight, _, seed, *ctx.numbers, _ = inputs
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x_CD, active_C, gates_weight, weight, seed, *output[1:])


def _backward(ctx: Any, grad_CD: Tensor | None, grad_S: Tensor | None, *_: None) -> tuple[Any, ...]:
    x_CD, active_C, gates_weight, weight, seed, saturation_S, *kept = ctx.saved_tensors
    grad_CD = torch.zeros_like(x_CD) if grad_CD is None else grad_CD.contiguous()
    grad_S = torch.zeros_like(saturation_S) if grad_S is None else grad_S.contiguous()
    grad_x_CD, *gradients = _steps_backward(
        grad_CD, grad_S, x_CD, active_C, gates_weight, weight, seed, *kept, *ctx.numbers
    )
    return (grad_x_CD, None, *gradients, *[None] * 7)


_steps.register_autograd(_backward, setup_context=_setup_context)


def run_steps(
    x_CD: Tensor,
    active_C: Tensor,
    parameters: Sequence[Tensor],
    shapes: Sequence[tuple[int, int]],
    scales: Sequence[float],
    *,
    input_dropout: float = 0.0,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """The cells after as many steps as their sequence has cells, ``[C, D]``, and the saturation of each sequence.

    Args:
        x_CD: The cells of all batches before their first nonlinearity, in float32.
        active_C: 1 for a cell that takes part, 0 for one that is kept at zero, in float32.
        parameters: The gates' weight and bias, and the candidate's, in float32.
        shapes: Sequences and cells of each batch, longer ones first, since they take longest.
        scales: By what the saturation of each batch is multiplied.
        input_dropout: Dropout rate of the cells that come in.
        dropout: That of the candidates.
        dtype: The type of the products' operands and of what is kept for the backward pass.
    """
    seed = torch.randint(2**31, (1,), device=x_CD.device) if input_dropout or dropout else None
    batches, widths = (list(sizes) for sizes in zip(*shapes, strict=True))
    numbers = (batches, widths, list(scales), input_dropout, dropout)
    out_CD, saturation_S, *_ = _steps(x_CD.contiguous(), active_C, *parameters, seed, *numbers, dtype)
    return out_CD, saturation_S
