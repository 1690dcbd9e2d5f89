"""Draw achieved TFLOP/s over FLOP a byte of device memory, below what the chip's memory and its products allow.

    python benchmarks/roofline.py [RESULT.json ...] [--out docs/roofline.png]

Bytes are the units that the launches of a layer read and write, as docs/kernels.md counts them; FLOPs are those of the
network, without what a backward pass computes again. Of a row that several files have, the last one's time counts.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from riffle.cost import LAYER_NUMBERS, ONE_LAUNCH_NUMBERS
from riffle.files import read_json
from riffle.kernels.tuning import L2_CACHE_BYTES, PRODUCT_FORMS, WIDE_FORMS, find_layer_form, switch_blocks
from riffle.plots import INK, PALETTE, WIRE, new_figure, save_figure, style, style_axes
from riffle.quantities import format_length
from riffle.shuffle import bits, schedule

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "research" / "bench" / "results"
TWO_LAUNCHES = RESULTS / "h200.json"
"""Measured before there was a layer of one launch, and with other backward passes than today's."""
FILES = (TWO_LAUNCHES, RESULTS / "h200-one-launch.json")
INFERENCE = ("infer-2m", "infer-1m", "infer-128k", "lambada")
TRAINING = ("backward-1m", "backward-2m")
FORMS = {"fused": False, "fused-keep": True}
"""Whether gates are kept."""
LIBRARY_NUMBERS = 16
"""Units of a layer whose candidates are a product of the library's: four launches."""
SKIP_NUMBERS, ONE_LAUNCH_SKIP_NUMBERS = 3, 1
"""Units that a skip connection adds."""
KEPT_NUMBERS = 3
"""Units that one launch adds where it writes the gates."""
BACKWARD_NUMBERS, KEPT_BACKWARD_NUMBERS = 37, 33
"""Units of the backward pass of a layer in a network, with its inputs kept, and with its gates too."""
PRODUCT_BACKWARD_NUMBERS = 4
"""Units fewer where the gradient of r * a and the reset pass are one launch."""
ITEMSIZE = 2
FONT_SIZE, SIZE = 11, (12, 5.2)
X_TICKS, Y_TICKS = (60, 100, 200, 400, 800), (100, 150, 200, 300, 400, 600, 800, 1000)
LEFT = 40
MARKERS = {False: "o", True: "s"}
"""By whether gates are kept."""
LABELS = {"lambada": ((12, -16), "left"), "infer-2m": ((-8, 6), "right"), "infer-128k": ((0, 12), "right")}
LABELS |= dict.fromkeys(TRAINING, ((10, -4), "left"))
"""Where a point's name stands, in points from it, and its alignment: above it unless something else is there."""
PANELS = {"inference": INFERENCE, "forward and backward": TRAINING}


class Point(NamedTuple):
    """A measured row."""

    row: str
    label: str
    keep: bool
    """Whether gates are kept."""
    one_launch: bool
    cached: bool
    """Whether gates stay in the second-level cache, so that less than the counted bytes go to memory."""
    intensity: float
    """FLOP a byte."""
    rate: float
    """FLOP a second."""


class Roofs(NamedTuple):
    """What was measured of the chip: bytes a second of a copy, FLOP a second of a short and of a sustained product."""

    copy: float
    burst: float
    sustained: float


def read_points(paths: Sequence[Path]) -> tuple[list[Point], Roofs]:
    """The rows of result files, and the chip's rates in them."""
    records = {path: read_json(path, dict[str, Any]) for path in paths}
    points = {}
    for path, record in records.items():
        old = path == TWO_LAUNCHES
        for name in INFERENCE if old else (*INFERENCE, *TRAINING):
            row = record["rows"].get(name, {"forms": {}})
            for form, keep in FORMS.items():
                if "milliseconds" in row["forms"].get(form, {}):
                    point = measured_point(name, row, form, keep=keep, may_be_one=not old)
                    points[name, point.keep, point.one_launch] = point
    rates = [run["ceilings"] for record in records.values() for run in record["runs"]]
    products = [rate["product"] for rate in rates]
    return list(points.values()), Roofs(max(rate["copy"] for rate in rates), max(products), min(products))


