"""Runs of words that two texts share: how passages of the evaluation are kept out of training."""

# T = tokens of a text, G = T - n + 1 runs of n words
from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_FACTOR = 0x9E3779B97F4A7C15  # odd, so that no power of it vanishes modulo 2^64
_PREFIX_BITS = 22


def word_hash(word: str) -> int:
    """A number of 64 bits for a word, the same in every process."""
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


def run_hashes(hash_T: Hashes, n: int) -> Hashes:
    """One number for every run of ``n`` words, uint64 ``[G]``."""
    runs = max(len(hash_T) - n + 1, 0)
    total = np.zeros(runs, dtype=np.uint64)
    for offset in range(n):  # Horner's scheme, modulo 2^64
        total = total * np.uint64(_FACTOR) + hash_T[offset : offset + runs]
    return total


class Runs:
    """All runs of ``n`` words of some passages. Marks do not count: editions differ in them.

    Args:
        passages: The passages, as tokens.
        n: Words in a run. A shorter passage has none and cannot be found.

    Examples::

        >>> runs = Runs(["a cat sat on the mat".split()], n=3)
        >>> text = "the cat , sat on it".split()
        >>> begin, end = runs.find(np.array([word_hash(t) for t in text], dtype=np.uint64), np.array(is_words(text)))
        >>> begin, end
        (array([1]), array([4]))
    """

    def __init__(self, passages: Sequence[Sequence[str]], n: int) -> None:
        if n < 2:
            raise ValueError(f"runs of {n} words would be found everywhere: give at least 2")
        self.n = n
        known: dict[str, int] = {}
        parts = [np.empty(0, dtype=np.uint64)]
        for passage in passages:
            words = [token for token, word in zip(passage, is_words(passage), strict=True) if word]
            for word in words:
                if word not in known:
                    known[word] = word_hash(word)
            parts.append(run_hashes(np.array([known[word] for word in words], dtype=np.uint64), n))
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
            word_T: Which of them are words, see :func:`is_words`.
        """
        if not len(self):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        places = np.flatnonzero(word_T)
        hash_G = run_hashes(hash_T[places], self.n)
        likely = np.flatnonzero(self._prefixes[hash_G >> np.uint64(64 - _PREFIX_BITS)])
        nearest = np.minimum(np.searchsorted(self._sorted, hash_G[likely]), len(self._sorted) - 1)
        begin = likely[self._sorted[nearest] == hash_G[likely]]
        return places[begin], places[begin + self.n - 1]

    def within(self, passage: Sequence[str]) -> bool:
        """Whether a passage has one of the runs."""
        hash_T = np.array([word_hash(token) for token in passage], dtype=np.uint64)
        return bool(len(self.find(hash_T, np.array(is_words(passage), dtype=np.bool_))[0]))


def is_words(tokens: Sequence[str]) -> list[bool]:
    """Which tokens are words and not marks: those with a letter or a digit."""
    return [any(map(str.isalnum, token)) for token in tokens]
