"""Tasks without trained weights: those of other benchmarks, and numbers of the authors' released code."""

from __future__ import annotations

from research.tasks import expressions, languages, listops, numbers, prefixes, unequal
from riffle.tasks.task import Task

RESEARCH_TASKS: tuple[Task, ...] = (
    # of the released code of the paper
    numbers.MultiplyBase4(),
    numbers.MultiplyDecimal(),
    numbers.MultiplyBCD(),
    numbers.Divide(),
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
    # for causal models
    prefixes.RunningSum(),
    prefixes.Induction(),
    prefixes.Recall(),
)
"""The tasks that :func:`research.register` adds to :data:`riffle.tasks.TASKS`."""
