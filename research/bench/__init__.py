"""The timing harness: ``bench``, the timing figures of ``reproduce``, and long sequences."""

from __future__ import annotations
