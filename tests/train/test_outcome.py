"""What a run says at its end, the score that chooses weights, and the precision it computes in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
import torch

from riffle.config import Precision, RunConfig
from riffle.models.build import build
from riffle.tasks import get_task
from riffle.train.evaluate import Score, right_up_to
from riffle.train.objective import SymbolObjective, in_precision, resolve_precision
from riffle.train.outcome import describe, training_scores
from riffle.train.run import MetricsWriter, Run, read_metrics

from .tiny import TINY, resume, train, with_train


def uniform(accuracy: dict[int, float], *, filled: bool = False) -> list[Score]:
    return [Score(length, "uniform", 99, (1 + share) / 2, share, filled) for length, share in accuracy.items()]


@pytest.mark.parametrize(
    ("accuracy", "said"),
    [
        ({4: 1.0, 16: 1.0, 64: 0.995}, "Learned: at least 99% of the whole sequences are right at every tested length"),
        (
            {4: 1.0, 16: 1.0, 64: 0.25},
            "Learned, right up to length 16, but it does not carry to longer inputs: 25.00% of",
        ),
        (
            {4: 1.0, 16: 0.5},
            "Not learned: 75.00% of the symbols and 50.00% of the whole sequences are right at length 16",
        ),
        ({}, "No test"),
    ],
)
def test_the_outcome_in_a_sentence(undisturbed: Path, accuracy: dict[int, float], said: str) -> None:
    sentence, then = describe(Run(undisturbed), uniform(accuracy))
    assert sentence.startswith(said)
    solves = f"riffle solve reverse 7 3 9 1 --run {undisturbed}"
    assert then == solves if "Learned" in said else then.startswith(("train with", "riffle eval"))


@pytest.mark.parametrize(
    ("accuracies", "advice"),
    [
        ([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], "more steps (--steps 60): the training error still fell"),
        (
            [0.2, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6],
            "more blocks (--set model.blocks=2) or more maps (--features 16): the",
        ),
        ([0.2], "more steps (--steps 60), more blocks (--set model.blocks=2) or more maps"),
    ],
)
def test_what_may_help(tmp_path: Path, accuracies: list[float], advice: str) -> None:
    run, metrics = Run.create(tmp_path / "run", TINY), MetricsWriter(tmp_path / "run")
    for step, accuracy in enumerate(accuracies, 1):
        metrics.write(step, loss=1.0, accuracy=accuracy)
    metrics.close()
    assert describe(run, uniform({16: 0.0}))[1].startswith(f"train with {advice}")


def test_filled_inputs_count_as_they_are_asked() -> None:
    bare, filled = uniform({8: 1.0, 12: 0.0, 16: 1.0, 24: 0.0, 32: 1.0}), uniform({12: 1.0, 24: 0.5}, filled=True)
    assert right_up_to(get_task("reverse"), bare) == 8
    assert right_up_to(get_task("add"), bare) == 32
    assert right_up_to(get_task("add"), bare + filled) == 16
    assert right_up_to(get_task("add"), [Score(8, "all-one", 9, 1.0, 1.0)]) is None


@pytest.mark.parametrize("structure", [0.0, 0.5])
def test_half_of_the_score_is_beyond_the_trained_lengths(structure: float) -> None:
    config = replace(with_train(evaluate_lengths=(4, 8, 16, 64)), data=replace(TINY.data, structure=structure))
    values = SymbolObjective(config).evaluate(build(config.model, get_task("reverse")))
    score, *_ = values.values()
    assert next(iter(values)) == "score"
    assert {"4", "sequences/4"} <= values.keys()
    far = [value for name, value in values.items() if name.endswith("64")]
    near = [value for name, value in values.items() if name != "score" and not name.endswith("64")]
    assert (len(far), len(near)) == ((4, 12) if structure else (2, 6))
    assert score == pytest.approx((mean(near) + mean(far)) / 2)


def test_a_run_knows_its_last_scores(undisturbed: Path) -> None:
    last = [line for line in read_metrics(undisturbed) if "accuracy/16" in line][-1]
    found = {
        score.length: (score.symbol_accuracy, score.sequence_accuracy) for score in training_scores(Run(undisturbed))
    }
    assert found == {n: (last[f"accuracy/{n}"], last[f"accuracy/sequences/{n}"]) for n in (4, 16)}


@pytest.mark.parametrize(("capability", "found"), [((7, 5), "fp32"), ((8, 0), "bf16"), ((9, 0), "bf16")])
def test_auto_is_what_the_gpu_has(capability: tuple[int, int], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert (resolve_precision("auto", gpu), resolve_precision("auto", cpu)) == (found, "fp32")
    assert resolve_precision("tf32", gpu) == "tf32"


@pytest.mark.parametrize(
    ("before", "asked", "used"), [("fp32", "auto", "fp32"), ("bf16", "auto", "bf16"), ("fp32", "bf16", "bf16")]
)
def test_a_resumed_run_computes_as_before(
    tmp_path: Path, before: str, asked: Precision, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    run = Run.create(tmp_path / "run", with_train(precision=asked))
    environment = {"versions": {}, "device": "x", "command": [], "commit": None, "precision": before}
    (run.folder / "environment.json").write_text(json.dumps(environment))
    assert run.precision(torch.device("cuda")) == used
    assert run.precision(torch.device("cpu")) == ("bf16" if asked == "bf16" else "fp32")


def test_a_run_records_its_precision(tmp_path: Path) -> None:
    config: RunConfig = with_train(steps=2)
    run = train(tmp_path / "run", config)
    resume(run.folder, config)
    environment = json.loads((run.folder / "environment.json").read_text())
    assert [each["precision"] for each in (environment, *environment["resumed"])] == ["fp32", "fp32"]
    assert json.loads(run.config_path.read_text())["train"]["precision"] == "auto"
    with (
        pytest.raises(ValueError, match=r"--precision must be one of auto, fp32"),
        in_precision("fp8", torch.device("cpu")),
    ):
        pass
