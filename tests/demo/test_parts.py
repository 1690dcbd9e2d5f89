"""What the page shows, without a browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from riffle.demo.lengths import LENGTHS, evaluated_points, measure, show_lengths
from riffle.demo.reading import MAX_PASSAGE, PASSAGE, show_reading
from riffle.demo.routes import random_permutation, show_route
from riffle.demo.solve import LoadedRun, RunCatalogue, answer, compare_answers, random_input, show_answer
from riffle.demo.svg import errors_as_markup
from riffle.demo.switches import count_layers, mean_gates, show_switches
from riffle.inspect import trace
from riffle.quantities import format_percent
from riffle.routing import route
from riffle.tasks import TASKS
from riffle.train.shipped import SHIPPED, solve

SORT = LoadedRun(SHIPPED / "sort")


def markup(text: str) -> ElementTree.Element:
    """The markup as a tree; anything not well-formed raises."""
    return ElementTree.fromstring(f"<all>{text}</all>")


def with_class(text: str, name: str) -> list[ElementTree.Element]:
    return [element for element in markup(text).iter() if name in element.get("class", "").split()]


def problem(text: str) -> str:
    (found,) = with_class(text, "problem")
    assert found.get("role") == "alert"
    return "".join(found.itertext())


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("length", [1, 8, 31])
def test_random_inputs_can_be_read(task, length: int) -> None:
    for seed in range(8):
        typed = random_input(task, length, seed)
        assert task.parse(typed.split())


def test_answer_is_that_of_solve() -> None:
    words = ["3", "1", "2", "11", "5"]
    assert answer(SORT, " 3 1\n2 11 5 ") == solve("sort", words, SORT)
    (shown,) = with_class(show_answer(SORT, "3 1 2 11 5"), "answer")
    assert (shown.get("data-output"), shown.get("data-expected")) == ("1 2 3 5 11", "1 2 3 5 11")
    assert "All 5 symbols right." in "".join(shown.itertext())


def test_wrong_symbols_are_marked(runs: Path) -> None:
    text = " ".join(str(i % 11 + 1) for i in range(16))
    trained = LoadedRun(runs / "new")
    solution, shown = answer(trained, text), show_answer(trained, text)
    pairs = compare_answers(TASKS["id"], solution.output, solution.expected)
    differing = [(got, right) for got, right in pairs if got != right]
    assert differing
    marked = [tuple(part.text for part in cell) for cell in with_class(shown, "wrong") if cell.tag == "span"]
    assert marked == differing
    assert f"{format_percent(1 - len(differing) / len(pairs))} of {len(pairs)} symbols right." in shown


def test_reading() -> None:
    shown = markup(show_reading(PASSAGE))[0]
    assert shown.get("data-word") == "dorrick"
    shades = {mark.text: float(mark.get("style", "").split()[-1]) for mark in shown.iter("mark")}
    assert max(shades, key=shades.__getitem__) == "Dorrick"
    assert len(list(shown.iter("li"))) == 5
    assert "<script" not in show_reading("<script>alert(1)</script> met Tim. Then Tim left ___")
    assert "only the marks" in problem(show_reading("... ___"))
    assert f"at most {MAX_PASSAGE}" in problem(show_reading("word " * MAX_PASSAGE))


@pytest.mark.parametrize(
    ("show", "typed", "said"),
    [
        (partial(show_answer, SORT), "", "no symbol"),
        (partial(show_answer, SORT), "1 99", "99 is outside 1..11"),
        (partial(show_answer, SORT), "<b>", "'<b>' is not a symbol"),
        (partial(show_answer, SORT), "1 " * 5000, "at most 4096"),
        (show_route, "", "no permutation"),
        (show_route, "3 x", "'x'"),
        (show_route, "0 0", "more than once"),
        (show_route, "0 1 2", "2, 4, 8"),
        (show_route, "0 5", "0..1"),
        (show_route, "1 " * 65, "up to 64"),
        (show_route, "0 " + "9" * 5000, "0..1, but this one has 1"),
    ],
)
def test_mistakes_are_answered_in_place(show: Callable[[str], str], typed: str, said: str) -> None:
    assert said in problem(show(typed))


@pytest.mark.parametrize("kind", [RuntimeError, OSError])
def test_failures_are_answered_in_place_too(kind: type[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    @errors_as_markup
    def fails() -> str:
        raise kind("secret")

    said = problem(fails())
    assert kind.__name__ in said
    assert "secret" not in said
    assert "secret" in capsys.readouterr().err


def test_visitors_are_not_told_where_a_damaged_run_lies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(SHIPPED / "sort", tmp_path / "sort")
    run = LoadedRun(tmp_path / "sort")
    run.checkpoint.write_bytes(b"damaged after the page was started")
    assert str(tmp_path) not in problem(show_answer(run, "3 1"))
    assert str(tmp_path) in capsys.readouterr().err


def test_switches() -> None:
    symbols = [7, 3, 9, 1, 4, 4, 2, 8]
    text = " ".join(map(str, symbols))
    gates = mean_gates(trace(SORT.model(), torch.tensor([symbols]), order="shuffled"))
    assert count_layers(SORT, text) == len(gates) == 5
    assert all(len(layer) == 4 and all(0 <= gate <= 1 for gate in layer) for layer in gates)
    for upto in (1, 3, 5):
        shown = show_switches(SORT, text, upto)
        lit = [element for element in with_class(shown, "switch") if "later" not in element.get("class", "")]
        assert len(lit) == 4 * upto
        numbers = [float("".join(e.itertext())) for e in with_class(shown, "gate")]
        assert numbers == pytest.approx([gate for layer in gates[:upto] for gate in layer], abs=0.0051)
        assert f"Layer {upto} of 5" in shown
    answers = with_class(shown, "good")
    assert ["".join(e.itertext()) for e in answers] == [str(symbol) for symbol in sorted(symbols)]
    heights = [re.findall(r" ([\d.]+)[Hh]", cell.get("style", "")) for cell in with_class(shown, "cell")]
    assert [start for start, _ in heights] == [end for _, end in heights] == [f"{43 + 26 * cell}" for cell in range(8)]
    assert "at most 32" in problem(show_switches(SORT, "1 " * 33, 1))


@pytest.mark.parametrize("messages", [2, 4, 8, 16, 64])
def test_route(messages: int) -> None:
    text = random_permutation(messages)
    permutation = [int(word) for word in text.split()]
    shown = show_route(text)
    crossed = with_class(shown, "crossed")
    assert len(crossed) == sum(map(sum, route(permutation)))
    ends = [[float(ball.get("cy", "")) for ball in group.iter("circle")] for group in with_class(shown, "message")]
    assert [start for start, _ in ends] == [ends[0][0] + 26 * message for message in range(messages)]
    assert [end for _, end in ends] == [ends[exit][0] for exit in permutation]


def test_lengths(tmp_path: Path) -> None:
    points, hardest = evaluated_points(SORT)
    scores = json.loads((SHIPPED / "sort" / "evaluation.json").read_text())["scores"]
    assert {35, 300} & set(LENGTHS) == {35}
    assert [(p.length, p.symbol_accuracy, p.sequence_accuracy) for p in points] == sorted(
        (s["length"], s["symbol_accuracy"], s["sequence_accuracy"]) for s in scores if s["split"] == "uniform"
    )
    worst = [s for s in scores if s["split"] != "uniform"]
    assert {point.length for point in hardest} == {s["length"] for s in worst}
    for point in hardest:
        assert point.symbol_accuracy == min(s["symbol_accuracy"] for s in worst if s["length"] == point.length)
    point = measure(SORT, 8, examples=16, seconds=5)
    assert (point.length, point.examples) == (8, 16)
    assert point.symbol_accuracy > 0.99
    assert measure(SORT, 256, seconds=0).examples >= 1
    assert len(with_class(show_lengths(SORT, 16), "live")) == 2
    assert len(with_class(show_lengths(SORT, 16, live=False), "live")) == 0
    assert len(with_class(show_lengths(SORT, 16, live=False), "rival0")) == 2  # the curve and its key
    assert "none of 5, 6, 8" in problem(show_lengths(SORT, 10**9))
    shutil.copytree(SHIPPED / "sort", tmp_path / "sort", ignore=shutil.ignore_patterns("evaluation.json"))
    assert "riffle eval runs/sort" in show_lengths(LoadedRun(tmp_path / "sort"), LENGTHS[0])


def test_catalogue(runs: Path, tmp_path: Path) -> None:
    catalogue = RunCatalogue(runs)
    assert catalogue.names("id") == ["id (shipped)", "runs/new"]
    assert catalogue.names("sort") == ["sort (shipped)"]
    shutil.copytree(SHIPPED / "sort", tmp_path / "runs" / "mine")
    assert RunCatalogue(tmp_path / "runs").names("sort") == ["sort (shipped)", "runs/mine"]
    assert [name for name in TASKS if name in catalogue.tasks] == catalogue.tasks
    with pytest.raises(ValueError, match=re.escape("sort (shipped)")):
        catalogue.get("other")
    with pytest.raises(ValueError, match="riffle train"):
        RunCatalogue(tmp_path, shipped=tmp_path)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "checkpoint.safetensors").write_bytes(b"")
    (damaged / "config.json").write_text("{")
    assert "runs/damaged" not in RunCatalogue(tmp_path).models
