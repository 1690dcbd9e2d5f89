"""What a run leaves behind for people: metrics.jsonl, environment.json and TensorBoard curves."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import riffle
from riffle.train.checkpoint import read_json, write_atomically, write_json


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware, command and commit: what someone needs to repeat a run."""
    versions = {"riffle": riffle.__version__, "python": platform.python_version()}
    for package in ("torch", "triton", "numpy", "safetensors"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "absent"
    return {
        "versions": versions,
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "platform": f"{platform.system()} {platform.machine()}",
        "command": [Path(sys.argv[0]).name.replace("__main__.py", "riffle"), *sys.argv[1:]],  # python -m riffle
        "commit": commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def record_sitting(folder: Path, about: dict[str, Any]) -> None:
    """Write environment.json; of a resumed run the first sitting stays, and this one joins the ``resumed`` ones."""
    path = folder / "environment.json"
    first = read_json(path)
    if first:
        about = {**first, "resumed": [*first.get("resumed", []), about]}
    write_json(path, about)


def device_name(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {platform.machine()}"


def commit() -> str | None:
    """The commit of the checkout this package runs from, None where it is installed without one."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


class Metrics:
    """Appends to metrics.jsonl and, for the same numbers, to TensorBoard curves.

    Args:
        folder: The run's folder.
        step: The step the run continues from; later lines of an earlier attempt are dropped.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self.path = folder / "metrics.jsonl"
        kept = [line for line in read_metrics(folder) if line["step"] <= step]
        write_atomically(self.path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        self.curves = SummaryWriter(folder / "tensorboard", purge_step=step + 1)

    def write(self, step: int, **values: float) -> None:
        """Record values at a step."""
        try:
            with self.path.open("a") as file:
                file.write(json.dumps({"step": step, **values}) + "\n")
            for name, value in values.items():
                self.curves.add_scalar(name, value, step)
        except OSError as error:
            error.filename = error.filename or str(self.path.parent)
            raise

    def close(self) -> None:
        """Flush everything to disk."""
        self.curves.close()


class Unrecorded:
    """In place of :class:`Metrics` on the ranks that leave the record to rank 0."""

    def write(self, step: int, **values: float) -> None:
        """Record nothing."""

    def close(self) -> None:
        """There is nothing to flush."""


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl; a last line cut short by a kill is dropped."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    lines = []
    for line in path.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines
