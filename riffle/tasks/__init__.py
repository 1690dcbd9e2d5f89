"""The algorithmic tasks, by name.

>>> from riffle.tasks import get_task
>>> task = get_task("add")
>>> task.render(task.solve(task.parse(["1011", "110"])))
'10001'
"""

from __future__ import annotations

import sys
from typing import Any

from riffle.registry import load, unknown
from riffle.tasks import arithmetic, brackets, lookup, sequences, words
from riffle.tasks.task import BLANK, Batch, Task

__all__ = ["BLANK", "TASKS", "Batch", "Task", "get_task"]
_ALL: tuple[Task, ...] = (
    # the five tasks of the paper
    sequences.Duplicate(),
    sequences.Reverse(),
    sequences.Sort(),
    arithmetic.Add(),
    arithmetic.Multiply(),
    # sequences and sorting
    sequences.Identity(),
    sequences.Left(),
    sequences.Right(),
    sequences.ReversePairs(),
    sequences.BitReversal(),
    sequences.Rotate(),
    sequences.KeyValueSort(),
    words.WordSort(),
    words.Merge(),
    # lookup and brackets
    lookup.Search(),
    lookup.MemoryIndex(),
    brackets.Dyck(),
    brackets.DyckContinue(),
    # numbers
    arithmetic.Increment(),
    arithmetic.AddBase4(),
    arithmetic.AddDecimal(),
)
TASKS: dict[str, Task] = {task.name: task for task in _ALL}
"""Every task by its name."""


def get_task(name: str) -> Task:
    """The task of that name, or the class or instance that ``"package.module:Name"`` names."""
    if ":" in name:
        if "" not in sys.path:  # the command riffle does not look into the working folder
            sys.path.append("")
        task: Any = load(name)
        return task() if isinstance(task, type) else task
    if name in TASKS:
        return TASKS[name]
    raise unknown("task", name, TASKS)
