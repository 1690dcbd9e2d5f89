"""Tokens as LAMBADA writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riffle.lambada.tokens import tokenise, tokenise_chunk

WRITTEN = {
    '"Don\'t," she said.': "`` do n't , '' she said .",
    "\u201cYou\u2019re late\u2014again!\u201d he said\u2026": "`` you 're late -- again ! '' he said ...",
    "'Hello,' he said. 'It's I.'": "` hello , ' he said . ` it 's i. '",
    "I cannot; I'm gonna wanna go.": "i can not ; i 'm gon na wan na go .",
    "Mr. and Mrs. O'Hara (of St. John's) paid $5.50 at 9:00 p.m.": (
        "mr. and mrs. o'hara -lrb- of st. john 's -rrb- paid $ 5.50 at 9:00 p.m."
    ),
    "He saw 24,000 well-known men--all of 'em.": "he saw 24,000 well-known men -- all of 'em .",
    "She wouldn't've come, 'tis true. . . . Ten o'clock": "she would n't 've come , 't is true ... . ten o'clock",
    "the dogs' dinner": "the dogs ' dinner",
    "_Never_, he thought; never?!": "never , he thought ; never ?!",
    'so--"Well," he said': "so -- `` well , '' he said",
    '"\'Twas nothing," I said': "`` 't was nothing , '' i said",
    "what are you- [sic]": "what are you - -lsb- sic -rsb-",
    "* * * ***": "* * * ***",
}


@pytest.mark.parametrize("text", WRITTEN)
def test_text_is_cut_as_the_treebank_does(text: str) -> None:
    assert " ".join(tokenise(text)) == WRITTEN[text]


@pytest.mark.parametrize("tokens", WRITTEN.values())
def test_tokens_are_left_alone(tokens: str) -> None:
    assert tokenise(tokens) == tokens.split()


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_no_text_is_too_odd(text: str) -> None:
    tokens = tokenise(text)
    assert all(token and not any(char.isspace() for char in token) for token in tokens)
    assert [token for chunk in text.replace(". . .", "...").split() for token in tokenise_chunk(chunk)] == tokens
