"""A reader as a small folder: as good as the run it was made from, with a card."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli.riffle_command import succeed
from train.tiny import train

from riffle.lambada import WordVectors, load_vectors, tokenise
from riffle.lambada import vectors as rounding
from riffle.lambada.evaluate import TrainedReader, read_splits, reader_model_card, ship_reader
from riffle.lambada.vectors import Bits, read_vectors, write_vectors
from riffle.train.run import Run

from .test_reading_runs import experiment_of

TEXT = tokenise("The cook was Alba. The guard was Otto. The smith was Ines. At noon the king waved to")


@pytest.mark.parametrize(("bits", "levels"), [(8, 127), (4, 7)])
def test_rounded_tables(bits: Bits, levels: int, tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float16)
    table[3] = 0
    write_vectors(tmp_path / "a.safetensors", WordVectors(list("abcde"), table), bits=bits)
    back = load_vectors(tmp_path / "a.safetensors")
    assert back.words == list("abcde")
    assert back.table.dtype == np.float16
    plain = np.abs(table).max(axis=1, keepdims=True).astype(np.float32) / levels
    exact = table.astype(np.float32)
    errors = [
        np.square(rounded - exact).sum(axis=1) for rounded in (back.table, np.rint(exact / (plain + 1e-9)) * plain)
    ]
    assert (errors[0] <= errors[1] + 1e-4).all(), "no worse than rounding by the largest number"
    assert not back.table[3].any()
    write_vectors(tmp_path / "wide.safetensors", WordVectors(["a"] * 100, np.ones((100, 300), np.float16)), bits=bits)
    assert (tmp_path / "wide.safetensors").stat().st_size < 100 * (300 * bits // 8 + 10)
    assert (load_vectors(tmp_path / "wide.safetensors").table == 1).all()


def test_a_reader_sees_less_of_rounding_that_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "CHUNK", 64)  # so that there are several
    random = np.random.default_rng(0)
    vectors = WordVectors([f"w{number}" for number in range(200)], random.normal(size=(200, 20)).astype(np.float16))
    reader_OD = random.normal(size=(8, 20)).astype(np.float32)  # it is blind to most directions
    wrong = {}
    for reader in (None, reader_OD):
        write_vectors(tmp_path / "a.safetensors", vectors, bits=4, reader_OD=reader)
        rounded, _ = read_vectors(tmp_path / "a.safetensors")
        assert rounded.words == vectors.words
        difference_VD = rounded.table.astype(np.float32) - vectors.table
        wrong[reader is None] = np.square(difference_VD @ reader_OD.T).sum()
        assert np.abs(difference_VD).max() < 2, "a word is still itself"
    assert wrong[False] < wrong[True] / 3


def test_an_odd_number_does_not_fit_4_bits(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vectors of 3 numbers cannot be kept in 4 bits"):
        write_vectors(tmp_path / "a.safetensors", WordVectors(["a"], np.ones((1, 3), np.float16)), bits=4)


def test_a_shipped_reader_answers_as_the_run_does(run: Path, riddles: Path) -> None:
    result = succeed("lambada", "ship", run, "small", "--split", "development")
    assert "small: 0.1 MB" in result.err
    shipped, original = TrainedReader(Run(Path("small"))), TrainedReader(Run(run))
    (passages,) = read_splits(["development"], riddles).values()
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
    assert str(riddles) not in (Path("small") / "config.json").read_text()


@pytest.mark.parametrize(("kind", "table"), [("shuffle-exchange", "learned"), ("universal-reader", "frozen")])
def test_runs_with_weights_for_each_word_are_refused(kind: str, table: str, riddles: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run", experiment_of(kind, riddles, "train.steps=1", f"data.table={table}"))
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
