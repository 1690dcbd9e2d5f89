"""The algorithmic tasks, by name.

>>> from riffle.tasks import get_task
>>> task = get_task("add")
>>> task.render(task.solve(task.parse(["1011", "110"])))
'10001'
"""

from __future__ import annotations

import difflib

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
    """The task of that name; an unknown name is answered with the nearest one and the list."""
    if name in TASKS:
        return TASKS[name]
    nearest = difflib.get_close_matches(name, TASKS, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    raise ValueError(f"there is no task {name!r}; {hint}tasks are {', '.join(TASKS)}")
