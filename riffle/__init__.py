"""riffle: neural shuffle-exchange networks, sequence layers of O(log n) depth in which every output sees every input.

The paper: Freivalds, Ozoliņš, Šostaks, "Neural Shuffle-Exchange Networks - Sequence Processing in O(n log n) Time",
NeurIPS 2019.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riffle.kernels.graphs import use_graphs as use_graphs
    from riffle.models.sequence import Encoder as Encoder
    from riffle.models.sequence import SequenceModel as SequenceModel
    from riffle.nn.causal import CausalShuffleExchange as CausalShuffleExchange
    from riffle.nn.graphed import Graphed as Graphed
    from riffle.nn.lengths import collate as collate
    from riffle.nn.network import ShuffleExchange as ShuffleExchange
    from riffle.nn.onnx import export_onnx as export_onnx
    from riffle.nn.switch import SwitchUnit as SwitchUnit
    from riffle.tasks import TASKS as TASKS
    from riffle.train.shipped import load_trained as load_trained


__version__ = "0.1.0"
_MODULES = {
    "ShuffleExchange": "riffle.nn.network",
    "CausalShuffleExchange": "riffle.nn.causal",
    "SwitchUnit": "riffle.nn.switch",
    "Graphed": "riffle.nn.graphed",
    "Encoder": "riffle.models.sequence",
    "collate": "riffle.nn.lengths",
    "export_onnx": "riffle.nn.onnx",
    "SequenceModel": "riffle.models.sequence",
    "TASKS": "riffle.tasks",
    "load_trained": "riffle.train.shipped",
    "use_graphs": "riffle.kernels.graphs",
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    """Import on first use, so that the command line answers ``--help`` without loading torch."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'riffle' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
