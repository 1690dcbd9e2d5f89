"""Shares and times as people read them (``format_*``), and rates as they type them: ``400Gb``."""

from __future__ import annotations

import re

from riffle.quantities import quote

EXPONENTS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}


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
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([kKMGTP]?)(b|B|bit|bits)(?:/s|ps)?\s*", text, re.ASCII)
    if not match:
        raise ValueError(f"{quote(text)} is no number of bits or bytes: write 400Gb or 50GB")
    number = float(f"{match[1]}e{EXPONENTS[match[2]]}") / (1 if match[3] == "B" else 8)  # so it is rounded once
    if not 1 <= number <= 1e30:
        raise ValueError(f"{quote(text)} is too {'small' if number < 1 else 'large'}, it is no number of bits or bytes")
    return number
