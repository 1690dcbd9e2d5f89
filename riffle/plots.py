"""The one plotting style: colours, fonts, new figures, and files that are the same bytes every time.

Draw inside ``with style():`` on a :func:`new_figure`, then write it with :func:`save_figure`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from riffle.files import check_writable, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PALETTE = ("#3b6fb6", "#7fb8e6", "#d9822b", "#f3c262", "#4d9365", "#a5d3a0", "#8059a8", "#c7aae0")
"""Colours of lines, bars and units, repeated when there are more."""
LAST_COLOUR = "#c0455e"
"""Colour of the last layer, and of what stands out."""
INK, WIRE, GRID = "#24292f", "#8b949e", "#d0d7de"
"""Colours of text, of wires and reference lines, and of faint rules."""
DPI = 150
METADATA: dict[str, dict[str, Any]] = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}
"""Leaves date and program version out of the files, so that the same figure gives the same bytes."""


def style(font_size: float = 10, **extra: Any) -> AbstractContextManager[None]:
    """The rc settings to draw a figure in; ``**{"axes.titlesize": 11}`` adds others."""
    import matplotlib

    settings: dict[Any, Any] = {"font.family": "sans-serif", "text.color": INK, "font.size": font_size, **extra}
    return matplotlib.rc_context(settings)


def new_figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """An empty white figure of ``width`` by ``height`` inches, which no global state of pyplot keeps alive."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), facecolor="white", layout=layout)


def style_axes(axes: Axes) -> None:
    """A faint grid, and no frame at the top and on the right."""
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def unit_colours(units: Iterable[str]) -> dict[str, str]:
    """The colour of each unit of a network, in the order of their first layers.

    >>> unit_colours(["0_forward", "0_forward", "0_reverse", "last"])
    {'0_forward': '#3b6fb6', '0_reverse': '#7fb8e6', 'last': '#c0455e'}
    """
    return {
        unit: LAST_COLOUR if unit == "last" else PALETTE[index % len(PALETTE)]
        for index, unit in enumerate(dict.fromkeys(units))
    }


def check_figures(*paths: Path) -> None:
    """Raise where :func:`save_figure` would for a format or a place: before minutes of work."""
    known = new_figure(1, 1).canvas.get_supported_filetypes().keys() - {"pgf"}  # which is for a LaTeX document
    for path in paths:
        if _kind(path) not in known:
            raise ValueError(f"{path} cannot be drawn: its name has to end with one of .{', .'.join(sorted(known))}")
        check_writable(path)


def _kind(path: Path) -> str:
    return path.suffix.removeprefix(".").lower() or "png"


def save_figure(figure: Figure, *paths: Path, dpi: float = DPI, text_as_paths: bool = False) -> None:
    """Write a figure to every file given; a PNG gets a palette of 128 colours, which takes a third of the bytes.

    ``text_as_paths`` makes an SVG draw its text as outlines, the same with every installed font. Otherwise the text can
    be searched and copied, and the file is half as large.
    """
    import matplotlib
    from PIL import Image

    fonttype = "path" if text_as_paths else "none"
    with matplotlib.rc_context({"svg.hashsalt": "riffle", "svg.fonttype": fonttype}):
        for path in paths:
            kind = _kind(path)
            content = io.BytesIO()
            figure.savefig(content, format=kind, dpi=dpi, metadata=METADATA.get(f".{kind}"))
            if kind == "png":
                with Image.open(content) as image:
                    indexed = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
                content = io.BytesIO()
                indexed.save(content, format=kind, optimize=True)
            write_atomically(path, content.getvalue())
