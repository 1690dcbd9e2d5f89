"""HTML and SVG elements, error messages in the page, and the grid of wires and switches that two tabs draw on."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import ParamSpec

from riffle.shuffle import Layer

P = ParamSpec("P")
PITCH, COLUMN, BOX, EDGE, TOP, BOTTOM = 26.0, 92.0, 40.0, 62.0, 30.0, 30.0
"""Distance of wires and of columns, width of a switch, and the margins at both ends, above and below."""


def tag(name: str, body: str | Iterable[str] = "", **attributes: object) -> str:
    """An element; a ``_`` at the end of an attribute's name is dropped, another becomes ``-``.

    The body is markup as it is, attributes are escaped; an attribute that is None is left out.

    >>> tag("p", "a &lt; b", class_="note", data_wire=3)
    '<p class="note" data-wire="3">a &lt; b</p>'
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{shown}>{body if isinstance(body, str) else ''.join(body)}</{name}>"


def errors_as_markup(function: Callable[P, str]) -> Callable[P, str]:
    """Return a message instead of raising an exception; the log alone has one that is no error of the user."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return function(*args, **kwargs)
        except ValueError as error:
            return _error_box(str(error))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return _error_box(f"The server failed ({type(error).__name__}); its terminal says more.")

    return wrapped


def _error_box(text: str) -> str:
    """The message as a sentence, shortened if it is very long."""
    text = text if len(text) <= 400 else f"{text[:200]} … {text[-180:]}"
    sentence = text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
    return tag("div", tag("strong", "That does not work. ") + escape(sentence), class_="problem", role="alert")


def curve(x0: float, y0: float, x1: float, y1: float) -> str:
    """A piece of an SVG path from the current point, (x0, y0), to (x1, y1), horizontal at both ends."""
    bend = 0.45 * (x1 - x0)
    return f"C{x0 + bend:g} {y0:g} {x1 - bend:g} {y1:g} {x1:g} {y1:g}"


@dataclass(frozen=True)
class Grid:
    """Coordinates and common parts of a drawing of ``layers`` columns of switches on ``cells`` wires."""

    layers: int
    cells: int

    @property
    def width(self) -> float:
        """Width of the drawing."""
        return 2 * EDGE + COLUMN * (self.layers - 1) + BOX

    def left(self, layer: int) -> float:
        """The left edge of a column."""
        return EDGE + COLUMN * layer

    def right(self, layer: int) -> float:
        """The right edge of a column."""
        return self.left(layer) + BOX

    def wire(self, wire: int) -> float:
        """The y coordinate of a wire."""
        return TOP + PITCH * (wire + 0.5)

    def switch(self, layer: int, switch: int, title: str = "", **attributes: object) -> str:
        """The box of a switch."""
        x, y = self.left(layer), self.wire(2 * switch) - 0.36 * PITCH
        sizes = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{BOX:g}", "height": f"{1.72 * PITCH:g}", "rx": "8"}
        return tag("rect", tag("title", escape(title)) if title else "", **sizes, **attributes)

    def text(self, x: float, y: float, text: object, **attributes: object) -> str:
        """Centred text."""
        return tag("text", escape(str(text)), x=f"{x:g}", y=f"{y:g}", **attributes)

    def captions(self, layers: Sequence[Layer], chosen: int | None = None) -> str:
        """The number of every column above it, its address bit below."""
        y = self.wire(self.cells - 1) + PITCH
        parts = [self.text(EDGE / 2, y, "bit", class_="caption")]
        for index, layer in enumerate(layers):
            x, mark = self.left(index) + BOX / 2, " chosen" if index == chosen else ""
            parts += [self.text(x, TOP - 12, index + 1, class_=f"caption{mark}")]
            parts += [self.text(x, y, layer.bit, class_=f"bit{mark}")]
        return "".join(parts)

    def drawing(self, body: Sequence[str], label: str, name: str) -> str:
        """The whole drawing, as wide as the page allows but never too small to read."""
        limits = f"min-width: {0.56 * self.width:.0f}px; max-width: {1.5 * self.width:.0f}px"
        box = f"0 0 {self.width:g} {TOP + PITCH * self.cells + BOTTOM:g}"
        svg = tag("svg", body, viewBox=box, role="img", aria_label=label, style=limits)
        return frame(svg, label, name)


def frame(svg: str, label: str, name: str) -> str:
    """A drawing in its frame, which scrolls where the page is too narrow, also by the arrow keys."""
    return tag("div", svg, class_=f"drawing {name}", tabindex=0, role="group", aria_label=label)
