"""One module for each figure or table of the paper: configs(), figure(results), claims(results)."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

TIMING: dict[str, str] = {
    "timing-addition": "time and memory over length for addition: this network and the Neural GPU",
    "timing-lambada": "time and memory over length for LAMBADA: this network and the Universal Transformer",
}
"""Experiments that measure one series after the other."""
LEARNING: dict[str, str] = {
    "convergence": "accuracy at length 512 over training, on four tasks",
    "generalization": "accuracy over length, on five tasks: this network and the Neural GPU",
    "multiplication": "products of inputs of length 128",
    "ablation": "the switch unit and its ablations on addition, sorting and multiplication",
    "blocks": "multiplication by Beneš blocks",
    "maps": "multiplication by feature maps",
    "sharing": "addition and sorting by which layers share weights",
    "lambada-maps": "accuracy on LAMBADA with 96, 192 and 384 feature maps",
    "lambada-blocks": "accuracy on LAMBADA with 1, 2 and 3 Beneš blocks",
    "lambada-units": "accuracy on LAMBADA with the switch unit and its ablations",
    "lambada-sharing": "accuracy on LAMBADA by which layers share weights",
    "lambada-levers": "accuracy on LAMBADA with one setting of the training changed at a time",
}
"""Experiments that train networks, many at once."""
FIGURES: dict[str, str] = TIMING | LEARNING
"""Every experiment and what it measures; nothing is imported before one is asked for."""


def get_figure(name: str) -> ModuleType:
    """The module of an experiment."""
    if name not in FIGURES:
        raise ValueError(f"unknown experiment {name!r}; choose one of {', '.join(FIGURES)}")
    return import_module(f"riffle.reproduce.figures.{name.replace('-', '_')}")
