"""Numbers as people read them (``format_*``) and type them (``parse_*``: ``2^30``, ``400Gb``, ``5us``)."""

from __future__ import annotations

import re

DASH = "\N{EN DASH}"
"""Stands for a value that was not measured."""
EXPONENTS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "m": -3, "u": -6, "µ": -6, "n": -9}


def format_percent(share: float) -> str:
    """A share as a percentage, truncated, so that only 1 gives 100%.

    >>> format_percent(1.0), format_percent(0.99999), format_percent(0.5216)
    ('100%', '99.99%', '52.16%')
    """
    # 1e-6: the binary form of 0.5216 is slightly less, and must not become 52.15%.
    return "100%" if share == 1 else f"{int(share * 1e4 + 1e-6) / 100:.2f}%"


def format_share(fraction: float) -> str:
    """A fraction as a rounded percentage, with tenths below ten percent.

    >>> format_share(0.412), format_share(0.0163)
    ('41%', '1.6%')
    """
    return f"{fraction * 100:.0f}%" if fraction >= 0.0995 else f"{fraction * 100:.1f}%"


def format_wait(seconds: float) -> str:
    """A waiting time in the largest unit that fits, at least one second.

    >>> format_wait(0.4), format_wait(50), format_wait(5400), format_wait(4e6)
    ('1 second', '50 seconds', '1.5 hours', '46 days')
    """
    units = (("day", 86_400), ("hour", 3600), ("minute", 60))
    unit, size = next((each for each in units if seconds >= each[1]), ("second", 1))
    number = f"{seconds / size:.2g}" if size > 1 and seconds < 10 * size else f"{max(seconds, 1) / size:,.0f}"
    return f"{number} {unit}{'' if number == '1' else 's'}"


def format_milliseconds(milliseconds: float) -> str:
    """A time with three digits, in seconds from 1000 ms.

    >>> format_milliseconds(0.2314), format_milliseconds(55.07), format_milliseconds(372.1), format_milliseconds(11240)
    ('0.231 ms', '55.1 ms', '372 ms', '11.2 s')
    """
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else f"{milliseconds / 1e3:.3g} s"


def format_bytes(size: int | None) -> str:
    """Bytes as gigabytes of 10^9, or as megabytes below a tenth of one; a dash for None.

    >>> format_bytes(2_700_000_000), format_bytes(35_600_000), format_bytes(None)
    ('2.7 GB', '36 MB', '–')
    """
    if size is None:
        return DASH
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"


def format_length(length: int) -> str:
    """A sequence length, with the binary prefix K or M if it is a multiple.

    >>> format_length(128), format_length(1024), format_length(2**21)
    ('128', '1K', '2M')
    """
    for size, prefix in ((2**20, "M"), (2**10, "K")):
        if length >= size and length % size == 0:
            return f"{length // size}{prefix}"
    return str(length)


def parse_count(text: str) -> int:
    """A whole number, in digits or as a power.

    >>> parse_count("2^30"), parse_count("1,024"), parse_count("2**4")
    (1073741824, 1024, 16)
    """
    match = re.fullmatch(r"\s*(\d+)\s*(?:\^|\*\*)\s*(\d{1,3})\s*", text)
    if match:
        return int(match[1]) ** int(match[2])
    plain = text.replace(",", "").replace("_", "").strip()
    if not plain.isdigit():
        raise ValueError(f"{text!r} is no whole number: write 1048576 or 2^20")
    return int(plain)


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
    return _parse(text, r"([munµ]?)s", "time: write 5us or 2ms")


def _parse(text: str, unit: str, expected: str) -> float:
    """The number before a unit, with its SI prefix; one conversion, so it is rounded once."""
    match = re.fullmatch(rf"\s*(\d+\.?\d*|\.\d+)\s*{unit}\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no {expected}")
    return float(f"{match[1]}e{EXPONENTS[match[2]]}")
