"""``python -m research lambada`` as it is typed: ``prepare``, and the examples of the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli.riffle_command import riffle, succeed

from riffle.lambada import Corpus

from .novels import write_novels

COMMANDS = ("prepare", "train", "eval", "solve", "ship")
ROOT = Path(__file__).parents[3]
DOCS = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("docs/lambada.md", "research/lambada/README.md"))


def test_prepare(tmp_path: Path) -> None:
    novels = write_novels(tmp_path / "novels")
    options = ("--novels", novels, "--out", tmp_path / "out", "--workers", 1)
    result = succeed("lambada", "prepare", *options)
    assert "4 books" in result.out
    assert "million words a second" in result.out
    assert "validation" in result.out
    assert "The corpus is in" in result.err
    report = succeed("lambada", "prepare", *options, "--overwrite", "--any-word", "--json").json
    assert report["splits"]["train"]["passages"] == len(Corpus(tmp_path / "out").examples("train"))
    again = riffle("lambada", "prepare", *options)
    assert again.code == 1
    assert "exists already" in again.err


def test_mistakes(tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    for arguments, message in (
        ((), "nothing to learn from"),
        (("--novels", tmp_path / "none"), "does not exist"),
        (("--download", tmp_path), "not downloaded without its checksum"),
        (("--novels", tmp_path, "--checksum", "md5:1"), "--checksum is for --download"),
        (("--novels", tmp_path, "--workers", 0), "workers is 0"),
    ):
        result = riffle("lambada", "prepare", *out, *arguments)
        assert result.code == 1
        assert message in " ".join(result.err.split())
        assert not (tmp_path / "out").exists()


def test_preparing_needs_no_torch() -> None:
    code = "import sys, research.lambada.prepare, research.lambada.books; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_the_documented_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = re.search(r"^python -m research (lambada prepare .*)$", DOCS, re.MULTILINE)
    assert command is not None
    monkeypatch.chdir(tmp_path)
    write_novels(tmp_path / "novels")
    (tmp_path / "lambada_development_plain_text.txt").write_text("zyx saw qux and zyx\n")
    (tmp_path / "glove.6B.300d.txt").write_text("the 1 2\nsaw 3 4\n")
    succeed(*command.group(1).split(), "--workers", 1)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL):
        exec(code, names)
    assert names["answer"] in names["context"]  # type: ignore[operator]
    options = set(re.findall(r"`(--[a-z-]+)", DOCS))
    monkeypatch.setenv("COLUMNS", "200")  # narrower, long options are cut
    shown = "".join(succeed("lambada", each, "--help").out for each in COMMANDS)
    assert {option for option in options if option not in shown} == {"--quick"}, "which is riffle reproduce's"
