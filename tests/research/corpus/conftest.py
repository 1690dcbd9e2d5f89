"""The corpus and the trained reader of the tests of the reader."""

from __future__ import annotations

from lambada.conftest import run, synthetic_corpus, trained

__all__ = ["run", "synthetic_corpus", "trained"]
