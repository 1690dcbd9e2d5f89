"""A reader as a small folder: as good as the run it was made from, with a card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.riffle_command import succeed
from lambada.test_reading_runs import config_of
from train.tiny import train

from riffle.lambada import tokenise
from riffle.lambada.evaluate import TrainedReader, read_splits, reader_model_card, ship_reader
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


@pytest.mark.parametrize(("kind", "table"), [("shuffle-exchange", "learned"), ("universal-reader", "frozen")])
def test_runs_with_weights_for_each_word_are_refused(
    kind: str, table: str, synthetic_corpus: Path, tmp_path: Path
) -> None:
    run = train(tmp_path / "run", config_of(kind, synthetic_corpus, "train.steps=1", f"data.table={table}"))
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


def test_fewer_words_with_corrected_vectors_and_a_teacher(
    trained: Path, synthetic_corpus: Path, tmp_path: Path
) -> None:
    changes = ("data.rank=2", "data.distillation=0.5", f"data.teacher={trained}", "train.steps=2")
    run = train(tmp_path / "run", config_of("shuffle-exchange", synthetic_corpus, *changes))
    shipped = TrainedReader(ship_reader(run, tmp_path / "small", words=6))
    assert shipped.model.words.codes.weight.shape == (6, 2)
    assert shipped.objective.config.data.teacher == trained.name
    assert sum(shipped.next_word_probabilities(TEXT).values()) == pytest.approx(1, abs=1e-4)
