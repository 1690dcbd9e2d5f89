"""The tab Length: accuracy over the length of the input, from the run's evaluation and measured while one waits."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from riffle.demo.solve import LoadedRun
from riffle.demo.svg import escape, in_place, tag
from riffle.quantities import format_length, format_percent
from riffle.tasks import get_task
from riffle.train.data import sample_held_out
from riffle.train.evaluate import CorrectCounts, count_correct

LENGTHS = tuple(2**k for k in range(3, 13))
"""What the slider offers: 8 to 4096."""
AXIS = tuple(2**k for k in range(3, 17))
"""What the curve shows: as far as the shipped weights were tested, 8 to 65,536."""
EXAMPLES, SECONDS = 64, 0.7
"""A measurement ends after so many examples, or with the first batch after so many seconds."""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 330, 52, 18, 18, 44


@dataclass(frozen=True)
class Point:
    """Accuracy at one length."""

    length: int
    examples: int
    symbols: float
    """The share of right symbols."""
    sequences: float
    """The share of outputs without a wrong symbol."""
    split: str = "uniform"
    """Or the worst case that was tried."""


def evaluated(trained: LoadedRun) -> list[Point]:
    """The uniform scores in the run's evaluation.json; none without one."""
    return [point for split, point in _scores(trained) if split == "uniform"]


def worst_cases(trained: LoadedRun) -> list[Point]:
    """For every length the score of the worst case with the fewest right symbols; none without an evaluation."""
    lowest: dict[int, Point] = {}
    for split, point in _scores(trained):
        if split != "uniform" and (point.length not in lowest or point.symbols < lowest[point.length].symbols):
            lowest[point.length] = point
    return list(lowest.values())


