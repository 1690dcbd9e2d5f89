"""A synthetic corpus for LAMBADA that a tiny network learns in seconds: the last word is always the guard's name."""

from __future__ import annotations

import random
from pathlib import Path

ROLES = ("guard", "cook", "smith")
_SYLLABLES = ("zor", "qui", "mir", "tan", "osh", "bra", "lek", "vam")
_NAMES = [first + second + "u" for first in _SYLLABLES for second in _SYLLABLES]
_WORDS = ("the", ".", "was", *ROLES, "at", "noon", "king", "waved", "to")
"""Words with a vector: all but the names."""


def make_passage(generator: random.Random) -> str:
    """A passage that introduces three people and ends with the name of one.

    >>> make_passage(random.Random(1))
    'The guard was Mirquiu. The cook was Quizoru. The smith was Oshzoru. At noon the king waved to Mirquiu.'
    """
    people = dict(zip(ROLES, generator.sample(_NAMES, len(ROLES)), strict=True))
    order = generator.sample(list(people.items()), len(ROLES))
    sentences = [f"The {role} was {name.capitalize()}." for role, name in order]
    return " ".join([*sentences, f"At noon the king waved to {people['guard'].capitalize()}."])


def prepare_synthetic_corpus(folder: Path) -> Path:
    """Write such passages as novels, a development set and word vectors, and prepare a corpus from them."""
    from research.lambada.passages import PassageFilters
    from research.lambada.prepare import PrepareConfig, prepare

    novels, vectors = folder / "novels", folder / "vectors.txt"
    development = folder / "lambada_development_plain_text.txt"
    novels.mkdir(parents=True)
    generator = random.Random(0)
    for number in range(4):
        (novels / f"book{number}.txt").write_text("".join(f"{make_passage(generator)}\n" for _ in range(150)))
    rows = (" ".join([word, *(f"{generator.gauss(0, 1):.3f}" for _ in range(12))]) for word in _WORDS)
    vectors.write_text("".join(f"{row}\n" for row in rows))
    development.write_text("".join(f"{make_passage(generator).removesuffix('.')}\n" for _ in range(100)))
    config = PrepareConfig(
        out=folder / "corpus",
        novels=[novels],
        evaluation=[development],
        vectors=vectors,
        filters=PassageFilters(context=15),
        ngram=30,  # passages are too similar for a shorter one
        validation=0.25,
        workers=1,
    )
    prepare(config)
    return config.out
