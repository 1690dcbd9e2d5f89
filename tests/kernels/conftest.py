"""The tests of the fused kernels are left out where Triton is too old for them."""

from __future__ import annotations

from riffle.kernels import OLDEST_TRITON, TRITON_VERSION

collect_ignore = [] if TRITON_VERSION >= OLDEST_TRITON else ["test_fused.py", "test_merged.py", "test_switch.py"]
