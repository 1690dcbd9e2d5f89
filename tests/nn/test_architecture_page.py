"""docs/architecture.md says what the code does: its examples run, its files exist."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"


def test_examples_run() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted >= 10
    assert result.failed == 0


def test_files_of_the_tree_exist() -> None:
    tree = PAGE.read_text(encoding="utf-8").partition("## Which file holds what")[2]
    folders: list[str] = []
    for indent, name in re.findall(r"^ {4}( *)([a-z_]+(?:/|\.py))(?= |$)", tree, re.MULTILINE):
        folders[len(indent) // 2 :] = [name]
        assert (ROOT / "".join(folders)).exists(), "".join(folders)
    assert len(folders) == 2


def test_links_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).exists(), target
