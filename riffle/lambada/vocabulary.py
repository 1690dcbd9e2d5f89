"""The words a model knows, and those it does not: which id every word of a passage gets.

Which words a model knows: the most common ones of its corpus, as far as the table has vectors for them.

Vectors for words: a frozen table with a linear map to the features of the network, or a table that is learned.
"""

# B = passages, N = positions, V = words of a corpus, U = unknown words told apart in one passage
# B = passages, N = positions, D = features of the network, T = numbers of a table's vector
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from riffle.lambada.corpus import Corpus
from riffle.lambada.vectors import WordVectors, load_vectors

BLANK = 0
"""The id of a position without a word."""
MASK = 1
"""The id of the position of the answer."""
FIRST_OOV = 2
"""The id of the first unknown word of a passage; the second has the next."""
PLAIN_MARKS = {"``": '"', "''": '"', "`": "'", "-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "--": "—"}
"""Marks under the name that tables have them by which were not trained on tokens of the Penn Treebank."""


class Vocabulary:
    """Ids for words: blank, mask, ``oov_ids`` ids for unknown words, then the known words in their order.

    An unknown word is numbered within its passage: the first different one gets :data:`FIRST_OOV`, the second the
    next id. So the same name twice has the same id, two names have two, and a name can be pointed at, though nothing
    is known about it. Only a passage of more than ``oov_ids`` different unknown words uses ids again.

    Args:
        known: The known words, each once.
        oov_ids: Unknown words told apart in one passage. As many as positions always suffice.

    Examples::

        >>> words = Vocabulary(["the", "met"], oov_ids=4)
        >>> words.encode("the zyx met the qux zyx".split())
        [6, 2, 7, 6, 3, 2]
    """

    def __init__(self, known: Sequence[str], oov_ids: int = 128) -> None:
        if oov_ids < 1:
            raise ValueError(f"oov_ids is {oov_ids}: give at least 1")
        self.known, self.oov_ids = list(known), oov_ids
        self._ids = {word: number for number, word in enumerate(self.known, self.first_known)}
        if len(self._ids) < len(self.known):
            raise ValueError(f"{len(self.known) - len(self._ids)} of the known words are there twice")
        for mark, plain in PLAIN_MARKS.items():
            if mark not in self._ids and plain in self._ids:
                self._ids[mark] = self._ids[plain]

    def __len__(self) -> int:
        return self.first_known + len(self.known)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    @property
    def first_known(self) -> int:
        """The id of the first known word."""
        return FIRST_OOV + self.oov_ids

    def fingerprint(self) -> int:
        """A number that tells these words from others."""
        digest = hashlib.blake2b("\n".join([str(self.oov_ids), *self.known]).encode(), digest_size=8).digest()
        return int.from_bytes(digest, signed=True)

    def encode(self, passage: Sequence[str]) -> list[int]:
        """The ids of the words of one passage."""
        seen: dict[str, int] = {}
        ids = []
        for word in passage:
            known = self._ids.get(word)
            ids.append(FIRST_OOV + seen.setdefault(word, len(seen)) % self.oov_ids if known is None else known)
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
        number_BN = rank_BN.gather(1, first_BN.long()) % self.oov_ids
        return torch.where(unknown_BN, FIRST_OOV + number_BN, ids_BN).masked_fill(empty_BN, BLANK)


def choose_vocabulary(corpus: Corpus, most: int, *, pretrained: bool = True) -> WordVectors:
    """The most common words of a corpus, most common first, with their vectors.

    Args:
        corpus: The corpus, with a table of vectors where they are asked for.
        most: How many words, at most.
        pretrained: Whether words need a vector; vectors of no numbers are given otherwise.
    """
    if not pretrained:
        words = corpus.words[:most]
        return WordVectors(words, np.empty((len(words), 0), dtype=np.float16))
    path = corpus.folder / "vectors.safetensors"
    if not path.exists():
        raise ValueError(
            f"{corpus.folder} has no word vectors: prepare it with --vectors, or train with --set data.table=learned"
        )
    table = load_vectors(path)
    rows = {word: row for row, word in enumerate(table.words)}
    # A mark that the table has under another name only is looked up by that name, which the corpus need not have.
    names = dict.fromkeys(word if word in rows else PLAIN_MARKS.get(word, word) for word in corpus.words)
    chosen = [word for word in names if word in rows][:most]
    if not chosen:
        raise ValueError(f"no word of {corpus.folder} is in its table of vectors: prepare it with another table")
    return WordVectors(chosen, table.table[[rows[word] for word in chosen]])


SPREAD = 1000
"""So many of the most common words say how vectors are spread."""


class FrozenWords(nn.Module):
    r"""Words as :math:`\tanh(W v + b)` of their pretrained vectors :math:`v`, which are not trained.

    A blank is the zero vector. The mask has a vector that is learned. An unknown word has one of ``words.oov_ids``
    frozen random vectors, spread like those of the table, by which it is told from others in its passage.

    Args:
        words: The ids; its known words are the first of the table's.
        vectors: The pretrained table.
        features: Feature maps per cell, :math:`m` in the paper.
        seed: Chooses the vectors of unknown words.

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
        self,
        words: Vocabulary,
        vectors: WordVectors,
        features: int,
        *,
        seed: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if words.known != vectors.words[: len(words.known)]:
            raise ValueError(
                f"the {len(words.known)} known words are not the first of the table's {len(vectors.words)}: "
                "make both from the same table"
            )
        known = torch.from_numpy(vectors.table[: len(words.known)])
        width = known.shape[1]
        generator = torch.Generator().manual_seed(seed)
        # The most common words alone decide, so that a table cut short keeps the vectors of unknown words.
        deviation, mean = torch.std_mean(known[:SPREAD].float(), dim=0, correction=0)
        unknown = torch.randn(words.oov_ids, width, generator=generator) * deviation + mean
        special = torch.zeros(FIRST_OOV, width)  # the mask's row is added in forward, where it can be learned
        rows = torch.cat([special.half(), unknown.half(), known])
        # Not part of a checkpoint: it is the same for all models and larger than most of them.
        self.register_buffer("table", rows.to(device), persistent=False)
        self.register_buffer("fingerprint", torch.tensor(words.fingerprint()))
        self.mask = nn.Parameter(torch.zeros(width, device=device, dtype=dtype))
        self.map = nn.Linear(width, features, device=device, dtype=dtype)

    def forward(self, ids_BN: Tensor) -> Tensor:
        vectors_BNT = self.table[ids_BN].to(self.map.weight.dtype)
        vectors_BNT = vectors_BNT + (ids_BN == MASK).unsqueeze(-1) * self.mask
        return torch.tanh(self.map(vectors_BNT)) * (ids_BN != BLANK).unsqueeze(-1)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        # Weights mean nothing with other vectors, and nothing but this would tell.
        *_, errors = args
        saved = state_dict.get(f"{prefix}fingerprint")
        if saved is not None and not torch.equal(saved.cpu(), self.fingerprint.cpu()):
            errors.append(f"the {len(self.table)} words of the table are not those the weights were trained with")
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"words={len(self.table)}, frozen={self.table.shape[1]}"


class LearnedWords(nn.Module):
    r"""Words as :math:`\tanh(30 e)` of learned vectors :math:`e`, which begin uniform in :math:`[-0.01, 0.01]`.

    Args:
        words: The ids; with the 60,000 most common words the table has the size of the paper's.
        features: Feature maps per cell, :math:`m` in the paper.

    Shape:
        - Input: ids :math:`(B, N)`.
        - Output: :math:`(B, N, D)` with :math:`D` = ``features``; zero for a blank.

    Examples::

        >>> LearnedWords(Vocabulary(["a", "b"]), features=8)(torch.tensor([[0, 130]])).shape
        torch.Size([1, 2, 8])
    """

    def __init__(self, words: Vocabulary, features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.table = nn.Embedding(len(words), features, padding_idx=BLANK, device=device, dtype=dtype)
        nn.init.uniform_(self.table.weight, -0.01, 0.01)
        with torch.no_grad():
            self.table.weight[BLANK].zero_()

    def forward(self, ids_BN: Tensor) -> Tensor:
        return torch.tanh(30 * self.table(ids_BN))
