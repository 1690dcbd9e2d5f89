"""The tab Switches: the network with every switch coloured by its update gate, up to a chosen layer."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import torch

from riffle.demo.solve import LoadedRun, parse_input
from riffle.demo.svg import BOX, EDGE, PITCH, TOP, Grid, curve, errors_as_markup, tag
from riffle.inspect import Trace, trace
from riffle.shuffle import SHUFFLES, Layer, bits, shuffled_wires
from riffle.tasks import Task
from riffle.tasks.task import trim

MAX_CELLS = 32
"""With more cells, the drawing is too small to read."""
SCALE = ("#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")
"""Colours from a gate of 0, which computes everything anew, to one of 1, which copies; safe for the colour-blind."""


def count_layers(trained: LoadedRun, text: str) -> int:
    """Layers of the network for an input; 1 for an invalid input."""
    try:
        symbols = parse_input(trained.task, text.split(), MAX_CELLS)
        return len(trained.model().network.layers(bits(len(trained.padded(symbols)))))  # type: ignore[union-attr, operator]
    except (ValueError, AttributeError):
        return 1


@errors_as_markup
def show_switches(trained: LoadedRun, text: str, upto: int) -> str:
    """The network on one input, with the switches of the first ``upto`` layers coloured."""
    symbols, model = trained.padded(parse_input(trained.task, text.split(), MAX_CELLS)), trained.model()
    symbols_1N = torch.tensor([symbols])
    traced = trace(model, symbols_1N, order="shuffled")
    with torch.inference_mode():
        outputs = model(symbols_1N).argmax(dim=-1)[0].tolist()
    upto = min(max(1, upto), len(traced.layers))
    return _draw(trained.task, symbols, outputs, traced, upto) + _describe(traced, upto)


def mean_gates(traced: Trace) -> list[list[float] | None]:
    """The mean update gate of every switch of every layer; None for a layer whose unit has no update gate."""
    return [
        None if layer.update is None else layer.update[0].unflatten(0, (-1, 2)).mean(dim=(1, 2)).tolist()
        for layer in traced.layers
    ]


def gate_colour(gate: float) -> str:
    """The colour of a gate on :data:`SCALE`.

    >>> gate_colour(0), gate_colour(1)
    ('#46327e', '#fde725')
    """
    position = min(max(gate, 0.0), 1.0) * (len(SCALE) - 1)
    low = min(int(position), len(SCALE) - 2)
    ends = [[int(SCALE[low + step][i : i + 2], 16) for i in (1, 3, 5)] for step in (0, 1)]
    mixed = (round(a + (b - a) * (position - low)) for a, b in zip(*ends, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _draw(task: Task, symbols: Sequence[int], outputs: Sequence[int], traced: Trace, upto: int) -> str:
    """The drawing, with the input on the left and the network's output on the right."""
    layers, gates = [layer.layer for layer in traced.layers], mean_gates(traced)
    cells = traced.layers[0].state.shape[1]
    grid = Grid(len(layers), cells)
    expected = task.solve(trim(symbols))
    band = {"x": f"{grid.left(upto - 1) - 10:g}", "y": TOP - 28, "width": BOX + 20, "height": PITCH * cells + 58}
    parts = [tag("rect", "", **band, rx=12, class_="here"), *_wires(grid, layers, upto)]
    for index, layer in enumerate(layers):
        for switch in range(cells // 2):
            parts.append(_switch(grid, index, switch, gates[index], f"unit {layer.unit}", index < upto))
    for wire in range(cells):
        y = grid.wire(wire) + 5
        typed = symbols[wire] if wire < len(symbols) else 0
        parts.append(grid.text(EDGE / 2 - 6, y, task.label(typed), class_="symbol"))
        if upto == len(layers) and wire < len(outputs):
            good = outputs[wire] == (expected[wire] if wire < len(expected) else 0)
            x, shown = grid.width - EDGE / 2 + 6, task.label(outputs[wire])
            parts.append(grid.text(x, y, shown, class_=f"symbol {'good' if good else 'bad'}"))
    parts += [grid.captions(layers, upto - 1), *_cells(grid, layers, upto)]
    label = f"The network on {len(trim(symbols))} symbols, the first {upto} layers coloured"
    return grid.drawing(parts, label, "switches")


def _wires(grid: Grid, layers: Sequence[Layer], upto: int) -> list[str]:
    ends = [
        (grid.left(0) - EDGE / 2 + 8, grid.left(0), True),
        (grid.right(len(layers) - 1), grid.width - EDGE / 2 - 8, upto == len(layers)),
    ]
    parts = [
        tag("path", d=f"M{x0:g} {grid.wire(wire):g}H{x1:g}", class_="wire" if lit else "wire later")
        for x0, x1, lit in ends
        for wire in range(grid.cells)
    ]
    for index, layer in enumerate(layers[:-1]):
        for arrives, leaves in enumerate(shuffled_wires(layer, grid.cells)):
            start = (grid.right(index), grid.wire(leaves))
            path = f"M{start[0]:g} {start[1]:g}{curve(*start, grid.left(index + 1), grid.wire(arrives))}"
            parts.append(tag("path", d=path, class_="wire" if index + 1 < upto else "wire later"))
    return parts


def _cells(grid: Grid, layers: Sequence[Layer], upto: int) -> list[str]:
    """A ball for every cell, which moves once: from the input to the output, or into the last coloured layer."""
    cells = range(grid.cells)
    paths = [f"M{EDGE / 2:g} {grid.wire(cell):g}H{grid.left(0):g}" for cell in cells]
    at = list(cells)  # the wire of every cell
    for index, layer in enumerate(layers[: upto - 1]):
        to = {leaves: arrives for arrives, leaves in enumerate(shuffled_wires(layer, grid.cells))}
        for cell in cells:
            x, y, wire = grid.right(index), grid.wire(at[cell]), to[at[cell]]
            way = f"{x:g} {y:g}{curve(x, y, grid.left(index + 1), grid.wire(wire))}"
            paths[cell] = f"{paths[cell]}L{way}" if upto == len(layers) else f"M{way}"
            at[cell] = wire
    end = f"H{grid.width - EDGE / 2:g}" if upto == len(layers) else f"h{BOX:g}"
    style = "offset-path: path('{}{}'); --hue: {:.0f}; --seconds: {:g}s"
    seconds = 0.4 * upto if upto == len(layers) else 0.8
    return [
        tag("circle", r=6, class_="cell", style=style.format(paths[cell], end, 360 * cell / grid.cells, seconds))
        for cell in cells
    ]


def _switch(grid: Grid, layer: int, switch: int, gates: list[float] | None, unit: str, lit: bool) -> str:
    if not lit:
        return grid.switch(layer, switch, class_="switch later")
    if gates is None:
        return grid.switch(layer, switch, class_="switch", title=f"{unit}, which has no update gate")
    gate = gates[switch]
    title = f"layer {layer + 1}, {unit}: copies {gate:.0%}, computes {1 - gate:.0%}"
    box = grid.switch(layer, switch, class_="switch", style=f"fill: {gate_colour(gate)}", title=title)
    number = f"{gate:.2f}".lstrip("0") if gate < 0.995 else "1.0"
    x, y = grid.left(layer) + BOX / 2, grid.wire(2 * switch) + 0.5 * PITCH + 4
    return box + grid.text(x, y, number, class_=f"gate {'on-pale' if gate > 0.55 else 'on-deep'}")


def _describe(traced: Trace, upto: int) -> str:
    """What the last coloured layer does, and the legend."""
    layer, gates = traced.layers[upto - 1].layer, mean_gates(traced)[upto - 1]
    around = traced.layers[0].state.shape[1]
    modulo = "" if around & (around - 1) == 0 or layer.bit == 0 else f" modulo {around - 1}"
    joins = "neighbouring cells" if layer.bit == 0 else f"cells that entered {2**layer.bit} apart{modulo}"
    facts = [
        tag("strong", f"Layer {upto} of {len(traced.layers)}"),
        f"joins {joins} (address bit {layer.bit})",
        f"weights {tag('code', escape(layer.unit))}",
    ]
    if gates is None:
        facts.append("its unit has no update gate")
    else:
        mean = sum(gates) / len(gates)
        facts.append(f"copies {mean:.0%} on average, {min(gates):.0%} to {max(gates):.0%} per switch")
    if layer.shuffle:
        facts.append(f"followed by the shuffle {tag('code', SHUFFLES[layer.shuffle].__name__)}")
    bar = tag("span", "", class_="bar", style=f"background: linear-gradient(to right, {', '.join(SCALE)})")
    legend = tag("div", f"computes anew {bar} copies", class_="legend")
    return tag("p", " · ".join(facts), class_="facts") + legend
