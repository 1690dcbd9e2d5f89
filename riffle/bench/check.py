"""Whether a form computes what the definition computes: without that its speed means nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from riffle.bench.jobs import GRADIENT, Results

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 2e-2}
"""How far a result may be from the definition's in float32, norm over norm."""
GRADIENT_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 4e-2}
"""The same for a gradient, which has the rounding of both passes: eager PyTorch in bfloat16 is 0.02 away there."""
CHUNK = 2**26
"""Numbers compared at once, so that the comparison fits beside any row."""


@dataclass(frozen=True)
class Comparison:
    """How far the results of a form are from the truth."""

    errors: dict[str, float]
    """Norm of the difference over the norm of the truth, for each result."""
    passed: bool
    """Whether all of them are within the tolerance."""


def compare(results: Results, truth: Results, dtype: torch.dtype) -> Comparison:
    """Compare results computed in ``dtype`` with the truth."""
    assert results.keys() == truth.keys()
    errors = {name: relative_error(result, truth[name]) for name, result in results.items()}
    # A comparison with NaN is false, so a NaN does not pass.
    passed = all(error <= tolerance(name, dtype) for name, error in errors.items())
    return Comparison(errors, passed)


def tolerance(name: str, dtype: torch.dtype) -> float:
    """What is allowed for a result of this name."""
    return (GRADIENT_TOLERANCE if name.startswith(GRADIENT) else TOLERANCE)[dtype]


def relative_error(actual: Tensor, exact: Tensor) -> float:
    """``|actual - exact| / |exact|`` in the Euclidean norm; the two may be on different devices.

    >>> relative_error(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0]))
    0.1
    """
    assert actual.shape == exact.shape
    difference = norm = 0.0
    for part, exact_part in zip(actual.flatten().split(CHUNK), exact.flatten().split(CHUNK), strict=True):
        there = exact_part.to(part.device).double()
        difference += float((part.double() - there).square().sum())
        norm += float(there.square().sum())
    return math.sqrt(difference / norm) if norm else math.inf
