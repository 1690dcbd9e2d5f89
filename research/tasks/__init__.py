"""Tasks of other benchmarks: the fifteen of Delétang et al., and ListOps of the Long Range Arena."""

from __future__ import annotations

from research.tasks import expressions, families, languages, listops, unequal
from riffle.tasks.task import Task

__all__ = ["BENCHMARK_TASKS", "families"]
BENCHMARK_TASKS: tuple[Task, ...] = (
    # the fifteen tasks of Delétang et al.: regular, context-free, context-sensitive
    languages.EvenPairs(),
    expressions.ModularArithmetic(),
    languages.Parity(),
    languages.Cycle(),
    languages.Stack(),
    languages.ReverseBits(),
    expressions.ModularBrackets(),
    expressions.Equation(),
    languages.DuplicateBits(),
    languages.MissingDuplicate(),
    languages.OddsFirst(),
    unequal.AddUnequal(),
    unequal.MultiplyUnequal(),
    unequal.SquareRoot(),
    languages.BucketSort(),
    # of the Long Range Arena
    listops.ListOps(),
)
"""The tasks that :func:`research.register` adds to :data:`riffle.tasks.TASKS`."""
