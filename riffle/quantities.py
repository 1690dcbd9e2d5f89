"""Numbers as people read them (``format_*``) and type them (``parse_count``: ``2^30``).

:func:`quote` and :func:`shorten` keep foreign text in messages short and free of control characters.
"""

from __future__ import annotations

import re
import reprlib

DASH = "\N{EN DASH}"
"""Stands for a value that was not measured."""
MAX_QUOTED, MAX_WORD, MAX_MESSAGE = 80, 200, 3000
"""Characters of a quotation, of a word such as a path, and of a whole message."""
MAX_COUNT = 2**48
"""The largest number of anything that an option takes: the addresses of today's machines have 48 bits."""


def format_percent(share: float) -> str:
    """A share as a percentage, truncated, so that only 1 gives 100%.

    >>> format_percent(1.0), format_percent(0.99999), format_percent(0.5216)
    ('100%', '99.99%', '52.16%')
    """
    # 1e-6: the binary form of 0.5216 is slightly less, and must not become 52.15%.
    return "100%" if share == 1 else f"{int(share * 1e4 + 1e-6) / 100:.2f}%"


def format_wait(seconds: float) -> str:
    """A waiting time in the largest unit that fits, at least one second.

    >>> format_wait(0.4), format_wait(50), format_wait(5400), format_wait(4e6)
    ('1 second', '50 seconds', '1.5 hours', '46 days')
    """
    units = (("day", 86_400), ("hour", 3600), ("minute", 60))
    unit, size = next((each for each in units if seconds >= each[1]), ("second", 1))
    number = f"{seconds / size:.2g}" if size > 1 and seconds < 10 * size else f"{max(seconds, 1) / size:,.0f}"
    return f"{number} {unit}{'' if number == '1' else 's'}"


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
    match = re.fullmatch(r"(\d+)(?:(?:\^|\*\*)(\d+))?", re.sub(r"[\s,_]", "", text), re.ASCII)
    if not match:
        raise ValueError(f"{quote(text)} is no whole number: write 1048576 or 2^20")
    base, exponent = (
        int(digits[:20]) for digits in (match[1], match[2] or "1")
    )  # more digits are too many in any case
    count = base**exponent if base < 2 or exponent < MAX_COUNT.bit_length() else MAX_COUNT + 1
    if count > MAX_COUNT:
        raise ValueError(f"{quote(text)} is too large: the largest number here is 2^{MAX_COUNT.bit_length() - 1}")
    return count


def whole_number(text: str) -> int | None:
    """The number that digits 0 to 9 write, with a sign or without; None for any other text.

    Of more than 20 digits, which are too many for anything here, it is 10^20.

    >>> whole_number("-7"), whole_number("\u0663"), whole_number("9" * 5000) == 10**20
    (-7, None, True)
    """
    match = re.fullmatch(r"([+-]?)0*([0-9]+)", text)
    if match is None:
        return None
    size = int(match[2]) if len(match[2]) <= 20 else 10**20
    return -size if match[1] == "-" else size


_quoting = reprlib.Repr()
_quoting.maxstring = _quoting.maxother = _quoting.maxlong = MAX_QUOTED
_quoting.maxlevel = 2


def quote(value: object) -> str:
    """A value in a message: its repr, which escapes control characters, cut to 80 characters.

    >>> quote("7\\x1b[31m"), len(quote("a" * 10**6))
    ("'7\\\\x1b[31m'", 80)
    """
    try:
        return _cut(_quoting.repr(value), MAX_QUOTED)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return f"a number of {value.bit_length():,} bits" if isinstance(value, int) else type(value).__name__


def shorten(message: str) -> str:
    """A message on one line: control characters escaped, long quotations and words cut.

    >>> shorten("no task '" + "a" * 1000 + "'") == "no task " + quote("a" * 1000)
    True
    """
    line = " ".join(_cut(message, 2 * MAX_MESSAGE).split())
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
    for pattern, most in ((r"(?<!\w)(['\"])(?:(?!\1).)*\1(?!\w)", MAX_QUOTED), (r"\S+", MAX_WORD)):
        line = re.sub(pattern, lambda match, most=most: _cut(match[0], most), line)  # type: ignore[misc]
    return _cut(line, MAX_MESSAGE)


def _cut(text: str, most: int) -> str:
    """A text with its middle left out if it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    head = (most - 3) // 2
    return f"{text[:head]}...{text[len(text) - (most - 3 - head) :]}"
