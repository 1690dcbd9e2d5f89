"""The models the paper compares with, and those one would otherwise pick, in the same harness."""

from __future__ import annotations

from research.baselines.neural_gpu import NeuralGPU
from research.baselines.preprint import PreprintNetwork
from research.baselines.recurrent import GatedAttentionReader, Recurrent
from research.baselines.transformers import Transformer
from research.baselines.universal_transformer import UniversalReader, UniversalTransformer

__all__ = [
    "GatedAttentionReader",
    "NeuralGPU",
    "PreprintNetwork",
    "Recurrent",
    "Transformer",
    "UniversalReader",
    "UniversalTransformer",
]
