"""The tab Read: where the reader of LAMBADA passages points, every word shaded by its probability."""

from __future__ import annotations

import re
from functools import cache
from html import escape

from riffle.demo.svg import errors_as_markup, tag
from riffle.lambada.evaluate import Candidate, TrainedReader, candidates, find_reader, read_question
from riffle.quantities import format_percent

MAX_PASSAGE = 4000
"""Characters of the longest passage."""
PASSAGE = (
    "There should have been eleven prisoners, and there were ten. 'Where is Dorrick?' the captain asked. Nobody "
    "answered. He looked into each face, from Halloran at the front to the boy at the end. 'Which of you has seen ___"
)
"""What the page shows before anything is typed."""


@cache
def load_reader() -> TrainedReader:
    """The shipped reader, loaded when it is first asked."""
    return TrainedReader(find_reader(None))


@errors_as_markup
def show_reading(text: str) -> str:
    """A passage with its words shaded, and the most likely ones."""
    if len(text) > MAX_PASSAGE:
        raise ValueError(f"the passage has {len(text)} characters, and this page reads at most {MAX_PASSAGE}")
    tokens = read_question(text)
    probabilities = load_reader().next_word_probabilities(tokens)
    best = candidates(tokens, probabilities, 5)
    words = {word: probabilities[word] for word, *_ in candidates(tokens, probabilities, len(tokens))}
    passage = tag("p", [_shade(piece, words) for piece in re.split(r"(\w+)", text)], class_="passage")
    verdict = f"It points at “{escape(best[0].word)}”, {format_percent(best[0].probability)}."
    body = [tag("p", verdict, class_="verdict"), passage, _table(best)]
    return tag("section", body, class_="answer reading", data_word=best[0].word)


def _shade(piece: str, words: dict[str, float]) -> str:
    """A piece of the passage, in the colour of its probability if it is a word that may be the answer."""
    share = words.get(piece.lower(), 0.0)
    if share < 0.005:
        return escape(piece)
    return tag("mark", escape(piece), style=f"--share: {share:.3f}", title=format_percent(share))


def _table(best: list[Candidate]) -> str:
    rows = []
    for word, probability, _ in best:
        bar = tag("i", "", style=f"width: {100 * probability:.1f}%")
        rows.append(tag("li", f"<b>{escape(word)}</b> <span>{format_percent(probability)}</span>{bar}"))
    return tag("ol", rows, class_="words")
