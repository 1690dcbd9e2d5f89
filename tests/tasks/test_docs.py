"""The worked example of docs/adding-a-task.md is code that runs and a task that keeps the contract."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from riffle.tasks import TASKS, Task
from riffle.tasks import rows as row_helpers

from . import contract

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-task.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def defined() -> dict[str, Task]:
    """The tasks the page defines, by variable, after everything on the page has run."""
    namespace: dict[str, object] = {"__name__": "running_max"}
    for block in blocks("python"):
        # the page's own code; not inheriting this file's future import shows that it stands alone
        exec(compile(block, "adding-a-task.md", "exec", dont_inherit=True), namespace)
    return {name: task for name, task in namespace.items() if isinstance(task, Task)}


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("variable", ["task", "majority"])
def test_contract(defined: dict[str, Task], variable: str, check: Callable[[Task], None]) -> None:
    task = defined[variable]
    assert task.name not in TASKS
    check(task)


def test_the_page_names_what_exists() -> None:
    root = Path(__file__).parents[2]
    for path in re.findall(r"`((?:riffle|research|tests)/[\w/]+\.py)`", PAGE):
        assert (root / path).exists()
    helpers = re.search(r"the usual pieces: (.*?)\. The suite", PAGE, flags=re.DOTALL)
    assert helpers is not None
    assert all(hasattr(row_helpers, name) for name in re.findall(r"`(\w+)`", helpers[1]))
