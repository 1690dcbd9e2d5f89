"""The file of a bench: what was measured, where, by which command, at which commit."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from riffle.bench.timing import Ceilings
from riffle.bench.workloads import FORMS, SECTIONS, Measurement
from riffle.environment import environment
from riffle.files import write_json
from riffle.quantities import DASH, format_milliseconds


def outcome(entry: Mapping[str, Any]) -> str:
    """The time of an entry, or why it has none."""
    return str(entry["failed"]) if "failed" in entry else format_milliseconds(entry["milliseconds"])


def worst_error(entry: Mapping[str, Any]) -> str:
    """The largest error of an entry; a dash where nothing was compared."""
    errors = list((entry.get("errors") or {}).values())
    if not errors:
        return DASH
    return "not finite" if None in errors else f"{max(errors):.1e}"


class Record:
    """A JSON file that is whole after every measurement, and that later runs on the same ground add to.

    Args:
        path: The file.
        device: What is measured.
        commit: The commit of the code; None to ask git.
    """

    def __init__(self, path: Path, device: torch.device, commit: str | None = None) -> None:
        facts = environment(device)
        versions = facts["versions"] | (
            {"cuda": torch.version.cuda, "driver": _driver()} if device.type == "cuda" else {}
        )
        ground = {"device": facts["device"], "commit": commit or facts["commit"], "versions": versions}
        self.path, self.started = path, facts["started"]
        self.content: dict[str, Any] = {**ground, "runs": [], **{section: {} for section in SECTIONS}}
        if path.exists():
            self.content = _read(path)
            for name, value in ground.items():
                if self.content.get(name) != value:
                    raise ValueError(
                        f"{path} holds measurements of {name} {self.content.get(name)}, this is {value}: "
                        "give another --out, or remove the file"
                    )

    def begin(self, ceilings: Ceilings) -> None:
        """Note a run and its ceilings."""
        command = shlex.join(["riffle", *sys.argv[1:]])
        self.content["runs"].append({"command": command, "date": self.started, "ceilings": ceilings._asdict()})

    def put(self, step: Measurement, entry: dict[str, Any]) -> None:
        """Note one measurement, in place of an earlier one of the same step, and write the file."""
        row = step.row
        facts = {"title": row.title, "features": row.features, "blocks": row.blocks, "lengths": list(row.lengths)}
        facts |= {"batch": row.batch, "flops": row.flops, "forms": {}}
        kept = self.content[step.section].setdefault(row.name, facts)
        forms = kept["forms"] | {step.form: {**entry, "run": len(self.content["runs"]) - 1}}
        kept["forms"] = {form: forms[form] for form in FORMS if form in forms}
        write_json(self.path, self.content)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
        if isinstance(content, dict) and {"runs", *SECTIONS} <= content.keys():
            return content
    except ValueError:
        pass
    raise ValueError(f"{path} is no file of riffle bench: give another --out, or remove the file")


def _driver() -> str | None:
    """The version of the GPU's driver, None where its tool is absent."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None
