"""Every command and every example of the README runs, in the order in which a reader meets them.

A block after ``<!-- not run: why -->`` is left out. Of ``make`` the target has to exist, of ``pip install`` nothing is
checked.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from cli.riffle_command import ForkedCommand

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FENCE = re.compile(
    r"(?P<excluded>^<!-- not run: .+? -->\n+)?^```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
SHELL = ("bash", "console", "sh", "shell")


class Example(NamedTuple):
    """A command line, or a block of Python, and the line of the README where it begins."""

    line: int
    language: str
    text: str


def examples(text: str) -> list[Example]:
    """What a reader would type: commands one by one, Python a block at a time."""
    found = []
    for fence in FENCE.finditer(text):
        if fence["excluded"]:
            continue
        first = text.count("\n", 0, fence.start("body")) + 1
        if fence["language"] == "python":
            found.append(Example(first, "python", fence["body"]))
        elif fence["language"] in SHELL:
            found += commands(fence["body"], first, prompt=fence["language"] == "console")
    return found


def commands(body: str, first: int, *, prompt: bool) -> list[Example]:
    """The command lines of a block, continued lines joined; in a console block with ``$`` those after one."""
    prompt = prompt and bool(re.search(r"^\$ ", body, re.MULTILINE))
    found, parts, start = [], [], first
    for number, line in enumerate(body.splitlines(), first):
        if not parts:
            if prompt and not line.startswith("$ "):
                continue  # output
            start = number
        parts.append(line.removeprefix("$ ") if prompt and not parts else line)
        if parts[-1].endswith("\\"):
            parts[-1] = parts[-1][:-1]
            continue
        found.append(Example(start, "shell", "".join(parts).strip()))
        parts = []
    return [example for example in found if example.text and not example.text.startswith("#")]


def words_of(command: str) -> list[str]:
    return shlex.split(command, comments=True)


EXAMPLES = examples(README.read_text())


def runs(example: Example) -> bool:
    return example.language == "python" or words_of(example.text)[0] in ("riffle", "python")


@pytest.mark.timeout(900)
def test_examples_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One test for all of them, in one folder: later examples use what earlier ones made."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for example in filter(runs, EXAMPLES):
        if example.language == "python":
            # Line numbers of a traceback are then those of the README.
            exec(compile("\n" * (example.line - 1) + example.text, README, "exec"), names)
        else:
            program, *words = words_of(example.text)
            run(f"README.md:{example.line}: {example.text}", program, words)


@pytest.mark.parametrize(
    "example", [e for e in EXAMPLES if not runs(e)], ids=lambda example: f"line {example.line}: {example.text}"
)
def test_other_commands_exist(example: Example) -> None:
    words = words_of(example.text)
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(words[1:]) <= set(targets), f"the Makefile has {targets}"
    elif words[:2] != ["pip", "install"]:
        pytest.fail(f"README.md:{example.line}: cannot check {example.text!r}: mark its block as not run")


def run(where: str, program: str, words: list[str]) -> None:
    if program == "riffle":
        with ForkedCommand(*words) as command:
            printed = command.communicate(timeout=300)
        code = command.returncode
    else:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
        code, printed = done.returncode, (done.stdout, done.stderr)
    assert code == 0, "\n".join((where, *printed))


SAMPLE = """# title

```bash
pip install riffle-nn   # a comment
riffle train sort \\
  --steps 3
# only a comment

make demo
```

<!-- not run: takes an hour -->
```bash
riffle train sort
```

```console
$ riffle solve sort 2 1
1 2
$ riffle tasks
```

```console
riffle info
```

```python
x = 1

assert x
```

```text
nothing to run
```
"""


def test_examples_are_found() -> None:
    assert examples(SAMPLE) == [
        (4, "shell", "pip install riffle-nn   # a comment"),
        (5, "shell", "riffle train sort   --steps 3"),
        (9, "shell", "make demo"),
        (18, "shell", "riffle solve sort 2 1"),
        (20, "shell", "riffle tasks"),
        (24, "shell", "riffle info"),
        (28, "python", "x = 1\n\nassert x\n"),
    ]
    assert words_of("pip install riffle-nn   # a comment") == ["pip", "install", "riffle-nn"]
