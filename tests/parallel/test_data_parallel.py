"""A network inside PyTorch's own data parallel training: the gradients of all batches at once."""

from __future__ import annotations

import numpy as np
import pytest

from . import jobs
from .ranks import Ranks


def test_ranks_have_the_gradients_of_one(ranks: Ranks) -> None:
    check(ranks, "reference")


@pytest.mark.usefixtures("interpreter")
def test_fused_kernels(ranks: Ranks) -> None:
    check(ranks, "fused")


def check(ranks: Ranks, backend: str) -> None:
    arguments = {"features": 4, "blocks": 2, "backend": backend}
    expected = jobs.data_parallel(None, arguments, 8)
    assert any(gradient.any() for gradient in expected.values())
    for gradients in ranks.run(2, jobs.data_parallel, arguments, 8):
        assert gradients.keys() == expected.keys()
        for name, gradient in gradients.items():
            np.testing.assert_allclose(gradient, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
