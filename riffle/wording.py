"""Numbers as people read them."""

from __future__ import annotations


def percent(share: float) -> str:
    """A share as a percentage that says 100% only of everything.

    >>> percent(1.0), percent(0.99999), percent(0.5216)
    ('100%', '99.99%', '52.16%')
    """
    # Cut, not rounded, but 0.5216 has to be itself although its binary form is a little less.
    return "100%" if share == 1 else f"{int(share * 1e4 + 1e-6) / 100:.2f}%"


def span(seconds: float) -> str:
    """A time that one may have to wait.

    >>> span(0.4), span(50), span(5400), span(4e6)
    ('1 second', '50 seconds', '1.5 hours', '46 days')
    """
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            number = f"{seconds / size:.2g}" if seconds < 10 * size else f"{seconds / size:,.0f}"
            return f"{number} {unit}{'' if number == '1' else 's'}"
    number = f"{max(seconds, 1):.0f}"
    return f"{number} second{'' if number == '1' else 's'}"
