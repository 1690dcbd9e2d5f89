"""The tests of the fused kernels are left out where Triton is too old for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from riffle.kernels import OLDEST_TRITON, TRITON_VERSION

collect_ignore = [] if TRITON_VERSION >= OLDEST_TRITON else ["test_fused.py", "test_merged.py", "test_units.py"]


@pytest.fixture
def _poison() -> Iterator[None]:
    """Fill fresh buffers with NaN, so that an element nobody writes is seen."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]
