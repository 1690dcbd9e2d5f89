"""The algorithmic tasks, by name.

>>> from riffle.tasks import get_task
>>> task = get_task("add")
>>> task.render(task.solve(task.parse(["1011", "110"])))
'10001'
"""

from __future__ import annotations

import difflib

from riffle.tasks.arithmetic import Add, AddBase4, AddDecimal, Multiply, MultiplyBase4, MultiplyBCD, MultiplyDecimal
from riffle.tasks.base import BLANK, Batch, Task
from riffle.tasks.brackets import Dyck, DyckContinue
from riffle.tasks.division import Divide
from riffle.tasks.lookup import MemoryIndex, Search
from riffle.tasks.sequences import (
    BitReversal,
    Duplicate,
    Identity,
    Increment,
    Left,
    Reverse,
    ReversePairs,
    Right,
    Rotate,
)
from riffle.tasks.sorting import KeyValueSort, Sort
from riffle.tasks.words import Merge, WordSort

__all__ = ["BLANK", "TASKS", "Batch", "Task", "get_task"]
_ALL: tuple[Task, ...] = (
    # the five tasks of the paper
    Duplicate(),
    Reverse(),
    Sort(),
    Add(),
    Multiply(),
    # sequences and sorting
    Identity(),
    Left(),
    Right(),
    ReversePairs(),
    BitReversal(),
    Rotate(),
    KeyValueSort(),
    WordSort(),
    Merge(),
    # lookup and brackets
    Search(),
    MemoryIndex(),
    Dyck(),
    DyckContinue(),
    # numbers
    Increment(),
    AddBase4(),
    AddDecimal(),
    MultiplyBase4(),
    MultiplyDecimal(),
    MultiplyBCD(),
    Divide(),
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
