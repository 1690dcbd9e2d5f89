"""benchmarks/roofline.py: what its points are, and that the page says what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import load_script

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def roofline() -> Any:
    return load_script("roofline")


def test_intensity_is_flops_over_units(roofline: Any) -> None:
    points, _ = roofline.read_points(roofline.FILES)
    found = {(point.row, point.keep, point.one_launch): point.intensity for point in points}
    for row, features in (("infer-2m", 96), ("infer-1m", 192)):  # 16 m^2 FLOP and 2 m bytes a unit, for each cell
        assert found[row, False, False] == pytest.approx(8 * features / 9)
        assert found[row, False, True] == pytest.approx(8 * features / 3)
    assert found["backward-1m", False, True] == pytest.approx(3 * 8 * 192 / (3 + 33))
    assert found["backward-1m", True, False] == pytest.approx(3 * 8 * 192 / (9 + 29))
    assert 8 * 384 / (9 + 3) < found["infer-128k", False, False] < 8 * 384 / 9, "half of the layers read a skip"


def test_no_point_is_above_the_roofs(roofline: Any) -> None:
    points, roofs = roofline.read_points(roofline.FILES)
    assert roofs.sustained < roofs.burst
    for point in points:
        assert point.cached == (point.row == "lambada")
        assert point.rate < min(roofs.burst, point.intensity * roofs.copy)


def test_the_same_file_every_time(roofline: Any, tmp_path: Path) -> None:
    points, roofs = roofline.read_points(roofline.FILES)
    files = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for path in files:
        roofline.draw(points, roofs, path)
    one, two = (path.read_text() for path in files)
    assert one == two
    for point in points:
        assert point.label in one


def test_the_page_says_what_the_picture_shows(roofline: Any) -> None:
    points, roofs = roofline.read_points(roofline.FILES)
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    text = page.partition("(roofline.png)")[2].partition("\n\n")[2].partition("\n\n")[0]
    stated = set(map(int, re.findall(r"\b\d{3}\b(?! maps)", text)))
    ridge, narrow = roofs.burst / roofs.copy, [point for point in points if point.row == "infer-2m"]
    trained = [point for point in points if point.row in roofline.TRAINING]
    below = [point for point in (*narrow, *trained) if point.intensity < ridge]
    expected = {ridge, *(point.rate / 1e12 for point in (*narrow, *trained))}
    expected |= {point.intensity * roofs.copy / 1e12 for point in below}
    assert stated == {round(number) for number in expected}
