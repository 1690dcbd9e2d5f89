"""``riffle bench``: how fast this machine runs the networks, beside what its arithmetic would allow."""

from __future__ import annotations
