"""Pieces of the page that are plain HTML and SVG, and the answer to a mistake."""

from __future__ import annotations

import functools
import html
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import ParamSpec

P = ParamSpec("P")


def tag(name: str, body: str | Iterable[str] = "", **attributes: object) -> str:
    """An element; attribute names end in ``_`` where Python has the word, ``_`` inside becomes ``-``.

    The body is markup as it is, attributes are escaped; an attribute that is None is left out.

    >>> tag("p", escape("a < b"), class_="note", data_wire=3)
    '<p class="note" data-wire="3">a &lt; b</p>'
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{shown}>{body if isinstance(body, str) else ''.join(body)}</{name}>"


def escape(text: object) -> str:
    """Text as markup."""
    return html.escape(str(text))


def problem(text: str) -> str:
    """What the page says, in the place of an answer, about an input that has none."""
    return tag("div", tag("strong", "That does not work. ") + escape(_sentence(text)), class_="problem", role="alert")


def in_place(function: Callable[P, str]) -> Callable[P, str]:
    """Answer a mistake with a message instead of an exception; what is no mistake of the user goes to the log too."""

    @functools.wraps(function)
    def answered(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return function(*args, **kwargs)
        except (ValueError, OSError) as error:
            return problem(str(error))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return problem(f"The server failed ({type(error).__name__}); its terminal says more.")

    return answered


def _sentence(text: str) -> str:
    text = text if len(text) <= 400 else f"{text[:200]} … {text[-180:]}"
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
