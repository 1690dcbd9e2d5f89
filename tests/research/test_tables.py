"""The README's tables are those of the committed result files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from research.tables import lambada

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_what_was_measured() -> None:
    command = [sys.executable, "-m", "research.tables.readme", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stderr


def test_nothing_without_the_file(tmp_path: Path) -> None:
    assert "not been run" in lambada.trained_alike(tmp_path / "missing.json")
