"""The committed result files name no folder of the machine that wrote them; tests/test_registry.py loads them."""

from __future__ import annotations

import re
from pathlib import Path

from riffle.train.shipped import SHIPPED

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "research" / "results"


def test_no_file_names_a_folder_of_the_machine_it_was_made_on() -> None:
    for path in (*RESULTS.rglob("*.json"), *SHIPPED.rglob("*.json"), *SHIPPED.rglob("*.md")):
        assert not re.search(r"/(tmp|home|root|work)/", path.read_text()), path
