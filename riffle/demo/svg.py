"""The geometry that drawings of the network share: wires, columns of switches, curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from riffle.demo.html import escape, tag
from riffle.nn.forms import SHUFFLES
from riffle.shuffle import Layer

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
    return SHUFFLES[layer.turn](torch.arange(cells).view(1, cells, 1)).flatten().tolist()


def curve(x0: float, y0: float, x1: float, y1: float) -> str:
    """A piece of path from where one is to a point, level at both ends."""
    bend = 0.45 * (x1 - x0)
    return f"C{x0 + bend:g} {y0:g} {x1 - bend:g} {y1:g} {x1:g} {y1:g}"
