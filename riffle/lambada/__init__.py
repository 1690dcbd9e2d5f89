"""LAMBADA: read a passage and point at its last word. Novels to examples, words to vectors.

Nothing here is imported before it is used: preparing novels needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riffle.lambada.corpus import Corpus as Corpus
    from riffle.lambada.passages import PassageFilters as PassageFilters
    from riffle.lambada.prepare import PrepareConfig as PrepareConfig
    from riffle.lambada.tokens import detokenise as detokenise
    from riffle.lambada.tokens import tokenise as tokenise
    from riffle.lambada.vectors import WordVectors as WordVectors
    from riffle.lambada.vectors import load_vectors as load_vectors
    from riffle.lambada.vocabulary import FrozenWords as FrozenWords
    from riffle.lambada.vocabulary import LearnedWords as LearnedWords
    from riffle.lambada.vocabulary import Vocabulary as Vocabulary

_HOME = {
    "Corpus": "corpus",
    "FrozenWords": "vocabulary",
    "LearnedWords": "vocabulary",
    "PassageFilters": "passages",
    "PrepareConfig": "prepare",
    "Vocabulary": "vocabulary",
    "WordVectors": "vectors",
    "detokenise": "tokens",
    "load_vectors": "vectors",
    "tokenise": "tokens",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'riffle.lambada' has no attribute {name!r}")
    return getattr(import_module(f"riffle.lambada.{_HOME[name]}"), name)
