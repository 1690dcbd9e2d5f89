"""How a person writes symbols and numbers, and how outputs are shown; nothing here raises on an output."""

from __future__ import annotations

import re
from collections.abc import Sequence

from riffle.tasks.base import BLANK

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHOW_BLANK = "_"
SHOW_UNKNOWN = "?"


def tokens(words: Sequence[str]) -> list[str]:
    """What was typed, cut at blanks and commas: ``["7 3,9", "1"]`` gives ``["7", "3", "9", "1"]``."""
    return re.findall(r"[^\s,]+", " ".join(words))


def parse_symbol(token: str, highest: int, syntax: str) -> int:
    """One symbol 1..highest."""
    if not re.fullmatch(r"[+-]?[0-9]+", token):
        raise ValueError(f"{token!r} is not a symbol: a symbol is a whole number 1..{highest}; {syntax}")
    symbol = int(token)
    if not 1 <= symbol <= highest:
        raise ValueError(f"symbol {symbol} is outside 1..{highest}; {syntax}")
    return symbol


def parse_symbols(words: Sequence[str], highest: int, syntax: str) -> list[int]:
    """At least one symbol 1..highest."""
    symbols = [parse_symbol(token, highest, syntax) for token in tokens(words)]
    if not symbols:
        raise ValueError(f"there is no symbol in the input; {syntax}")
    return symbols


def parse_pair(token: str, highest: int, syntax: str) -> list[int]:
    """A ``key:value`` pair of symbols 1..highest."""
    parts = token.split(":")
    if len(parts) != 2:
        raise ValueError(f"{token!r} is not a pair key:value; {syntax}")
    return [parse_symbol(part, highest, syntax) for part in parts]


def parse_number(text: str, base: int, syntax: str) -> list[int]:
    """The digits of a number written with the highest digit first; the list has the lowest first."""
    accepted = "0123456789"[:base]
    for char in text:
        if char not in accepted:
            raise ValueError(f"{char!r} in {text!r} is not a digit 0..{base - 1}; {syntax}")
    return [int(char) for char in reversed(text)]


def parse_two_numbers(words: Sequence[str], base: int, signs: str, syntax: str) -> tuple[list[int], list[int]]:
    """Two numbers, apart or joined by one of ``signs``: ``["10", "11"]``, ``["10+11"]``, ``["10", "+", "11"]``."""
    text = " ".join(words)
    used = [sign for sign in signs if sign in text]
    parts = [part.strip() for part in text.split(used[0])] if used else tokens(words)
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"two numbers are needed, got {text!r}; {syntax}")
    return parse_number(parts[0], base, syntax), parse_number(parts[1], base, syntax)


def trim(symbols: Sequence[int]) -> list[int]:
    """The symbols without trailing blanks."""
    length = len(symbols)
    while length and symbols[length - 1] == BLANK:
        length -= 1
    return list(symbols[:length])


def render_symbols(output: Sequence[int]) -> str:
    """``[1, 3, 0, 9, 0]`` as ``"1 3 _ 9"``."""
    return " ".join(str(symbol) if symbol else SHOW_BLANK for symbol in trim(output))


def render_chars(output: Sequence[int], alphabet: str) -> str:
    """One character per symbol: ``alphabet[symbol - 1]``, ``_`` for a blank inside, ``?`` for a symbol beyond it."""
    shown = SHOW_BLANK + alphabet
    return "".join(shown[symbol] if 0 <= symbol < len(shown) else SHOW_UNKNOWN for symbol in trim(output))


def render_number(output: Sequence[int], base: int) -> str:
    """Digits ``d`` given as symbols ``d + 1``, lowest first, as a number with the highest first."""
    text = render_chars(output, "0123456789"[:base])[::-1]
    return text.lstrip("0") or text[-1:]