def _scores(trained: LoadedRun) -> list[tuple[str, Point]]:
    try:
        scores = json.loads((trained.folder / "evaluation.json").read_text())["scores"]
        points = [
            (s["split"], Point(s["length"], s["examples"], s["symbol_accuracy"], s["sequence_accuracy"], s["split"]))
            for s in scores
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    shown = [scored for scored in points if scored[1].length <= AXIS[-1]]
    return sorted(shown, key=lambda scored: scored[1].length)


def measure(trained: LoadedRun, length: int, *, examples: int = EXAMPLES, seconds: float = SECONDS) -> Point:
    """Score a model on a few fresh examples, as ``riffle eval`` does it on many; at least on one."""
    task, model = get_task(trained.config.task), trained.model()
    if length not in LENGTHS:
        raise ValueError(f"length {length} is none of {', '.join(map(str, LENGTHS))}")
    generator = torch.Generator().manual_seed(time.time_ns() % 2**62)
    total, done = [0, 0, 0, 0], 0
    end = time.monotonic() + seconds
    rows = max(1, min(8, 512 // length))
    with torch.inference_mode():
        while done < examples and (done == 0 or time.monotonic() < end):
            if length <= trained.trained_length:
                batch = sample_held_out(task, rows, length, generator=generator)
            else:
                batch = task.sample(rows, length, generator=generator)
            counts: CorrectCounts = count_correct(model(batch.inputs), batch.targets)
            total = [a + int(b) for a, b in zip(total, counts, strict=True)]
            done += rows
    right, symbols, perfect, sequences = total
    return Point(length, sequences, right / symbols if symbols else 1.0, perfect / sequences)


@in_place
def show_lengths(trained: LoadedRun, length: int, *, live: bool = True) -> str:
    """The curve, with a measurement at the chosen length where it is asked for."""
    points, hardest = evaluated(trained), worst_cases(trained)
    measured = measure(trained, length) if live else None
    return draw(points, hardest, measured, length, trained.trained_length) + _about(trained, points, hardest, measured)


def draw(
    points: Sequence[Point], hardest: Sequence[Point], measured: Point | None, chosen: int, trained_length: int
) -> str:
    """Accuracy over length: symbols solid, sequences dashed, worst cases dotted, the measurement as diamonds."""
    parts = [_axes(trained_length), tag("path", d=f"M{_x(chosen):g} {TOP}V{HEIGHT - BOTTOM}", class_="chosen")]
    for name, line in (("hardest", hardest), ("sequences", points), ("symbols", points)):
        shown = [(point, point.sequences if name == "sequences" else point.symbols) for point in line]
        path = "L".join(f"{_x(point.length):.1f} {_y(share):.1f}" for point, share in shown)
        parts.append(tag("path", d=f"M{path}", class_=f"line {name}") if shown else "")
        parts += [_dot(point, share, name) for point, share in shown]
    if measured is not None:
        for name in ("sequences", "symbols"):
            x, y = _x(measured.length), _y(getattr(measured, name))
            title = tag("title", escape(f"just measured: {format_percent(getattr(measured, name))} of {name} right"))
            parts.append(tag("path", title, d=f"M{x:g} {y - 8:g}l8 8l-8 8l-8 -8z", class_=f"live {name}"))
    label = f"Accuracy over the length of the input, trained up to {trained_length}"
    return tag(
        "div", tag("svg", parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label), class_="drawing curve"
    )


def _axes(trained_length: int) -> str:
    edge = min(_x(trained_length) + 20, WIDTH - RIGHT)
    parts = [
        tag("rect", x=LEFT, y=TOP, width=f"{max(0, edge - LEFT):g}", height=HEIGHT - TOP - BOTTOM, class_="trained")
    ]
    parts.append(tag("text", f"trained up to {trained_length}", x=LEFT + 10, y=HEIGHT - BOTTOM - 10, class_="zone"))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(tag("path", d=f"M{LEFT} {_y(share):g}H{WIDTH - RIGHT}", class_="rule"))
        parts.append(tag("text", f"{share:.0%}", x=LEFT - 8, y=f"{_y(share) + 4:g}", class_="tick y"))
    for length in AXIS:
        parts.append(tag("text", format_length(length), x=f"{_x(length):g}", y=HEIGHT - BOTTOM + 20, class_="tick"))
    parts.append(tag("text", "length of the input", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, class_="tick name"))
    return "".join(parts)


def _dot(point: Point, share: float, name: str) -> str:
    what = "sequences" if name == "sequences" else "symbols"
    inputs = "" if point.split == "uniform" else f"{point.split} "
    text = f"length {point.length}: {format_percent(share)} of {what} right ({point.examples} {inputs}examples)"
    where = {"cx": f"{_x(point.length):.1f}", "cy": f"{_y(share):.1f}", "r": 4.5 if name == "symbols" else 3}
    return tag("circle", tag("title", escape(text)), **where, class_=f"dot {name}")


def _x(length: float) -> float:
    first, last = AXIS[0], AXIS[-1]
    share = math.log2(max(length, 1) / first) / math.log2(last / first)
    return LEFT + 26 + share * (WIDTH - LEFT - RIGHT - 52)


def _y(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


def _about(trained: LoadedRun, points: Sequence[Point], hardest: Sequence[Point], measured: Point | None) -> str:
    keys = {"symbols": "symbols right", "sequences": "whole sequences right"}
    keys |= {"hardest": "symbols right, worst case"} if hardest else {}
    legend = "".join(f'<span><i class="key {name}"></i> {text}</span>' for name, text in keys.items())
    legend = tag("div", f'{legend}<span><i class="key diamond">◆</i> just measured</span>', class_="legend")
    facts = []
    if measured is not None:
        n, times = measured.examples, measured.length / trained.trained_length
        much = f", {times:g} times the longest it was trained on" if times > 1 else ""
        facts.append(
            f"<strong>Length {measured.length}{much}:</strong> {format_percent(measured.symbols)} of symbols and "
            f"{format_percent(measured.sequences)} of whole sequences right, measured on {n} fresh "
            f"example{'s' * (n > 1)}"
        )
    if points:
        few, many = (of(point.examples for point in points) for of in (min, max))
        count = f"{many}" if few == many else f"{few} to {many}"
        facts.append(f"The curve is from the run's evaluation, {count} examples of each length")
    else:
        command = f"riffle eval {trained.folder}"
        facts.append(f"This run has no evaluation yet: {tag('code', escape(command))} draws the whole curve")
    return legend + tag("p", " · ".join(facts), class_="facts", data_symbols=measured and f"{measured.symbols:.6f}")
