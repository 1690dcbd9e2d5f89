"""Numbers as people read them."""

from __future__ import annotations


def percent(share: float) -> str:
    """A share as a percentage that says 100% only of everything.

    >>> percent(1.0), percent(0.99999), percent(0.5)
    ('100%', '99.99%', '50.00%')
    """
    return "100%" if share == 1 else f"{int(share * 1e4) / 100:.2f}%"
