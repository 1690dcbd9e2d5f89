"""The record of software, hardware, command and commit that goes with every result, and free memory."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch

import riffle
from riffle.config import Precision
from riffle.files import read_json


class EnvironmentRecord(TypedDict):
    """What environment.json holds at least."""

    versions: dict[str, Any]
    device: str
    command: list[str]
    commit: str | None
    note: NotRequired[str]
    precision: NotRequired[Precision]
    resumed: NotRequired[list[dict[str, Any]]]


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware, command and commit: what is needed to repeat a run."""
    program = Path(sys.argv[0])  # of python -m riffle .../riffle/__main__.py
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
        "command": [program.parent.name if program.name == "__main__.py" else program.name, *sys.argv[1:]],
        "commit": commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def read_environment(folder: Path) -> dict[str, Any] | None:
    """The record in a folder, None if there is none."""
    path = folder / "environment.json"
    record: dict[str, Any] | None = read_json(path, EnvironmentRecord, what="record of an environment")
    return record


def device_name(device: torch.device) -> str:
    """The name of a GPU, or the kind of device and processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type}, {platform.machine()}"


def commit() -> str | None:
    """The git commit of the checkout this package runs from, None if there is none."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory runs out; torch has no class of its own for that of a CPU."""
    return isinstance(error, MemoryError) or any(word in str(error) for word in ("memory", "size calculation overflow"))


def free_bytes(device: torch.device) -> int:
    """Memory that torch can still allocate: on a GPU, what is free or cached by torch, within the process's fraction.

    On the host, what programs can get without swapping: caches of files count as free.
    """
    if device.type != "cuda":
        with contextlib.suppress(OSError, LookupError, ValueError):  # Linux
            meminfo = Path("/proc/meminfo").read_text()
            return 1024 * int(meminfo.split("MemAvailable:")[1].split()[0])
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free, total = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_allocated(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    limit = int(torch.cuda.get_per_process_memory_fraction(index) * total)
    return min(free + torch.cuda.memory_reserved(device) - held, limit - held)


def total_bytes() -> int:
    """The memory of the host or of its largest GPU, whichever is more."""
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    gpus = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    return max(host, *(torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus), 0)
