"""LAMBADA: networks that point at the last word of a passage, and the prepared corpora that they learn from.

Names are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riffle.lambada.corpus import Corpus
    from riffle.lambada.tokens import tokenise
    from riffle.lambada.vectors import WordVectors, load_vectors
    from riffle.lambada.vocabulary import FrozenWords, Vocabulary

__all__ = ["Corpus", "FrozenWords", "Vocabulary", "WordVectors", "load_vectors", "tokenise"]
_MODULES = {"Corpus": "corpus", "WordVectors": "vectors", "load_vectors": "vectors", "tokenise": "tokens"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'riffle.lambada' has no attribute {name!r}")
    return getattr(import_module(f"riffle.lambada.{_MODULES.get(name, 'vocabulary')}"), name)
