"""The drawing of the network: a box for every switch, an arc for every skip connection, the same bytes every time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from research.ship.drawing import draw_network, main
from riffle.shuffle import SHARINGS, schedule


def boxes(svg: str) -> list[str]:
    return re.findall(r'id="(switch-\d+-\d+)"', svg)


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


def test_command_writes_every_file_asked_for_the_same_every_time(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one.svg", "two.svg", "one.png", "two.png")]
    main(files, bits=2, blocks=1, sharing="full")
    assert len(boxes(files[0].read_text())) == 3 * 2
    assert files[2].read_bytes().startswith(b"\x89PNG")
    for one, two in (files[:2], files[2:]):
        assert one.read_bytes() == two.read_bytes()
