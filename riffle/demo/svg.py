"""Pieces of the page that are plain HTML and SVG, and the answer to a mistake.

The geometry that drawings of the network share: wires, columns of switches, curves.
"""

from __future__ import annotations

import functools
import html
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ParamSpec

import torch

from riffle.shuffle import SHUFFLES, Layer

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


PITCH, COLUMN, BOX, EDGE = 26.0, 92.0, 40.0, 62.0
"""Between wires, between columns, the width of a switch, and the room at both ends."""
TOP, FOOT = 30.0, 30.0


@dataclass(frozen=True)
class Grid:
    """Where things stand in a drawing of ``layers`` columns on ``cells`` wires."""

    layers: int
    cells: int

    @property
    def width(self) -> float:
        """Of the drawing."""
        return 2 * EDGE + COLUMN * (self.layers - 1) + BOX

    @property
    def height(self) -> float:
        """Of the drawing."""
        return TOP + PITCH * self.cells + FOOT

    def left(self, layer: int) -> float:
        """Where a column begins."""
        return EDGE + COLUMN * layer

    def right(self, layer: int) -> float:
        """Where a column ends."""
        return self.left(layer) + BOX

    def wire(self, wire: int) -> float:
        """How far down a wire runs."""
        return TOP + PITCH * (wire + 0.5)

    def box(self, layer: int, switch: int, **attributes: object) -> str:
        """A switch."""
        y = self.wire(2 * switch) - 0.36 * PITCH
        sizes = {"x": f"{self.left(layer):g}", "y": f"{y:g}", "width": f"{BOX:g}", "height": f"{1.72 * PITCH:g}"}
        title = attributes.pop("title", None)
        return tag("rect", tag("title", escape(title)) if title else "", **sizes, rx="8", **attributes)

    def text(self, x: float, y: float, text: object, **attributes: object) -> str:
        """A word, centred."""
        return tag("text", escape(text), x=f"{x:g}", y=f"{y:g}", **attributes)

    def captions(self, layers: Sequence[Layer], chosen: int | None = None) -> str:
        """The number of every column above, its address bit below."""
        y = self.wire(self.cells - 1) + PITCH
        parts = [self.text(EDGE / 2, y, "bit", class_="caption")]
        for index, layer in enumerate(layers):
            x, here = self.left(index) + BOX / 2, " chosen" if index == chosen else ""
            parts += [self.text(x, TOP - 12, index + 1, class_=f"caption{here}")]
            parts += [self.text(x, y, layer.bit, class_=f"bit{here}")]
        return "".join(parts)

    def drawing(self, body: Sequence[str], label: str, name: str) -> str:
        """The whole drawing, as wide as there is room and never too small to be read."""
        least = f"min-width: {0.56 * self.width:.0f}px; max-width: {1.5 * self.width:.0f}px"
        box = f"0 0 {self.width:g} {self.height:g}"
        return tag(
            "div", tag("svg", body, viewBox=box, role="img", aria_label=label, style=least), class_=f"drawing {name}"
        )


def shuffle(layer: Layer, cells: int) -> list[int]:
    """Which wire each wire behind a layer's shuffle comes from."""
    return SHUFFLES[layer.shuffle](torch.arange(cells).view(1, cells, 1)).flatten().tolist()


def curve(x0: float, y0: float, x1: float, y1: float) -> str:
    """A piece of path from where one is to a point, level at both ends."""
    bend = 0.45 * (x1 - x0)
    return f"C{x0 + bend:g} {y0:g} {x1 - bend:g} {y1:g} {x1:g} {y1:g}"
