"""Goals are judged by the best recipe, by the mean of its runs or its best one, without rounding up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from research.reproduce.claims import GOALS, Claim, at_least_as_good, judge_goals, reaches, stays_below
from research.reproduce.figures.generalization import MULTIPLICATION, shuffle_exchange_spec
from research.reproduce.results import accuracies_by
from research.reproduce.specs import with_train

from .synthetic import synthetic_result

MEAN, BEST = "add: symbols right at 4096", "add: symbols right at 4096, best run"


def judge(accuracies: dict[tuple[str, int], float], statement: str) -> Claim:
    """A goal for addition, from the accuracy of runs by recipe and seed."""
    results = []
    for (recipe, seed), accuracy in accuracies.items():
        spec = shuffle_exchange_spec("add", recipe)
        spec = replace(spec, config=with_train(spec.config, seed=seed))
        results.append(synthetic_result(spec, lambda spec, length, accuracy=accuracy: accuracy))
    (claim,) = (claim for claim in judge_goals(results) if claim.statement == statement)
    return claim


def test_the_best_recipe_counts_by_its_mean() -> None:
    accuracies = {("paper", 0): 0.5, ("paper", 1): 0.97, ("long", 0): 0.90, ("long", 1): 0.92}
    mean, best = judge(accuracies, MEAN), judge(accuracies, BEST)
    assert (mean.verdict, mean.evidence) == ("2 runs: reached", "mean of 2 runs of 'add, shuffle-exchange, long'")
    assert mean.ours == pytest.approx(0.91)
    said = ("2 runs: short by 1 points", "best of 2 runs of 'add, shuffle-exchange, paper'")
    assert (best.verdict, best.evidence) == said
    assert best.ours == 0.97


def test_nearly_is_not_reached() -> None:
    assert judge({("long", 0): 0.899, ("long", 1): 0.899}, MEAN).verdict == "2 runs: short by 0.1 points"
    assert judge({("long", 0): 0.9799, ("long", 1): 0.1}, BEST).verdict == "2 runs: reached", "to three digits"
    claim = judge({("long", 0): 1.0, ("long", 1): 1.0}, "add: whole sequences right at 64")
    assert claim.ours == 0.5, "sequences, of which synthetic results have half as many as symbols"


def test_more_runs_on_shorter_products_do_not_count() -> None:
    short = shuffle_exchange_spec("multiply")
    long, *_ = MULTIPLICATION.base_specs
    results = [synthetic_result(spec, lambda spec, length: 1.0) for spec in (long, long)]
    results += [synthetic_result(short, lambda spec, length: 0.6) for _ in range(5)]
    (claim,) = (claim for claim in judge_goals(results) if claim.statement.startswith("multiply"))
    assert (claim.verdict, claim.evidence) == ("2 runs: reached", "best of 2 runs of 'multiply'")


def test_what_was_not_measured_is_open() -> None:
    claims = judge_goals([])
    assert len(claims) == len(GOALS) == len({claim.statement for claim in claims})
    assert {claim.verdict for claim in claims} == {"open"}


def test_a_difference_below_the_spread_is_no_finding() -> None:
    assert reaches("", 0.9, [0.7, 0.95]).verdict == "2 runs: within noise"
    assert reaches("", 0.9, [0.69, 0.71]).verdict == "2 runs: short by 20 points"
    assert reaches("", 0.9, [0.9, 0.99]).verdict == "2 runs: within noise"
    assert reaches("", 0.9, [0.9, 0.9]).verdict == "2 runs: reached"
    assert reaches("", 0.9, [0.98, 0.99]).verdict == "2 runs: exceeded"
    assert at_least_as_good("", [0.7, 0.9], [0.75, 0.9]).verdict == "2 runs against 2: within noise"
    assert at_least_as_good("", [0.7, 0.71], [0.9, 0.91]).verdict == "2 runs against 2: does not hold"
    # A slack moves the limit from which noise is measured.
    assert at_least_as_good("", [0.977, 0.886], [0.993, 0.959], 0.02).verdict.endswith("within noise")
    assert at_least_as_good("", [0.975, 0.976], [0.98, 0.981], 0.02).verdict.endswith("holds")
    assert stays_below("", 0.7, [0.5, 0.6]).verdict == "2 runs: holds"
    assert stays_below("", 0.7, [0.9, 0.91]).verdict == "2 runs: does not hold"
    assert stays_below("", 0.7, [0.6, 0.75]).verdict == "2 runs: within noise"
    assert stays_below("", 0.7, []).verdict == "open"


def test_a_single_run_is_called_one_and_has_no_verdict() -> None:
    single = [reaches("", 0.9, [0.95]), reaches("", 0.9, [0.5]), stays_below("", 0.7, [0.9])]
    against = at_least_as_good("", [0.95, 0.96], [0.5])
    assert [claim.verdict for claim in single] == ["one run"] * 3
    assert [claim.holds for claim in single] == [True, False, False]
    assert against.verdict == "2 runs against one"
    assert at_least_as_good("", [0.5], [0.6]).verdict == "one run against one"
    assert {claim.decided for claim in (*single, against)} == {None}


def test_the_last_evaluation_up_to_a_step_counts() -> None:
    result = synthetic_result(shuffle_exchange_spec("add"), lambda spec, length: 0.5)
    result["metrics"] = [{"step": step, "accuracy/512": step / 1000} for step in (250, 500, 750)]
    results = [result, result | {"metrics": [{"step": 750, "accuracy/512": 1.0}]}]
    assert accuracies_by(results, 700, 512) == [0.5]
    assert accuracies_by(results, 750, 512) == [0.75, 1.0]
    assert accuracies_by(results, 750, 64) == []
