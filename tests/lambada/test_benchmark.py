"""benchmarks/lambada.py: runs that are trained, scored, and moved as weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmark_scripts import load_script

from riffle.lambada.evaluate import TrainedReader, read_splits
from riffle.train.run import Run

TINY = ("model.features=16", "data.batch=8", "data.bins=32", "data.likeness=0", "train.steps=30", "train.warmup=1")
CPU = ("train.precision=fp32", "train.log_every=10")


@pytest.fixture(scope="module")
def benchmark() -> Any:
    return load_script("lambada")


def test_every_trial_is_a_configuration(benchmark: Any, synthetic_corpus: Path) -> None:
    for plan in benchmark.PLANS.values():
        for changes in plan.trials.values():
            config = benchmark.trial_config([*changes, *TINY], synthetic_corpus)
            assert config.train.steps == 30, "what is given last wins"
            assert changes[0].removeprefix("model=") in (config.model.kind, changes[0])


def test_a_run_is_scored_and_its_weights_come_back(
    benchmark: Any, synthetic_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "FILE_BYTES", 20_000)  # so that there are several files
    out, folder = tmp_path / "out", tmp_path / "runs" / "long"
    out.mkdir()
    config = benchmark.trial_config([*benchmark.PLANS["long"].trials["long"], *TINY, *CPU], synthetic_corpus)
    Run.create(folder, config).lock.release()  # type: ignore[union-attr]
    benchmark.train_and_score(folder, "cpu")
    result = json.loads((folder / "score.json").read_text())
    assert result["step"] == 30
    reader = TrainedReader(Run(folder))
    passages = read_splits(["development"], synthetic_corpus)["development"]
    for placements in benchmark.PLACEMENTS:
        expected = reader.evaluate(passages, placements)["passages"]["all"]
        found = result["development"][f"{placements} placements"]
        assert found == {by: pytest.approx(expected[by], abs=0.011) for by in ("position", "word")}
    benchmark.write_weights(Run(folder), out)
    assert len(list(out.glob("long-*.safetensors"))) > 1
    (out / "long.json").write_text(json.dumps({"runs": {"long": result}}))
    joined = benchmark.join(out, synthetic_corpus, tmp_path / "joined" / "long")
    weights = [run.model().state_dict() for run in (Run(folder), joined)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
