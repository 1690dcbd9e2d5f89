"""What the kinds of experiments have in common: how one is set up, measured and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

Entry = dict[str, Any]
OnProgress = Callable[[str, float], None]
"""Called with what is measured just now, and the share of its line that is done."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an experiment is run."""

    quick: bool = False
    """Whether to measure small models in seconds."""
    memory: float | None = None
    """Of timing: gigabytes of the GPU that may be used, None for all."""
    budget: float = 10.0
    """Of timing: seconds that one call may take; longer lengths are left out."""
    corpus: Path | None = None
    """Of learning: the prepared corpus, None for the usual one."""
    steps: int | None = None
    """Of learning: steps of each run, None for as many as the configuration says."""
    runs: Path = Path("runs")
    """Of learning: where the runs are kept; one that was stopped is continued."""


class Kind(NamedTuple):
    """A kind of experiment."""

    about: Callable[[Settings, torch.device], Entry]
    """What holds for all lines of the results."""
    measure: Callable[[Any, torch.device, Settings, OnProgress], Entry]
    """One line of the figure, from one entry of the experiment's ``configs()``."""
    rows: Callable[[Mapping[str, Any]], list[list[str]]]
    """The results as a table, its head first."""
