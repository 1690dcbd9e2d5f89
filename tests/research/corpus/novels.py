"""Made-up novels: sentences in which names come back, so that there is something to point at."""

from __future__ import annotations

import random
from pathlib import Path

NAMES = ("Zorbel", "Quill", "Mirra", "Tanvik", "Osha", "Brandt")
PLACES = ("garden", "harbour", "kitchen", "tower", "market")


def novel(seed: int, paragraphs: int = 40) -> str:
    """A text of one paragraph a line."""
    draw = random.Random(seed)
    lines = []
    for _ in range(paragraphs):
        first, second = draw.sample(NAMES, 2)
        place, other = draw.sample(PLACES, 2)
        lines += [
            f"{first} walked slowly from the {place} to the {other} because the evening was warm and quiet.",
            f'"I don\'t know where {second} has gone," said {first}. "Perhaps she is still in the {place}."',
            f"Nobody had seen her since the morning, and Mr. {second} had begun to worry about the {place}.",
            f"At last they all went back to the {other}. Nobody there had heard anything of {second}.",
            f"They went out without it. It had rained, and {first} did not like it.",
        ]
    return "\n".join(lines) + "\n"


def write_novels(folder: Path, books: int = 4) -> Path:
    """A folder with so many novels."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(books):
        (folder / f"book{number}.txt").write_text(novel(number), encoding="utf-8")
    return folder
