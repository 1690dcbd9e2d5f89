"""Goals are judged by the recipe that does best, by the mean of its runs or its best one, without rounding up."""

from __future__ import annotations

import pytest

from riffle.reproduce.figures.generalization import ours
from riffle.reproduce.goals import GOALS, goals
from riffle.reproduce.specs import RunSpec, seeded

from .synthetic import result


def of(accuracies: dict[tuple[str, int], float], statement: str) -> tuple[str, str, float | None]:
    """What comes of a goal for addition, from the accuracy of runs by recipe and seed."""

    def run(learner: RunSpec) -> tuple[str, int]:
        return learner.group.split(", ")[-1], learner.config.train.seed

    def accuracy(learner: RunSpec, length: int) -> float:
        return accuracies[run(learner)]

    learners = seeded([ours("add", recipe) for recipe in dict.fromkeys(recipe for recipe, _ in accuracies)], 2, False)
    found = [result(each, accuracy) for each in learners if run(each) in accuracies]
    claims = {claim.statement: claim for claim in goals(found)}
    claim = claims[statement]
    return claim.verdict, claim.evidence, claim.ours


MEAN, BEST = "add: symbols right at 4096", "add: symbols right at 4096, best run"


def test_the_best_recipe_counts_by_its_mean() -> None:
    accuracies = {("paper", 0): 0.5, ("paper", 1): 0.97, ("long", 0): 0.90, ("long", 1): 0.92}
    assert of(accuracies, MEAN) == ("reached", "mean of 2 runs of 'add, shuffle-exchange, long'", pytest.approx(0.91))
    assert of(accuracies, BEST) == ("short by 1 points", "best of 2 runs of 'add, shuffle-exchange, paper'", 0.97)


def test_one_run_does_not_speak_for_a_recipe_where_another_has_several() -> None:
    accuracies = {("paper", 0): 1.0, ("long", 0): 0.90, ("long", 1): 0.92}
    assert of(accuracies, MEAN) == ("reached", "mean of 2 runs of 'add, shuffle-exchange, long'", pytest.approx(0.91))


def test_nearly_is_not_reached() -> None:
    assert of({("long", 0): 0.899, ("long", 1): 0.899}, MEAN)[0] == "short by 0.1 points"
    assert of({("long", 0): 0.9799, ("long", 1): 0.1}, BEST)[0] == "reached", "to the three digits of the goal"


def test_whole_sequences_are_asked_for_at_the_trained_length() -> None:
    verdict, _, accuracy = of({("long", 0): 1.0, ("long", 1): 1.0}, "add: whole sequences right at 64")
    assert (verdict, accuracy) == ("short by 50 points", 0.5), "half of the symbols in made-up results"


def test_what_was_not_measured_is_open() -> None:
    claims = goals([])
    assert len(claims) == len(GOALS) == len({claim.statement for claim in claims})
    assert {claim.verdict for claim in claims} == {"open"}
