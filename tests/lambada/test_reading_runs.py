"""Runs on passages: every model trains and answers, and a stopped run ends as one that was not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from train.tiny import assert_finite, assert_same_run, resume, train, train_until

from research.baselines.word_objective import WordObjective
from riffle.config import MODELS, LambadaRunConfig, override
from riffle.lambada import pointing, tokenise
from riffle.lambada.evaluate import TrainedReader
from riffle.lambada.pointing import PassageBatch
from riffle.lambada.train import make_lambada_objective
from riffle.recipes import lambada, small, with_model
from riffle.train.run import Run, check_config
from riffle.train.step import TrainStep

SMALLER = {
    "transformer": ["model.layers=2"],
    "universal-transformer": ["model.layers=2"],
    "universal-reader": ["model.layers=2"],
}
TEXT = tokenise("The cook was Alba. The guard was Otto. At noon the king waved to")
UNUSED = {"reader.output.bias", "reader.queries.2.backward_.weight_hh_l0"}
"""A pointer's softmax ignores what is added to all scores. Read backwards, a query's last word is the first: the last
reading takes no step from there."""

READERS = [kind for kind, entry in MODELS.items() if entry.passage_objective]


def config_of(kind: str, corpus: Path, *changes: str) -> LambadaRunConfig:
    """A model so small that a test can afford it."""
    changed = override(
        with_model(lambada(), kind),
        [
            *(f"data.corpus={corpus}", "data.bins=32", "data.batch=8", "data.forget=0.2", "data.within=0.25"),
            "data.rename=0",
            *("model.features=12", "model.dropout=0.1", "train.precision=fp32", "train.steps=6", "train.warmup=0"),
            *("train.log_every=2", "train.evaluate_every=3", "train.checkpoint_every=2"),
            *SMALLER.get(kind, []),
            *changes,
        ],
    )
    assert isinstance(changed, LambadaRunConfig)
    return changed


@pytest.mark.parametrize(
    ("kind", "change"),
    [(kind, "data.words=40") for kind in READERS]
    + [("shuffle-exchange", change) for change in ("data.mentions=true", "data.rename=0.4")],
)
def test_every_reader_learns_with_all_its_weights(kind: str, change: str, synthetic_corpus: Path) -> None:
    config = config_of(kind, synthetic_corpus, "data.word_dropout=0", change)
    objective = make_lambada_objective(config)
    torch.manual_seed(0)
    step = TrainStep(config, objective.build(config.model), objective)
    for _ in range(2):
        step()
    progress = step.pop_metrics()
    assert progress.first_non_finite is None
    assert 0 < progress.loss < 20
    without = [name for name, p in step.model.named_parameters() if p.grad is None or not p.grad.any()]
    assert set(without) <= UNUSED


def test_a_share_of_the_passages_is_learned_from_and_all_others_are_measured(synthetic_corpus: Path) -> None:
    whole, half = (
        make_lambada_objective(config_of("shuffle-exchange", synthetic_corpus, f"data.share={share}"))
        for share in (1, 0.5)
    )
    for split in ("train", "within"):
        kept = half.dataset(split).answer_at_E
        assert len(kept) == (len(whole.dataset(split)) + 1) // 2
        assert torch.equal(kept, whole.dataset(split).answer_at_E[: len(kept)])
    assert len(half.dataset("validation")) == len(whole.dataset("validation"))


def test_a_run_starts_with_the_weights_of_one_with_fewer_positions(synthetic_corpus: Path, tmp_path: Path) -> None:
    first = train(tmp_path / "first", config_of("shuffle-exchange", synthetic_corpus, "data.bins=16"))
    changes = (f"train.start={first.folder}", "train.steps=1", "train.learning_rate=1e-12")
    second = train(tmp_path / "second", config_of("shuffle-exchange", synthetic_corpus, "data.bins=32", *changes))
    weights = [run.model().state_dict() for run in (first, second)]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-6, rtol=0)


def test_a_word_classifier_is_asked_for_the_new_name(synthetic_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointing, "NEVER_FORGOTTEN", 0)
    config = config_of("universal-reader", synthetic_corpus, "data.forget=0", "data.rename=0.5", "data.batch=64")
    objective = make_lambada_objective(config)
    assert isinstance(objective, WordObjective)
    batch = PassageBatch(*(column[0] for column in objective.draw(1, torch.Generator().manual_seed(0))[:-1]))
    asked = renamed = 0
    for passage, answer in enumerate(objective.answer_ids(batch).tolist()):
        ids = batch.ids[passage, batch.is_answer[passage]].tolist()
        own = int(objective.lookup[batch.answers[passage]])
        if own >= 0 and ids:
            assert {answer} == set(ids), "the word that stands in the passage"
            asked, renamed = asked + 1, renamed + (answer != own)
    assert asked >= 16
    assert 0.25 * asked < renamed < 0.75 * asked


@pytest.mark.parametrize("kind", READERS)
def test_every_reader_answers(kind: str, synthetic_corpus: Path, tmp_path: Path) -> None:
    changes = ("train.steps=1", "train.evaluate_every=0", "data.words=300")
    reader = TrainedReader(train(tmp_path / "run", config_of(kind, synthetic_corpus, *changes)))
    probabilities = reader.next_word_probabilities(TEXT, placements=2)
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-4)
    assert set(TEXT) - {"alba", "otto"} <= probabilities.keys()
    passages = [[*TEXT, "otto"], [*TEXT, "king"], [*TEXT, "elsewhere"]]
    best = max(probabilities, key=probabilities.__getitem__)
    parts = reader.evaluate([*passages, [*TEXT, best]], placements=2)
    assert parts["passages"]["all"]["passages"] == 4
    assert parts["passages"]["all"]["word"] == pytest.approx((1 + [p[-1] for p in passages].count(best)) / 4)
    assert sum(score["passages"] for score in parts["distance"].values()) == 2 + (best in TEXT)


@pytest.mark.parametrize("kind", ["shuffle-exchange", "universal-reader"])
def test_a_stopped_run_ends_as_one_that_was_not(
    kind: str, synthetic_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(kind, synthetic_corpus)
    train(tmp_path / "whole", config)
    train_until(tmp_path / "parts", 3, monkeypatch, config)
    resume(tmp_path / "parts", config)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert_finite(tmp_path / "whole")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", READERS)
def test_a_step_is_one_graph_on_a_gpu(kind: str, precision: str, synthetic_corpus: Path) -> None:
    config = config_of(kind, synthetic_corpus, f"train.precision={precision}")
    objective = make_lambada_objective(config, device="cuda")
    step = TrainStep(config, objective.build(config.model, device="cuda"), objective)
    for _ in range(8):
        step()
    assert step.graph is not None
    assert step.pop_metrics().first_non_finite is None
    assert all(parameter.isfinite().all() for parameter in step.model.parameters())
    assert 0 <= objective.evaluate(step.model)["development"] <= 1  # type: ignore[arg-type]  # what build made


def test_a_reader_is_no_model_for_symbols() -> None:
    with pytest.raises(
        ValueError, match="the model 'gated-attention-reader' reads passages only: riffle lambada train"
    ):
        with_model(small("sort"), "gated-attention-reader")


def test_a_run_keeps_its_words_and_needs_no_corpus(trained: Path, tmp_path: Path) -> None:
    config = Run(trained).config
    assert isinstance(config, LambadaRunConfig)
    gone = replace(config, data=replace(config.data, corpus=str(tmp_path / "gone")))
    assert make_lambada_objective(gone, trained).vocabulary.known == make_lambada_objective(config).vocabulary.known


def test_settings_that_cannot_be(synthetic_corpus: Path) -> None:
    with pytest.raises(ValueError, match="'causal' cannot point at a word"):
        check_config(config_of("causal", synthetic_corpus))
    for change, message in (
        ("data.share=-0.1", "data.share must be at least 0, got -0.1"),
        ("data.rename=1.5", "data.rename must be at most 1, got 1.5"),
        ("data.bins=16,32", r"data.bins must be one number of positions .*, got \[16, 32\]"),
    ):
        with pytest.raises(ValueError, match=message):
            check_config(config_of("shuffle-exchange", synthetic_corpus, change))
