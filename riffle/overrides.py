"""Typed overrides of a configuration by dotted names, and configurations from JSON."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def override(config: T, assignments: Iterable[str]) -> T:
    """A copy of ``config`` with fields changed, each given as ``section.field=value``.

    >>> from riffle.config import Experiment
    >>> override(Experiment(task="sort"), ["train.steps=100", "data.bins=8,16"]).data.bins
    (8, 16)
    """
    for assignment in assignments:
        name, sign, text = assignment.partition("=")
        if not sign:
            raise ValueError(f"{assignment!r} is no assignment: write it as train.steps=1000")
        known = fields(config)
        name = name.strip()
        if name not in known:
            by_last = {each.split(".")[-1]: each for each in known}
            near = difflib.get_close_matches(name, known, n=1) or [
                by_last[last] for last in difflib.get_close_matches(name.split(".")[-1], by_last, n=1)
            ]
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"unknown option {name!r}; {hint}options are {', '.join(known)}")
        config = _replace(config, name, text.strip())
    return config


def fields(config: Any, prefix: str = "") -> dict[str, tuple[Any, str]]:
    """Every field by its dotted name: its value and its documentation."""
    out: dict[str, tuple[Any, str]] = {}
    told = _documentation(type(config))  # type: ignore[arg-type]  # to mypy, the type of anything has no hash
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            out |= fields(value, f"{prefix}{field.name}.")
        else:
            out[prefix + field.name] = (value, told.get(field.name, ""))
    return out


def differences(old: Any, new: Any) -> dict[str, tuple[Any, Any]]:
    """The dotted names under which two configurations differ, with both values."""
    before, after = fields(old), fields(new)
    return {name: (before[name][0], after[name][0]) for name in before if before[name][0] != after[name][0]}


def from_dict(cls: type[T], values: Mapping[str, Any]) -> T:
    """A configuration from what :func:`dataclasses.asdict` and JSON made of it."""
    hints = get_type_hints(cls)
    unknown = set(values) - set(hints)
    if unknown:
        raise ValueError(f"unknown field {sorted(unknown)[0]!r}; {cls.__name__} has {', '.join(hints)}")
    arguments = {}
    for name, value in values.items():
        kind = hints[name]
        if dataclasses.is_dataclass(kind):
            value = from_dict(kind, value)  # type: ignore[arg-type]
        elif get_origin(kind) is tuple:
            value = tuple(value)
        arguments[name] = value
    return cls(**arguments)


def _replace(config: T, name: str, text: str, prefix: str = "") -> T:
    head, _, rest = name.partition(".")
    kind = get_type_hints(type(config))[head]
    if rest:
        value = _replace(getattr(config, head), rest, text, f"{prefix}{head}.")
    else:
        value = _parse(kind, text, prefix + name)
    return dataclasses.replace(config, **{head: value})  # type: ignore[type-var]


def _parse(kind: Any, text: str, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        if text not in arguments:
            raise ValueError(f"{name} must be one of {', '.join(arguments)}, got {text!r}")
        return text
    if origin is tuple:
        return tuple(_parse(arguments[0], part, name) for part in text.strip("()").split(",") if part.strip())
    if origin in (Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if text.lower() == "none" else _parse(inner, text, name)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, got {text!r}")
        return text.lower() == "true"
    try:
        return kind(text.replace("_", "")) if kind in (int, float) else kind(text)
    except ValueError:
        raise ValueError(f"{name} must be {'a whole number' if kind is int else 'a number'}, got {text!r}") from None


@functools.cache
def _documentation(cls: type) -> dict[str, str]:
    """The string beneath every field of a dataclass."""
    import ast
    import inspect
    import textwrap

    out: dict[str, str] = {}
    for each in reversed([each for each in cls.__mro__ if dataclasses.is_dataclass(each)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, following in zip(body.body, body.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
                assert isinstance(statement.target, ast.Name)
                assert isinstance(following.value, ast.Constant)
                out[statement.target.id] = str(following.value.value)
    return out
