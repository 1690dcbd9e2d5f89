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


def test_settings_compared_on_a_corpus_that_was_cut_before(tmp_path: Path) -> None:
    def run(accuracy: float, step: int = 1300) -> dict[str, object]:
        score = {"position": accuracy, "word": accuracy + 0.01}
        return {
            "step": step,
            "development": {"1 placement": score, "16 placements": score},
            "environment": {"device": "NVIDIA H200"},
            "config": {"model": {"features": 192}, "train": {"steps": 1300}, "data": {"share": 1.0}},
        }

    runs = {"nothing": run(0.4), "no dropout": run(0.5, 1200), "distillation": {"failed": "Traceback"}}
    path = tmp_path / "levers.json"
    splits = {"train": 27_583, "within": 184_502, "development": 4869}
    path.write_text(json.dumps({"commit": "abc1234def", "splits": splits, "runs": runs}))
    about, lines = lambada.levers_part(path).split("\n\n")
    assert about.startswith("One NVIDIA H200, commit abc1234: 192 maps, 1,300 steps, 4% of the text, one seed")
    assert [line.split(" | ")[0].strip("| ") for line in lines.split("\n")[2:]] == [
        "no dropout, stopped at step 1,200",
        "nothing",
        "distillation, failed",
    ]
    assert "| 50.00% | 51.00% | 50.00% | 51.00% |" in lines
    assert "not been run" in lambada.levers_part(tmp_path / "missing.json")
