"""The tour: its links lead somewhere, it is kept with its outputs, it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOK = DOCS / "tour.ipynb"


def test_links_of_the_notebook_lead_to_files() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)#:]+)\)", text)
    assert targets
    assert all((DOCS / target).exists() for target in targets)


def test_the_notebook_is_kept_with_its_outputs() -> None:
    assert NOTEBOOK.stat().st_size < 300_000
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    kinds = {kind for cell in cells for output in cell.get("outputs", ()) for kind in output.get("data", ())}
    assert {"image/png", "image/svg+xml"} <= kinds
    assert not any(output.output_type == "error" for cell in cells for output in cell.get("outputs", ()))


@pytest.mark.timeout(600)
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))  # research is not installed
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (training,) = (cell for cell in notebook.cells if "train(run" in cell.source)
    training.source = training.source.replace(
        "run = Run.create", "config = replace(config, train=replace(config.train, steps=400))\nrun = Run.create"
    )
    nbclient.NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert "step  400" in str(training.outputs)
    assert "step  600" not in str(training.outputs), "the steps of a reader, which take longer"
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()))
    accuracy = printed.partition("symbols right")[2]
    assert re.search(r"^ *8 +(9[5-9]|100)\.\d%", accuracy, re.MULTILINE), printed
