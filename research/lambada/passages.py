"""Passages cut out of novels: a context of whole sentences and the answer, the last word of the sentence after them.

:class:`NgramIndex` finds training passages that share an n-gram of words with an evaluation passage, to leave them out.
"""

# T = tokens of a book, S = its sentences, E = examples, G = n-grams of a text
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.passages import EXAMPLE_DTYPE, Ints
from riffle.lambada.tokens import is_word, word_set

Bools = NDArray[np.bool_]
Hashes = NDArray[np.uint64]
_HASH_FACTOR = 0x9E3779B97F4A7C15  # odd, so that no power of it vanishes modulo 2^64
_PREFIX_BITS = 22
END_MARKS = frozenset({".", "?", "!", "...", "?!", "!?", "!!", "??", "!!!", "???"})
CLOSING_MARKS = frozenset({"''", "'", "-rrb-", "-rsb-", "-rcb-"})
"""Closing quotation marks and brackets, which belong to the sentence before them."""
FUNCTION_WORDS = word_set("""
a an the this that these those some any no every each either neither both all half such another other others one
ones none much many more most few fewer little less least several enough same own
i you he she it we they me him her us them my your his its our their mine yours hers ours theirs
myself yourself himself herself itself ourselves yourselves themselves thee thou thy thine ye
who whom whose which what whoever whatever whichever somebody someone something anybody anyone anything nobody
nothing everybody everyone everything
and or but nor so yet for if unless because since although though while whereas whether than as lest
of in to on at by with from into onto upon over under above below between among amid through throughout across
along around round about against toward towards behind before after beyond beside besides near off out up down
away back without within during until till despite except per via like unlike
be am is are was were been being have has had having do does did doing done can could will would shall should may
might must ought need dare ca wo sha
not n't never ever always often sometimes just only even also too very quite rather really almost already still
again once twice here there where when why how now then thus hence therefore however perhaps maybe indeed else
instead together apart anyway yes oh ah well ha eh
's 'm 'd 're 'll 've 't na ta
""")
"""Words of grammar rather than content; they are hardly ever the answer of a LAMBADA passage."""


