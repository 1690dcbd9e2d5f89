"""The configurations of the baselines, which their entries in the registry of models bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from riffle.config import BaseModelConfig, CountOrZero, Depth, ModelConfig, NotNegative, Share, Width


@dataclass(frozen=True, kw_only=True)
class BaselineConfig(BaseModelConfig):
    """What all baselines have."""

    dropout: Share = 0.1
    """Dropout rate; the preprint's network divides it by the number of address bits."""


@dataclass(frozen=True, kw_only=True)
class NeuralGPUConfig(BaselineConfig):
    """The Neural GPU with diagonal gates."""

    kind: str = "dngpu"
    backend: Literal["auto", "reference", "fused"] = "auto"
    """Which kernels compute the steps."""

    def arguments(self, task: Any) -> dict[str, Any]:
        return {**super().arguments(task), "reach": task.reach}


@dataclass(frozen=True, kw_only=True)
class PreprintConfig(BaselineConfig):
    """The network of the preprint's code."""

    kind: str = "preprint"
    blocks: Depth = 1
    """Beneš blocks."""
    noise: NotNegative = 0.0
    """Standard deviation of multiplicative Gaussian noise, which takes the place of dropout."""
    backend: Literal["auto", "reference", "fused"] = "auto"
    """Which kernels compute the switch layers."""


@dataclass(frozen=True, kw_only=True)
class VariantConfig(ModelConfig):
    """The paper's network with one of the changes it mentions without a figure."""

    kind: str = "variant"
    variant: Literal["mirrored", "one-reset", "two-relu", "unshared"] = "mirrored"
    """What differs, see research/baselines/variants.py; ``unit`` and ``sharing`` have no effect."""
    length: CountOrZero = 0
    """The one length of "unshared"."""

    def arguments(self, task: Any) -> dict[str, Any]:
        return {name: value for name, value in super().arguments(task).items() if name not in ("unit", "sharing")}


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(BaselineConfig):
    """A transformer encoder."""

    kind: str = "transformer"
    layers: Depth = 6
    """Layers."""
    heads: Width | None = None
    """Attention heads; by default one for every 64 features."""
    positions: Literal["none", "rotary", "alibi", "relative"] = "rotary"
    """Position codes."""
    reads_first: bool = False
    """Whether it answers at blanks after the input it has read."""
    post_norm: bool = False
    """Whether sums are normalised, with ReLU, as first published, and not what each sublayer reads."""


@dataclass(frozen=True, kw_only=True)
class UniversalConfig(BaselineConfig):
    """A Universal Transformer, for symbols or for passages."""

    kind: str = "universal-transformer"
    layers: Depth | None = None
    """Steps: by default 6, with halting 12."""
    heads: Width | None = None
    """Attention heads; by default one for every 64 features."""
    halting: bool = False
    """Whether it uses adaptive computation time: each position decides when it halts."""

    def arguments(self, task: Any) -> dict[str, Any]:
        own = super().arguments(task)
        own["steps"] = own.pop("layers") or (12 if self.halting else 6)
        return own if self.kind == "universal-transformer" else {**own, "classes": task.classes}


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(BaselineConfig):
    """An LSTM or a GRU, bidirectional unless it reads first."""

    kind: str = "lstm"
    """The model, an entry of riffle.config.MODELS: lstm or gru."""
    layers: Depth = 2
    """Layers."""
    reads_first: bool = False
    """Whether it answers at blanks after the input it has read, in one direction."""

    def arguments(self, task: Any) -> dict[str, Any]:
        return {**super().arguments(task), "cell": self.kind}


@dataclass(frozen=True, kw_only=True)
class CausalRivalConfig(BaselineConfig):
    """A causal transformer, gated linear attention or a GRU."""

    kind: str = "causal-transformer"
    """The model, an entry of riffle.config.MODELS: causal-transformer, causal-linear-attention or causal-gru."""
    layers: Depth = 4
    """Layers."""

    def arguments(self, task: Any) -> dict[str, Any]:
        return {**super().arguments(task), "mixer": self.kind}


@dataclass(frozen=True, kw_only=True)
class GatedAttentionConfig(BaselineConfig):
    """The Gated-Attention Reader."""

    kind: str = "gated-attention-reader"
    layers: Depth = 3
    """Hops."""

    def arguments(self, task: Any) -> dict[str, Any]:
        return {"features": self.features, "dropout": self.dropout, "hops": self.layers}
