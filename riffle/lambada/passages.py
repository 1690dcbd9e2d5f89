"""Sentences in a stream of tokens, and the passages that end with one; whole books at a time.

Runs of words that two texts share: how passages of the evaluation are kept out of training.
"""

# T = tokens of a book, S = sentences, E = examples
# T = tokens of a text, G = T - n + 1 runs of n words
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.tokens import is_word

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
END_MARKS = frozenset({".", "?", "!", "...", "?!", "!?", "!!", "??", "!!!", "???"})
"""Marks that can end a sentence."""
CLOSING_MARKS = frozenset({"''", "'", "-rrb-", "-rsb-", "-rcb-"})
"""Marks that still belong to the sentence they follow."""
EXAMPLE_DTYPE = np.dtype([("start", "<i8"), ("length", "<i4"), ("target", "<i4")])
"""One example: its first token in the stream, how many tokens with the answer (the last), where its target begins."""


@dataclass(frozen=True, kw_only=True)
class PassageFilters:
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
class FoundPassages:
    """Passages of one book and what was left out."""

    examples: NDArray[np.void]
    """The passages that remain, :data:`EXAMPLE_DTYPE` ``[E]``, counted from the first token of the book."""
    within: NDArray[np.void]
    """Passages that end inside a sentence, of the same form."""
    distance: Ints
    """How many tokens before the answer it was last mentioned, 0 for never, ``[E]``."""
    counts: dict[str, int]
    """Sentences, targets, and what each filter left out."""


def find_passages(
    starts_S: Ints, previous_T: Ints, mark_T: Bools, word_T: Bools, function_T: Bools, filters: PassageFilters
) -> FoundPassages:
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
    within = np.empty(0, dtype=EXAMPLE_DTYPE)
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
    return FoundPassages(examples, within, distance, counts)


def _examples(begin_E: Ints, answer_E: Ints, start_E: Ints) -> NDArray[np.void]:
    examples = np.empty(len(begin_E), dtype=EXAMPLE_DTYPE)
    examples["start"], examples["length"], examples["target"] = begin_E, answer_E - begin_E + 1, start_E - begin_E
    return examples


Hashes = NDArray[np.uint64]
_FACTOR = 0x9E3779B97F4A7C15  # odd, so that no power of it vanishes modulo 2^64
_PREFIX_BITS = 22


def word_hash(word: str) -> int:
    """A number of 64 bits for a word, the same in every process."""
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


def ngram_hashes(hash_T: Hashes, n: int) -> Hashes:
    """One number for every run of ``n`` words, uint64 ``[G]``."""
    runs = max(len(hash_T) - n + 1, 0)
    total = np.zeros(runs, dtype=np.uint64)
    for offset in range(n):  # Horner's scheme, modulo 2^64
        total = total * np.uint64(_FACTOR) + hash_T[offset : offset + runs]
    return total


class NgramIndex:
    """All runs of ``n`` words of some passages. Marks do not count: editions differ in them.

    Args:
        passages: The passages, as tokens.
        n: Words in a run. A shorter passage has none and cannot be found.

    Examples::

        >>> runs = NgramIndex(["a cat sat on the mat".split()], n=3)
        >>> text = "the cat , sat on it".split()
        >>> hashes = np.array([word_hash(token) for token in text], dtype=np.uint64)
        >>> runs.find(hashes, np.array([is_word(token) for token in text]))
        (array([1]), array([4]))
    """

    def __init__(self, passages: Sequence[Sequence[str]], n: int) -> None:
        if n < 2:
            raise ValueError(f"runs of {n} words would be found everywhere: give at least 2")
        self.n = n
        known: dict[str, int] = {}
        parts = [np.empty(0, dtype=np.uint64)]
        for passage in passages:
            words = list(filter(is_word, passage))
            for word in words:
                if word not in known:
                    known[word] = word_hash(word)
            parts.append(ngram_hashes(np.array([known[word] for word in words], dtype=np.uint64), n))
        self._sorted = np.unique(np.concatenate(parts))
        # Nearly every run of a novel is new: a table of the first bits answers those without a search.
        self._prefixes = np.zeros(1 << _PREFIX_BITS, dtype=np.bool_)
        self._prefixes[self._sorted >> np.uint64(64 - _PREFIX_BITS)] = True

    def __len__(self) -> int:
        return len(self._sorted)

    def find(self, hash_T: Hashes, word_T: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first and the last token of every run of the passages in a text.

        Args:
            hash_T: The hashes of the text's tokens.
            word_T: Which of them are words, see :func:`is_word`.
        """
        if not len(self):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        places = np.flatnonzero(word_T)
        hash_G = ngram_hashes(hash_T[places], self.n)
        likely = np.flatnonzero(self._prefixes[hash_G >> np.uint64(64 - _PREFIX_BITS)])
        nearest = np.minimum(np.searchsorted(self._sorted, hash_G[likely]), len(self._sorted) - 1)
        begin = likely[self._sorted[nearest] == hash_G[likely]]
        return places[begin], places[begin + self.n - 1]

    def within(self, passage: Sequence[str]) -> bool:
        """Whether a passage has one of the runs."""
        hash_T = np.array([word_hash(token) for token in passage], dtype=np.uint64)
        return bool(len(self.find(hash_T, np.array([is_word(t) for t in passage], dtype=np.bool_))[0]))
