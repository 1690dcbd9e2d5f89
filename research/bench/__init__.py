"""The timing harness: ``riffle bench``, the timing figures of ``riffle reproduce``, and long sequences."""

from __future__ import annotations
