"""The paper's figures and tables, measured again: what is trained or timed, how it is drawn, which claims hold.

:data:`FIGURES` lists them, ``figures/`` defines them, :mod:`research.reproduce.figure` says what a figure consists of.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from research.reproduce.figure import LearningFigure, TimingFigure


Kind = Literal["timing", "learning", "benchmark"]


class Entry(NamedTuple):
    """A figure's place in :data:`FIGURES`: what can be shown without importing it, and with it torch."""

    kind: Kind
    path: str
    """Where it is defined, ``package.module:NAME``."""
    summary: str


def _own(kind: Kind, module: str, **summaries: str) -> dict[str, Entry]:
    """Figures of a module of research.reproduce.figures, by the names of their objects in small letters."""
    return {
        name.replace("_", "-"): Entry(kind, f"research.reproduce.figures.{module}:{name.upper()}", summary)
        for name, summary in summaries.items()
    }


FIGURES: dict[str, Entry] = {
    **_own(
        "timing",
        "timing",
        timing_addition="time and memory over length for addition: this network and the Neural GPU",
        timing_lambada="time and memory over length for LAMBADA: this network and the Universal Transformer",
    ),
    **_own(
        "learning",
        "generalization",
        convergence="accuracy at length 512 over training, on four tasks",
        generalization="accuracy over length, on five tasks: this network and the Neural GPU",
        multiplication="products of inputs of length 128",
        recipes="the same by recipe, and by the preprint's network",
    ),
    **_own(
        "learning",
        "comparisons",
        ablation="the switch unit and its ablations on products, LAMBADA, addition and sorting",
        blocks="products and LAMBADA by Beneš blocks",
        maps="products and LAMBADA by feature maps",
        sharing="addition, sorting and LAMBADA by which layers share weights",
        variants="what the paper says without a figure: rotations, reset gates, a second ReLU, no sharing",
    ),
    **_own(
        "learning",
        "lambada",
        lambada_maps="accuracy on LAMBADA with 96, 192 and 384 feature maps",
        lambada_blocks="accuracy on LAMBADA with 1, 2 and 3 Beneš blocks",
        lambada_units="accuracy on LAMBADA with the switch unit and its ablations",
        lambada_sharing="accuracy on LAMBADA by which layers share weights",
    ),
    **_own(
        "benchmark",
        "chomsky",
        chomsky="the fifteen tasks of Delétang et al.: trained on lengths to 40, tested from 41 to 500",
    ),
    **_own(
        "benchmark", "residual", residual="the residual unit of Draguns et al. beside the gated one, on three tasks"
    ),
    **_own("benchmark", "listops", listops="ListOps of the Long Range Arena: nested lists of 500 to 2,000 symbols"),
}
"""Every figure by its name on the command line, in the order of the report; others can be added."""


def get_figure(name: str) -> LearningFigure | TimingFigure:
    """Import a figure by its name."""
    if name not in FIGURES:
        raise ValueError(f"unknown experiment {name!r}; choose one of {', '.join(FIGURES)}")
    module, _, attribute = FIGURES[name].path.partition(":")
    figure: LearningFigure | TimingFigure = getattr(import_module(module), attribute)
    return figure
