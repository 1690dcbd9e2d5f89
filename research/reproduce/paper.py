"""The paper's numbers, from paper.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_READ: dict[str, Any] = tomllib.loads(Path(__file__).with_name("paper.toml").read_text())
LENGTHS: list[int] = _READ["lengths"]
SIMPLE = ("duplicate", "reverse", "add", "sort")
"""The tasks that need O(n) or O(n log n) operations: all of the paper's but multiplication."""
OURS, NEURAL_GPU = "shuffle-exchange", "dngpu"
"""The models of the figure of generalisation, by their ``model.kind``."""
GENERALIZATION: dict[str, dict[str, dict[int, float]]] = {
    model: {task: dict(zip(LENGTHS, curve, strict=True)) for task, curve in tasks.items()}
    for model, tasks in _READ["generalization"].items()
}
CONVERGED_BY: list[tuple[str, float, int]] = [tuple(each) for each in _READ["converged_by"]]
MULTIPLICATION: float = _READ["multiplication"]
ABLATION: dict[str, dict[str, float]] = _READ["ablation"]
LAMBADA: float = _READ["lambada"]
LAMBADA_MAPS = {int(maps): accuracy for maps, accuracy in _READ["lambada_maps"].items()}
TIMES: dict[str, dict[str, dict[str, dict[int, float]]]] = {
    figure: {
        work: {model: {int(n): s for n, s in read.items()} for model, read in models.items()}
        for work, models in works.items()
    }
    for figure, works in _READ["times"].items()
}


def format_paper(accuracy: float) -> str:
    """An accuracy of the paper, with the digits it is known to: 69%, 96.3%."""
    return f"{100 * accuracy:g}%"
