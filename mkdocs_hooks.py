"""What the documentation site needs beyond its configuration: links into the repository, and docstrings as Markdown.

Pages link to files outside docs/, such as results, so that the links work in a clone. On the site these files are
copied; a folder is its README.md if it has one, else its name alone.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent
COPIES = "repository"
"""The site's folder of copied files."""
LINK = re.compile(r"\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
PAGES = {"changelog.md": "CHANGELOG.md"}
"""Pages of the site that are files of the repository."""


def target(source: Path, link: str) -> Path | None:
    """The file outside docs/ that a link of a source file leads to; a folder stands for the README.md in it."""
    path = (source.parent / link).resolve()
    if not path.is_relative_to(ROOT) or path.is_relative_to(ROOT / "docs"):
        return None
    return path / "README.md" if path.is_dir() else path


def on_files(files: Files, config: Any) -> Files:
    """Add the files that pages link to, and those that they link to in turn."""
    waiting = [ROOT / "docs" / file.src_uri for file in files.documentation_pages()]
    waiting += [ROOT / name for name in PAGES.values()]
    seen = set[Path]()
    while waiting:
        source = waiting.pop()
        if source.suffix != ".md" or source.name in PAGES:
            continue
        for link in LINK.finditer(source.read_text()):
            path = target(source, link["path"])
            if path and path.is_file() and path not in seen:
                seen.add(path)
                waiting.append(path)
                uri = f"{COPIES}/{path.relative_to(ROOT)}"
                files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links into the repository lead to the copies."""
    uri = page.file.src_uri
    copied = uri.removeprefix(f"{COPIES}/")
    source = ROOT / PAGES.get(uri, copied if copied != uri else f"docs/{uri}")
    if uri in PAGES:
        markdown = source.read_text()
    up = "../" * uri.count("/")

    def rewrite(link: re.Match[str]) -> str:
        path = target(source, link["path"])
        if path is not None and path.is_file():
            return f"]({up}{COPIES}/{path.relative_to(ROOT)}{link['anchor'] or ''})"
        if path is not None:
            return (
                "](#)" if path.name == "README.md" else link[0]
            )  # a folder, or a broken link, which the build reports
        path = (source.parent / link["path"]).resolve()
        if source.is_relative_to(ROOT / "docs") or not path.is_relative_to(ROOT / "docs"):
            return link[0]
        return f"]({up}{path.relative_to(ROOT / 'docs')}{link['anchor'] or ''})"

    return re.sub(r"\[([^\]]*)\]\(#\)", r"`\1`", LINK.sub(rewrite, markdown))


class Docstrings(griffe.Extension):
    """Docstrings are written as torch's are, in reStructuredText; the site reads Markdown."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Translate the docstring of a module, class, function or attribute."""
        if obj.docstring is None:
            return
        text = re.sub(
            r"^( *)\.\. math::[ \n]*((?:.+\n?)+(?:\n+\1 +.+\n?)*)", formula, obj.docstring.value, flags=re.MULTILINE
        )
        text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
        text = re.sub(r":(?:class|func|meth|mod|data|attr):`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
        text = text.replace("``", "`").replace("Examples::", "Examples:")
        text = re.sub(r"^( *)>>> (?:.+\n?)+", example, text, flags=re.MULTILINE)
        obj.docstring.value = text


def example(match: re.Match[str]) -> str:
    """A doctest as code."""
    return f"{match[1]}```pycon\n{match[0].rstrip()}\n{match[1]}```\n"


def formula(match: re.Match[str]) -> str:
    """A displayed formula."""
    body = textwrap.dedent(match[2]).strip()
    return f"{match[1]}$$\n{textwrap.indent(body, match[1])}\n{match[1]}$$\n\n"
