"""The README's tables are those of the committed result files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from research.tables import lambada
from riffle.quantities import DASH

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_what_was_measured() -> None:
    command = [sys.executable, "-m", "research.tables.readme", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_models_trained_alike_have_a_column_of_their_own(tmp_path: Path) -> None:
    score = {"position": 0.4321, "word": 0.4444}
    run = {
        "step": 900,
        "step_seconds": 151.2,
        "parameters": 1_900_000,
        "development": {"1 placement": score, "16 placements": {"position": 0.5, "word": 0.51}},
        "environment": {"device": "NVIDIA H200", "versions": {"torch": "2.11.0"}},
        "config": {"train": {"steps": 1000}, "data": {"batch": 512}},
    }
    runs = dict.fromkeys(lambada.MODELS, run) | {"shuffle-exchange": {"failed": "Traceback"}}
    path = tmp_path / "rivals.json"
    about = {"commit": "abc1234", "percent_of_multiprocessors": 25, "splits": {"train": 10, "within": 20}}
    path.write_text(json.dumps({**about, "runs": runs}))
    assert "43.21%" not in lambada.lambada(short=True, rivals=path)
    heads, _, *rows = [line.split(" | ") for line in lambada.lambada(rivals=path).split("\n\n")[0].split("\n")]
    assert [head.strip("| ") for head in heads] == ["model", "test set", "development set", "by word", "151 s each"]
    with_both = {row[0].strip("| "): row[1] for row in rows if "43.21%" in row[-1]}
    assert with_both["Gated-Attention Reader"] == "49.00%"
    assert with_both["Universal Transformer, 6 fixed steps, pointing"] == DASH
    assert "Residual Shuffle-Exchange, 2021" not in with_both, "its run failed"
    assert not any("43.21%" in cell for row in rows for cell in row[:-1])
    alike = lambada.trained_alike(path)
    assert alike.startswith(
        "One NVIDIA H200, commit abc1234, torch 2.11.0: 6 runs at once, each on 25% of the GPU at most"
    )
    assert "900 of 1,000 | 460,800 | 43.21% | 44.44% | 50.00% | 51.00% |" in alike
    assert f"| `shuffle-exchange`, failed | {DASH}" in alike
    assert "not been run" in lambada.trained_alike(tmp_path / "missing.json")
