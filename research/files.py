"""Result files: JSON with a line for each entry, so that they are small and a change shows which entry it is of."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from riffle.files import write_atomically


def write_result(path: Path, result: Any) -> None:
    """Write a result as compact JSON, atomically."""
    write_atomically(path, f"{format_result(result)}\n".encode())


def command_line() -> str:
    """The command of this process, as a result records it."""
    return shlex.join(["python", "-m", "research", *sys.argv[1:]])


def format_result(result: Any) -> str:
    """Compact JSON with a line for each entry of the outermost object, and for each object in a list of them.

    >>> print(format_result({"seed": 0, "scores": [{"length": 8, "right": 1.0}, {"length": 16, "right": 0.5}]}))
    {
    "seed":0,
    "scores":[
    {"length":8,"right":1.0},
    {"length":16,"right":0.5}
    ]
    }
    """
    if isinstance(result, dict) and result:
        return "{\n" + ",\n".join(f"{_compact(key)}:{_entries(value)}" for key, value in result.items()) + "\n}"
    return _entries(result)


def _entries(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(map(_compact, value)) + "\n]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
