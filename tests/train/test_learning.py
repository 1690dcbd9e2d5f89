"""The whole of it: a small network learns to reverse, and reverses what is far longer than anything it saw."""

from __future__ import annotations

from pathlib import Path

from riffle.recipes import small
from riffle.tasks import get_task
from riffle.train.evaluate import evaluate
from riffle.train.loop import train
from riffle.train.run import Run


def test_reversal_is_learned_on_a_cpu_and_generalises(tmp_path: Path) -> None:
    config = small("reverse")
    assert max(config.data.bins) == 32
    run = Run.create(tmp_path / "reverse", config)
    train(run, device="cpu")
    trained, long = evaluate(run.model(), get_task("reverse"), [32, 256], examples=128, trained_length=32)
    assert trained.symbol_accuracy == 1.0
    assert trained.sequence_accuracy == 1.0
    assert long.symbol_accuracy >= 0.99
