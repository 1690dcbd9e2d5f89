"""The models the paper compares with, and those one would otherwise pick, in the same harness."""

from __future__ import annotations

from riffle.models.baselines.neural_gpu import NeuralGPU
from riffle.models.baselines.preprint import PreprintNetwork
from riffle.models.baselines.recurrent import GatedAttentionReader, Recurrent
from riffle.models.baselines.transformers import Transformer
from riffle.models.baselines.universal_transformer import UniversalReader, UniversalTransformer

__all__ = [
    "GatedAttentionReader",
    "NeuralGPU",
    "PreprintNetwork",
    "Recurrent",
    "Transformer",
    "UniversalReader",
    "UniversalTransformer",
]
