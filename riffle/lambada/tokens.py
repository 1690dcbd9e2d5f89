"""Tokenisation as in the LAMBADA files: Penn Treebank conventions in lower case.

``"Don't," she said.`` becomes `````` do n't , '' she said .``. A *chunk* is the text between two blanks; its tokens
depend on nothing outside it, so they can be cached.
"""

from __future__ import annotations

import re


def word_set(words: str) -> frozenset[str]:
    """The words of a text, once each."""
    return frozenset(words.split())


BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
ABBREVIATIONS = word_set(
    "mr mrs ms messrs mme mlle dr prof rev hon gen col lt capt sgt cpl maj adm gov sen rep st jr sr esq "
    "co corp inc ltd vs etc alex wm jos"
)
"""Words that keep their full stop, as single letters do: ``a.m.``, ``j.``"""
_PAIRS = ("can not", "gon na", "wan na", "got ta", "gim me", "lem me", "'t is", "'t was")
CONTRACTIONS = {pair.replace(" ", ""): tuple(pair.split()) for pair in _PAIRS}
"""Words that the Penn Treebank splits in two, such as ``cannot``."""
ELISIONS = word_set("'em 'cause 'n 'bout 'til 'round 'tis 'twas 't 's 'm 'd 're 'll 've")
"""Words that begin with an apostrophe, which would otherwise open a quotation."""
# Curly quotation marks, dashes and the ellipsis in ASCII; byte order marks and soft hyphens are removed.
_TO_ASCII = str.maketrans(
    {"\u201c": "``", "\u201e": "``", "\u201d": "''", "\u2018": "`", "\u2019": "'"}
    | {"\u2014": "--", "\u2013": "--", "\u2026": "...", "\ufeff": "", "\xad": ""}
)
_PIECE = re.compile(
    r"""(?P<word>[^\W_]+(?:(?:['.&/-]|\.-|(?<=\d)[,:](?=\d))[^\W_]+)*)
    |(?P<quote>``|''|["`'])
    |-{2,}|\.{2,3}|[?!]+|\*+|_+|~+|\S""",
    re.VERBOSE,
)
_INITIALS = re.compile(r"[^\W\d_](?:\.[^\W\d_])*")
_SUFFIX = re.compile(r"(?<=\w)(n't|'(?:s|m|d|re|ll|ve))$")
_APOSTROPHE_WORD = re.compile(r"'[^\W\d_]+")
_OPENERS = frozenset({"``", "`", "-lrb-", "-lsb-", "-lcb-"})


def tokenise(text: str) -> list[str]:
    """The tokens of a text, in lower case.

    >>> " ".join(tokenise('"I can\\'t," said Mr. O\\'Hara (aged 24)--twice.'))
    "`` i ca n't , '' said mr. o'hara -lrb- aged 24 -rrb- -- twice ."
    """
    return [token for chunk in join_ellipses(text).split() for token in tokenise_chunk(chunk)]


def join_ellipses(text: str) -> str:
    """The text with ``...`` for ``. . .``, the only mark that is written across blanks."""
    return text.replace(". . .", "...")


def tokenise_chunk(chunk: str) -> list[str]:
    """The tokens of the characters between two blanks."""
    if chunk.isalpha() and chunk.isascii():
        lower = chunk.lower()
        return list(CONTRACTIONS.get(lower, (lower,)))
    chunk = chunk.translate(_TO_ASCII).lower()
    if chunk in BRACKETS.values():
        return [chunk]  # already tokenised
    if "_" in chunk and chunk.strip("_"):
        chunk = chunk.replace("_", "")  # italics in plain-text novels
    if chunk in ("''", '"', "'"):
        return ["'" if chunk == "'" else "''"]  # a quotation mark between blanks usually closes
    tokens: list[str] = []
    at, end = 0, len(chunk)
    while at < end:
        at_front = all(token in _OPENERS for token in tokens)
        elision = _APOSTROPHE_WORD.match(chunk, at) if chunk[at] == "'" else None
        if elision and elision.group() in ELISIONS and (at_front or elision.end() == end):
            tokens.extend(CONTRACTIONS.get(elision.group(), (elision.group(),)))
            at = elision.end()
            continue
        piece = _PIECE.match(chunk, at)
        assert piece is not None, f"no piece of {chunk!r} begins at {at}"
        value, at = piece.group(), piece.end()
        if piece.lastgroup == "word":
            full_stop = chunk[at : at + 1] == "." and chunk[at : at + 2] != ".."
            if full_stop and (value in ABBREVIATIONS or _INITIALS.fullmatch(value)):
                value, at = value + ".", at + 1
            tokens.extend(_split_suffixes(value))
        elif piece.lastgroup == "quote":
            tokens.append(_directed_quote(value, chunk, piece.start(), at_front))
        else:
            tokens.append(BRACKETS.get(value, value))
    return tokens


def is_word(token: str) -> bool:
    """Whether a token is a word or a number and not punctuation: it has a letter or a digit."""
    return any(map(str.isalnum, token))


def _split_suffixes(word: str) -> list[str]:
    """``wouldn't've`` as ``would n't 've``."""
    suffixes: list[str] = []
    while match := _SUFFIX.search(word):
        word = word[: match.start()]
        suffixes.insert(0, match.group())
    return [*CONTRACTIONS.get(word, (word,)), *suffixes]


def _directed_quote(mark: str, chunk: str, start: int, at_front: bool) -> str:
    """A quotation mark as opening or closing: it opens at the front of a chunk, or between a dash and a word."""
    if mark in ("``", "''", "`"):
        return mark
    after = chunk[start + 1 : start + 2]
    opens = at_front or (chunk[start - 1] in "-*/" and after.isalnum())
    if mark == '"':
        return "``" if opens else "''"
    return "`" if opens else "'"
