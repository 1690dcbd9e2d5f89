"""Measurements as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOTHING = "\N{EN DASH}"
"""What stands where nothing was measured."""


def duration(milliseconds: float) -> str:
    """A time with three digits.

    >>> duration(0.2314), duration(55.07), duration(372.1), duration(11240)
    ('0.231 ms', '55.1 ms', '372 ms', '11.2 s')
    """
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else f"{milliseconds / 1e3:.3g} s"


def memory(size: int | None) -> str:
    """Bytes as gigabytes of 10^9, or megabytes where they are few; a dash where they were not measured.

    >>> memory(2_700_000_000), memory(35_600_000), memory(None)
    ('2.7 GB', '36 MB', '–')
    """
    if size is None:
        return NOTHING
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"


def share(fraction: float) -> str:
    """A fraction of the floor; tenths below ten percent.

    >>> share(0.412), share(0.0163)
    ('41%', '1.6%')
    """
    return f"{fraction * 100:.0f}%" if fraction >= 0.0995 else f"{fraction * 100:.1f}%"


def outcome(entry: Mapping[str, Any]) -> str:
    """The time of an entry, or why it has none."""
    return str(entry["failed"]) if "failed" in entry else duration(entry["milliseconds"])


def worst_error(entry: Mapping[str, Any]) -> str:
    """The largest error of an entry; a dash where nothing was compared."""
    errors = list((entry.get("errors") or {}).values())
    if not errors:
        return NOTHING
    return "not finite" if None in errors else f"{max(errors):.1e}"
