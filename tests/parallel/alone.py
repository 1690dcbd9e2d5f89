"""What one device gives, and how near the ranks must come to it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from . import jobs
from .ranks import Ranks

TOLERANCE = 1e-6
"""Of the largest magnitude of what is compared, in float32."""
SHARDS = ("output", "inferred", "input")
"""What is spread over the ranks; the rest are gradients of weights."""
SPREAD = [2, 4, 8]
"""Ranks over which sequences are spread."""


@lru_cache(maxsize=4)
def alone(
    arguments: tuple[tuple[str, Any], ...], batch: int, length: int, lengths: tuple[int, ...] | None, dtype: torch.dtype
) -> dict[str, np.ndarray]:
    """What one device gives; the arguments are hashable, so that the ranks' numbers can share a result."""
    kernels = {"backend": "reference"} if dtype == torch.float64 else {}
    net = jobs.network(dict(arguments) | kernels).to(dtype)
    x_BND, weight_BND = (cells.to(dtype) for cells in jobs.inputs(batch, length, net.features))
    x_BND.requires_grad_()
    y_BND = net(x_BND, lengths=lengths)
    jobs.loss(y_BND, weight_BND).backward()
    assert x_BND.grad is not None
    gradients = {name: parameter.grad for name, parameter in net.named_parameters() if parameter.grad is not None}
    return jobs.arrays({"output": y_BND, "inferred": y_BND, "input": x_BND.grad, **gradients})


def joined(answers: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The shards side by side; the weights' gradients, which must be the same on every rank, once."""
    for answer in answers[1:]:
        assert all(np.array_equal(answer[name], answers[0][name]) for name in answers[0] if name not in SHARDS)
    return answers[0] | {name: np.concatenate([answer[name] for answer in answers], axis=1) for name in SHARDS}


def error(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray], *, shards: bool) -> float:
    """The largest difference, as a share of an array's largest magnitude: of shards, or of weights' gradients."""
    assert actual.keys() == expected.keys()
    names = [name for name in expected if (name in SHARDS) == shards]
    return max(float(np.abs(actual[name] - expected[name]).max() / np.abs(expected[name]).max()) for name in names)


def check(ranks: Ranks, size: int, arguments: dict[str, Any], batch: int, length: int, lengths: Any = None) -> None:
    """Shards as on one device; a weight's gradient, a sum over all cells, as near to the truth as there."""
    actual = joined(ranks.run(size, jobs.train, arguments, batch, length, lengths))
    single, exact = (
        alone(tuple(arguments.items()), batch, length, lengths if lengths is None else tuple(lengths), dtype)
        for dtype in (torch.float32, torch.float64)
    )
    differs, strays = error(actual, single, shards=True), error(actual, exact, shards=False)
    allowed = max(TOLERANCE, 2 * error(single, exact, shards=False))
    print(f"{size} ranks, {length} cells, {arguments}: {differs:.1e}; weights {strays:.1e}, {allowed:.1e} allowed")
    assert differs <= TOLERANCE
    assert strays <= allowed
