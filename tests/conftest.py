"""Settings of the whole suite: one thread, repeatable examples, and the same bf16 products on every CPU."""

from __future__ import annotations

import os

# Read when torch is imported: bf16 products take the same oneDNN kernels whatever bf16 instructions the CPU has.
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
