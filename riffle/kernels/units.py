"""The units that have kernels, as the passes of a network see them: what a unit's parameters are, how a layer runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from riffle.kernels import launches, layer_backward, layer_plan, residual


@dataclass(frozen=True)
class UnitKernels:
    """A unit of two matrix products.

    Its parameters are the first product's matrix and bias, the second's, where it is ``joined`` a further matrix and
    bias, and where it has one a vector that stays in float32: the scale of a skip connection, or what a residual unit
    keeps of a pair.
    """

    first: int
    """Rows of the first weight, in units of the features D."""
    second: int
    """Entries of the second weight, in units of D^2."""
    keeps_sums: Callable[[torch.dtype], bool]
    """Whether the second product's results are kept for the backward pass with those of the first."""
    plan_layer: Callable[..., Any]
    forward_layer: Callable[..., Any]
    backward_layer: Callable[..., None]
    weights: Callable[..., Any]
    """Makes a unit's weights of matrices, biases and the vector, in the order of the parameters."""
    gradients: Callable[..., Any]
    """Makes a unit's gradients of float32 tensors: one for each matrix, one for both biases, one for the vector."""
    fills: bool = False
    """Whether the first layers in the backward pass overwrite the gradients; otherwise all layers add to zeros."""
    joined: bool = False
    """Whether the first weight is two parameters, which each pass copies one below the other; so is its bias."""


_GATED = UnitKernels(
    first=6,
    second=4,
    keeps_sums=launches.keeps_sums,
    plan_layer=layer_plan.plan_layer,
    forward_layer=launches.forward_layer,
    backward_layer=layer_backward.backward_layer,
    weights=launches.unit_weights,
    gradients=layer_backward.unit_gradients,
)
KERNELS = {
    "gated": _GATED,
    "swap-gate": replace(_GATED, first=8, plan_layer=partial(layer_plan.plan_layer, gates=4), joined=True),
    "residual": UnitKernels(
        first=4,
        second=8,
        keeps_sums=lambda dtype: False,
        plan_layer=residual.plan_residual_layer,
        forward_layer=residual.forward_residual_layer,
        backward_layer=residual.backward_residual_layer,
        weights=residual.ResidualUnitWeights,
        gradients=residual.residual_gradients,
        fills=True,
    ),
}
"""The kernels of a unit by its name in :class:`~riffle.kernels.plan.NetworkSpec`."""
