"""Open registries: names and what they stand for, to which research and any user's package add entries.

>>> from riffle.recipes import RECIPES
>>> RECIPES["mine"] = RECIPES["small"]
>>> RECIPES.pop("mine") is RECIPES["small"]
True
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import Any, TypeVar

from riffle.quantities import quote

Entry = TypeVar("Entry")
RESEARCH = {
    "model": (
        *("dngpu", "preprint", "variant", "transformer", "universal-transformer", "lstm", "gru"),
        *("gated-attention-reader", "universal-reader", "causal-transformer", "causal-linear-attention", "causal-gru"),
    ),
    "task": (
        *("even-pairs", "modular-arithmetic", "parity", "cycle", "stack", "reverse-bits", "modular-brackets"),
        *("equation", "duplicate-bits", "missing-duplicate", "odds-first", "add-unequal", "multiply-unequal"),
        *("square-root", "bucket-sort", "listops", "multiply-base4", "multiply-decimal", "multiply-bcd", "divide"),
        *("running-sum", "induction", "recall"),
    ),
    "recipe": ("released", "preprint", "long", "residual", "chomsky"),
    "optimizer": ("radam", "adamax"),
    "schedule": ("plateau", "short-plateau"),
    "option": ("data.examples",),
}
"""What ``research``, which only a clone has, adds to the registries; it is named in the answer to an unknown name."""


RENAMED = {"recipe": {"robust": "default", "long": "default"}}
"""Former names, which are answered with the new one."""


class NeedsResearch(ValueError):
    """A name that ``python -m research`` knows and the installed package does not; the message ends in that command."""


class Registry(dict[str, Entry]):
    """Entries by name; an unknown name is a ``ValueError`` that names the nearest and all that exist.

    Args:
        what: What an entry is, for messages.
        entries: The first entries.
    """

    def __init__(self, what: str, entries: dict[str, Entry]) -> None:
        super().__init__(entries)
        self.what = what

    def __missing__(self, name: str) -> Entry:
        raise unknown(self.what, name, self)


def unknown(what: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for an unknown name."""
    now = f"is now {RENAMED[what][name]!r}" if name in RENAMED.get(what, ()) else ""
    if name in RESEARCH.get(what, ()):
        now = f"{now}; the old one " if now else ""
        return NeedsResearch(f"the {what} {name!r} {now}comes with riffle's research: from a clone, python -m research")
    if now:
        return ValueError(f"the {what} {name!r} {now}")
    known = list(known)
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return ValueError(f"unknown {what} {quote(name)}; {hint}choose one of {', '.join(known)}")


def load(entry: Any) -> Any:
    """An entry that is imported at its first use, given as ``"package.module:attribute"``; others as they are.

    >>> load("riffle.recipes:small").__name__
    'small'
    """
    if not isinstance(entry, str):
        return entry
    module, _, name = entry.partition(":")
    try:
        return getattr(import_module(module), name)
    except AttributeError:
        raise ValueError(f"{module} has no {name!r}: write package.module:Name") from None
