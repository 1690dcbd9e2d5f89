"""The words a model knows, and those it does not: which id every word of a passage gets."""

# B = passages, N = positions, V = words of a corpus, U = unknown words told apart in one passage
from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

BLANK = 0
"""The id of a position without a word."""
MASK = 1
"""The id of the position of the answer."""
FIRST_UNKNOWN = 2
"""The id of the first unknown word of a passage; the second has the next."""

PLAIN = {"``": '"', "''": '"', "`": "'", "-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "--": "—"}
"""Marks under the name that tables have them by which were not trained on tokens of the Penn Treebank."""


class Words:
    """Ids for words: blank, mask, ``unknowns`` ids for unknown words, then the known words in their order.

    An unknown word is numbered within its passage: the first different one gets :data:`FIRST_UNKNOWN`, the second the
    next id. So the same name twice has the same id, two names have two, and a name can be pointed at, though nothing
    is known about it. Only a passage of more than ``unknowns`` different unknown words uses ids again.

    Args:
        known: The known words, each once.
        unknowns: Unknown words told apart in one passage. As many as positions always suffice.

    Examples::

        >>> words = Words(["the", "met"], unknowns=4)
        >>> words.encode("the zyx met the qux zyx".split())
        [6, 2, 7, 6, 3, 2]
    """

    def __init__(self, known: Sequence[str], unknowns: int = 128) -> None:
        if unknowns < 1:
            raise ValueError(f"unknowns is {unknowns}: give at least 1")
        self.known, self.unknowns = list(known), unknowns
        self._ids = {word: number for number, word in enumerate(self.known, self.first_known)}
        if len(self._ids) < len(self.known):
            raise ValueError(f"{len(self.known) - len(self._ids)} of the known words are there twice")
        for mark, plain in PLAIN.items():
            if mark not in self._ids and plain in self._ids:
                self._ids[mark] = self._ids[plain]

    def __len__(self) -> int:
        return self.first_known + len(self.known)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    @property
    def first_known(self) -> int:
        """The id of the first known word."""
        return FIRST_UNKNOWN + self.unknowns

    def fingerprint(self) -> int:
        """A number that tells these words from others."""
        digest = hashlib.blake2b("\n".join([str(self.unknowns), *self.known]).encode(), digest_size=8).digest()
        return int.from_bytes(digest, signed=True)

    def encode(self, passage: Sequence[str]) -> list[int]:
        """The ids of the words of one passage."""
        seen: dict[str, int] = {}
        ids = []
        for word in passage:
            known = self._ids.get(word)
            ids.append(FIRST_UNKNOWN + seen.setdefault(word, len(seen)) % self.unknowns if known is None else known)
        return ids

    def lookup(self, corpus_words: Sequence[str]) -> Tensor:
        """For every word of a corpus its id, or -1 for an unknown one, int64 ``[V]``; for :meth:`encode_tokens`."""
        return torch.tensor([self._ids.get(word, -1) for word in corpus_words], dtype=torch.int64)

    def encode_tokens(self, tokens_BN: Tensor, lookup_V: Tensor, forgotten_BN: Tensor | None = None) -> Tensor:
        """The same as :meth:`encode` for passages given as numbers of corpus words, -1 for no word.

        Works on any device and never waits for it.

        Args:
            tokens_BN: Corpus words, ``[B, N]``.
            lookup_V: What :meth:`lookup` gave for the words of that corpus, on the same device.
            forgotten_BN: Places whose word is taken as unknown throughout its passage, if it is the first such place.

        Returns:
            Ids, int64 ``[B, N]``.
        """
        width = tokens_BN.shape[1]
        ids_BN = lookup_V[tokens_BN.clamp(min=0).long()]
        empty_BN = tokens_BN < 0
        places_N = torch.arange(width, device=tokens_BN.device, dtype=torch.int32)
        same_BNN = tokens_BN[:, :, None] == tokens_BN[:, None, :]
        first_BN = torch.where(same_BNN, places_N, width).amin(dim=2) if width else places_N.expand_as(ids_BN)
        unknown_BN = ids_BN < 0
        if forgotten_BN is not None:
            unknown_BN = unknown_BN | forgotten_BN.gather(1, first_BN.long())
        unknown_BN = unknown_BN & ~empty_BN
        rank_BN = (unknown_BN & (first_BN == places_N)).cumsum(dim=1) - 1
        number_BN = rank_BN.gather(1, first_BN.long()) % self.unknowns
        return torch.where(unknown_BN, FIRST_UNKNOWN + number_BN, ids_BN).masked_fill(empty_BN, BLANK)
