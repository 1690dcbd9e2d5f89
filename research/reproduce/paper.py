"""The paper's numbers, in one place; curves are read off its figures and its poster to about a percentage point."""

from __future__ import annotations

READ_TO = 0.01
"""Accuracy to which a figure can be read: a result this close to the paper's has reached it."""
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
"""Lengths of the figure of generalisation; the networks were trained on lengths up to 64."""
OURS, NEURAL_GPU = "shuffle-exchange", "dngpu"
"""The models of that figure, by their ``model.kind``."""


def _over_lengths(*accuracies: float) -> dict[int, float]:
    return dict(zip(LENGTHS, accuracies, strict=True))


GENERALIZATION: dict[str, dict[str, dict[int, float]]] = {
    OURS: {
        "duplicate": _over_lengths(1, 1, 1, 1, 1, 1, 1),
        "reverse": _over_lengths(1, 1, 1, 1, 1, 0.99, 0.955),
        "add": _over_lengths(1, 1, 1, 0.99, 0.98, 0.93, 0.845),
        "sort": _over_lengths(1, 1, 0.98, 0.97, 0.963, 0.943, 0.93),
        "multiply": _over_lengths(1, 0.61, 0.51, 0.50, 0.50, 0.50, 0.50),
    },
    NEURAL_GPU: {
        "duplicate": _over_lengths(1, 1, 1, 1, 0.985, 0.935, 0.88),
        "reverse": _over_lengths(1, 1, 1, 1, 1, 1, 1),
        "add": _over_lengths(0.95, 0.825, 0.76, 0.69, 0.615, 0.603, 0.585),
        "sort": _over_lengths(1, 1, 0.995, 0.87, 0.67, 0.485, 0.396),
        "multiply": _over_lengths(1, 1, 1, 1, 0.995, 0.97, 0.92),
    },
}
"""Symbol accuracy by model, task and length: mean of five runs, 40 thousand steps on lengths up to 64."""
CONVERGED_BY: dict[str, tuple[float, int]] = {"duplicate": (0.99, 700), "reverse": (0.99, 700), "add": (0.98, 10_000)}
"""A symbol accuracy at length 512, and the step by which it is reached."""
MULTIPLICATION = 1.0
"""Symbol accuracy at length 128, a trained length: 384 maps, two blocks, after about 50 thousand steps."""
ABLATION: dict[str, dict[str, float]] = {
    "add": {
        "gated": 0.993,
        "no-benes": 0.998,
        "no-swap": 0.978,
        "two-fc-gate": 0.979,
        "swap-gate": 0.97,
        "two-fc": 0.789,
    },
    "sort": {
        "gated": 0.976,
        "swap-gate": 0.98,
        "no-swap": 0.967,
        "two-fc-gate": 0.942,
        "no-benes": 0.921,
        "two-fc": 0.53,
    },
    "multiply": {
        "gated": 0.99,
        "no-swap": 0.942,
        "two-fc-gate": 0.903,
        "no-benes": 0.865,
        "no-residual": 0.826,
        "swap-gate": 0.608,
        "two-fc": 0.594,
    },
}
"""Symbol accuracy by task and unit: at length 512 after 20 thousand steps, multiplication at 128 after 200 thousand."""
