"""benchmarks/lambada.py: runs that are trained, scored, and moved as weights."""

from __future__ import annotations

import json
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmark_scripts import load_script

from riffle.config import LambadaRunConfig
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
        found = result["development"][f"{placements} placement{'s' if placements > 1 else ''}"]
        assert found == {by: pytest.approx(expected[by], abs=0.011) for by in ("position", "word")}
    benchmark.write_weights(Run(folder), out)
    assert len(list(out.glob("long-*.safetensors"))) > 1
    (out / "long.json").write_text(json.dumps({"runs": {"long": result}}))
    joined = benchmark.join(out, synthetic_corpus, tmp_path / "joined" / "long")
    weights = [run.model().state_dict() for run in (Run(folder), joined)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def new_run(benchmark: Any, folder: Path, corpus: Path, *changes: str) -> Run:
    run = Run.create(folder, benchmark.trial_config([*changes, *TINY, *CPU], corpus))
    assert run.lock is not None
    run.lock.release()
    return run


@pytest.mark.parametrize("trial", ["gated-attention-reader", "universal-reader, halting"])
def test_a_timed_run_has_as_many_steps_as_fit(
    benchmark: Any, trial: str, synthetic_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = sys.modules["lambada_speed"]
    monkeypatch.setattr(speed, "TIMED_SECONDS", 0.3)
    monkeypatch.setattr(speed, "REBUILD_SECONDS", 0.0)
    folder, other = tmp_path / "run", tmp_path / "other"
    new_run(benchmark, folder, synthetic_corpus, *benchmark.PLANS["rivals"].trials[trial])
    other.mkdir()
    (other / speed.READY_FILE).touch()
    benchmark.train_and_score(folder, "cpu", until=time.time() + 3, beside=[folder, other])
    result, settings = json.loads((folder / "score.json").read_text()), Run(folder).config.train
    assert result["step"] == settings.steps
    assert settings.warmup == int(0.1 * settings.steps), "not as TINY has it, whose warm-up is no tenth of its steps"
    assert 0 < result["step_seconds"] <= result["train_seconds"]
    assert list(result["development"]) == ["1 placement", "16 placements"]
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN


def test_a_run_does_not_wait_for_ever(
    benchmark: Any, synthetic_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of those that it should be timed with never comes."""
    monkeypatch.setattr(sys.modules["lambada_speed"], "TIMED_SECONDS", 0.1)
    run = new_run(benchmark, tmp_path / "run", synthetic_corpus)
    benchmark.fit_steps(run, torch.device("cpu"), True, time.time() + 1, [run.folder, tmp_path / "other"])
    assert Run(run.folder).config.train.steps == 1


def test_a_step_that_cannot_be_captured_is_made_without_a_graph(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; print(sys.argv[1:]); sys.exit(0 if '--eager' in sys.argv else {benchmark.NOT_CAPTURED})"
    )
    monkeypatch.setattr(benchmark, "__file__", str(script))
    (tmp_path / "run").mkdir()
    assert benchmark._run_process(tmp_path / "run", ["--device", "cpu"], time.time() + 60, {}) == "exit 0"
    assert (tmp_path / "run.log").read_text().count("--device") == 2
    assert (tmp_path / "run" / benchmark.READY_FILE).exists(), "the others need not wait for it"


def test_all_runs_of_a_plan_are_clients_of_the_multi_process_service(
    benchmark: Any, synthetic_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    started: list[tuple[str, bool]] = []

    @contextmanager
    def service(clients: int) -> Iterator[dict[str, str]]:
        counts.append(clients)
        yield {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}

    def run_process(folder: Path, options: list[str], stop_at: float, variables: dict[str, str]) -> str:
        (folder.parent / f"{folder.name}.log").write_text(f"{options} {variables}")
        started.append((folder.name, bool(variables)))
        return "exit 1"

    monkeypatch.setattr(benchmark, "multi_process_service", service)
    monkeypatch.setattr(benchmark, "_run_process", run_process)
    out = tmp_path / "out"
    arguments = Namespace(
        corpus=synthetic_corpus,
        folder=tmp_path / "runs",
        seconds=60.0,
        out=out,
        only=None,
        change=[],
        device="cuda",
        commit="x",
    )
    runs = benchmark.run_plan("rivals", arguments)
    assert counts == [6]
    assert all("--until" in run["failed"] and "PERCENTAGE" in run["failed"] for run in runs.values())
    record = json.loads((out / "rivals.json").read_text())
    assert (record["commit"], record["percent_of_multiprocessors"], set(record["runs"])) == ("x", 25, set(runs))
    runs = benchmark.run_plan("levers", arguments)
    assert counts == [6, len(runs) - 1]
    assert [name for name, served in started[6:] if not served] == [started[6][0]] == ["nothing"]
    taught = Run(tmp_path / "runs" / "distillation").config
    assert isinstance(taught, LambadaRunConfig)
    assert taught.data.teacher == str(tmp_path / "runs" / "nothing"), "which is trained before"
