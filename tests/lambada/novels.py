"""Made-up novels: sentences in which names come back, so that there is something to point at, and be it learned."""

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


ROLES = ("guard", "cook", "smith")
SYLLABLES = ("zor", "qui", "mir", "tan", "osh", "bra", "lek", "vam")


def riddle(draw: random.Random) -> str:
    """Three people in any order; the last word is always the guard."""
    people = dict(zip(ROLES, draw.sample([a + b + "u" for a in SYLLABLES for b in SYLLABLES], 3), strict=True))
    told = [f"The {role} was {name.capitalize()}." for role, name in draw.sample(list(people.items()), 3)]
    return " ".join([*told, f"At noon the king waved to {people['guard'].capitalize()}."])


def write_riddles(folder: Path, books: int = 4, riddles: int = 150) -> Path:
    """A folder of riddles; beside it ``vectors.txt`` for all words but names, and ``unseen.txt`` to measure by."""
    folder.mkdir(parents=True)
    draw = random.Random(0)
    for number in range(books):
        text = "".join(riddle(draw) + "\n" for _ in range(riddles))
        (folder / f"book{number}.txt").write_text(text, encoding="utf-8")
    known = ["the", ".", "was", *ROLES, "at", "noon", "king", "waved", "to"]
    rows = (" ".join([word, *(f"{draw.gauss(0, 1):.3f}" for _ in range(12))]) for word in known)
    (folder.parent / "vectors.txt").write_text("\n".join(rows) + "\n")
    (folder.parent / "unseen.txt").write_text("".join(riddle(draw).rstrip(".") + "\n" for _ in range(100)))
    return folder
