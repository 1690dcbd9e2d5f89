"""The result file of ``bench``; like :mod:`research.bench.workloads`, importing it does not import torch."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from research.bench.workloads import FORMS, OWN_LOOP_FORMS, SECTIONS, Case
from research.files import command_line, write_result
from research.quantities import format_milliseconds
from riffle.files import parse_json, read_text
from riffle.quantities import DASH

if TYPE_CHECKING:
    import torch

    from research.bench.timing import PeakRates


def format_time(entry: Mapping[str, Any]) -> str:
    """The time of an entry, or why it has none."""
    return str(entry["failed"]) if "failed" in entry else format_milliseconds(entry["milliseconds"])


def format_error(entry: Mapping[str, Any]) -> str:
    """The largest error of an entry; a dash where nothing was compared."""
    errors = list((entry.get("errors") or {}).values())
    if not errors:
        return DASH
    return "not finite" if None in errors else f"{max(errors):.1e}"


class Record:
    """A JSON file that is complete after every measurement; later runs with the same device and code add to it."""

    def __init__(self, path: Path, device: torch.device, commit: str | None = None) -> None:
        import torch

        from riffle.environment import environment

        facts = environment(device)
        versions = facts["versions"]
        if device.type == "cuda":
            versions |= {"cuda": torch.version.cuda, "driver": _driver_version()}
        setup = {"device": facts["device"], "commit": commit or facts["commit"], "versions": versions}
        self.path, self.started = path, facts["started"]
        self.content: dict[str, Any] = {**setup, "runs": [], **{section: {} for section in SECTIONS}}
        if path.exists():
            self.content = _read(path)
            refuse_other_setup(path, self.content, setup)

    def begin(self, rates: PeakRates) -> None:
        """Add a run with its peak rates."""
        self.content["runs"].append({"command": command_line(), "date": self.started, "ceilings": rates._asdict()})

    def put(self, case: Case, entry: dict[str, Any]) -> None:
        """Add the entry of a case, in place of an earlier one, and write the file."""
        names = ("title", "features", "blocks", "lengths", "batch", "flops")
        workload = {name: getattr(case.workload, name) for name in names}
        row = self.content[case.section].setdefault(case.workload.name, {**workload, "forms": {}})
        forms = row["forms"] | {case.form: {**entry, "run": len(self.content["runs"]) - 1}}
        row["forms"] = {form: forms[form] for form in (*FORMS, *OWN_LOOP_FORMS) if form in forms}
        write_result(self.path, self.content)


def refuse_other_setup(path: Path, content: Mapping[str, Any], setup: Mapping[str, Any]) -> None:
    """Raise where the measurements in a file were made with another commit, device, versions or settings."""
    for name, value in setup.items():
        if content.get(name) != value:
            raise ValueError(
                f"{path} holds measurements of {name} {content.get(name)}, this is {value}: "
                "give another --out, or remove the file"
            )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_text(path))
        if isinstance(content, dict) and {"runs", *SECTIONS} <= content.keys():
            return content
    except ValueError:
        pass
    raise ValueError(f"{path} is no file of bench: give another --out, or remove the file")


def _driver_version() -> str | None:
    """The version of the NVIDIA driver, None without nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None
