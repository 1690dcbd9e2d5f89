"""``bench`` from beginning to end on tiny workloads, and its result file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.riffle_command import riffle, succeed

from research.bench import workloads
from riffle import ShuffleExchange

from . import tiny


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Tiny workloads for the CPU, in an empty working directory."""
    monkeypatch.setitem(workloads.WORKLOADS, "cpu", (tiny.INFERENCE, tiny.STEP))
    monkeypatch.setitem(workloads.ATTENTION, "cpu", ((tiny.OURS, tiny.ENCODER),))
    own_loop = [(workload, ("riffle", "encoder", "gla")) for workload in tiny.OWN_LOOP[1:]]
    monkeypatch.setitem(workloads.OWN_LOOP, "cpu", own_loop)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bench(*arguments: object) -> Any:
    return succeed("bench", "--device", "cpu", "--quick", "--commit", "abc", *arguments)


def test_everything(small: Path) -> None:
    result = bench()
    record = json.loads((small / "bench.json").read_text())
    assert record["commit"] == "abc"
    assert torch.__version__.startswith(record["versions"]["torch"])
    assert record["device"].startswith("cpu")
    (run,) = record["runs"]
    assert run["command"] == "python -m research bench --device cpu --quick --commit abc"
    assert min(run["ceilings"]["product"], run["ceilings"]["copy"]) > 0
    assert record["rows"].keys() == {"short", "step"}
    assert record["attention"].keys() == {"ours-16", "encoder-16"}
    for section in ("rows", "attention"):
        for name, row in record[section].items():
            assert row["forms"]["eager"]["milliseconds"] > 0
            assert section != "rows" or name in result.out
    for name, row in record["own-loop"].items():
        riffle_entry, encoder = row["forms"]["riffle"], row["forms"]["encoder"]
        assert riffle_entry["errors"].keys() == {"output", "gradient of input", "gradient of weight"}
        assert encoder["parameters"] > 0
        assert encoder["errors"] is None
        assert name in result.out
    assert (small / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert "FlashAttention" in (small / "bench.svg").read_text()
    assert "of the floor" in result.err
    assert "The measurements are in bench.json, the plot in bench.png and bench.svg." in result.err


def test_a_model_that_is_not_installed(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fla.layers", None)
    result = bench("--rows", "own-loop", "--forms", "gla")
    assert "not installed" in result.out


def test_later_runs_add_to_the_file(small: Path) -> None:
    out = small / "new" / "file.json"
    bench("--rows", "short", "--out", out)
    before = json.loads(out.read_text())
    assert before["rows"].keys() == {"short"}
    assert not list(out.parent.glob("*.png")), "there is nothing to draw"
    after = bench("--rows", "step, attention", "--out", out, "--json").json
    assert after == json.loads(out.read_text())
    assert after["rows"].keys() == {"short", "step"}
    assert after["rows"]["short"] == before["rows"]["short"]
    assert ["--rows short" in run["command"] for run in after["runs"]] == [True, False]
    assert after["rows"]["step"]["forms"]["eager"]["run"] == 1
    assert out.with_suffix(".png").exists()


def test_a_file_from_elsewhere_is_refused(small: Path) -> None:
    bench("--rows", "short")
    before = Path("bench.json").read_text()
    result = riffle("bench", "--device", "cpu", "--commit", "def", "--rows", "short")
    assert result.code == 1
    assert "bench.json holds measurements of commit abc, this is def: give another --out" in result.err
    assert Path("bench.json").read_text() == before
    Path("bench.json").write_text("{}")
    result = riffle("bench", "--device", "cpu", "--rows", "short")
    assert result.code == 1
    assert "bench.json is no file of bench" in result.err


def test_a_wrong_kernel_ends_with_status_1(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = ShuffleExchange.forward
    monkeypatch.setattr(ShuffleExchange, "forward", lambda *given: forward(*given).roll(1, dims=1))
    result = riffle("bench", "--device", "cpu", "--quick", "--rows", "short")
    assert result.code == 1
    assert "wrong result" in result.out
    assert "not every result was right" in result.err