def measured_point(name: str, row: dict[str, Any], form: str, *, keep: bool, may_be_one: bool) -> Point:
    """One row as one form computed it."""
    features, length, batch, training = row["features"], row["lengths"][0], row["batch"], name in TRAINING
    cells = length * batch
    one = may_be_one and find_layer_form(cells // 2, features, torch.bfloat16, keep=keep) is not None
    layers = schedule(bits(length), row["blocks"])
    two = switch_blocks(cells, features, torch.bfloat16) or (may_be_one and not keep and features in WIDE_FORMS)
    forward = LAYER_NUMBERS if two else LIBRARY_NUMBERS
    if one:
        forward = ONE_LAUNCH_NUMBERS + (KEPT_NUMBERS if keep else 0)
    units = len(layers) * forward
    units += sum(layer.skip is not None for layer in layers) * (ONE_LAUNCH_SKIP_NUMBERS if one else SKIP_NUMBERS)
    if training:
        backward = KEPT_BACKWARD_NUMBERS if keep else BACKWARD_NUMBERS
        product = PRODUCT_FORMS.get(features) if may_be_one else None
        if product is not None and cells // 2 >= product.fewest:
            backward -= PRODUCT_BACKWARD_NUMBERS
        units += len(layers) * backward
    unit_bytes = cells * features * ITEMSIZE
    size = format_length(length) + (f" x {batch}" if batch > 1 else "")
    return Point(
        name,
        f"{features} maps, {size}",
        keep,
        one,
        3 * unit_bytes <= L2_CACHE_BYTES,
        row["flops"] / (units * unit_bytes),
        row["flops"] / (row["forms"][form]["milliseconds"] / 1e3),
    )


def draw(points: Sequence[Point], roofs: Roofs, path: Path) -> None:
    """Draw the points below the roofs; an arrow leads from a row's two launches to its one."""
    with style(FONT_SIZE):
        figure = new_figure(*SIZE)
        for axes, (title, rows) in zip(figure.subplots(1, 2, sharey=True), PANELS.items(), strict=True):
            axes.set(xscale="log", yscale="log", xlim=(LEFT, X_TICKS[-1]), ylim=(Y_TICKS[0], Y_TICKS[-1]))
            draw_roofs(axes, roofs)
            shown = [point for point in points if point.row in rows]
            for point in shown:
                draw_point(axes, point, shown)
            axes.set_xticks(X_TICKS, map(str, X_TICKS))
            axes.set_yticks(Y_TICKS, map(str, Y_TICKS))
            axes.minorticks_off()
            axes.tick_params(colors=INK)
            axes.set_title(title, color=INK, fontsize=FONT_SIZE)
            axes.set_xlabel("FLOP a byte read or written", color=INK)
            style_axes(axes)
            draw_legend(axes, rows)
        figure.axes[0].set_ylabel("TFLOP/s", color=INK)
        save_figure(figure, path)


def draw_roofs(axes: Any, roofs: Roofs) -> None:
    """A slope for the memory, and a level for each rate of a product."""
    right, slope = X_TICKS[-1], roofs.copy / 1e12
    for product, form, name in ((roofs.burst, "-", "short"), (roofs.sustained, "--", "sustained")):
        level = product / 1e12
        axes.plot([LEFT, level / slope, right], [LEFT * slope, level, level], form, color=WIRE)
        text = f"{name} product, {level:.0f} TFLOP/s"
        axes.annotate(text, (right, level), (-4, 4), textcoords="offset points", ha="right", color=INK)
    angle = {"rotation": math.degrees(math.atan(slope)), "rotation_mode": "anchor", "transform_rotates_text": True}
    axes.text(1.1 * LEFT, 1.17 * LEFT * slope, f"memory, {slope:.2f} TB/s", color=INK, **angle)


def draw_point(axes: Any, point: Point, points: Sequence[Point]) -> None:
    """A marker with its name, where no arrow leads on from it."""
    colour, place = PALETTE[0] if point.one_launch else PALETTE[2], (point.intensity, point.rate / 1e12)
    face = "white" if point.cached else colour
    axes.plot(*place, MARKERS[point.keep], color=colour, markerfacecolor=face, markersize=9, zorder=3)
    later = [each for each in points if each[:3] == point[:3] and each.one_launch > point.one_launch]
    for each in later:
        arrow = {"arrowstyle": "->", "color": colour, "shrinkA": 7, "shrinkB": 7}
        axes.annotate("", (each.intensity, each.rate / 1e12), place, arrowprops=arrow)
    if not later:
        offset, side = LABELS.get(point.row, ((0, 10), "center"))
        axes.annotate(point.label, place, offset, textcoords="offset points", ha=side, color=INK)


def draw_legend(axes: Any, rows: Sequence[str]) -> None:
    """What markers and colours mean in a panel."""
    if rows == TRAINING:
        entries = [("o", INK, INK, "inputs kept"), ("s", INK, INK, "gates kept")]
    else:
        entries = [("o", INK, "white", "gates stay in the cache")]
    entries += [("o", PALETTE[2], PALETTE[2], "forward in two launches or more")]
    entries += [("o", PALETTE[0], PALETTE[0], "forward in one launch")]
    for marker, colour, face, name in entries:
        axes.plot([], [], marker, color=colour, markerfacecolor=face, markersize=8, label=name)
    axes.legend(loc="lower right", frameon=False, labelcolor=INK)


def main() -> None:
    """Draw the committed files, or others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", nargs="*", type=Path, default=FILES)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "roofline.png")
    arguments = parser.parse_args()
    points, roofs = read_points(arguments.results)
    for point in points:
        print(point)
    draw(points, roofs, arguments.out)


if __name__ == "__main__":
    main()
