"""What research adds to riffle's registries, as any user's package could."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from research import optimizers, recipes
from research.baselines import configs
from research.tasks import RESEARCH_TASKS
from research.tasks.fixed import sample_fixed
from riffle.config import MODELS, BaseModelConfig, ModelEntry
from riffle.recipes import RECIPES
from riffle.tasks import TASKS
from riffle.train.objective import SAMPLERS
from riffle.train.optim import OPTIMIZERS
from riffle.train.schedule import SCHEDULES

STANDARD: dict[str, tuple[type[BaseModelConfig], str, bool]] = {
    "universal-transformer": (configs.UniversalConfig, "universal_transformer:UniversalTransformer", True),
    "transformer": (configs.TransformerConfig, "transformers:Transformer", True),
    "lstm": (configs.RecurrentConfig, "recurrent:Recurrent", True),
    "gru": (configs.RecurrentConfig, "recurrent:Recurrent", True),
    "gated-attention-reader": (configs.GatedAttentionConfig, "recurrent:GatedAttentionReader", False),
    "universal-reader": (configs.UniversalConfig, "universal_transformer:UniversalReader", False),
}
"""Baselines with the usual training: configuration, module and class, and whether they map symbols to symbols."""


def register() -> None:
    """Add baselines, tasks, recipes and the rest; every process that uses some of them calls it once."""
    neural_gpu, preprint = "research.baselines.neural_gpu:NeuralGPU", "research.baselines.preprint:PreprintNetwork"
    MODELS["dngpu"] = ModelEntry(configs.NeuralGPUConfig, neural_gpu, recipe=recipes.neural_gpu)
    MODELS["preprint"] = ModelEntry(configs.PreprintConfig, preprint, recipe=recipes.preprint_network)
    MODELS["variant"] = ModelEntry(configs.VariantConfig, "research.baselines.variants:VariantModel")
    for kind, (config, path, symbols) in STANDARD.items():
        recipe = partial(recipes.baseline, kind=kind)
        MODELS[kind] = ModelEntry(config, f"research.baselines.{path}", symbols=symbols, recipe=recipe)
    for kind in ("causal-transformer", "causal-linear-attention", "causal-gru"):
        path = "research.baselines.causal:CausalRival"
        MODELS[kind] = ModelEntry(configs.CausalRivalConfig, path, causal=True, passage_objective=None)
    words = "research.baselines.word_objective:WordObjective"
    MODELS["universal-reader"] = replace(MODELS["universal-reader"], passage_objective=words)
    TASKS.update({task.name: task for task in RESEARCH_TASKS})
    named = (recipes.released, recipes.preprint, recipes.long, recipes.residual, recipes.chomsky)
    RECIPES.update({recipe.__name__: recipe for recipe in named})
    OPTIMIZERS.update({"radam": optimizers.RADAM, "adamax": optimizers.ADAMAX})
    SCHEDULES.update({"plateau": optimizers.Plateau, "short-plateau": optimizers.ShortPlateau})
    SAMPLERS["data.examples"] = sample_fixed
