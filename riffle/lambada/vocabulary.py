"""Which words a model knows: the most common ones of its corpus, as far as the table has vectors for them."""

from __future__ import annotations

import numpy as np

from riffle.lambada.corpus import Corpus
from riffle.lambada.table import Vectors
from riffle.lambada.vectors import load_vectors
from riffle.lambada.words import PLAIN


def choose_words(corpus: Corpus, most: int, *, pretrained: bool = True) -> Vectors:
    """The most common words of a corpus, most common first, with their vectors.

    Args:
        corpus: The corpus, with a table of vectors where they are asked for.
        most: How many words, at most.
        pretrained: Whether words need a vector; vectors of no numbers are given otherwise.
    """
    if not pretrained:
        words = corpus.words[:most]
        return Vectors(words, np.empty((len(words), 0), dtype=np.float16))
    path = corpus.folder / "vectors.safetensors"
    if not path.exists():
        raise ValueError(
            f"{corpus.folder} has no word vectors: prepare it with --vectors, or train with --set data.table=learned"
        )
    table = load_vectors(path)
    rows = {word: row for row, word in enumerate(table.words)}
    # A mark that the table has under another name only is looked up by that name, which the corpus need not have.
    names = dict.fromkeys(word if word in rows else PLAIN.get(word, word) for word in corpus.words)
    chosen = [word for word in names if word in rows][:most]
    if not chosen:
        raise ValueError(f"no word of {corpus.folder} is in its table of vectors: prepare it with another table")
    return Vectors(chosen, table.table[[rows[word] for word in chosen]])