@dataclass(frozen=True, kw_only=True)
class PassageFilters:
    """Which sentences of a novel become the target sentence of a passage."""

    context: int = 50
    """Fewest tokens before the target sentence; whole sentences are added until this is reached."""
    longest: int = 203
    """Most tokens of a passage, including the answer; 203 is the longest of the development set."""
    shortest_target: int = 2
    """Fewest tokens of a target sentence up to its answer."""
    stride: int = 1
    """Only every ``stride``-th sentence can be a target; with 1, passages overlap."""
    content: bool = True
    """Leave out answers that are function words."""
    in_passage: bool = True
    """Leave out answers that do not occur in their context."""
    within: bool = True
    """Also cut passages that end inside a sentence, for the split ``within``; always content words of their context."""

    def __post_init__(self) -> None:
        for name in ("context", "shortest_target", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least 1")
        if self.longest <= self.context:
            raise ValueError(f"longest is {self.longest}: passages need more than their {self.context} of context")


@dataclass(frozen=True)
class BookPassages:
    """The passages of one book, as :data:`EXAMPLE_DTYPE` with ``start`` counted from the book's first token."""

    examples: NDArray[np.void]
    """Passages that end with a sentence, ``[E]``."""
    mid_sentence: NDArray[np.void]
    """Passages that end inside a sentence."""
    counts: dict[str, int]
    """Numbers of sentences and targets, and how many targets each filter removed."""


def sentence_starts(end_T: Bools, closing_T: Bools, begins_T: Bools, break_T: Bools) -> Ints:
    """The first token of every sentence, int64 ``[S]``.

    A sentence ends at an end mark and the closing marks after it if the next token can begin a sentence (a capitalised
    word, an opening mark, a number), and at a paragraph's end.
    """
    # Whether a sentence has ended before a token is decided by the last token that is no closing mark.
    decisive_T = np.maximum.accumulate(np.where(closing_T, 0, np.arange(len(end_T))))
    ended_T = end_T[decisive_T]
    starts_T = break_T.copy()
    starts_T[1:] |= ended_T[:-1] & begins_T[1:] & ~closing_T[1:]
    starts_T[:1] = True
    return np.flatnonzero(starts_T)


def previous_occurrence(ids_T: NDArray[np.integer]) -> Ints:
    """For every token the last position before it that has the same word, -1 if there is none.

    >>> previous_occurrence(np.array([5, 7, 5, 5]))
    array([-1, -1,  0,  2])
    """
    order = np.argsort(ids_T, kind="stable")
    again = ids_T[order[1:]] == ids_T[order[:-1]]
    previous = np.full(len(ids_T), -1, dtype=np.int64)
    previous[order[1:][again]] = order[:-1][again]
    return previous


def find_passages(
    starts_S: Ints, previous_T: Ints, mark_T: Bools, word_T: Bools, function_T: Bools, filters: PassageFilters
) -> BookPassages:
    """The passages of a book that pass the filters; marks may follow an answer, only words can be one."""
    tokens = len(previous_T)
    ends_S = np.append(starts_S[1:], tokens)[: len(starts_S)]
    # The answer is the last token of a sentence that is no mark; -1 or an earlier sentence's if there are only marks.
    last_T: Ints = np.maximum.accumulate(np.where(mark_T, -1, np.arange(tokens)))
    answer_S = last_T[ends_S - 1]
    # The context begins with the last sentence that starts at least ``context`` tokens before the target sentence.
    first_S = np.searchsorted(starts_S, starts_S - filters.context, side="right") - 1
    begin_S = starts_S[np.maximum(first_S, 0)]
    allowed_S = (first_S >= 0) & (np.arange(len(starts_S)) % filters.stride == 0)
    is_target_S = allowed_S & (answer_S >= starts_S + filters.shortest_target - 1) & (answer_S < ends_S - 1)
    is_target_S &= np.where(answer_S >= 0, word_T[answer_S], False)
    counts = {"sentences": len(starts_S), "targets": int(is_target_S.sum())}

    def leave_out(reason: str, unwanted_S: Bools) -> None:
        counts[reason] = int((is_target_S & unwanted_S).sum())
        is_target_S[unwanted_S] = False

    leave_out("too long", answer_S - begin_S + 1 > filters.longest)
    in_context_S = previous_T[answer_S] >= begin_S
    counts["answer in passage, function words too"] = int((is_target_S & in_context_S).sum())
    if filters.content:
        leave_out("function word", function_T[answer_S])
    if filters.in_passage:
        leave_out("answer not in passage", ~in_context_S)
    examples = _examples(begin_S[is_target_S], answer_S[is_target_S], starts_S[is_target_S])
    mid_sentence = np.empty(0, dtype=EXAMPLE_DTYPE)
    if filters.within:
        content_T = word_T & ~function_T
        content_T[answer_S[answer_S >= 0]] = False
        answer = np.flatnonzero(content_T)
        sentence = np.searchsorted(starts_S, answer, side="right") - 1
        begin, start = begin_S[sentence], starts_S[sentence]
        fits = allowed_S[sentence] & (previous_T[answer] >= begin) & (answer - begin < filters.longest)
        fits &= answer >= start + filters.shortest_target - 1
        mid_sentence = _examples(begin[fits], answer[fits], start[fits])
    counts["within sentences"] = len(mid_sentence)
    return BookPassages(examples, mid_sentence, counts)


def _examples(begin_E: Ints, answer_E: Ints, target_E: Ints) -> NDArray[np.void]:
    examples = np.empty(len(begin_E), dtype=EXAMPLE_DTYPE)
    examples["start"], examples["length"], examples["target"] = begin_E, answer_E - begin_E + 1, target_E - begin_E
    return examples


def target_start(passage: Sequence[str]) -> int:
    """Where the target sentence of a passage without capitals begins: every end mark is taken to end a sentence.

    >>> target_start("he ran . she saw him".split()), target_start("`` no ! '' he said".split())
    (3, 4)
    """
    end_T, closing_T = (np.array([token in marks for token in passage]) for marks in (END_MARKS, CLOSING_MARKS))
    return int(sentence_starts(end_T, closing_T, ~end_T, np.zeros_like(end_T))[-1])


def word_hash(word: str) -> int:
    """A 64-bit hash of a word, the same in every process."""
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


class NgramIndex:
    """The n-grams of some passages. Punctuation is skipped, because editions differ in it.

    Examples::

        >>> ngrams = NgramIndex(["a cat sat on the mat".split()], n=3)
        >>> text = "the cat , sat on it".split()
        >>> hashes = np.array([word_hash(token) for token in text], dtype=np.uint64)
        >>> ngrams.find(hashes, np.array([is_word(token) for token in text]))
        (array([1]), array([4]))
    """

    def __init__(self, passages: Iterable[Sequence[str]], n: int) -> None:
        if n < 2:
            raise ValueError(f"runs of {n} words would be found everywhere: give at least 2")
        self.n = n
        hashes: dict[str, int] = {}
        parts = [np.empty(0, dtype=np.uint64)]
        for passage in passages:
            words = list(filter(is_word, passage))
            hashes.update({word: word_hash(word) for word in words if word not in hashes})
            parts.append(self._hash_ngrams(np.array([hashes[word] for word in words], dtype=np.uint64)))
        self._sorted = np.unique(np.concatenate(parts))
        # Hardly any n-gram of a novel is in the index: a table of the leading bits avoids most of the searches.
        self._prefixes = np.zeros(1 << _PREFIX_BITS, dtype=np.bool_)
        self._prefixes[self._sorted >> np.uint64(64 - _PREFIX_BITS)] = True

    def find(self, hash_T: Hashes, word_T: Bools) -> tuple[Ints, Ints]:
        """The first and the last token of every n-gram in the index, from :func:`word_hash` of a text's tokens."""
        if not len(self._sorted):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        words = np.flatnonzero(word_T)
        hash_G = self._hash_ngrams(hash_T[words])
        likely = np.flatnonzero(self._prefixes[hash_G >> np.uint64(64 - _PREFIX_BITS)])
        nearest = np.minimum(np.searchsorted(self._sorted, hash_G[likely]), len(self._sorted) - 1)
        begin = likely[self._sorted[nearest] == hash_G[likely]]
        return words[begin], words[begin + self.n - 1]

    def overlaps(self, passage: Sequence[str]) -> bool:
        """Whether a passage has an n-gram of the index."""
        hash_T = np.array([word_hash(token) for token in passage], dtype=np.uint64)
        return len(self.find(hash_T, np.array([is_word(token) for token in passage], dtype=np.bool_))[0]) > 0

    def _hash_ngrams(self, hash_T: Hashes) -> Hashes:
        """The hash of every n-gram from those of its words, uint64 ``[G]``: Horner's scheme modulo 2^64."""
        ngrams = max(len(hash_T) - self.n + 1, 0)
        total = np.zeros(ngrams, dtype=np.uint64)
        for offset in range(self.n):
            total = total * np.uint64(_HASH_FACTOR) + hash_T[offset : offset + ngrams]
        return total
