"""Programs of research as modules."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1] / "research" / "bench" / "scripts"
TABLES = {"readme": "readme", "tables_kernels": "kernels", "tables_lambada": "lambada"}


def load_script(name: str) -> Any:
    """A program as a module."""
    if name in TABLES:
        return importlib.import_module(f"research.tables.{TABLES[name]}")
    return importlib.import_module(f"research.bench.scripts.{name}")
