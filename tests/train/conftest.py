"""A run that nothing disturbed, for all tests of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from .tiny import train


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(folder)
    return folder
