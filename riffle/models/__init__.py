"""Models: an embedding, a network and an output layer."""

from __future__ import annotations

from riffle.models.base import SymbolModel
from riffle.models.sequence import Encoder, SequenceModel

__all__ = ["Encoder", "SequenceModel", "SymbolModel"]
