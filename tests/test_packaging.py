"""The wheel: small, whole, described, and enough by itself to run what the README says works at once."""

from __future__ import annotations

import email
import json
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from test_readme import EXAMPLES, words_of

from riffle.train.shipped import SHIPPED

ROOT = Path(__file__).parents[1]
pytest.importorskip("hatchling", reason="it builds the wheel")

CARRIES = "solve add 0101010101010101 1010101010101010"
EXTRAS = ("matplotlib", "tensorboard", "gradio", "pooch", "onnxscript")
EVERY = """
solve add 1 1
tasks
info
train reverse --recipe small --steps 2 --set model.features=8 --set train.evaluate_lengths=8 --out run
eval run --lengths 8 --examples 2
export run --format torch --length 8
inspect run --lengths 8 --examples 2 --probes 1
route 3 1 0 2 --draw route.svg
lambada solve Ann met Bob . Bob smiled at ___
"""
RUN = """
import json, sys
commands, missing = map(json.loads, sys.argv[1:])
sys.modules.update(dict.fromkeys(missing))  # as in an installation without these extras
from riffle.cli import main
for command in commands:
    print("$ riffle", *command, flush=True)
    sys.argv[1:] = command
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The wheel, unpacked as an installer does it."""
    folder = wheel.parent / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_size(wheel: Path) -> None:
    assert wheel.stat().st_size < 40e6


def test_the_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "riffle"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert names == set(files.stdout.split())
    assert {"riffle/py.typed", "riffle/demo/style.css"} <= names
    assert {f"riffle/weights/{folder.name}/checkpoint.safetensors" for folder in SHIPPED.iterdir()} <= names


def test_the_description(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info/METADATA")
    about = email.message_from_string(metadata.read_text())
    assert (about["Name"], about["License-Expression"]) == ("riffle-nn", "MIT")
    assert about.get_all("Project-URL")
    assert "](" not in about.get_payload(), "links to files of the repository would break on a package index"
    (entry,) = installed.glob("*.dist-info/entry_points.txt")
    assert "riffle = riffle.cli:main" in entry.read_text()


def test_extras_are_named_in_one_way() -> None:
    """Every module that a command asks for comes with the extra that it names."""
    from riffle.cli.display import EXTRAS

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for module, extra in EXTRAS.items():
        assert any(line.startswith(module) for line in project["optional-dependencies"][extra])
        assert not any(line.startswith(module) for line in project["dependencies"])


def run_installed(installed: Path, folder: Path, commands: list[list[str]], missing: Sequence[str]) -> Any:
    """Run commands of the wheel in a folder that has nothing of the repository."""
    return subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(commands), json.dumps(missing)],
        cwd=folder,
        env={"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_works_at_once(installed: Path, tmp_path: Path) -> None:
    """The README's commands, without any extra."""
    commands = [words_of(example.text)[1:] for example in EXAMPLES if example.text.startswith("riffle ")]
    done = run_installed(installed, tmp_path, [*commands, CARRIES.split()], EXTRAS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1" * 16 in done.stdout
    before_training = done.stderr.partition("no TensorBoard curves, since tensorboard is not installed")[0]
    assert before_training != done.stderr
    assert "wrong" not in before_training


def test_every_command_works_from_another_folder(installed: Path, tmp_path: Path) -> None:
    done = run_installed(installed, tmp_path, [line.split() for line in EVERY.strip().splitlines()], ())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "research" not in done.stdout + done.stderr
    assert {"route.svg", "run"} == {path.name for path in tmp_path.iterdir()}
