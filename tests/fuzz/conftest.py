"""What the commands read, made once."""

from __future__ import annotations

import io
import shutil
import tarfile
from itertools import starmap
from pathlib import Path

import numpy as np
import pytest
from cli.riffle_command import TINY, succeed

from research.reproduce.synthetic import prepare_synthetic_corpus

from .workspace import CORPUS, READER, RESULTS, RUN, WRITER

COMMITTED = Path(__file__).parents[2] / "research" / "results"


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a reader, a corpus, sources of one, and results; not to be changed."""
    folder = tmp_path_factory.mktemp("fuzz") / "w"
    with pytest.MonkeyPatch.context() as patch:
        prepare_synthetic_corpus(folder / "data")
        patch.chdir(folder)
        _write_sources(Path("data"))
        succeed("train", "reverse", *TINY, "--steps", 2, "--out", RUN)
        small = ("--features", 8, "--precision", "fp32", "--device", "cpu", "--set", "model.blocks=1")
        sizes = ("--set", "data.bins=32", "--set", "data.batch=4", "--set", "train.evaluate_every=0", "--steps", 2)
        succeed("lambada", "train", "--corpus", CORPUS, *small, *sizes, "--out", READER)
        succeed("train", "text", "--data", "data/few.txt", *small, *sizes, "--out", WRITER)
        succeed("eval", RUN, "--lengths", 4, "--examples", 1, "--device", "cpu")
        succeed("lambada", "eval", "--run", READER, "--split", "development")
    for name in ("sharing", "timing-addition"):
        shutil.copytree(COMMITTED / name, folder / RESULTS / name, ignore=shutil.ignore_patterns("*.png", "*.svg"))
    return folder


def _write_sources(data: Path) -> None:
    """Fewer novels than the corpus has, in an archive, and vectors as ``.npz``."""
    with tarfile.open(data / "novels.tar.gz", "w:gz") as tar:
        text = b"".join((data / "novels" / "book0.txt").read_bytes().splitlines(keepends=True)[:40])
        member = tarfile.TarInfo("a/book.txt")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    (data / "few.txt").write_bytes(text)
    np.savez(
        data / "vectors.npz",
        words=np.frombuffer(b"the\nwas\n", dtype=np.uint8),
        q=np.ones((2, 4), dtype=np.int8),
        scale=np.ones(2, dtype=np.float32),
    )
    (data / "symbols.txt").write_text("3 1 2\n")


@pytest.fixture(autouse=True)
def _without_pictures_and_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes long and reads nothing: drawing, serving, training and timing in other processes."""
    for name in ("plots.save_figure", "demo.server.serve"):
        monkeypatch.setattr(f"riffle.{name}", lambda *arguments, **options: None)
    for name in ("train_runs", "measure_series"):
        monkeypatch.setattr(f"research.cli.reproduce.{name}", lambda *arguments: 0)
    for figure in ("LearningFigure", "TimingFigure"):
        monkeypatch.setattr(f"research.reproduce.figure.{figure}.save", lambda *arguments: [])
    monkeypatch.setattr("riffle.environment.commit", lambda: None)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    for name in ("research.lambada.books", "research.lambada.tables"):
        monkeypatch.setattr(f"{name}.map_in_order", _in_this_process)


def _in_this_process(function, jobs, workers, initializer=None):
    if initializer is not None:
        initializer()
    return starmap(function, jobs)
