"""Made-up novels in which something can be learned in seconds: three people, and the last word is always the guard."""

from __future__ import annotations

import random
from pathlib import Path

ROLES = ("guard", "cook", "smith")
_SYLLABLES = ("zor", "qui", "mir", "tan", "osh", "bra", "lek", "vam")
_NAMES = [first + second + "u" for first in _SYLLABLES for second in _SYLLABLES]
_KNOWN = ("the", ".", "was", *ROLES, "at", "noon", "king", "waved", "to")


def make_passage(draw: random.Random) -> str:
    """One of them.

    >>> riddle(random.Random(1))
    'The guard was Mirquiu. The cook was Quizoru. The smith was Oshzoru. At noon the king waved to Mirquiu.'
    """
    people = dict(zip(ROLES, draw.sample(_NAMES, len(ROLES)), strict=True))
    told = [f"The {role} was {name.capitalize()}." for role, name in draw.sample(list(people.items()), len(ROLES))]
    return " ".join([*told, f"At noon the king waved to {people['guard'].capitalize()}."])


def prepare_synthetic_corpus(folder: Path, books: int = 4, riddles: int = 150) -> Path:
    """A prepared corpus of riddles with a development set, and vectors for all words but names.

    Args:
        folder: Where text and corpus go.
        books: Novels.
        riddles: Riddles in each.
    """
    from riffle.lambada.passages import PassageFilters
    from riffle.lambada.prepare import PrepareConfig, prepare

    novels, vectors = folder / "novels", folder / "vectors.txt"
    development = folder / "lambada_development_plain_text.txt"
    novels.mkdir(parents=True)
    draw = random.Random(0)
    for number in range(books):
        (novels / f"book{number}.txt").write_text("".join(f"{make_passage(draw)}\n" for _ in range(riddles)))
    rows = (" ".join([word, *(f"{draw.gauss(0, 1):.3f}" for _ in range(12))]) for word in _KNOWN)
    vectors.write_text("".join(f"{row}\n" for row in rows))
    development.write_text("".join(f"{make_passage(draw).removesuffix('.')}\n" for _ in range(100)))
    plan = PrepareConfig(
        out=folder / "corpus",
        novels=[novels],
        evaluation=[development],
        vectors=vectors,
        filters=PassageFilters(context=15),
        run=30,  # riddles are too much alike for a shorter one
        validation=0.25,
        workers=1,
    )
    prepare(plan)
    return plan.out
