"""Settings of the whole suite: one thread, repeatable examples, and bf16 products that every CPU can do."""

from __future__ import annotations

import os

# Read when torch is imported. oneDNN's AMX kernels for bf16 fail on virtual machines that announce AMX without it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("riffle", deadline=None, derandomize=True, max_examples=20, database=None)
settings.load_profile("riffle")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
