"""The committed result files: their configurations load, and they name no folder of the machine that wrote them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from riffle.config import run_config_from_dict
from riffle.train.shipped import SHIPPED

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "research" / "results"


def configs(content: Any) -> list[dict[str, Any]]:
    """The configurations anywhere in a result."""
    if isinstance(content, list):
        return [config for part in content for config in configs(part)]
    if not isinstance(content, dict):
        return []
    own = [content["config"]] if isinstance(content.get("config"), dict) and "train" in content["config"] else []
    return own + [config for part in content.values() for config in configs(part)]


def test_every_configuration_loads() -> None:
    found = [config for path in sorted(RESULTS.rglob("*.json")) for config in configs(json.loads(path.read_text()))]
    assert len(found) > 300
    for config in found:
        run_config_from_dict(config)


def test_no_file_names_a_folder_of_the_machine_it_was_made_on() -> None:
    for path in (*RESULTS.rglob("*.json"), *SHIPPED.rglob("*.json"), *SHIPPED.rglob("*.md")):
        assert not re.search(r"/(tmp|home|root|work)/", path.read_text()), path
