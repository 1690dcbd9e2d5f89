"""Time over length, drawn from the file of a bench; ``python -m riffle.bench.plot bench.json`` draws it anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from riffle.plots import INK, LAST_COLOUR, PALETTE, WIRE, new_figure, save_figure, style, style_axes
from riffle.quantities import format_length, format_milliseconds

DPI = 117.5
SIZE = (1600 / DPI, 740 / DPI)
"""Inches; what is 14 points high is still legible at half of it, the width of a page."""
FLOOR = "its floor: FLOPs at a matrix product's rate"


class Line(NamedTuple):
    """Milliseconds by length."""

    label: str
    times: dict[int, float]
    colour: str
    style: str


class Panel(NamedTuple):
    """Lines that share their axes."""

    title: str
    lines: tuple[Line, ...]


def draw(record: Mapping[str, Any], *paths: Path) -> bool:
    """Draw a record into every file given: time over length beside its floor, and beside attention.

    Returns:
        Whether there was anything to draw.
    """
    panels = [panel for panel in (_curve(record["curve"]), _attention(record["attention"])) if panel]
    if not panels:
        return False
    with style(font_size=14):
        figure = new_figure(*SIZE)
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw_panel(axes, panel)
        figure.suptitle(record["device"], color=INK, fontsize=14)
        save_figure(figure, *paths, dpi=DPI, text_as_paths=True)
    return True


def _curve(section: Mapping[str, Any]) -> Panel | None:
    times = _numbers(section, "curve", "milliseconds")
    if not times:
        return None
    floor = _numbers(section, "curve", "floor_milliseconds")
    lines = (
        Line("riffle", times, PALETTE[0], "o-"),
        Line(FLOOR, floor, WIRE, "--"),
    )
    return Panel(_title(section), lines)


def _attention(section: Mapping[str, Any]) -> Panel | None:
    ours, theirs = (_numbers(section, name, "milliseconds") for name in ("ours", "encoder"))
    if not ours or not theirs:
        return None
    lines = (
        Line("6-layer encoder, FlashAttention", theirs, LAST_COLOUR, "s-"),
        Line("riffle", ours, PALETTE[0], "o-"),
        Line(FLOOR, _numbers(section, "ours", "floor_milliseconds"), WIRE, "--"),
    )
    return Panel(_title(section), lines)


def _numbers(section: Mapping[str, Any], prefix: str, number: str) -> dict[int, float]:
    """A number of the rows whose names begin with ``prefix``, by length; of those that have it."""
    found = {
        row["lengths"][0]: entry[number]
        for name, row in section.items()
        for entry in row["forms"].values()
        if name.startswith(prefix) and number in entry
    }
    return dict(sorted(found.items()))


def _title(section: Mapping[str, Any]) -> str:
    row = next(iter(section.values()))
    dtype = next(entry["dtype"] for row in section.values() for entry in row["forms"].values() if "dtype" in entry)
    return f"{row['features']} maps, {row['blocks']} block{'s' if row['blocks'] > 1 else ''}, batch 1, {dtype}"


def _draw_panel(axes: Any, panel: Panel) -> None:
    from matplotlib.ticker import NullLocator

    axes.set(xscale="log", yscale="log")
    ends = sorted(list(line.times.values())[-1] for line in panel.lines)
    for line in panel.lines:
        axes.plot(*zip(*line.times.items(), strict=True), line.style, color=line.colour, label=line.label, linewidth=2)
        length, time = list(line.times.items())[-1]
        side = "bottom" if time == ends[-1] else "top"  # apart, however close the lines end
        where: dict[str, Any] = {"xytext": (9, 0), "textcoords": "offset points", "ha": "left", "va": side}
        axes.annotate(format_milliseconds(time), (length, time), color=line.colour, **where)
    ticks = sorted({length for line in panel.lines for length in line.times})
    axes.set_xticks(ticks, [format_length(tick) for tick in ticks])
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * (right / left) ** 0.15)  # room for the times of the longest
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top * (top / bottom) ** 0.2)  # room for the legend
    axes.yaxis.set_major_formatter(lambda value, _: format_milliseconds(value))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.set_title(panel.title, color=INK, fontsize=14)
    axes.set_xlabel("cells", color=INK)
    axes.tick_params(colors=INK)
    style_axes(axes)
    axes.legend(loc="upper left", frameon=False, labelcolor=INK, fontsize=13)


def main(file: Path) -> None:
    """Draw a bench's plot beside its file."""
    draw(json.loads(file.read_text()), file.with_suffix(".png"), file.with_suffix(".svg"))


if __name__ == "__main__":
    import typer

    typer.run(main)
