"""Every command and every example of the README runs, in the order in which a reader meets them; its tree is true.

Of ``make`` the target has to exist.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from cli.riffle_command import ForkedCommand

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


class Example(NamedTuple):
    """A command line, or a block of Python, and the line of the README where it begins."""

    line: int
    language: str
    text: str


def examples(text: str) -> list[Example]:
    """What a reader would type: commands one by one, Python a block at a time."""
    found = []
    for fence in re.finditer(r"^```(python|bash)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, fence.start(2)) + 1
        if fence[1] == "python":
            found.append(Example(first, "python", fence[2]))
        else:
            lines = enumerate(fence[2].splitlines(), first)
            found += [Example(number, "shell", line) for number, line in lines if line and not line.startswith("#")]
    return found


def words_of(command: str) -> list[str]:
    return shlex.split(command, comments=True)


EXAMPLES = examples(README.read_text())


@pytest.mark.timeout(900)
def test_examples_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One test for all of them, in one folder: later examples use what earlier ones made."""
    monkeypatch.chdir(tmp_path)
    assert {example.language for example in EXAMPLES} == {"python", "shell"}
    for example in EXAMPLES:
        if example.language == "python":
            # Line numbers of a traceback are then those of the README.
            exec(compile("\n" * (example.line - 1) + example.text, README, "exec"), {"__name__": "__main__"})
            continue
        program, *words = words_of(example.text)
        where = f"README.md:{example.line}: {example.text}"
        assert program == "riffle", f"{where} is no command of riffle"
        with ForkedCommand(*words) as command:
            printed = command.communicate(timeout=300)
        assert command.returncode == 0, "\n".join((where, *printed))


def test_what_it_says_of_the_repository() -> None:
    text = README.read_text()
    folders = re.findall(r"^    (\w+)/ ", text, re.MULTILINE)
    assert folders == ["riffle", "research", "docs", "examples", "tests"]
    assert all((ROOT / folder).is_dir() for folder in folders)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make ([\w-]+)`", text)) <= set(targets)
