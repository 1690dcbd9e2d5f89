"""What the documentation site needs beyond its configuration: links into the repository, and docstrings as Markdown
with formulas as MathML, which browsers show without a script or a network.

Pages link to files outside docs/, such as results, so that the links work in a clone. On the site these files are
copied; a folder is its README.md if it has one, else its name alone.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent
COPIES = "repository"
"""The site's folder of copied files."""
LINK = re.compile(r"\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "research/README.md")
"""Files of the repository that the navigation of the site has."""


def target(source: Path, link: str) -> Path | None:
    """The file outside docs/ that a link of a source file leads to; a folder stands for the README.md in it."""
    path = (source.parent / link).resolve()
    if not path.is_relative_to(ROOT) or path.is_relative_to(ROOT / "docs"):
        return None
    return path / "README.md" if path.is_dir() else path


def on_files(files: Files, config: Any) -> Files:
    """Add the files that pages link to, and those that they link to in turn."""
    waiting = [ROOT / "docs" / file.src_uri for file in files.documentation_pages()]
    seen = {ROOT / name for name in PAGES}
    waiting += seen
    while waiting:
        source = waiting.pop()
        if source.suffix != ".md":
            continue
        paths = [target(source, link["path"]) for link in LINK.finditer(source.read_text())]
        new = {path for path in paths if path and path.is_file()} - seen
        seen |= new
        waiting += new
    for path in sorted(seen):
        files.append(File.generated(config, f"{COPIES}/{path.relative_to(ROOT)}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links into the repository lead to the copies."""
    uri = page.file.src_uri
    source = ROOT / (uri.removeprefix(f"{COPIES}/") if uri.startswith(f"{COPIES}/") else f"docs/{uri}")
    up = "../" * uri.count("/")

    def rewrite(link: re.Match[str]) -> str:
        path = target(source, link["path"])
        if path is not None and path.is_file():
            return f"]({up}{COPIES}/{path.relative_to(ROOT)}{link['anchor'] or ''})"
        if path is not None:  # a folder, or a broken link, which the build reports
            return "](#)" if path.name == "README.md" else link[0]
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
        text = re.sub(r":math:`([^`]*)`", lambda formula: f"<span>{convert(formula[1])}</span>", text)
        text = re.sub(r":(?:class|func|meth|mod|data|attr):`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
        text = text.replace("``", "`").replace("Examples::", "Examples:")
        text = re.sub(r"^>>> (?:.+\n?)+", lambda code: f"```pycon\n{code[0].rstrip()}\n```\n", text, flags=re.MULTILINE)
        obj.docstring.value = text


def formula(match: re.Match[str]) -> str:
    """A displayed formula; the package knows ``split`` where LaTeX has ``aligned``."""
    latex = textwrap.dedent(match[2]).strip().replace("{aligned}", "{split}")
    return f"{match[1]}{convert(latex, display='block')}\n\n"
