"""One tiny run for all commands that need one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .riffle_command import TINY, succeed


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run; not to be changed."""
    folder = tmp_path_factory.mktemp("cli") / "runs" / "reverse"
    succeed("train", "reverse", *TINY, "--steps", 6, "--out", folder)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it below the working directory, which a test may change."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, tmp_path / "runs" / "reverse")
    return Path("runs/reverse")
