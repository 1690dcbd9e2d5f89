"""A server with the page, a browser, and where the pictures go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from riffle.models.build import build
from riffle.recipes import small
from riffle.tasks import get_task
from riffle.train.checkpoint import write_checkpoint
from riffle.train.run import Run

CHROMIUM = "chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", metavar="DIR", help="write the pictures of the README into this folder")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run that has learned nothing, so that it answers wrongly."""
    folder = tmp_path_factory.mktemp("demo") / "runs"
    untrained(folder / "new")
    return folder


def untrained(folder: Path) -> Run:
    config = small("id")
    run = Run.create(folder, config)
    torch.manual_seed(0)
    weights = build(config.model, get_task("id")).state_dict()
    write_checkpoint(run.checkpoint, {**{f"model.{k}": v for k, v in weights.items()}, "step": torch.tensor(0)})
    return run


@dataclass(frozen=True)
class Server:
    address: str
    pid: int

    def memory(self) -> int:
        """Resident bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return 1024 * int(status.split("VmRSS:")[1].split()[0])


@pytest.fixture(scope="session")
def server(runs: Path) -> Iterator[Server]:
    pytest.importorskip("gradio", reason="the web page needs gradio")
    command = [sys.executable, "-m", "riffle", "demo", "--runs", str(runs), "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"})
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http://127.0.0.1:" in line, f"the server did not start: {line!r}"
        yield Server("http://127.0.0.1:" + line.rsplit(":", 1)[1].strip(), process.pid)
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's path."""
    path = shutil.which(CHROMIUM)
    if path is None:
        pytest.skip("the browser tests need Chromium: apt-get install chromium")
    return path
