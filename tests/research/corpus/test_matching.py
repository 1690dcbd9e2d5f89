"""Sampling weights that give training passages the classes of the development set, restated in plain Python."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lambada.novels import novel, write_novels

from research.lambada.matching import (
    LIKENESS,
    LIMITS,
    class_shares,
    classify,
    fit_match,
    match_weights,
    passage_values,
    rake,
    word_likeness,
)
from research.lambada.prepare import PrepareConfig, prepare
from riffle.lambada import Corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A development set from other novels, but mostly of passages that mention their answer often."""
    folder = tmp_path_factory.mktemp("matching")
    given = folder / "given.txt"
    given.write_text("the warm evening was warm and the king waved to the warm king because the evening\n")
    other = _prepare(folder / "other", seed=100)
    passages = [other.passage(example) for example in other.examples("train")]
    chosen = [each for index, each in enumerate(passages) if each[0].count(each[1]) > 1 or index % 4 == 0]
    development = folder / "lambada_development_plain_text.txt"
    development.write_text("".join(f"{' '.join([*context, answer])}\n" for context, answer in chosen))
    return _prepare(folder / "corpus", seed=0, passages=[given], evaluation=[development])


def _prepare(out: Path, seed: int, **options: Any) -> Corpus:
    novels = out.with_name(f"{out.name}-novels")
    novels.mkdir()
    for number in range(6):
        (novels / f"book{number}.txt").write_text(novel(seed + number, 80))
    prepare(PrepareConfig(out=out, novels=[novels], workers=1, ngram=60, **options))
    return Corpus(out)


def plain_values(corpus: Corpus, example: np.void) -> dict[str, float]:
    """The features of an example, from its words."""
    context, answer = corpus.passage(example)
    context = context[-127:]
    assert corpus.likeness is not None
    rank = {word: number for number, word in enumerate(corpus.words)}
    back = context[::-1]
    distance = back.index(answer) + 1 if answer in back else 0
    marks = [word for word in back if word in ("``", "''")]
    return {
        "rank": rank[answer],
        "distance": distance,
        "mentions": context.count(answer),
        "length": len(context),
        "target": int(example["length"]) - 1 - int(example["target"]),
        "quotation marks": len(marks),
        "speech": 0 if not marks else 2 if marks[0] == "``" else 1,
        "before": rank[back[0]],
        "before mention": rank[back[distance]] if distance < len(back) else -1,
        LIKENESS: sum(float(corpus.likeness[rank[word]]) for word in context) / len(context),
    }


@pytest.mark.parametrize("split", ["train", "within", "development"])
def test_values_are_those_of_the_words(corpus: Corpus, split: str) -> None:
    examples = corpus.examples(split)[:60]
    assert corpus.likeness is not None
    stream_T = torch.from_numpy(corpus.tokens)
    values = passage_values(corpus, examples, stream_T, torch.from_numpy(corpus.likeness))
    assert values.keys() == {*LIMITS, LIKENESS}
    for index, example in enumerate(examples):
        found = {name: value_E[index].item() for name, value_E in values.items()}
        assert found == pytest.approx(plain_values(corpus, example), abs=1e-5)


def test_a_word_is_like_what_it_occurs_in_more_often() -> None:
    likeness = word_likeness(np.array([90, 5, 5]), np.array([1090, 2005, 5]))
    assert likeness[0] == pytest.approx(math.log(95 / (1000 * 100 / 3000 + 5)))
    assert likeness[0] > 0 > likeness[1]
    assert likeness[2] == pytest.approx(math.log(2)), "five pseudo-counts for a word that the novels do not have"


def test_raking_reaches_the_shares_of_all_features() -> None:
    generator = torch.Generator().manual_seed(0)
    first_E = torch.randint(3, (5000,), generator=generator)
    second_E = (first_E + torch.randint(3, (5000,), generator=generator)).clamp(max=3)
    wanted = {"first": torch.tensor([0.6, 0.3, 0.1]).double(), "second": torch.tensor([0.3, 0.3, 0.2, 0.2]).double()}
    factors = rake({"first": first_E, "second": second_E}, wanted)
    weights_E = factors["first"][first_E] * factors["second"][second_E]
    for name, class_E in (("first", first_E), ("second", second_E)):
        torch.testing.assert_close(class_shares(class_E, len(wanted[name]), weights_E), wanted[name], atol=1e-6, rtol=0)


def test_a_class_that_no_example_has_changes_nothing() -> None:
    factors = rake({"one": torch.tensor([0, 0, 1])}, {"one": torch.tensor([0.5, 0.25, 0.25]).double()})
    weights_E = factors["one"][torch.tensor([0, 0, 1])]
    assert (weights_E / weights_E.sum()).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert factors["one"][2] == 1


def test_weighted_passages_have_the_answers_of_the_development_set(corpus: Corpus) -> None:
    examples, stream_T = corpus.examples("train"), torch.from_numpy(corpus.tokens)
    report = fit_match(corpus)
    weights_E = match_weights(corpus, "train", examples, stream_T, 1.0, 0.0)
    values = passage_values(corpus, examples, stream_T, None)
    apart = {}
    for name in ("mentions", "distance"):
        class_E, wanted = classify(values[name], LIMITS[name]), torch.tensor(report["development"][name]).double()
        for key, weights in (("before", None), ("full", weights_E)):
            shares_C = class_shares(class_E, len(wanted), weights)
            apart[name, key] = float((shares_C - wanted).abs().sum())
            torch.testing.assert_close(shares_C, torch.tensor(report["train"][key][name]).double())
        assert apart[name, "full"] < 0.5 * apart[name, "before"]
    half_E = match_weights(corpus, "train", examples, stream_T, 0.5, 0.0)
    torch.testing.assert_close(half_E**2, weights_E)
    effective = report["train"]["effective share"]
    assert effective["full"] == pytest.approx(float(weights_E.sum() ** 2 / (weights_E**2).sum() / len(weights_E)))
    assert effective["full"] < effective["half"] < 1


def test_likeness_has_a_power_of_its_own(corpus: Corpus) -> None:
    examples, stream_T = corpus.examples("within"), torch.from_numpy(corpus.tokens)
    alone_E, matched_E, both_E = (
        match_weights(corpus, "within", examples, stream_T, *powers) for powers in ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0))
    )
    torch.testing.assert_close(both_E, alone_E * matched_E)
    assert len(alone_E.unique()) > 1


def test_without_a_development_set_there_is_no_match(synthetic_corpus: Path, tmp_path: Path) -> None:
    write_novels(tmp_path / "novels", books=2)
    prepare(PrepareConfig(out=tmp_path / "corpus", novels=[tmp_path / "novels"], workers=1))
    corpus, synthetic = Corpus(tmp_path / "corpus"), Corpus(synthetic_corpus)
    with pytest.raises(ValueError, match="development set"):
        match_weights(corpus, "train", corpus.examples("train"), torch.from_numpy(corpus.tokens), 1.0, 0.0)
    with pytest.raises(ValueError, match="factors of likeness"):
        match_weights(synthetic, "train", synthetic.examples("train"), torch.from_numpy(synthetic.tokens), 0.0, 1.0)
