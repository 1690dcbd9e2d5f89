"""``riffle inspect``: four pictures and a summary."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from riffle.inspect import trace
from riffle.train.run import Run

from .riffle_command import TINY, riffle, succeed

PICTURES = ["dependence", "errors", "gates", "states"]
QUICK = ("--lengths", "4,8,20", "--examples", 4, "--device", "cpu")


def test_json(run: Path) -> None:
    result = succeed("inspect", run, "--input", "1 2 3", "--out", "new/pictures", *QUICK, "--json").json
    assert result["figures"] == [f"new/pictures/{name}.png" for name in PICTURES]
    assert all(Path(path).read_bytes().startswith(b"\x89PNG") for path in result["figures"])
    assert (result["task"], result["run"], result["symbols"]) == ("reverse", str(run), [1, 2, 3, 0]), "as in training"
    assert result["expected"] == "3 2 1"
    assert result["correct"] == (result["output"] == "3 2 1")
    assert result["routed"] in (0, 1 / 3, 2 / 3, 1)
    assert [each["length"] for each in result["errors"]] == [4, 8, 20]
    seen = trace(Run(run).model(), torch.tensor([[1, 2, 3, 0]]))
    assert [(each["unit"], each["bit"]) for each in result["layers"]] == [
        (layer.layer.unit, layer.layer.bit) for layer in seen.layers
    ]
    for each, layer in zip(result["layers"], seen.layers, strict=True):
        assert layer.update is not None
        assert each["update"] == pytest.approx(float(layer.update.mean()))


def test_summary(run: Path) -> None:
    result = succeed("inspect", run, "--length", 12, *QUICK)
    assert "0_forward" in result.out
    assert "of 12 outputs depend most on the input that the task moves there" in result.out
    assert f"pictures: {', '.join(PICTURES)} in {run / 'inspect'}" in result.err
    assert sorted(path.stem for path in (run / "inspect").iterdir()) == PICTURES


def test_the_input_is_the_seeds(run: Path) -> None:
    one, same, other = (succeed("inspect", run, "--seed", seed, *QUICK, "--json").json["symbols"] for seed in (1, 1, 2))
    assert one == same != other
    assert len(one) == 8, "the trained length"


def test_a_task_that_looks_at_its_symbols_and_a_unit_without_gates(tmp_path: Path) -> None:
    folder = tmp_path / "sort"
    succeed("train", "sort", *TINY, "--steps", 1, "--set", "model.unit=two-fc", "--out", folder)
    result = succeed("inspect", folder, *QUICK)
    assert "outputs depend" not in result.out
    assert "none" in result.out
    assert not (folder / "inspect" / "gates.png").exists()
    data = succeed("inspect", folder, *QUICK, "--json").json
    assert data["routed"] is None
    assert all(layer["update"] is None for layer in data["layers"])


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--input", "1", "--length", "2"), "leave out --input or --length"),
        (("--input", "99"), "symbol 99 is outside 1..11"),
        (("--lengths", "8,x"), "--lengths takes whole numbers"),
        (("--lengths", "0"), "--lengths must be at least 1"),
        (("--out", "runs/reverse/config.json"), "exists"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], part: str, run: Path) -> None:
    quick = () if "--lengths" in arguments else QUICK
    result = riffle("inspect", run, *quick, *arguments)
    assert result.code == 1
    assert part in result.err
