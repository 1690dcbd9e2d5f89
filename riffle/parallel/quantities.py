"""Sizes, rates and times as people type them: ``2^30``, ``400Gb``, ``5us``."""

from __future__ import annotations

import re

EXPONENTS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "m": -3, "u": -6, "µ": -6, "n": -9}
NUMBER = r"\s*(\d+\.?\d*|\.\d+)\s*"


def count(text: str) -> int:
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


def size(text: str) -> float:
    """Bytes, or bytes a second: B is a byte, b a bit, and ``/s`` or ``ps`` may follow.

    >>> size("400Gb"), size("50GB/s"), size("141GB")
    (50000000000.0, 50000000000.0, 141000000000.0)
    """
    match = re.fullmatch(NUMBER + r"([kKMGTP]?)(b|B|bit|bits)(?:/s|ps)?\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no number of bits or bytes: write 400Gb or 50GB")
    return _scaled(match) / (1 if match[3] == "B" else 8)


def rate(text: str) -> float:
    """FLOP a second.

    >>> rate("679T"), rate("1.5PFLOP/s")
    (679000000000000.0, 1500000000000000.0)
    """
    match = re.fullmatch(NUMBER + r"([kKMGTP]?)(?:FLOPs?|FLOPS)?(?:/s)?\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no number of FLOP a second: write 679T or 679TFLOP/s")
    return _scaled(match)


def seconds(text: str) -> float:
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
