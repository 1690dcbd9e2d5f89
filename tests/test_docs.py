"""The documentation: every page is in the site, every public name in the reference, every link leads somewhere.

``make docs`` builds the site and checks anchors too; this needs nothing but the files.
"""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
PACKAGES = ("", ".nn", ".tasks", ".models", ".parallel", ".inspect", ".lambada")
NOT_PAGES = ("package.md",)
"""What a package index shows."""


def test_every_page_is_in_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:", 1)[1]
    pages = [path.name for path in [*DOCS.glob("*.md"), *DOCS.glob("*.ipynb")] if path.name not in NOT_PAGES]
    shown = re.findall(r": (\S+\.(?:md|ipynb))$", nav, re.MULTILINE)
    assert sorted(page for page in shown if not page.startswith("repository/")) == sorted(pages)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    reference = set(re.findall(r"^::: [\w.]+?(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    names = importlib.import_module(f"riffle{package}").__all__
    assert set(names) - {"__version__"} <= reference


PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *(ROOT / "research").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken = [link for link in LINK.findall(text) if "://" not in link and not (page.parent / link).exists()]
    assert not broken


WITH_EXAMPLES = [page for page in PAGES if "\n>>> " in page.read_text() and "log" not in page.parts]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.name)
def test_examples_of_a_page(page: Path) -> None:
    results = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert results.attempted
    assert results.failed == 0


def test_every_example_is_shown() -> None:
    shown = set(re.findall(r'--8<-- "examples/(\S+)"', (DOCS / "examples.md").read_text()))
    assert shown == {path.name for path in (ROOT / "examples").glob("*.py")}
