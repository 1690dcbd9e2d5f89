"""The entries of the baselines in the registry of models."""

from __future__ import annotations

from typing import Any

from research.baselines.neural_gpu import NeuralGPU
from research.baselines.preprint import PreprintNetwork
from research.baselines.recurrent import GatedAttentionReader, Recurrent
from research.baselines.transformers import Transformer
from research.baselines.universal_transformer import UniversalReader, UniversalTransformer
from riffle.config import ModelConfig
from riffle.models.build import Alphabets, ModelEntry


def _universal(config: ModelConfig, task: Alphabets) -> dict[str, Any]:
    steps = config.layers or (12 if config.halting else 6)
    return {"heads": config.heads, "steps": steps, "halting": config.halting}


def _recurrent(config: ModelConfig, task: Alphabets) -> dict[str, Any]:
    return {"cell": config.kind, "layers": config.layers or 2, "reads_first": config.reads_first}


BASELINE_MODELS: dict[str, ModelEntry] = {
    "dngpu": ModelEntry(NeuralGPU, (), lambda config, task: {"reach": task.reach, "backend": config.backend}),
    "preprint": ModelEntry(
        PreprintNetwork,
        ("blocks", "noise"),
        lambda config, task: {"blocks": config.blocks, "noise": config.noise, "backend": config.backend},
    ),
    "universal-transformer": ModelEntry(UniversalTransformer, ("layers", "heads", "halting"), _universal),
    "transformer": ModelEntry(
        Transformer,
        ("layers", "heads", "positions", "reads_first", "post_norm"),
        lambda config, task: {
            "layers": config.layers or 6,
            "heads": config.heads,
            "positions": config.positions,
            "reads_first": config.reads_first,
            "post_norm": config.post_norm,
        },
    ),
    "lstm": ModelEntry(Recurrent, ("layers", "reads_first"), _recurrent),
    "gru": ModelEntry(Recurrent, ("layers", "reads_first"), _recurrent),
    "gated-attention-reader": ModelEntry(
        GatedAttentionReader, ("layers",), lambda config, task: {"hops": config.layers or 3}, symbols=False
    ),
    "universal-reader": ModelEntry(
        UniversalReader,
        ("layers", "heads", "halting"),
        lambda config, task: {"classes": task.classes, **_universal(config, task)},
        symbols=False,
    ),
}
"""The models that :func:`research.register` adds to :data:`riffle.models.build.MODELS`."""
