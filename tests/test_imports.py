"""Imports point one way: a module imports only from its own package and from packages before it in ORDER."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import riffle

PACKAGE = Path(riffle.__file__).parent
ORDER = (
    *("quantities", "schema", "files", "config", "environment"),
    *("shuffle", "kernels", "nn", "parallel", "routing"),
    *("tasks", "models", "recipes", "train", "lambada"),
    *("plots", "drawings", "inspect", "demo", "cli"),
)
"""Packages and top-level modules, each importing only from those before it."""


def imported(tree: ast.AST) -> set[str]:
    """The packages of riffle that a module imports, lazy imports and those for the type checker included."""
    dotted: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used"
            dotted += [f"{node.module}.{alias.name}" for alias in node.names]
    parts = [name.split(".") for name in dotted]
    # Names that riffle/__init__.py gives, such as __version__ and ShuffleExchange, are no packages.
    return {part[1] for part in parts if part[0] == "riffle" and len(part) > 1 and part[1] in ORDER}


def own_package(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or not path.stem.startswith("__"))


def test_the_order_lists_every_package() -> None:
    assert {own_package(path) for path in MODULES} == set(ORDER)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    own = own_package(path)
    later = set(ORDER[ORDER.index(own) + 1 :])
    assert not imported(ast.parse(path.read_text())) & later


def test_an_import_inside_a_function_counts() -> None:
    source = "def f():\n    from riffle.cli import main\n    from riffle import ShuffleExchange\n"
    assert imported(ast.parse(source)) == {"cli"}
