"""A reader as a small folder: as good as the run it was made from, with a card."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli.riffle_command import succeed
from train.tiny import train

from riffle.lambada import Vectors, load_vectors, tokenise
from riffle.lambada.table import write_vectors
from riffle.train.reader import TrainedReader, read_splits
from riffle.train.run import Run
from riffle.train.shipped_reader import main, reader_card, ship_reader

from .test_reading_runs import experiment_of

TEXT = tokenise("The cook was Alba. The guard was Otto. The smith was Ines. At noon the king waved to")


def test_int8_tables(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float16)
    table[3] = 0
    write_vectors(tmp_path / "a.safetensors", Vectors(list("abcde"), table), int8=True)
    back = load_vectors(tmp_path / "a.safetensors")
    assert back.words == list("abcde")
    assert back.table.dtype == np.float16
    half_step = np.abs(table).max(axis=1, keepdims=True) / 127 / 2
    assert (np.abs(back.table - table) <= half_step * 1.01 + 1e-3).all()
    assert not back.table[3].any()
    write_vectors(tmp_path / "wide.safetensors", Vectors(["a"] * 100, np.ones((100, 300), np.float16)), int8=True)
    assert (tmp_path / "wide.safetensors").stat().st_size < 100 * 310, "a byte for each number"


def test_a_shipped_reader_answers_as_the_run_does(run: Path, riddles: Path) -> None:
    succeed("lambada", "eval", "--split", "development")
    shipped = TrainedReader(ship_reader(Run(run), Path("small")))
    original = TrainedReader(Run(run))
    (passages,) = read_splits(["development"], riddles).values()
    before, after = (reader.evaluate(passages)["passages"]["all"] for reader in (original, shipped))
    assert before["position"] > 0.9
    assert after["position"] == pytest.approx(before["position"], abs=0.03)
    likely, again = original.likely(TEXT), shipped.likely(TEXT)
    assert likely.keys() == again.keys()
    assert all(again[word] == pytest.approx(likely[word], abs=0.05) for word in likely)
    assert shipped.run.saved_step() == original.run.saved_step()
    assert sum(file.stat().st_size for file in Path("small").iterdir()) < sum(
        (run / name).stat().st_size for name in ("checkpoint.safetensors", "words.safetensors")
    )
    text = (Path("small") / "README.md").read_text()
    assert text == reader_card(shipped.run)
    assert f"| development | 100 | {100 * before['position']:.0f}" in text
    assert "riffle lambada train" in text
    assert str(riddles) not in (Path("small") / "config.json").read_text()


@pytest.mark.parametrize(("kind", "table"), [("shuffle-exchange", "learned"), ("universal-reader", "frozen")])
def test_runs_with_weights_for_each_word_are_refused(kind: str, table: str, riddles: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run", experiment_of(kind, riddles, "train.steps=1", f"data.table={table}"))
    with pytest.raises(ValueError, match="has weights for each of its words"):
        ship_reader(run, tmp_path / "small")
    assert not (tmp_path / "small").exists()


def test_fewer_words(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    succeed("lambada", "eval", "--split", "development")
    main(run, Path("small"), words=6)
    assert "small: 0.1 MB" in capsys.readouterr().out
    shipped = TrainedReader(Run(Path("small")))
    assert shipped.subject.words.known == TrainedReader(Run(run)).subject.words.known[:6]
    assert json.loads(Path("small/config.json").read_text())["data"]["words"] == 6
    assert shipped.likely(TEXT)["otto"] > 0
    found = succeed("lambada", "solve", " ".join(TEXT), "--run", "small", "--json").json
    assert found["words"][0]["word"] in TEXT
