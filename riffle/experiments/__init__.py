"""One module for each figure or table of the paper: KIND, configs(), figure(results), claims(results)."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

EXPERIMENTS: dict[str, str] = {
    "timing-addition": "time and memory over length for addition: this network and the Neural GPU",
    "timing-lambada": "time and memory over length for LAMBADA: this network and the Universal Transformer",
    "lambada-maps": "accuracy on LAMBADA with 96, 192 and 384 feature maps",
    "lambada-blocks": "accuracy on LAMBADA with 1, 2 and 3 Beneš blocks",
    "lambada-units": "accuracy on LAMBADA with the switch unit and its ablations",
    "lambada-sharing": "accuracy on LAMBADA by which layers share weights",
    "lambada-levers": "accuracy on LAMBADA with one setting of the training changed at a time",
}
"""Every experiment and what it measures; nothing is imported before one is asked for."""


def get_experiment(name: str) -> ModuleType:
    """The module of an experiment."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    return import_module(f"riffle.experiments.{name.replace('-', '_')}")
