"""The tab Length: accuracy over the length of the input, from the run's evaluation and measured on request."""

from __future__ import annotations

import math
import time
from functools import cache
from html import escape
from pathlib import Path

import torch

from riffle.demo.solve import LoadedRun
from riffle.demo.svg import errors_as_markup, frame, tag
from riffle.files import read_json
from riffle.nn.lengths import pad_to
from riffle.quantities import format_length, format_percent
from riffle.train.data import sample_held_out
from riffle.train.evaluate import Score, answer, count_correct, with_between

LENGTHS = tuple(length for k in range(3, 13) for length in with_between(2**k))
"""Lengths of the slider: 5 to 4096, at and between powers of two."""
AXIS = tuple(2**k for k in range(3, 17))
"""Lengths of the curve: 8 to 65,536, as far as the shipped weights were tested."""
EXAMPLES, SECONDS = 64, 0.7
"""Limits of a measurement; it ends with the batch that reaches one of them."""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 330, 52, 18, 18, 44


def evaluated_points(trained: LoadedRun) -> tuple[list[Score], list[Score]]:
    """The uniform scores of a run, of filled inputs where there are any, and the worst structured score by length."""
    try:
        content = read_json(trained.folder / "evaluation.json")
        points = [Score(**score) for score in content["scores"]]
    except (OSError, ValueError, KeyError, TypeError):
        return [], []
    points = sorted((point for point in points if point.length <= AXIS[-1]), key=lambda point: point.length)
    hardest: dict[int, Score] = {}
    for point in points:
        if point.split != "uniform":
            hardest[point.length] = min(hardest.get(point.length, point), point, key=lambda each: each.symbol_accuracy)
    points.sort(key=lambda point: point.filled)
    uniform = {point.length: point for point in points if point.split == "uniform"}
    return sorted(uniform.values(), key=lambda point: point.length), list(hardest.values())


@cache
def rivals() -> dict[str, dict[str, list[list[float]]]]:
    """The shares of symbols that other models had right, by task and model; from a clone's result files."""
    curves: dict[str, dict[str, list[list[float]]]] = read_json(Path(__file__).with_name("rivals.json"))
    return curves


