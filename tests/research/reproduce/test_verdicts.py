"""The rule for verdicts: known values of Student's t, rare false findings, and what it says of clear cases."""

from __future__ import annotations

import random

import pytest

from research.reproduce.figures.generalization import shuffle_exchange_spec
from research.reproduce.results import accuracies_by
from research.reproduce.verdicts import (
    LEVEL,
    POINT,
    Claim,
    Verdict,
    Wanted,
    compare,
    holm,
    judge,
    paired_bootstrap,
    quantile,
    student,
)

from .synthetic import synthetic_result


def test_students_t() -> None:
    for freedom, t in ((2, 4.30265), (4, 2.77645), (8, 2.30600), (30, 2.04227)):
        assert quantile(freedom) == pytest.approx(t, abs=1e-4)
        assert student(t, freedom) == pytest.approx(0.05, abs=1e-5)
    assert quantile(8) < quantile(7.3) < quantile(7)
    for t in (0.5, 2.0, 9.0):
        assert student(t, 2) == pytest.approx(1 - t / (2 + t * t) ** 0.5, abs=1e-6), "its closed form"


def test_welchs_interval() -> None:
    found, freedom, error = compare((0.9, 0.92, 0.94), (0.8, 0.86, 0.89)), 2.735230, 0.07 / 2.424871
    assert found.mean == pytest.approx(0.07)
    assert found.p == pytest.approx(student(2.424871, freedom), abs=1e-6)
    assert (found.low, found.high) == pytest.approx([0.07 + side * quantile(freedom) * error for side in (-1, 1)])


@pytest.mark.parametrize(("ours", "others"), [(3, 3), (5, 5), (3, 5), (5, None)])
def test_equal_networks_seldom_differ(ours: int, others: int | None) -> None:
    """Runs of one network beside as many of the same; the paper's mean of five is read to a point."""
    generator, draws, found = random.Random(1), 1500, 0

    def runs(number: int) -> list[float]:
        return [generator.gauss(0.9, 0.03) for _ in range(number)]

    for _ in range(draws):
        paper = generator.gauss(0.9, 0.03 / 5**0.5) + generator.uniform(-POINT, POINT)
        found += compare(runs(ours), paper if others is None else runs(others)).p <= LEVEL
    assert found / draws <= 0.05


def test_a_figure_of_equal_networks_has_seldom_any_finding() -> None:
    generator, draws = random.Random(2), 200

    def claim() -> Claim:
        return Claim("", *(tuple(generator.gauss(0.5, 0.05) for _ in range(5)) for _ in range(2)))

    found = sum(any(verdict.word == "differs" for verdict in judge([claim() for _ in range(8)])) for _ in range(draws))
    assert found / draws <= 0.07  # 0.05 and two standard errors


def test_holm_stops_at_the_first_that_is_none() -> None:
    assert holm([0.001, 0.04, 0.03, None]) == [True, False, False, False]
    assert holm([0.01, 0.02, 0.04]) == [True, True, True]


def verdict(ours: tuple[float, ...], other: tuple[float, ...] | float, wanted: Wanted = "equal") -> Verdict:
    (judged,) = judge([Claim("", ours, other, wanted)])
    return judged


HIGH, LOW, WIDE = (0.98, 0.981, 0.982), (0.9, 0.902, 0.904), (0.6, 0.8, 0.99)


def test_verdicts() -> None:
    assert (verdict(HIGH, HIGH).word, verdict(HIGH, HIGH).agrees) == ("equal", True)
    assert verdict(HIGH, LOW)[::2] == ("differs", False)
    assert verdict(HIGH, LOW, "higher").agrees
    assert verdict(LOW, HIGH, "lower").agrees
    assert verdict(HIGH, LOW, "lower").agrees is False
    assert verdict(HIGH, HIGH, "higher").agrees is False, "no more than a point higher"
    assert verdict(WIDE, HIGH)[::2] == ("undecided", None)
    assert verdict(HIGH[:2], LOW).word == verdict(HIGH, LOW[:1]).word == "too few seeds"
    assert verdict((), LOW).word == verdict(HIGH, ()).word == "not measured"
    facts = [Claim("", holds=holds, evidence="e") for holds in (True, False, None)]
    assert [each.word for each in judge(facts)] == ["holds", "does not hold", "not measured"]


def test_the_paper_is_read_to_a_point() -> None:
    ours = (0.99, 0.99, 0.99, 0.9901, 0.9899)
    assert verdict(ours, 0.985).word == "equal"
    assert verdict(ours, 0.975)[::2] == ("differs", False)
    assert verdict(ours, 0.975, "reached").agrees
    assert verdict(ours, 1.02, "reached").agrees is False
    assert verdict((0.98, 0.97, 0.985, 0.99, 0.979), 0.965).word == "undecided", "less than a point beyond the reading"
    assert verdict((1.0,) * 5, 1).word == "equal"


def test_one_correction_for_a_figure() -> None:
    small = Claim("", (0.5, 0.51, 0.52), (0.54, 0.55, 0.56))
    assert [each.word for each in judge([small])] == ["differs"]
    assert {each.word for each in judge([small] + [Claim("", WIDE, WIDE[::-1])] * 20)} == {"undecided"}


def test_passages_are_drawn_in_pairs() -> None:
    generator = random.Random(0)
    easy = [generator.random() < 0.5 for _ in range(2000)]
    better = [right or generator.random() < 0.1 for right in easy]
    found = paired_bootstrap(better, easy)
    assert found.mean == pytest.approx(0.05, abs=0.015)
    assert 0 < found.low < found.mean < found.high < 0.08
    assert found.p < 0.01
    assert paired_bootstrap(easy, easy)[:3] == (0, 0, 0)
    claim = Claim("", WIDE, WIDE, "higher", right=(better, easy))
    assert judge([claim])[0].difference == found, "in place of the interval over seeds"
    assert judge([claim._replace(right=(better, []))])[0].word == "undecided"


def test_the_last_evaluation_up_to_a_step_counts() -> None:
    result = synthetic_result(shuffle_exchange_spec("add"), lambda spec, length: 0.5)
    result["metrics"] = [{"step": step, "accuracy/512": step / 1000} for step in (250, 500, 750)]
    results = [result, result | {"metrics": [{"step": 750, "accuracy/512": 1.0}]}]
    assert accuracies_by(results, 700, 512) == (0.5,)
    assert accuracies_by(results, 750, 512) == (0.75, 1.0)
    assert accuracies_by(results, 750, 64) == ()
