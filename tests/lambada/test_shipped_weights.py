"""The reader that comes with the package: it is whole, small enough, and reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.riffle_command import succeed

from riffle.lambada import tokenise
from riffle.lambada.evaluate import TrainedReader, find_reader
from riffle.quantities import format_percent
from riffle.train.shipped import SHIPPED

FOLDER = SHIPPED / "lambada"
PASSAGES = {
    "wren": "Old Bettany had kept the lighthouse for thirty years, and his daughter Wren had never lived anywhere "
    "else. When the ships came in, it was Wren who climbed the stairs and lit the lamp, because her father's knees "
    "were bad. That night the storm was the worst she had seen. She looked at the sea, and then at her father. 'I "
    "will go up,' said",
    "dorrick": "The captain counted the prisoners again. There should have been eleven, and there were ten. 'Where is "
    "Dorrick?' he asked. Nobody answered. He walked along the line and looked into each face. 'I will ask once more,' "
    "he said. 'Which of you has seen",
    "dog": "We found the dog in a ditch beside the road, thin and shaking, with a rope around its neck. My sister "
    "wanted to keep it, but our mother said there was no food to spare. So for three weeks we carried scraps down to "
    "the barn every evening, and in the end even mother came down to feed the",
}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without runs of its own."""
    monkeypatch.chdir(tmp_path)


def test_it_is_small_and_reads(elsewhere: None) -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= 26e6
    reader = TrainedReader(find_reader(None))
    assert reader.run.folder == FOLDER
    assert sum(parameter.numel() for parameter in reader.model.parameters()) <= 12e6
    assert "dorrick" not in reader.objective.vocabulary.known, "a name without a vector is found all the same"
    for answer, text in PASSAGES.items():
        probabilities = reader.next_word_probabilities(tokenise(text))
        assert max(probabilities, key=probabilities.__getitem__) == answer


def test_it_solves_on_the_command_line(elsewhere: None) -> None:
    found = succeed("lambada", "solve", PASSAGES["dorrick"], "--json").json
    assert found["words"][0]["word"] == "dorrick"
    assert len(found["words"]) == 5


def test_its_card_has_its_accuracy() -> None:
    score = json.loads((FOLDER / "evaluation.json").read_text())["splits"]["development"]["passages"]["all"]
    assert score["passages"] == 4869
    assert f"| development | 4869 | {format_percent(score['position'])} |" in (FOLDER / "README.md").read_text()
