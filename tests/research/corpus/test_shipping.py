"""A reader as a small folder: as good as the run it was made from, with a card."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli.riffle_command import succeed
from lambada.test_reading_runs import config_of
from train.tiny import train

from research.ship.reader import reader_model_card, ship_reader, write_rounded
from riffle.lambada import tokenise
from riffle.lambada.evaluate import TrainedReader, read_splits
from riffle.lambada.vectors import WordVectors, load_vectors
from riffle.train.run import Run

TEXT = tokenise("The cook was Alba. The guard was Otto. The smith was Ines. At noon the king waved to")


def test_a_shipped_reader_answers_as_the_run_does(run: Path, synthetic_corpus: Path) -> None:
    result = succeed("lambada", "ship", run, "small", "--split", "development")
    assert "small: 0.1 MB" in result.err
    shipped, original = TrainedReader(Run(Path("small"))), TrainedReader(Run(run))
    (passages,) = read_splits(["development"], synthetic_corpus).values()
    before, after = (reader.evaluate(passages)["passages"]["all"] for reader in (original, shipped))
    assert before["position"] > 0.9
    assert after["position"] == pytest.approx(before["position"], abs=0.05)
    exact, rounded = (reader.next_word_probabilities(TEXT) for reader in (original, shipped))
    assert exact.keys() == rounded.keys()
    assert max(exact, key=exact.__getitem__) == max(rounded, key=rounded.__getitem__)
    assert shipped.run.saved_step() == original.run.saved_step()
    text = (Path("small") / "README.md").read_text()
    assert text == reader_model_card(shipped.run)
    assert f"| development | 100 | {100 * after['position']:.0f}" in text, "what is measured is what is passed on"
    assert "riffle lambada train" in text
    assert str(synthetic_corpus) not in (Path("small") / "config.json").read_text()


def test_runs_with_weights_for_each_word_are_refused(synthetic_corpus: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run", config_of("universal-reader", synthetic_corpus, "train.steps=1"))
    with pytest.raises(ValueError, match="has weights for each of its words"):
        ship_reader(run, tmp_path / "small")
    assert not (tmp_path / "small").exists()


def test_fewer_words(run: Path) -> None:
    succeed("lambada", "ship", run, "small", "--words", "6")
    shipped = TrainedReader(Run(Path("small")))
    assert shipped.objective.vocabulary.known == TrainedReader(Run(run)).objective.vocabulary.known[:6]
    assert json.loads(Path("small/config.json").read_text())["data"]["words"] == 6
    assert shipped.next_word_probabilities(TEXT)["otto"] > 0
    found = succeed("lambada", "solve", " ".join(TEXT), "--run", "small", "--json").json
    assert found["words"][0]["word"] in TEXT


def test_quantized_tables(tmp_path: Path) -> None:
    path, table = tmp_path / "a.safetensors", np.random.default_rng(0).normal(size=(5, 8)).astype(np.float16)
    table[3] = 0
    write_rounded(path, WordVectors(list("abcde"), table), np.eye(8, dtype=np.float32))
    back = load_vectors(path)
    assert back.words == list("abcde")
    assert back.table.dtype == np.float16
    step = np.abs(table).max(axis=1, keepdims=True).astype(np.float32) / 7
    exact = table.astype(np.float32)
    errors = [np.square(q - exact).sum(axis=1) for q in (back.table, np.rint(exact / (step + 1e-9)) * step)]
    assert (errors[0] <= errors[1] + 1e-4).all(), "no worse than rounding without clipping"
    assert not back.table[3].any()
    ones = WordVectors(["a"] * 100, np.ones((100, 300), np.float16))
    write_rounded(path, ones, np.eye(300, dtype=np.float32))
    assert path.stat().st_size < 100 * (300 // 2 + 10)
    assert (load_vectors(path).table == 1).all()
    with pytest.raises(ValueError, match="vectors of 3 numbers cannot be kept in 4 bits"):
        write_rounded(path, WordVectors(["a"], np.ones((1, 3), np.float16)), np.eye(3, dtype=np.float32))
