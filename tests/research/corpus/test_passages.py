"""Sentences, passages and filters."""

from __future__ import annotations

import re

import pytest

from research.lambada.books import Book, BookParser
from research.lambada.passages import NgramIndex, PassageFilters

from .novels import novel

RUN = 24  # longer than the sentences that all made-up novels share


def parse(text: str, filters: PassageFilters | None = None, *excluded: list[str]) -> Book:
    return BookParser(filters or PassageFilters(), NgramIndex(excluded, RUN)).parse("a", text)


def words(book: Book) -> list[str]:
    return [book.words[index] for index in book.tokens]


def passages(book: Book) -> list[list[str]]:
    tokens = words(book)
    return [tokens[row["start"] : row["start"] + row["length"]] for row in book.passages.examples]


def targets(text: str) -> list[str]:
    """The last sentence of every passage of two sentences or more."""
    book = parse(text, PassageFilters(context=1, shortest_target=1, content=False, in_passage=False))
    rows = book.passages.examples
    return [" ".join(passage[row["target"] :]) for passage, row in zip(passages(book), rows, strict=True)]


def test_sentences_end_where_they_should() -> None:
    text = (
        'One here. "Two then?" he asked. "Three now!" Mr. Four came... and went. Five did (six.) Seven ran\nEight sat.'
    )
    # what follows in small letters goes on; an abbreviation ends nothing; a paragraph ends everything
    expected = ["`` two then ? '' he asked", "`` three now", "mr. four came ... and went", "five did -lrb- six"]
    assert targets(text) == [*expected, "eight sat"]


def test_text_without_capitals() -> None:
    assert targets("one here . two then . `` three now ! '' four it is .") == ["two then", "`` three now", "four it is"]


def test_wrapped_lines_are_one_paragraph() -> None:
    lines = "\n".join(["She went out to", "see the old house."] * 5)
    assert targets(f"{lines}\n\nHe saw\nthe dog.") == ["she went out to see the old house"] * 4 + ["he saw the dog"]


def test_passages_are_what_they_promise() -> None:
    book = parse(novel(1))
    assert len(book.passages.examples) > 20
    for passage, row in zip(passages(book), book.passages.examples, strict=True):
        assert row["target"] >= 50
        assert passage[-1] in passage[:-1]
        assert passage[row["target"] - 1] in (".", "''")
        assert passage[-1] not in ("her", "she", ".")


def test_context_is_the_least_number_of_sentences() -> None:
    text = " ".join(f"Word{i} is here." for i in range(40))
    rows = parse(text, PassageFilters(context=8, in_passage=False, content=False)).passages.examples
    assert set(rows["target"].tolist()) == {8}  # two sentences of four tokens
    assert len(rows) == 38


@pytest.mark.parametrize(
    ("changed", "more"),
    [({"content": False}, True), ({"in_passage": False}, True), ({"stride": 3}, False), ({"longest": 60}, False)],
)
def test_filters(changed: dict[str, int], more: bool) -> None:
    usual = len(parse(novel(2)).passages.examples)
    other = len(parse(novel(2), PassageFilters(**changed)).passages.examples)
    assert other > usual if more else other < usual


def test_filters_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="stride is 0: give at least 1"):
        PassageFilters(stride=0)
    with pytest.raises(ValueError, match="more than their 50 of context"):
        PassageFilters(longest=40)
    with pytest.raises(ValueError, match="at least 2"):
        NgramIndex([], 1)


@pytest.mark.parametrize("text", ["", "\n\n", "...", '"', "word", "A.\n" * 3])
def test_texts_without_passages(text: str) -> None:
    assert len(parse(text).passages.examples) == 0


def test_near_duplicates_are_left_out() -> None:
    clean = parse(novel(5))
    copied = passages(clean)[7]
    book = parse(novel(5), None, copied)
    assert copied in passages(clean)
    assert copied not in passages(book)
    shares = [bool(ngrams_of(passage) & ngrams_of(copied)) for passage in passages(clean)]
    assert 0 < sum(shares) < len(shares)
    assert book.passages.counts["near-duplicate"] == sum(shares)
    assert passages(book) == [p for p, shared in zip(passages(clean), shares, strict=True) if not shared]


def ngrams_of(passage: list[str]) -> set[tuple[str, ...]]:
    words = [token for token in passage if re.search(r"\w", token)]
    return {tuple(words[i : i + RUN]) for i in range(len(words) - RUN + 1)}


def test_marks_do_not_hide_a_copy() -> None:
    ngrams = NgramIndex([["he", "said", "that", ",", "the", "sea", "was", "calm"]], 5)
    assert ngrams.overlaps(["but", "he", "said", "``", "that", "the", "--", "sea", "''", "was"])
    assert not ngrams.overlaps(["but", "he", "said", "``", "this", "the", "--", "sea", "''", "was"])
    assert not ngrams.overlaps(["he"])
