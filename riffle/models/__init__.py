"""Models: an embedding, a network and an output layer."""

from riffle.models.base import SymbolModel
from riffle.models.sequence import SequenceModel

__all__ = ["SequenceModel", "SymbolModel"]
