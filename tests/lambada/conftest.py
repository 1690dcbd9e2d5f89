"""A corpus in which something can be learned, and a run that did, for all tests that need one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli.riffle_command import succeed

from research.reproduce.synthetic import prepare_synthetic_corpus

SMALL = (
    *("--features", 32, "--steps", 300, "--precision", "fp32", "--device", "cpu"),
    *("--set", "model.blocks=1", "--set", "model.dropout=0", "--set", "data.bins=32", "--set", "data.batch=32"),
    *("--set", "data.within=0", "--set", "train.learning_rate=0.003", "--set", "train.warmup=20"),
    *("--set", "train.label_smoothing=0", "--set", "train.evaluate_every=0"),
)
"""A network that learns the synthetic corpus in seconds."""


@pytest.fixture(scope="session")
def synthetic_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared synthetic corpus; not to be changed."""
    return prepare_synthetic_corpus(tmp_path_factory.mktemp("synthetic"))


@pytest.fixture(scope="session")
def trained(synthetic_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run trained on it; not to be changed."""
    folder = tmp_path_factory.mktemp("readers") / "runs" / "lambada"
    succeed("lambada", "train", "--corpus", synthetic_corpus, *SMALL, "--out", folder)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it below the working directory, to do with what one wants."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("riffle.lambada.evaluate.SHIPPED", tmp_path / "no weights")  # those would be taken first
    shutil.copytree(trained, tmp_path / "runs" / "lambada")
    return Path("runs/lambada")
