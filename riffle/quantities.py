"""Numbers as people read them.

Measurements as people read them.

Sizes, rates and times as people type them: ``2^30``, ``400Gb``, ``5us``.
"""

from __future__ import annotations

import re


def format_percent(share: float) -> str:
    """A share as a percentage that says 100% only of everything.

    >>> percent(1.0), percent(0.99999), percent(0.5216)
    ('100%', '99.99%', '52.16%')
    """
    # Cut, not rounded, but 0.5216 has to be itself although its binary form is a little less.
    return "100%" if share == 1 else f"{int(share * 1e4 + 1e-6) / 100:.2f}%"


def format_wait(seconds: float) -> str:
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


DASH = "\N{EN DASH}"
"""What stands where nothing was measured."""


def format_milliseconds(milliseconds: float) -> str:
    """A time with three digits.

    >>> duration(0.2314), duration(55.07), duration(372.1), duration(11240)
    ('0.231 ms', '55.1 ms', '372 ms', '11.2 s')
    """
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else f"{milliseconds / 1e3:.3g} s"


def format_bytes(size: int | None) -> str:
    """Bytes as gigabytes of 10^9, or megabytes where they are few; a dash where they were not measured.

    >>> memory(2_700_000_000), memory(35_600_000), memory(None)
    ('2.7 GB', '36 MB', '–')
    """
    if size is None:
        return DASH
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"


def format_share(fraction: float) -> str:
    """A fraction of the floor; tenths below ten percent.

    >>> share(0.412), share(0.0163)
    ('41%', '1.6%')
    """
    return f"{fraction * 100:.0f}%" if fraction >= 0.0995 else f"{fraction * 100:.1f}%"


EXPONENTS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "m": -3, "u": -6, "µ": -6, "n": -9}
NUMBER = r"\s*(\d+\.?\d*|\.\d+)\s*"


def parse_count(text: str) -> int:
    """A number of things, as a number or a power.

    >>> count("2^30"), count("1,024"), count("2**4")
    (1073741824, 1024, 16)
    """
    match = re.fullmatch(r"\s*(\d+)\s*(?:\^|\*\*)\s*(\d{1,3})\s*", text)
    if match:
        return int(match[1]) ** int(match[2])
    plain = text.replace(",", "").replace("_", "").strip()
    if not plain.isdigit():
        raise ValueError(f"{text!r} is no number of things: write 1048576 or 2^20")
    return int(plain)


def parse_bytes(text: str) -> float:
    """Bytes, or bytes a second: B is a byte, b a bit, and ``/s`` or ``ps`` may follow.

    >>> size("400Gb"), size("50GB/s"), size("141GB")
    (50000000000.0, 50000000000.0, 141000000000.0)
    """
    match = re.fullmatch(NUMBER + r"([kKMGTP]?)(b|B|bit|bits)(?:/s|ps)?\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no number of bits or bytes: write 400Gb or 50GB")
    return _scaled(match) / (1 if match[3] == "B" else 8)


def parse_flops(text: str) -> float:
    """FLOP a second.

    >>> rate("679T"), rate("1.5PFLOP/s")
    (679000000000000.0, 1500000000000000.0)
    """
    match = re.fullmatch(NUMBER + r"([kKMGTP]?)(?:FLOPs?|FLOPS)?(?:/s)?\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no number of FLOP a second: write 679T or 679TFLOP/s")
    return _scaled(match)


def parse_seconds(text: str) -> float:
    """A time.

    >>> seconds("5us"), seconds("2ms")
    (5e-06, 0.002)
    """
    match = re.fullmatch(NUMBER + r"([munµ]?)s\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no time: write 5us or 2ms")
    return _scaled(match)


def _scaled(match: re.Match[str]) -> float:
    """The number with its prefix, rounded once."""
    return float(f"{match[1]}e{EXPONENTS[match[2]]}")


def format_length(length: int) -> str:
    """A length as people say it.

    >>> short(128), short(1024), short(2**21)
    ('128', '1K', '2M')
    """
    for size, letter in ((2**20, "M"), (2**10, "K")):
        if length >= size and length % size == 0:
            return f"{length // size}{letter}"
    return str(length)
