"""The models the paper compares with, and those one would otherwise pick, in the same harness."""

from riffle.baselines.gated_attention_reader import GatedAttentionReader
from riffle.baselines.neural_gpu import NeuralGPU
from riffle.baselines.recurrent import Recurrent
from riffle.baselines.transformer import Transformer
from riffle.baselines.universal_reader import UniversalReader
from riffle.baselines.universal_transformer import UniversalTransformer

__all__ = [
    "GatedAttentionReader",
    "NeuralGPU",
    "Recurrent",
    "Transformer",
    "UniversalReader",
    "UniversalTransformer",
]
