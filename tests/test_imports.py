"""Imports point one way: a package imports only from those before it in ORDER, and riffle nothing from research."""

from __future__ import annotations

import ast
from pathlib import Path

import riffle

PACKAGE = Path(riffle.__file__).parent
ORDER = (
    *("quantities", "registry", "schema", "files", "config", "environment"),
    *("shuffle", "kernels", "nn", "parallel", "routing"),
    *("tasks", "models", "recipes", "train", "lambada"),
    *("plots", "drawings", "inspect", "demo", "cli"),
)
"""Packages and top-level modules, each importing only from those before it."""


def imported(tree: ast.AST) -> set[str]:
    """What a module imports of riffle and research, lazy imports and those for the type checker included."""
    dotted: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used"
            dotted += [f"{node.module}.{alias.name}" for alias in node.names]
    parts = [name.split(".") for name in dotted]
    # Names that riffle/__init__.py gives, such as __version__ and ShuffleExchange, are no packages.
    ours = {part[1] for part in parts if part[0] == "riffle" and len(part) > 1 and part[1] in ORDER}
    return ours | {part[0] for part in parts if part[0] == "research"}


def test_imports_point_one_way() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or not path.stem.startswith("__")]
    owners = {path: path.relative_to(PACKAGE).with_suffix("").parts[0] for path in modules}
    assert set(owners.values()) == set(ORDER)
    wrong = {}
    for path, own in owners.items():
        later = imported(ast.parse(path.read_text())) & {"research", *ORDER[ORDER.index(own) + 1 :]}
        if later:
            wrong[str(path.relative_to(PACKAGE))] = later
    assert not wrong


def test_an_import_inside_a_function_counts() -> None:
    lines = ("from riffle.cli import main", "from riffle import ShuffleExchange", "import research.cli")
    source = "\n    ".join(("def f():", *lines))
    assert imported(ast.parse(source)) == {"cli", "research"}
