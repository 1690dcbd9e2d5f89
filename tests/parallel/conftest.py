"""The ranks that all tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import distributed

from .ranks import Ranks

if not (distributed.is_available() and distributed.is_gloo_available()):
    collect_ignore_glob = ["test_sequence*", "test_data_parallel*"]


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    pool = Ranks(tmp_path_factory.mktemp("ranks"))
    yield pool
    pool.stop()


@pytest.fixture
def interpreter() -> None:
    """The fused kernels on CPU tensors, which is what the ranks have."""
    pytest.importorskip("triton", reason="Triton has no build for this platform")
    if torch.cuda.is_available():
        pytest.skip("the interpreter runs only where there is no GPU")
