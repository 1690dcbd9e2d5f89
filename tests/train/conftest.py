"""A run that nothing disturbed, for all tests of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import distributed

from .tiny import train

if not (distributed.is_available() and distributed.is_gloo_available()):
    collect_ignore_glob = ["test_distributed*"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(folder)
    return folder
