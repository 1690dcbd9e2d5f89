"""The tables of README and docs are those of the committed result files."""

from __future__ import annotations

import subprocess
import sys


def test_pages_show_what_was_measured() -> None:
    command = [sys.executable, "-m", "research.tables.readme", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
