"""Shares, times and rates as people read them (``format_*``) and type them (``parse_*``: ``400Gb``, ``5us``)."""

from __future__ import annotations

import re

from riffle.quantities import quote

EXPONENTS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "m": -3, "u": -6, "µ": -6, "n": -9}


def format_share(fraction: float) -> str:
    """A fraction as a rounded percentage, with tenths below ten percent.

    >>> format_share(0.412), format_share(0.0163)
    ('41%', '1.6%')
    """
    return f"{fraction * 100:.0f}%" if fraction >= 0.0995 else f"{fraction * 100:.1f}%"


def format_milliseconds(milliseconds: float) -> str:
    """A time with three digits, in seconds from 1000 ms.

    >>> format_milliseconds(0.2314), format_milliseconds(55.07), format_milliseconds(372.1), format_milliseconds(11240)
    ('0.231 ms', '55.1 ms', '372 ms', '11.2 s')
    """
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else f"{milliseconds / 1e3:.3g} s"


def parse_bytes(text: str) -> float:
    """Bytes, or bytes per second: B is a byte, b a bit, and ``/s`` or ``ps`` may follow.

    >>> parse_bytes("400Gb"), parse_bytes("50GB/s"), parse_bytes("141GB")
    (50000000000.0, 50000000000.0, 141000000000.0)
    """
    unit = r"([kKMGTP]?)(?:b|B|bit|bits)(?:/s|ps)?"
    number = _parse(text, unit, "number of bits or bytes: write 400Gb or 50GB")
    return number if "B" in text else number / 8


def parse_flops(text: str) -> float:
    """FLOP per second.

    >>> parse_flops("679T"), parse_flops("1.5PFLOP/s")
    (679000000000000.0, 1500000000000000.0)
    """
    unit = r"([kKMGTP]?)(?:FLOPs?|FLOPS)?(?:/s)?"
    return _parse(text, unit, "number of FLOP a second: write 679T or 679TFLOP/s")


def parse_seconds(text: str) -> float:
    """A time in seconds.

    >>> parse_seconds("5us"), parse_seconds("2ms")
    (5e-06, 0.002)
    """
    return _parse(text, r"([munµ]?)s", "time: write 5us or 2ms", least=0)


def _parse(text: str, unit: str, expected: str, least: float = 1) -> float:
    """The number before a unit, with its SI prefix; one conversion, so it is rounded once."""
    match = re.fullmatch(rf"\s*(\d+\.?\d*|\.\d+)\s*{unit}\s*", text)
    if not match:
        raise ValueError(f"{quote(text)} is no {expected}")
    number = float(f"{match[1]}e{EXPONENTS[match[2]]}")
    if not least <= number <= 1e30:
        raise ValueError(f"{quote(text)} is too {'small' if number < least else 'large'}, it is no {expected}")
    return number
