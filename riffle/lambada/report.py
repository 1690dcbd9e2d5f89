"""What a prepared corpus holds, in numbers."""

# E = examples, W = tokens of the longest, V = different words
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.corpus import Corpus

POSITIONS = 128
"""Positions of the paper's model: of a longer passage only the last so many tokens are read."""
CLASSES = {"1-100": 100, "101-1,000": 1_000, "1,001-10,000": 10_000, "10,001-100,000": 100_000, "rarer": None}
"""Frequency classes of words by their rank in the novels."""
_BLOCK = 1 << 15


def describe(corpus: Corpus, known_V: NDArray[np.bool_]) -> dict[str, Any]:
    """Numbers about a corpus and each of its splits.

    Args:
        corpus: The corpus.
        known_V: Which of its words a model would know.
    """
    total = max(int(corpus.counts.sum()), 1)
    unknown = int(corpus.counts[~known_V].sum())
    return {
        "tokens": int(corpus.counts.sum()),
        "different words": len(corpus.words),
        "unknown words": unknown / total,
        "splits": {split: describe_split(corpus, split, known_V) for split in corpus.splits},
    }


def describe_split(corpus: Corpus, split: str, known_V: NDArray[np.bool_]) -> dict[str, Any]:
    """Passages, lengths, whether the answer occurs, whether it is known, and how common it is."""
    examples = corpus.examples(split)
    if not len(examples):
        return {"passages": 0}
    answers, anywhere, reachable = _answers(corpus, examples)
    unknown = ~known_V[answers]
    limits = [limit for limit in CLASSES.values() if limit is not None]
    classes = np.bincount(np.searchsorted(limits, answers, side="right"), minlength=len(CLASSES))
    return {
        "passages": len(examples),
        "mean length": float(examples["length"].mean()),
        "longer than 128": float((examples["length"] > POSITIONS).mean()),
        "answer in passage": float(anywhere.mean()),
        "answerable": float(reachable.mean()),
        "unknown answers": float(unknown.mean()),
        "answerable unknown answers": float((unknown & reachable).mean()),
        "answers by rank": {name: int(count) for name, count in zip(CLASSES, classes, strict=True)},
    }


def known_words(corpus: Corpus, words: list[str] | None, most_common: int = 60_000) -> NDArray[np.bool_]:
    """Which words of a corpus are among ``words``, or among its most common ones if no list is given."""
    if words is None:
        return np.arange(len(corpus.words)) < most_common
    table = frozenset(words)
    return np.fromiter((word in table for word in corpus.words), dtype=np.bool_, count=len(corpus.words))


def _answers(
    corpus: Corpus, examples: NDArray[np.void]
) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_]]:
    """For every example its answer, whether that occurs before, and whether so in what the model reads."""
    answers, anywhere, reachable = [], [], []
    for begin in range(0, len(examples), _BLOCK):
        some = examples[begin : begin + _BLOCK]
        tokens_EW = corpus.last_tokens(some, max(int(some["length"].max()), POSITIONS))
        same_EW = tokens_EW[:, :-1] == tokens_EW[:, -1:]
        answers.append(tokens_EW[:, -1])
        anywhere.append(same_EW.any(axis=1))
        reachable.append(same_EW[:, 1 - POSITIONS :].any(axis=1))
    return np.concatenate(answers), np.concatenate(anywhere), np.concatenate(reachable)
