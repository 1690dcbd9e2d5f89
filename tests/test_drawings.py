"""Drawings of the network and of a route: a box for every switch, a line for every skip and message, the same bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from routing.test_routing import shuffled
from typer.testing import CliRunner

from riffle.drawings import draw_network, draw_route, main
from riffle.routing import route
from riffle.shuffle import SHARINGS, schedule

DOCS = Path(__file__).parents[1] / "docs"


def boxes(svg: str) -> list[str]:
    return re.findall(r'id="(switch-\d+-\d+)"', svg)


def drawn_settings(svg: str) -> dict[tuple[int, int], bool]:
    settings = re.findall(r'id="switch-(\d+)-(\d+)-(crossed|straight)"', svg)
    return {(int(layer), int(q)): word == "crossed" for layer, q, word in settings}


def expected_settings(permutation: list[int]) -> dict[tuple[int, int], bool]:
    return {(layer, q): on for layer, switches in enumerate(route(permutation)) for q, on in enumerate(switches)}


@pytest.mark.parametrize(("k", "blocks"), [(1, 2), (2, 3), (3, 1), (4, 2)])
@pytest.mark.parametrize("sharing", SHARINGS)
def test_one_box_per_switch_and_one_arc_per_skip(k: int, blocks: int, sharing: str, tmp_path: Path) -> None:
    file = tmp_path / "network.svg"
    draw_network(k, blocks, sharing, path=file)
    svg, layers = file.read_text(), schedule(k, blocks, sharing)
    assert len(set(boxes(svg))) == len(boxes(svg)) == len(layers) * 2**k // 2
    arcs = set(re.findall(r'id="skip-(\d+)"', svg))
    assert arcs == {str(index) for index, layer in enumerate(layers) if layer.skip is not None}
    for unit in {layer.unit for layer in layers}:
        assert f"<!-- {unit} " in svg, "not in the legend"


def test_a_colour_per_unit(tmp_path: Path) -> None:
    file = tmp_path / "network.svg"
    draw_network(3, 2, "minimal", path=file)
    colours = {}
    for layer, colour in re.findall(r'id="switch-(\d+)-0">.*?fill: (#[0-9a-f]{6})', file.read_text(), re.DOTALL):
        colours.setdefault(schedule(3, 2, "minimal")[int(layer)].unit, set()).add(colour)
    assert len(colours) == 9
    assert all(len(used) == 1 for used in colours.values())
    assert len(set.union(*colours.values())) == 9


def test_command_writes_every_file_asked_for(tmp_path: Path) -> None:
    files = [tmp_path / "network.svg", tmp_path / "network.png"]
    command = typer.Typer()
    command.command()(main)
    options = ["--bits", "2", "--blocks", "1", "--sharing", "full"]
    result = CliRunner().invoke(command, [*map(str, files), *options])
    assert result.exit_code == 0, result.output
    assert len(boxes(files[0].read_text())) == 3 * 2
    assert files[1].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
def test_one_line_per_message(n: int, tmp_path: Path) -> None:
    permutation, file = shuffled(n, seed=n), tmp_path / "route.svg"
    draw_route(permutation, file)
    svg = file.read_text()
    assert drawn_settings(svg) == expected_settings(permutation)
    lines = dict(re.findall(r'id="message-(\d+)">.*?stroke: (#[0-9a-f]{6})', svg, re.DOTALL))
    assert sorted(map(int, lines)) == list(range(n))
    assert len(set(lines.values())) == n, "a colour for each message"


@pytest.mark.parametrize("n", [2, 8])
def test_every_line_ends_at_its_exit(n: int, tmp_path: Path) -> None:
    permutation, file = shuffled(n, seed=3), tmp_path / "route.svg"
    draw_route(permutation, file)
    ends = {}
    for message, d in re.findall(r'id="message-(\d+)">\s*<path d="([^"]+)"', file.read_text()):
        heights = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", d)]
        ends[int(message)] = heights[0], heights[-1]
    entries = sorted(first for first, _ in ends.values())
    assert [entries.index(ends[message][0]) for message in range(n)] == list(range(n))
    assert [min(range(n), key=lambda i: abs(entries[i] - ends[m][1])) for m in range(n)] == permutation


def test_too_many_messages(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="up to 64 messages, got 128"):
        draw_route(range(128), tmp_path / "route.svg")
    with pytest.raises(ValueError, match="got 3"):
        draw_route(range(3), tmp_path / "route.svg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["svg", "png"])
@pytest.mark.parametrize("draw", [lambda path: draw_network(2, path=path), lambda path: draw_route([3, 1, 0, 2], path)])
def test_the_same_drawing_gives_the_same_file(draw: Callable[[Path], None], kind: str, tmp_path: Path) -> None:
    for name in "ab":
        draw(tmp_path / f"{name}.{kind}")
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_drawings_of_the_documentation() -> None:
    """The boxes are compared, since fonts differ between versions of matplotlib."""
    assert (DOCS / "network.png").stat().st_size > 0
    assert drawn_settings((DOCS / "route.svg").read_text()) == expected_settings([5, 3, 6, 2, 0, 1, 7, 4])
