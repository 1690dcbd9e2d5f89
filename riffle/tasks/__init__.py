"""The algorithmic tasks, by name.

>>> from riffle.tasks import get_task
>>> task = get_task("add")
>>> task.render(task.solve(task.parse(["1011", "110"])))
'10001'
"""

from __future__ import annotations

import sys
from collections import UserDict
from typing import Any, cast

from riffle.registry import load, unknown
from riffle.tasks.task import BLANK, Batch, Task

__all__ = ["BLANK", "TASKS", "Batch", "Task", "get_task"]


class TaskRegistry(UserDict[str, Any]):
    """Tasks by name; one given as ``"package.module:Name"`` is imported when it is first asked for."""

    def __getitem__(self, name: str) -> Task:
        task = load(self.data[name])
        self.data[name] = task = task() if isinstance(task, type) else task
        return cast("Task", task)


TASKS = TaskRegistry(
    {
        # the five tasks of the paper
        "duplicate": "riffle.tasks.sequences:Duplicate",
        "reverse": "riffle.tasks.sequences:Reverse",
        "sort": "riffle.tasks.sequences:Sort",
        "add": "riffle.tasks.arithmetic:Add",
        "multiply": "riffle.tasks.arithmetic:Multiply",
        # sequences and sorting
        "id": "riffle.tasks.sequences:Identity",
        "left": "riffle.tasks.sequences:Left",
        "right": "riffle.tasks.sequences:Right",
        "rev2": "riffle.tasks.sequences:ReversePairs",
        "bit-reversal": "riffle.tasks.sequences:BitReversal",
        "rotate": "riffle.tasks.sequences:Rotate",
        "kv-sort": "riffle.tasks.sequences:KeyValueSort",
        "word-sort": "riffle.tasks.words:WordSort",
        "merge": "riffle.tasks.words:Merge",
        # lookup and brackets
        "search": "riffle.tasks.lookup:Search",
        "memory-index": "riffle.tasks.lookup:MemoryIndex",
        "dyck": "riffle.tasks.brackets:Dyck",
        "dyck-continue": "riffle.tasks.brackets:DyckContinue",
        # numbers
        "increment": "riffle.tasks.arithmetic:Increment",
        "add-base4": "riffle.tasks.arithmetic:AddBase4",
        "add-decimal": "riffle.tasks.arithmetic:AddDecimal",
    }
)
"""Every task by its name."""


def get_task(name: str) -> Task:
    """The task of that name, or the class or instance that ``"package.module:Name"`` names."""
    if ":" in name:
        if "" not in sys.path:  # the command riffle does not look into the working folder
            sys.path.append("")
        return TaskRegistry({name: name})[name]
    if name in TASKS:
        return TASKS[name]
    raise unknown("task", name, TASKS)
