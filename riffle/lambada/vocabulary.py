"""The words a model knows, the ids of a passage's words, and the layers that embed them.

Words outside the vocabulary (out-of-vocabulary, OOV) get ids that tell them apart within their passage.
"""

# B = passages, N = positions, D = features of the network, V = words of a corpus, T = dimensions of a word vector
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from riffle.lambada.corpus import Corpus
from riffle.lambada.vectors import WordVectors, load_vectors

BLANK = 0
"""The id of a position without a word."""
MASK = 1
"""The id of the answer's position."""
FIRST_OOV = 2
"""The id of the first out-of-vocabulary word of a passage; the next different one has the next id."""
PLAIN_MARKS = {"``": '"', "''": '"', "`": "'", "-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "--": "—"}
"""Penn Treebank marks as plain text has them, for word tables that were trained on plain text."""
ROWS_AT_ONCE = 4096


class Vocabulary:
    """Ids for words: blank, mask, ``oov_ids`` ids for out-of-vocabulary words, then the known words in their order.

    OOV words are numbered within their passage: the first gets :data:`FIRST_OOV`, the next different one the next id.
    So a name has one id wherever it occurs in its passage, two names have two, and a name can be pointed at though
    nothing else is known about it. Ids are used again only in a passage of more than ``oov_ids`` different OOV words.

    Args:
        known: The known words, each once.
        oov_ids: Ids for OOV words. As many as the network has positions are always enough.

    Examples::

        >>> vocabulary = Vocabulary(["the", "met"], oov_ids=4)
        >>> vocabulary.encode("the zyx met the qux zyx".split())
        [6, 2, 7, 6, 3, 2]
    """

    def __init__(self, known: Sequence[str], oov_ids: int = 128) -> None:
        if oov_ids < 1:
            raise ValueError(f"oov_ids is {oov_ids}: give at least 1")
        self.known, self.oov_ids = list(known), oov_ids
        self._ids = {word: id_ for id_, word in enumerate(self.known, self.first_known)}
        if len(self._ids) < len(self.known):
            raise ValueError(f"{len(self.known) - len(self._ids)} of the known words are there twice")
        for mark, plain in PLAIN_MARKS.items():
            if mark not in self._ids and plain in self._ids:
                self._ids[mark] = self._ids[plain]

    def __len__(self) -> int:
        return self.first_known + len(self.known)

    @property
    def first_known(self) -> int:
        """The id of the first known word."""
        return FIRST_OOV + self.oov_ids

    def fingerprint(self) -> int:
        """A 64-bit hash of the vocabulary."""
        digest = hashlib.blake2b("\n".join([str(self.oov_ids), *self.known]).encode(), digest_size=8).digest()
        return int.from_bytes(digest, signed=True)

    def encode(self, passage: Sequence[str]) -> list[int]:
        """The ids of one passage's words."""
        oov: dict[str, int] = {}
        return [
            self._ids[word] if word in self._ids else FIRST_OOV + oov.setdefault(word, len(oov)) % self.oov_ids
            for word in passage
        ]

    def lookup(self, corpus_words: Sequence[str]) -> Tensor:
        """The id of every word of a corpus, -1 for OOV words, int64 ``[V]``; for :meth:`encode_tokens`."""
        return torch.tensor([self._ids.get(word, -1) for word in corpus_words], dtype=torch.int64)

    def encode_tokens(
        self, tokens_BN: Tensor, lookup_V: Tensor, forgotten_BN: Tensor | None = None, replaced_BN: Tensor | None = None
    ) -> Tensor:
        """The same as :meth:`encode` for passages of corpus tokens; no synchronisation with the device.

        Args:
            tokens_BN: Indices of corpus words, ``[B, N]``, -1 for no word.
            lookup_V: The result of :meth:`lookup` for the words of that corpus, on the same device.
            forgotten_BN: Positions, ``[B, N]``, whose word is treated as OOV throughout its passage; only the first
                position of a word decides.
            replaced_BN: Ids, ``[B, N]``, that a word has throughout its passage in place of its own, -1 for its own;
                again its first position decides.

        Returns:
            Ids, int64 ``[B, N]``.
        """
        width = tokens_BN.shape[1]
        ids_BN = lookup_V[tokens_BN.clamp(min=0).long()]
        empty_BN = tokens_BN < 0
        positions_N = torch.arange(width, device=tokens_BN.device, dtype=torch.int32)
        same_BNN = tokens_BN[:, :, None] == tokens_BN[:, None, :]
        first_BN = torch.where(same_BNN, positions_N, width).amin(dim=2) if width else positions_N.expand_as(ids_BN)
        if replaced_BN is not None:
            replaced_BN = replaced_BN.gather(1, first_BN.long())
            ids_BN = torch.where(replaced_BN < 0, ids_BN, replaced_BN)
        oov_BN = ids_BN < 0
        if forgotten_BN is not None:
            oov_BN = oov_BN | forgotten_BN.gather(1, first_BN.long())
        oov_BN = oov_BN & ~empty_BN
        rank_BN = (oov_BN & (first_BN == positions_N)).cumsum(dim=1) - 1
        number_BN = rank_BN.gather(1, first_BN.long()) % self.oov_ids
        return torch.where(oov_BN, FIRST_OOV + number_BN, ids_BN).masked_fill(empty_BN, BLANK)


def choose_vocabulary(corpus: Corpus, size: int) -> WordVectors:
    """The most common words of a corpus that have a pretrained vector, in order, with their vectors."""
    path = corpus.folder / "vectors.safetensors"
    if not path.exists():
        raise ValueError(f"{corpus.folder} has no word vectors: prepare it with --vectors")
    table = load_vectors(path)
    rows = {word: row for row, word in enumerate(table.words)}
    # A mark that the table has only in its plain form is chosen by that form, which the corpus need not have.
    names = dict.fromkeys(word if word in rows else PLAIN_MARKS.get(word, word) for word in corpus.words)
    chosen = [word for word in names if word in rows][:size]
    if not chosen:
        raise ValueError(f"no word of {corpus.folder} is in its table of vectors: prepare it with another table")
    return WordVectors(chosen, table.table[[rows[word] for word in chosen]])


def nearest_words(vectors_VT: Tensor, count: int) -> Tensor:
    """The ``count`` other words whose vectors have the smallest angles to each word's, nearest first, ``[V, S]``."""
    vectors_VT = torch.nn.functional.normalize(vectors_VT.float(), dim=1)
    parts = []
    for rows in torch.arange(len(vectors_VT), device=vectors_VT.device).split(ROWS_AT_ONCE):
        cosine_RV = vectors_VT[rows] @ vectors_VT.T
        cosine_RV.scatter_(1, rows[:, None], -torch.inf)
        parts.append(cosine_RV.topk(min(count, len(vectors_VT) - 1)).indices)
    return torch.cat(parts)


class FrozenWords(nn.Module):
    r"""Embed words as :math:`\tanh(W v + b)` of their pretrained vectors :math:`v`, which are not trained.

    Blank is embedded as zero, the mask by a vector that is learned, and OOV words by ``vocabulary.oov_ids`` frozen
    random vectors with the mean and deviation of the table.

    Args:
        vocabulary: The ids; its known words are the first of the table's.
        vectors: The pretrained table.
        features: Feature maps per cell, :math:`m` in the paper.

    Shape:
        - Input: ids :math:`(B, N)`, as :class:`Vocabulary` gives them.
        - Output: :math:`(B, N, D)` with :math:`D` = ``features``.

    Examples::

        >>> import numpy as np
        >>> vectors = WordVectors(["a", "b"], np.ones((2, 5), dtype=np.float16))
        >>> FrozenWords(Vocabulary(vectors.words), vectors, features=8)(torch.tensor([[0, 1, 2, 130]])).shape
        torch.Size([1, 4, 8])
    """

    table: Tensor
    fingerprint: Tensor

    def __init__(
        self, vocabulary: Vocabulary, vectors: WordVectors, features: int, *, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        if vocabulary.known != vectors.words[: len(vocabulary.known)]:
            raise ValueError(
                f"the {len(vocabulary.known)} known words are not the first of the table's {len(vectors.words)}: "
                "make both from the same table"
            )
        known = torch.from_numpy(vectors.table[: len(vocabulary.known)])
        width = known.shape[1]
        if width < 1:
            raise ValueError("the table has vectors without numbers: make it again")
        generator = torch.Generator().manual_seed(0)
        # Statistics of the most common words only, so that a shortened table gives the same OOV vectors.
        deviation, mean = torch.std_mean(known[:1000].float(), dim=0, correction=0)
        oov = torch.randn(vocabulary.oov_ids, width, generator=generator) * deviation + mean
        special = torch.zeros(FIRST_OOV, width)  # the learned vector of the mask is added in forward
        rows = torch.cat([special.half(), oov.half(), known])
        # Not part of a checkpoint: it is the same for all models and larger than most of them.
        self.register_buffer("table", rows.to(device), persistent=False)
        self.register_buffer("fingerprint", torch.tensor(vocabulary.fingerprint()))
        self.mask = nn.Parameter(torch.zeros(width, device=device, dtype=dtype))
        self.map = nn.Linear(width, features, device=device, dtype=dtype)

    def forward(self, ids_BN: Tensor) -> Tensor:
        vectors_BNT = self.table[ids_BN].to(self.map.weight.dtype)
        vectors_BNT = vectors_BNT + (ids_BN == MASK).unsqueeze(-1) * self.mask
        return torch.tanh(self.map(vectors_BNT)) * (ids_BN != BLANK).unsqueeze(-1)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        # Weights that were trained with other vectors would load without an error and give wrong answers.
        *_, errors = args
        saved = state_dict.get(f"{prefix}fingerprint")
        if saved is not None and not torch.equal(saved.cpu(), self.fingerprint.cpu()):
            errors.append(f"the {len(self.table)} words of the table are not those the weights were trained with")
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"words={len(self.table)}, frozen={self.table.shape[1]}"