def measure(trained: LoadedRun, length: int, *, examples: int = EXAMPLES, seconds: float = SECONDS) -> Score:
    """Score a model on fresh examples, at least one batch, with the metrics of ``riffle eval --filled``."""
    task, model = trained.task, trained.model()
    if length not in LENGTHS:
        raise ValueError(f"length {length} is none of {', '.join(map(str, LENGTHS))}")
    generator = torch.Generator().manual_seed(time.time_ns() % 2**62)
    total, done = [0, 0, 0, 0], 0
    end = time.monotonic() + seconds
    rows = max(1, min(8, 512 // length))
    with torch.inference_mode():
        while done < examples and (done == 0 or time.monotonic() < end):
            batch = sample_held_out(task, rows, length, generator=generator, trained=length <= trained.trained_length)
            outputs = answer(model, task, batch.inputs, trained.padded)
            counts = count_correct(outputs, pad_to(batch.targets, outputs.shape[1]))
            total = [a + int(b) for a, b in zip(total, counts, strict=True)]
            done += rows
    right, symbols, perfect, sequences = total
    return Score(length, "uniform", sequences, right / symbols if symbols else 1.0, perfect / sequences)


@errors_as_markup
def show_lengths(trained: LoadedRun, length: int, *, live: bool = True) -> str:
    """The curve, with a measurement at the chosen length if ``live``."""
    points, hardest = evaluated_points(trained)
    measured = measure(trained, length) if live else None
    drawing = _draw(trained, points, hardest, measured, length)
    return drawing + _describe(trained, points, hardest, measured)


def _draw(trained: LoadedRun, points: list[Score], hardest: list[Score], measured: Score | None, chosen: int) -> str:
    """Accuracy over length: symbols solid, sequences dashed, worst cases dotted, the measurement as diamonds."""
    trained_length = trained.trained_length
    parts = [_axes(trained_length), tag("path", d=f"M{_x(chosen):g} {TOP}V{HEIGHT - BOTTOM}", class_="chosen")]
    for number, (name, curve) in enumerate(rivals().get(trained.config.task, {}).items()):
        path = "L".join(f"{_x(length):.1f} {_y(share):.1f}" for length, share in curve)
        parts.append(tag("path", tag("title", f"{name}: symbols right"), d=f"M{path}", class_=f"line rival{number}"))
    for name, line in (("hardest", hardest), ("sequences", points), ("symbols", points)):
        shown = [(point, point.sequence_accuracy if name == "sequences" else point.symbol_accuracy) for point in line]
        path = "L".join(f"{_x(point.length):.1f} {_y(share):.1f}" for point, share in shown)
        parts.append(tag("path", d=f"M{path}", class_=f"line {name}") if shown else "")
        parts += [_dot(point, share, name) for point, share in shown]
    if measured is not None:
        for name, share in (("sequences", measured.sequence_accuracy), ("symbols", measured.symbol_accuracy)):
            title = tag("title", f"just measured: {format_percent(share)} of {name} right")
            diamond = f"M{_x(measured.length):g} {_y(share) - 8:g}l8 8l-8 8l-8 -8z"
            parts.append(tag("path", title, d=diamond, class_=f"live {name}"))
    label = f"Accuracy over the length of the input, trained up to {trained_length}"
    svg = tag("svg", parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)
    return frame(svg, label, "curve")


def _axes(trained_length: int) -> str:
    width = max(0, min(_x(trained_length) + 20, WIDTH - RIGHT) - LEFT)
    parts = [tag("rect", x=LEFT, y=TOP, width=f"{width:g}", height=HEIGHT - TOP - BOTTOM, class_="trained")]
    parts.append(tag("text", f"trained up to {trained_length}", x=LEFT + 10, y=HEIGHT - BOTTOM - 10, class_="zone"))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(tag("path", d=f"M{LEFT} {_y(share):g}H{WIDTH - RIGHT}", class_="rule"))
        parts.append(tag("text", f"{share:.0%}", x=LEFT - 8, y=f"{_y(share) + 4:g}", class_="tick y"))
    for length in AXIS:
        parts.append(tag("text", format_length(length), x=f"{_x(length):g}", y=HEIGHT - BOTTOM + 20, class_="tick"))
    parts.append(tag("text", "length of the input", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, class_="tick name"))
    return "".join(parts)


def _dot(point: Score, share: float, name: str) -> str:
    metric = "sequences" if name == "sequences" else "symbols"
    inputs = "" if point.split == "uniform" else f"{point.split} "
    text = f"length {point.length}: {format_percent(share)} of {metric} right ({point.examples} {inputs}examples)"
    centre = {"cx": f"{_x(point.length):.1f}", "cy": f"{_y(share):.1f}", "r": 4.5 if name == "symbols" else 3}
    return tag("circle", tag("title", escape(text)), **centre, class_=f"dot {name}")


def _x(length: float) -> float:
    share = math.log2(max(length, 1) / AXIS[0]) / math.log2(AXIS[-1] / AXIS[0])
    return LEFT + 26 + share * (WIDTH - LEFT - RIGHT - 52)


def _y(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


def _describe(trained: LoadedRun, points: list[Score], hardest: list[Score], measured: Score | None) -> str:
    """The legend, the measurement in words, and where the curve comes from."""
    keys = {"symbols": "symbols right", "sequences": "whole sequences right"}
    keys |= {"hardest": "symbols right, worst case"} if hardest else {}
    keys |= {f"rival{number}": name for number, name in enumerate(rivals().get(trained.config.task, {}))}
    legend = "".join(f'<span><i class="key {name}"></i> {text}</span>' for name, text in keys.items())
    legend = tag("div", f'{legend}<span><i class="key diamond">◆</i> just measured</span>', class_="legend")
    facts = []
    if measured is not None:
        n, times = measured.examples, measured.length / trained.trained_length
        beyond = f", {times:g} times the longest it was trained on" if times > 1 else ""
        symbols, sequences = format_percent(measured.symbol_accuracy), format_percent(measured.sequence_accuracy)
        facts.append(
            f"<strong>Length {measured.length}{beyond}:</strong> {symbols} of symbols and {sequences} of whole "
            f"sequences right, measured on {n} fresh example{'s' * (n > 1)}"
        )
    if points:
        least, most = (of(point.examples for point in points) for of in (min, max))
        count = f"{most}" if least == most else f"{least} to {most}"
        facts.append(f"The curve is from the run's evaluation, {count} examples of each length")
    else:
        command = tag("code", escape(f"riffle eval runs/{trained.folder.name}"))
        facts.append(f"This run has no evaluation yet: {command} draws the whole curve")
    if trained.config.task in rivals():
        facts.append("Symbols right of the other models, trained on lengths up to 64: research/rivals.md")
    accuracy = measured and f"{measured.symbol_accuracy:.6f}"
    return legend + tag("p", " · ".join(facts), class_="facts", data_symbols=accuracy)
