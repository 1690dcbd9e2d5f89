"""The fixture of the kernels' tests, for those of the Neural GPU."""

from __future__ import annotations

from kernels.conftest import _poison

__all__ = ["_poison"]
