"""Settings of the whole suite: one thread, repeatable examples, the same bf16 products on every CPU, Triton's too."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys

# Read when torch is imported: bf16 products take the same oneDNN kernels whatever bf16 instructions the CPU has.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import pytest
import torch
from hypothesis import settings

if not torch.cuda.is_available():
    # Read when a kernel is defined: without a GPU, Triton's interpreter runs the kernels on CPU tensors.
    os.environ["TRITON_INTERPRET"] = "1"
import fast_interpreter  # noqa: F401

from research.registry import register

register()

torch.set_num_threads(1)
# Processes that tests start are forks of one that has imported these, so that each is there at once; building an
# optimiser imports torch._dynamo.
multiprocessing.set_forkserver_preload(
    ["riffle.cli", "riffle.parallel", "research.reproduce.jobs", "torch.utils.tensorboard", "torch._dynamo"]
)
settings.register_profile("riffle", deadline=None, derandomize=True, max_examples=20, database=None)
settings.register_profile("thorough", parent=settings.get_profile("riffle"), max_examples=500, derandomize=False)
settings.load_profile("riffle")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failure at once: a run that is cut off never comes to its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid}", file=sys.stderr, flush=True)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def _freeze() -> None:
    """Hide imported modules from the garbage collector, which takes longer for these than for a test's own objects."""
    gc.collect()
    gc.freeze()
