"""Values checked against type hints: JSON from files (:func:`decode`) and text from options (:func:`parse`).

A hint may be a dataclass, a ``TypedDict`` (further keys are kept), ``tuple[X, ...]``, ``list[X]``, ``dict[str, X]``,
``Literal``, ``X | None``, ``bool``, ``int``, ``float``, ``str`` or ``Any``. Limits belong to the hint:
``Annotated[int, Range(ge=1)]``. Every number is finite and fits 64 bits.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from riffle.quantities import quote

NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True)
class Range:
    """Limits of a number: at least ``ge``, above ``gt``, at most ``le``, below ``lt``."""

    ge: float = -math.inf
    gt: float = -math.inf
    le: float = math.inf
    lt: float = math.inf

    def expected(self, value: float) -> str | None:
        """What a value should be that is beyond a limit; None for one within."""
        if value < self.ge:
            return f"at least {self.ge:,}"
        if value <= self.gt:
            return f"above {self.gt:,}"
        if value > self.le:
            return f"at most {self.le:,}"
        return f"below {self.lt:,}" if value >= self.lt else None


INT64 = Range(ge=-(2**63), lt=2**63)


def decode(hint: Any, value: Any, name: str = "") -> Any:
    """A value read from JSON as what a type hint says; a ``ValueError`` names the field that does not fit.

    >>> decode(tuple[int, ...], [1, 2], "lengths")
    (1, 2)
    >>> decode(Annotated[int, Range(ge=1)], 0, "steps")
    Traceback (most recent call last):
    ValueError: steps must be at least 1, got 0
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        if isinstance(value, int | float):
            _within(value, arguments[1], name)
        return decode(arguments[0], value, name)
    if origin is NotRequired:
        return decode(arguments[0], value, name)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return decode(next(each for each in arguments if each is not type(None)), value, name)
    if origin is Literal:
        if not isinstance(value, str) or value not in arguments:
            raise _wrong(name, f"one of {', '.join(arguments)}", value)
        return value
    if origin in (tuple, list):
        _require(value, (list, tuple), "a list", name)
        return origin(decode(arguments[0], each, f"{name}[{index}]") for index, each in enumerate(value))
    if origin is dict:
        _require(value, dict, "an object", name)
        return {key: decode(arguments[1], each, _join(name, key)) for key, each in value.items()}
    if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
        return _decode_fields(hint, value, name)
    if isinstance(value, bool) != (hint is bool):
        raise _wrong(name, NAMES[hint], value)
    _require(value, (int, float) if hint is float else hint, NAMES[hint], name)
    return value if hint in (bool, str) else _within(value, INT64 if hint is int else Range(), name)


def parse(hint: Any, text: str, name: str) -> Any:
    """A value typed as text: numbers may have underscores, a tuple commas, and ``none`` stands for None.

    >>> parse(tuple[int, ...], "8, 1_024", "lengths")
    (8, 1024)
    """
    return decode(hint, _convert(hint, text, name), name)


def _convert(hint: Any, text: str, name: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _convert(arguments[0], text, name)
    if origin in (Union, types.UnionType):
        inner = next(each for each in arguments if each is not type(None))
        return None if text.lower() == "none" else _convert(inner, text, name)
    if origin is tuple:
        return tuple(_convert(arguments[0], part, name) for part in text.strip("()").split(",") if part.strip())
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return hint(text.replace("_", "").encode("ascii")) if hint in (int, float) else text
    except ValueError:
        raise _wrong(name, NAMES[hint], text) from None


def check(config: Any, prefix: str = "") -> None:
    """Raise a ``ValueError`` that names the first field of a dataclass, or of one within it, that is out of range."""
    hints = get_type_hints(type(config), include_extras=True)
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if dataclasses.is_dataclass(value):
            check(value, f"{prefix}{each.name}.")
        else:
            decode(hints[each.name], value, prefix + each.name)


def _decode_fields(kind: Any, value: Any, name: str) -> Any:
    """The fields of a dataclass, which must all be known, or of a ``TypedDict``."""
    _require(value, dict, "an object", name)
    hints = get_type_hints(kind, include_extras=True)
    is_dataclass = dataclasses.is_dataclass(kind)
    if is_dataclass:
        unknown = next((key for key in value if key not in hints), None)
        if unknown is not None:
            raise ValueError(f"unknown field {quote(unknown)}; {kind.__name__} has {', '.join(hints)}")
        needed = [each.name for each in dataclasses.fields(kind) if _is_needed(each)]
    else:
        needed = [key for key, hint in hints.items() if get_origin(hint) is not NotRequired]
    missing = next((key for key in needed if key not in value), None)
    if missing is not None:
        raise ValueError(f"the field {_join(name, missing)} is missing")
    decoded = {key: decode(hints[key], each, _join(name, key)) for key, each in value.items() if key in hints}
    return kind(**decoded) if is_dataclass else {**value, **decoded}


def _is_needed(each: dataclasses.Field[Any]) -> bool:
    return each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING


def _require(value: Any, kind: Any, expected: str, name: str) -> None:
    if not isinstance(value, kind):
        raise _wrong(name, expected, value)


def _within(value: Any, limits: Range, name: str) -> Any:
    is_finite = value == value and abs(value) != math.inf
    expected = limits.expected(value) if is_finite else "finite"
    if expected:
        raise _wrong(name, expected, value)
    return value


def _join(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _wrong(name: str, expected: str, value: Any) -> ValueError:
    return ValueError(f"{name or 'it'} must be {expected}, got {quote(value)}")
