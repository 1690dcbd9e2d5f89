"""The drawing of a route: a box for every switch, a line for every message, the same bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from routing.test_routing import shuffled

from riffle.drawings import draw_causal, draw_route
from riffle.routing import route

DOCS = Path(__file__).parents[1] / "docs"


def drawn_settings(svg: str) -> dict[tuple[int, int], bool]:
    settings = re.findall(r'id="switch-(\d+)-(\d+)-(crossed|straight)"', svg)
    return {(int(layer), int(q)): word == "crossed" for layer, q, word in settings}


def expected_settings(permutation: list[int]) -> dict[tuple[int, int], bool]:
    return {(layer, q): on for layer, switches in enumerate(route(permutation)) for q, on in enumerate(switches)}


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


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_same_drawing_gives_the_same_file(kind: str, tmp_path: Path) -> None:
    for name in "ab":
        draw_route([3, 1, 0, 2], tmp_path / f"{name}.{kind}")
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_the_drawing_of_the_documentation() -> None:
    """The boxes are compared, since fonts differ between versions of matplotlib."""
    assert drawn_settings((DOCS / "route.svg").read_text()) == expected_settings([5, 3, 6, 2, 0, 1, 7, 4])


def test_a_causal_network_reads_earlier_cells_alone(tmp_path: Path) -> None:
    draw_causal(12, 9, tmp_path / "causal.svg")
    for file in (tmp_path / "causal.svg", DOCS / "causal.svg"):
        lines = re.findall(r'id="layer-(\d+)-(\d+)-(\d+)"', file.read_text())
        expected = [(j, 2**bit) for j, bit in enumerate((0, 1, 2, 3, 3, 2, 1, 0))]
        read = {(j, cell - by, cell) for j, by in expected for cell in range(12) if cell >= by}
        assert {(int(j), int(source), int(cell)) for j, source, cell in lines if source != cell} == read
