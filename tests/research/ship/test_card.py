"""Model cards: what is measured of a run, and what of it stands where."""

from __future__ import annotations

from dataclasses import replace

import pytest
from train.tiny import TINY, train, with_train

from research.ship import card
from research.ship.card import ASKED, measure_accuracy, model_card, summarize, write_scores
from research.ship.ship import ship_run
from riffle.tasks import TASKS
from riffle.tasks.families import FAR
from riffle.train.evaluate import FACTORS, Score, read_scores, with_between
from riffle.train.run import Run

ADD = TASKS["add"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A tiny adder in a folder as it is shipped, measured."""
    folder = tmp_path_factory.mktemp("card")
    ship_run(train(folder / "run", replace(with_train(steps=1), task="add")), folder / "shipped")
    run = Run(folder / "shipped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(card, "LONGEST", 256)
        write_scores(run, measure_accuracy(run, cells=1), "cpu")
    return run


def test_what_is_measured(run: Run) -> None:
    trained, scores = max(TINY.data.bins), read_scores(run)
    places = {(score.split, score.length, score.filled) for score in scores}
    assert len(places) == len(scores)
    between = {length for factor in FACTORS for length in with_between(factor * trained)[:-1]}
    for filled in (False, True):
        assert {("uniform", length, filled) for length in {*ASKED, *between}} <= places
    for name in (*ADD.splits, *ADD.families()):
        assert {(name, factor * trained, False) for factor in FACTORS} <= places


def test_a_card_has_every_score(run: Run) -> None:
    text, scores = model_card(run), read_scores(run)
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    shown = {cells[1].strip() for cells in rows}
    assert {score.split for score in scores} - {"uniform"} <= shown
    assert {str(length) for length in ASKED} <= shown, "lengths as riffle solve asks them"
    assert {"8", "16", "64", "128", "256"} <= shown
    assert model_card(run) == text
    marked = "\n".join(card._structured(scores, max(TINY.data.bins), marked=True))
    assert "\\*" not in text, "it was trained on uniform inputs only"
    assert {"| complement \\* |", "| plus-one |"} <= {
        f"|{line.split('|')[1]}|" for line in marked.split("\n") if "|" in line
    }


def test_a_summary_is_the_mean_of_runs_and_the_worst_of_all_kinds() -> None:
    def scores(accuracy: float) -> list[Score]:
        near, far = (next(n for n in ADD.families() if n.startswith(FAR) == is_far) for is_far in (False, True))
        return [
            Score(64, "uniform", 8, 1.0, accuracy),
            Score(300, "uniform", 8, 0.5, 0.0),
            *(Score(length, "uniform", 8, accuracy, accuracy, filled=True) for length in ASKED),
            *(Score(64, name, 8, 1.0, 0.75) for name in ADD.families()),
            Score(64, "powers-of-two", 8, 0.9, 0.2),
            Score(512, near, 8, 0.9, 0.4),
            Score(512, far, 8, 0.1, 0.0),
        ]

    summary = summarize([scores(1.0), scores(0.5)], ADD, 64)
    assert summary["trained length"] == (1.0, 0.75)
    assert summary["300, bare"] == (0.5, 0.0)
    assert summary["80 to 1000, asked"] == (0.75, 0.75)
    assert summary["worst"] == (0.9, 0.2), "worst cases count, too"
    assert summary["8 times, worst"] == (0.9, 0.4), "far families are apart"
    assert summary["8 times, carries over 31"] == (0.1, 0.0)
    assert summary["8 times"] is None
