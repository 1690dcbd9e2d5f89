"""Sentences in a stream of tokens, and the passages that end with one; whole books at a time."""

# T = tokens of a book, S = sentences, E = examples
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

END_MARKS = frozenset({".", "?", "!", "...", "?!", "!?", "!!", "??", "!!!", "???"})
"""Marks that can end a sentence."""
CLOSING_MARKS = frozenset({"''", "'", "-rrb-", "-rsb-", "-rcb-"})
"""Marks that still belong to the sentence they follow."""

EXAMPLE = np.dtype([("start", "<i8"), ("length", "<i4"), ("target", "<i4")])
"""One example: its first token in the stream, how many tokens with the answer (the last), where its target begins."""


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which sentences become examples."""

    context: int = 50
    """Tokens before the target sentence, at least; whole sentences are taken until there are so many."""
    longest: int = 203
    """Tokens of a passage with its answer, at most; 203 is the longest of the development set."""
    shortest_target: int = 2
    """Tokens of a target sentence up to its answer, at least."""
    stride: int = 1
    """Of so many sentences one may be a target; 1 lets every passage overlap the next."""
    content: bool = True
    """Leave out answers that are function words."""
    in_passage: bool = True
    """Leave out answers that do not occur earlier in the passage."""
    within: bool = True
    """Also find answers inside sentences, for the split of that name; always content words of their passage."""

    def __post_init__(self) -> None:
        for name in ("context", "shortest_target", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least 1")
        if self.longest <= self.context:
            raise ValueError(f"longest is {self.longest}: passages need more than their {self.context} of context")


def sentence_starts(end_T: Bools, closing_T: Bools, begins_T: Bools, break_T: Bools) -> Ints:
    """Where sentences begin, int64 ``[S]``.

    A sentence ends with an end mark and the closing marks behind it, if what follows can begin another; and at the
    end of a paragraph in any case.

    Args:
        end_T: Tokens that can end a sentence.
        closing_T: Tokens that stay with the sentence before them.
        begins_T: Tokens that can begin one: words with a capital, opening marks, numbers.
        break_T: Tokens before which a paragraph begins.
    """
    # A closing mark carries on the state of what it closes: the last token that is none decides.
    indices_T = np.arange(len(end_T))
    decisive_T = np.maximum.accumulate(np.where(closing_T, 0, indices_T))
    ended_T = end_T[decisive_T]
    starts_T = break_T.copy()
    starts_T[1:] |= ended_T[:-1] & begins_T[1:] & ~closing_T[1:]
    starts_T[:1] = True
    return np.flatnonzero(starts_T)


def previous_occurrence(ids_T: NDArray[np.integer]) -> Ints:
    """For every token where the same word stood last, -1 if nowhere.

    >>> previous_occurrence(np.array([5, 7, 5, 5]))
    array([-1, -1,  0,  2])
    """
    order = np.argsort(ids_T, kind="stable")
    again = ids_T[order[1:]] == ids_T[order[:-1]]
    previous = np.full(len(ids_T), -1, dtype=np.int64)
    previous[order[1:][again]] = order[:-1][again]
    return previous


@dataclass(frozen=True)
class Found:
    """Passages of one book and what was left out."""

    examples: NDArray[np.void]
    """The passages that remain, :data:`EXAMPLE` ``[E]``, counted from the first token of the book."""
    within: NDArray[np.void]
    """Passages that end inside a sentence, of the same form."""
    distance: Ints
    """How many tokens before the answer it was last mentioned, 0 for never, ``[E]``."""
    counts: dict[str, int]
    """Sentences, targets, and what each filter left out."""


def find_passages(
    starts_S: Ints, previous_T: Ints, mark_T: Bools, word_T: Bools, function_T: Bools, filters: Filters
) -> Found:
    """The passages of a book that pass the filters.

    Args:
        starts_S: Where sentences begin.
        previous_T: Where the word stood last, see :func:`previous_occurrence`.
        mark_T: End marks and closing marks, which may follow an answer.
        word_T: Tokens that can be an answer: words of letters.
        function_T: Function words among them.
        filters: What to leave out.
    """
    tokens = len(previous_T)
    ends_S = np.append(starts_S[1:], tokens)[: len(starts_S)]
    # The answer is the last token of its sentence that is no mark; a sentence of marks alone has none.
    last_T: Ints = np.maximum.accumulate(np.where(mark_T, -1, np.arange(tokens)))
    answer_S = last_T[ends_S - 1]
    # Whole sentences of context: from the last one that begins at least ``context`` tokens before the target.
    first_S = np.searchsorted(starts_S, starts_S - filters.context, side="right") - 1
    begin_S = starts_S[np.maximum(first_S, 0)]
    targets = (first_S >= 0) & (answer_S >= starts_S + filters.shortest_target - 1) & (answer_S < ends_S - 1)
    targets &= np.where(answer_S >= 0, word_T[answer_S], False)
    targets &= np.arange(len(starts_S)) % filters.stride == 0
    counts = {"sentences": len(starts_S), "targets": int(targets.sum())}

    def leave_out(name: str, unwanted_S: Bools) -> None:
        counts[name] = int((targets & unwanted_S).sum())
        targets[unwanted_S] = False

    leave_out("too long", answer_S - begin_S + 1 > filters.longest)
    present_S = previous_T[answer_S] >= begin_S
    counts["answer in passage, function words too"] = int((targets & present_S).sum())
    if filters.content:
        leave_out("function word", function_T[answer_S])
    if filters.in_passage:
        leave_out("answer not in passage", ~present_S)
    examples = _examples(begin_S[targets], answer_S[targets], starts_S[targets])
    distance = np.where(present_S, answer_S - previous_T[answer_S], 0)[targets]
    within = np.empty(0, dtype=EXAMPLE)
    if filters.within:
        wanted_T = word_T & ~function_T
        wanted_T[answer_S[answer_S >= 0]] = False
        at = np.flatnonzero(wanted_T)
        of = np.searchsorted(starts_S, at, side="right") - 1
        begin, start = begin_S[of], starts_S[of]
        fits = (first_S[of] >= 0) & (previous_T[at] >= begin) & (at - begin < filters.longest)
        fits &= (at >= start + filters.shortest_target - 1) & (of % filters.stride == 0)
        within = _examples(begin[fits], at[fits], start[fits])
    counts["within sentences"] = len(within)
    return Found(examples, within, distance, counts)


def _examples(begin_E: Ints, answer_E: Ints, start_E: Ints) -> NDArray[np.void]:
    examples = np.empty(len(begin_E), dtype=EXAMPLE)
    examples["start"], examples["length"], examples["target"] = begin_E, answer_E - begin_E + 1, start_E - begin_E
    return examples
