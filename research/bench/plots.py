"""Plots of time over length: as ``bench`` measured it, and as the cost model of ``plan`` predicts it.

``python -m research.bench.plots bench.json`` draws the plot of a result file again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from research.quantities import format_milliseconds
from riffle.plots import INK, LAST_COLOUR, PALETTE, WIRE, new_figure, save_figure, style, style_axes
from riffle.quantities import format_length

if TYPE_CHECKING:
    from research.bench.cost import Machine, ShardedWork

FONT_SIZE, DPI = 14, 117.5
SIZE = (1600 / DPI, 740 / DPI)
"""Inches; the text is still legible at half the size, the width of a page."""
SHORTEST, LONGEST, MOST_RANKS = 20, 36, 10
"""Of the cost model's plot: address bits of the shortest and longest sequence, and of the largest number of devices."""


Curve = tuple[str, dict[int, float], str, str]
"""A label, milliseconds by length, a colour and matplotlib's format of a line."""


def draw_bench(record: Mapping[str, Any], *paths: Path) -> bool:
    """Draw time over length, beside its lower bound and beside attention; False if there is nothing to draw."""
    panels = {section: lines for section in ("curve", "attention") if (lines := _lines(record[section], section))}
    if not panels:
        return False
    with style(FONT_SIZE):
        figure = new_figure(*SIZE)
        for axes, (section, lines) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            _draw_lines(axes, lines)
            rows = list(record[section].values())
            dtype = next(entry["dtype"] for row in rows for entry in row["forms"].values() if "dtype" in entry)
            blocks = f"{rows[0]['blocks']} block{'s' * (rows[0]['blocks'] > 1)}"
            title = f"{rows[0]['features']} maps, {blocks}, batch 1, {dtype}"
            axes.set_title(title, color=INK, fontsize=FONT_SIZE)
        figure.suptitle(record["device"], color=INK, fontsize=FONT_SIZE)
        save_figure(figure, *paths, dpi=DPI, text_as_paths=True)
    return True


def _lines(section: Mapping[str, Any], name: str) -> list[Curve]:
    """The lines of a panel; none where a model that it compares has no times."""
    network = "curve" if name == "curve" else "ours"
    lines: list[Curve] = [
        ("riffle", _by_length(section, network, "milliseconds"), PALETTE[0], "o-"),
        ("its floor: FLOPs at a matrix product's rate", _by_length(section, network, "floor_milliseconds"), WIRE, "--"),
    ]
    if name == "attention":
        encoder = _by_length(section, "encoder", "milliseconds")
        lines.insert(0, ("6-layer encoder, FlashAttention", encoder, LAST_COLOUR, "s-"))
    return lines if all(times for _, times, _, _ in lines) else []


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


def draw_cost(path: Path, work: ShardedWork, machine: Machine) -> None:
    """Draw predicted time and share of communication up to 2^36 cells and 1,024 devices, those of ``work`` marked."""
    from research.bench.cost import ShardedCost

    def numbers(length: int, ranks: int) -> tuple[float, float, bool]:
        cost = ShardedCost(replace(work, length=length, ranks=ranks), machine)
        return cost.seconds, cost.communication_seconds / cost.seconds, cost.fits

    with style(FONT_SIZE):
        figure = new_figure(*SIZE)
        times, shares = figure.subplots(1, 2)
        for index, p in enumerate(range(0, MOST_RANKS + 1, 2)):
            lengths = [2**k for k in range(max(SHORTEST, 2 * p), LONGEST + 1)]
            *panels, fits = zip(*(numbers(length, 2**p) for length in lengths), strict=True)
            label = f"{2**p:,} device{'s' * (p > 0)}"
            for axes, values in zip((times, shares) if p else (times,), panels, strict=False):
                fitting = [value if fit else float("nan") for value, fit in zip(values, fits, strict=True)]
                axes.plot(lengths, values, ":", color=PALETTE[index], linewidth=1.5)
                axes.plot(lengths, fitting, "-", color=PALETTE[index], linewidth=2.5, label=label)
        for axes, value in zip((times, shares), numbers(work.length, work.ranks), strict=False):
            axes.plot([work.length], [value], "o", color=LAST_COLOUR, markersize=9, zorder=5)
            axes.set_xscale("log", base=2)
            axes.set(xlabel="cells")
            axes.grid(color=WIRE, alpha=0.25)
            axes.legend(frameon=False, labelcolor=INK, fontsize=12)
        times.set(yscale="log", ylabel=f"seconds, {'forward and backward' if work.training else 'forward'}")
        shares.set(ylim=(0, 1), ylabel="share of communication")
        network = f"{work.features} maps, {work.blocks} block{'s' * (work.blocks != 1)}"
        title = f"{network}: solid where it fits, dotted where it does not"
        figure.suptitle(title, color=INK, fontsize=FONT_SIZE)
        save_figure(figure, path, dpi=DPI, text_as_paths=True)


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        draw_bench(json.loads(file.read_text()), file.with_suffix(".png"), file.with_suffix(".svg"))
