"""Models: an embedding, a network and an output layer."""

from __future__ import annotations

from riffle.models.base import SymbolModel
from riffle.models.sequence import SequenceModel

__all__ = ["SequenceModel", "SymbolModel"]
