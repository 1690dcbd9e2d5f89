"""What the tables of README and docs have in common: where files are, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from research.ship.card import markdown_table
from riffle.quantities import DASH

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "research" / "results"
MEASURED = ROOT / "research" / "bench" / "results"
"""What was trained, and what was timed."""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1) -> str:
    """A table in Markdown; columns after the first ``text_columns`` are right-aligned."""
    return "\n".join(markdown_table(heads, rows, text_columns=text_columns))


def row_of(by_length: Mapping[int, Any], lengths: Iterable[int], format_cell: Callable[[Any], str]) -> list[str]:
    """The cell of every length, a dash where there is none."""
    return [format_cell(by_length[length]) if length in by_length else DASH for length in lengths]


def where(record: Mapping[str, Any], digits: int | None = None) -> str:
    return f"One {record['device']}, commit {record['commit'][:digits]}, torch {record['versions']['torch']}"


def commands(record: Mapping[str, Any]) -> str:
    return " and ".join(f"`{run['command']}`" for run in record["runs"])
