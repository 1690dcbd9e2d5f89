"""The pictures show every layer, every length, and what the numbers say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from riffle import ShuffleExchange
from riffle.inspect import trace
from riffle.inspect.figures import dependence_figure, errors_figure, gates_figure, states_figure


def saved(figure: Any, folder: Path) -> bytes:
    figure.savefig(folder / "figure.png", dpi=50)
    return (folder / "figure.png").read_bytes()


def texts(axes: Any) -> set[str]:
    return {text.get_text() for text in axes.texts}


@pytest.mark.parametrize("draw", [gates_figure, states_figure])
@pytest.mark.parametrize("length", [1, 2, 13, 32])
def test_one_image_for_each_layer(draw: Any, length: int, tmp_path: Path) -> None:
    seen = trace(ShuffleExchange(6, blocks=2), torch.rand(2, length, 6), order="in-place")
    figure = draw(seen, row=1)
    assert saved(figure, tmp_path).startswith(b"\x89PNG")
    *rows, _ = figure.axes
    assert len(rows) == len(seen.layers)
    for axes, layer in zip(rows, seen.layers, strict=True):
        value = (layer.update if draw is gates_figure else layer.out)[1, :length]
        (image,) = axes.images
        assert image.get_array().shape == (6, length)
        # the order of features is the picture's own, in each half
        for half, mine in ((slice(0, 3), image.get_array()[:3]), (slice(3, 6), image.get_array()[3:])):
            shown = sorted(map(tuple, mine.tolist()))
            torch.testing.assert_close(torch.tensor(shown), torch.tensor(sorted(map(tuple, value[:, half].T.tolist()))))
        assert {layer.layer.unit, f"bit {layer.layer.bit}", f"{value.abs().mean():.2f}"} <= texts(axes)


def test_no_gates_no_picture_of_them(tmp_path: Path) -> None:
    seen = trace(ShuffleExchange(6, unit="two-fc"), torch.rand(1, 8, 6))
    with pytest.raises(ValueError, match="no update gate"):
        gates_figure(seen)
    assert saved(states_figure(seen), tmp_path)


def test_dependence(tmp_path: Path) -> None:
    values = torch.rand(20, 20)
    figure = dependence_figure(values, title="a title")
    assert saved(figure, tmp_path)
    torch.testing.assert_close(torch.tensor(figure.axes[0].images[0].get_array()), values)
    assert figure.axes[0].get_title(loc="left") == "a title"


@pytest.mark.parametrize("trained", [None, 8, 16, 32])
def test_errors(trained: int | None, tmp_path: Path) -> None:
    rates = torch.tensor([[0.0, 0.0], [0.25, 0.75], [float("nan"), 0.5]], dtype=torch.float64)
    figure = errors_figure(rates, [8, 16, 32], trained_length=trained)
    assert saved(figure, tmp_path)
    axes = figure.axes[0]
    assert {"0%", "50%"} <= texts(axes)
    assert ("trained up to here" in texts(axes)) == (trained in (8, 16))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["8", "16", "32"]
