"""The plot of a result file of ``bench``: time over length.

``python -m research.bench.plots bench.json`` draws the plot of a result file again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from research.quantities import format_milliseconds
from riffle.plots import INK, LAST_COLOUR, PALETTE, WIRE, new_figure, save_figure, style, style_axes
from riffle.quantities import format_length

FONT_SIZE, DPI = 14, 117.5
SIZE = (1600 / DPI, 740 / DPI)
"""Inches; the text is still legible at half the size, the width of a page."""

Curve = tuple[str, dict[int, float], str, str]
"""A label, milliseconds by length, a colour and matplotlib's format of a line."""


def draw_bench(record: Mapping[str, Any], *paths: Path) -> bool:
    """Draw time over length beside attention and the lower bound; False if a line has no times."""
    section = record["attention"]
    lines: list[Curve] = [
        ("6-layer encoder, FlashAttention", _by_length(section, "encoder", "milliseconds"), LAST_COLOUR, "s-"),
        ("riffle", _by_length(section, "ours", "milliseconds"), PALETTE[0], "o-"),
        ("its floor: FLOPs at a matrix product's rate", _by_length(section, "ours", "floor_milliseconds"), WIRE, "--"),
    ]
    if not all(times for _, times, _, _ in lines):
        return False
    rows = list(section.values())
    dtype = next(entry["dtype"] for row in rows for entry in row["forms"].values() if "dtype" in entry)
    with style(FONT_SIZE):
        figure = new_figure(*SIZE)
        axes = figure.subplots()
        _draw_lines(axes, lines)
        title = f"{rows[0]['features']} maps, {rows[0]['blocks']} blocks, batch 1, {dtype}"
        axes.set_title(title, color=INK, fontsize=FONT_SIZE)
        figure.suptitle(record["device"], color=INK, fontsize=FONT_SIZE)
        save_figure(figure, *paths, dpi=DPI, text_as_paths=True)
    return True


def _by_length(section: Mapping[str, Any], prefix: str, number: str) -> dict[int, float]:
    """A number of the rows whose names begin with ``prefix``, by length, for those that have it."""
    numbers = {
        row["lengths"][0]: entry[number]
        for name, row in section.items()
        for entry in row["forms"].values()
        if name.startswith(prefix) and number in entry
    }
    return dict(sorted(numbers.items()))


def _draw_lines(axes: Any, lines: list[Curve]) -> None:
    axes.set(xscale="log", yscale="log")
    slowest = max(list(times.values())[-1] for _, times, _, _ in lines)
    for label, times, colour, form in lines:
        axes.plot(*zip(*times.items(), strict=True), form, color=colour, label=label, linewidth=2)
        length, time = list(times.items())[-1]
        side = "bottom" if time == slowest else "top"  # so that labels of lines that end close do not overlap
        position: dict[str, Any] = {"xytext": (9, 0), "textcoords": "offset points", "ha": "left", "va": side}
        axes.annotate(format_milliseconds(time), (length, time), color=colour, **position)
    ticks = sorted({length for _, times, _, _ in lines for length in times})
    axes.set_xticks(ticks, [format_length(tick) for tick in ticks])
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * (right / left) ** 0.15)  # room for the times of the longest
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top * (top / bottom) ** 0.2)  # room for the legend
    axes.yaxis.set_major_formatter(lambda value, _: format_milliseconds(value))
    axes.minorticks_off()
    axes.set_xlabel("cells", color=INK)
    axes.tick_params(colors=INK)
    style_axes(axes)
    axes.legend(loc="upper left", frameon=False, labelcolor=INK, fontsize=13)


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        draw_bench(json.loads(file.read_text()), file.with_suffix(".png"), file.with_suffix(".svg"))
