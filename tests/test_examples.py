"""Every file of examples/: short, and it runs with a few steps."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
EXACT = ("export_onnx", "packed_rows", "permutation_network")
"""Examples that compare two results and return by how much they differ; the others train, and take steps."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 80
    assert f"python examples/{path.name}" in text
    main = runpy.run_path(str(path))["main"]
    if path.stem in EXACT:
        assert main() < 1e-6
    else:
        assert math.isfinite(main(steps=2))
    assert capsys.readouterr().out
