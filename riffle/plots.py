"""One plotting style: colours, fonts, and figures written to files that do not change from run to run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PALETTE = ("#3b6fb6", "#7fb8e6", "#d9822b", "#f3c262", "#4d9365", "#a5d3a0", "#8059a8", "#c7aae0")
"""Colours of the units in the order of their first layers, used again where there are more."""
LAST_COLOUR = "#c0455e"
"""The colour of the last layer."""
INK, WIRE = "#24292f", "#8b949e"
INCH, DPI = 0.36, 117.5
"""Inches per unit and pixels per inch: 1600 pixels for the paper's network of 16 cells and two blocks."""
UNDATED: dict[str, dict[str, Any]] = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}
"""Leaves the date and the program out of a file, so that the same figure gives the same file."""
PNG_COLOURS = 128
"""Of a PNG."""


def save_figure(figure: Any, path: Path, dpi: float = DPI) -> None:
    """Write a matplotlib figure; a PNG gets a palette, which takes a third of the bytes."""
    figure.savefig(path, dpi=dpi, metadata=UNDATED.get(path.suffix))
    if path.suffix == ".png":
        from PIL import Image

        with Image.open(path) as image:
            few = image.convert("RGB").quantize(PNG_COLOURS, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "svg.hashsalt": "riffle",
    "svg.fonttype": "none",  # text that can be found and copied, at half the size
}


def save_all(figure: Figure, *paths: Path) -> None:
    """Write a figure into every file given."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        for path in paths:
            save_figure(figure, path, 150)
