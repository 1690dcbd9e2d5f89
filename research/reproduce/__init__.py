"""The paper's figures and tables, measured again: what is trained or timed, how it is drawn, which claims hold.

:data:`FIGURES` lists them, ``figures/`` defines them, :mod:`research.reproduce.figure` says what a figure consists of.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from research.reproduce.figure import LearningFigure, TimingFigure


class Entry(NamedTuple):
    """A figure in the list: what ``riffle reproduce --help`` shows without importing the figure, and with it torch."""

    kind: Literal["timing", "learning", "benchmark"]
    module: str
    """Module below ``research.reproduce.figures`` that defines it, under its name in capitals."""
    summary: str


FIGURES: dict[str, Entry] = {
    "timing-addition": Entry(
        "timing", "timing", "time and memory over length for addition: this network and the Neural GPU"
    ),
    "timing-lambada": Entry(
        "timing", "timing", "time and memory over length for LAMBADA: this network and the Universal Transformer"
    ),
    "convergence": Entry("learning", "generalization", "accuracy at length 512 over training, on four tasks"),
    "generalization": Entry(
        "learning", "generalization", "accuracy over length, on five tasks: this network and the Neural GPU"
    ),
    "multiplication": Entry("learning", "generalization", "products of inputs of length 128"),
    "ablation": Entry(
        "learning", "comparisons", "the switch unit and its ablations on addition, sorting and multiplication"
    ),
    "blocks": Entry("learning", "comparisons", "multiplication by Beneš blocks"),
    "maps": Entry("learning", "comparisons", "multiplication by feature maps"),
    "sharing": Entry("learning", "comparisons", "addition and sorting by which layers share weights"),
    "lambada-maps": Entry("learning", "lambada", "accuracy on LAMBADA with 96, 192 and 384 feature maps"),
    "lambada-blocks": Entry("learning", "lambada", "accuracy on LAMBADA with 1, 2 and 3 Beneš blocks"),
    "lambada-units": Entry("learning", "lambada", "accuracy on LAMBADA with the switch unit and its ablations"),
    "lambada-sharing": Entry("learning", "lambada", "accuracy on LAMBADA by which layers share weights"),
    "lambada-levers": Entry(
        "learning", "lambada", "accuracy on LAMBADA with one setting of the training changed at a time"
    ),
    "chomsky": Entry(
        "benchmark", "chomsky", "the fifteen tasks of Delétang et al.: trained on lengths to 40, tested from 41 to 500"
    ),
    "residual": Entry(
        "benchmark", "residual", "the residual unit of Draguns et al. beside the gated one, on three tasks"
    ),
    "listops": Entry("benchmark", "listops", "ListOps of the Long Range Arena: nested lists of 500 to 2,000 symbols"),
}
"""Every figure by its name on the command line, in the order of the report."""


def get_figure(name: str) -> LearningFigure | TimingFigure:
    """Import a figure by its name."""
    if name not in FIGURES:
        raise ValueError(f"unknown experiment {name!r}; choose one of {', '.join(FIGURES)}")
    module = import_module(f"research.reproduce.figures.{FIGURES[name].module}")
    figure: LearningFigure | TimingFigure = getattr(module, name.replace("-", "_").upper())
    return figure
