"""Words and marks as the LAMBADA files write them: the conventions of the Penn Treebank, in lower case.

``"Don't," she said.`` becomes `````` do n't , '' she said .``. Everything is decided inside a *chunk*, the characters
between two blanks, so a chunk that was cut once need not be cut again; novels repeat nearly all of theirs.

Words that hold a sentence together; LAMBADA hardly ever asks for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_ABBREVIATIONS = (
    "mr mrs ms messrs mme mlle dr prof rev hon gen col lt capt sgt cpl maj adm gov sen rep st jr sr esq "
    "co corp inc ltd vs etc alex wm jos"
)
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
"""Words that keep their full stop. A full stop after a single letter stays with it as well: ``a.m.``, ``j.``"""
TWO_WORDS = {
    "cannot": ("can", "not"),
    "gonna": ("gon", "na"),
    "wanna": ("wan", "na"),
    "gotta": ("got", "ta"),
    "gimme": ("gim", "me"),
    "lemme": ("lem", "me"),
    "'tis": ("'t", "is"),
    "'twas": ("'t", "was"),
}
_ELISIONS = "'em 'cause 'n 'bout 'til 'round 'tis 'twas 't 's 'm 'd 're 'll 've"
ELISIONS = frozenset(_ELISIONS.split())
"""Words that begin with an apostrophe, which would otherwise open a quotation."""
# Curly quotation marks, dashes, the ellipsis; a byte order mark and soft hyphens are nothing.
_CURLY = str.maketrans(
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
    return [token for chunk in unify(text).split() for token in cut(chunk)]


def unify(text: str) -> str:
    """The text with one way of writing an ellipsis, the only mark that is written across blanks."""
    return text.replace(". . .", "...")


def cut(chunk: str) -> list[str]:
    """The tokens of the characters between two blanks."""
    if chunk.isalpha() and chunk.isascii():
        lower = chunk.lower()
        return list(TWO_WORDS.get(lower, (lower,)))
    chunk = chunk.translate(_CURLY).lower()
    if chunk in BRACKETS.values():
        return [chunk]  # the text was tokenised before
    if "_" in chunk and chunk.strip("_"):
        chunk = chunk.replace("_", "")  # italics in plain-text novels
    if chunk in ("''", '"', "'"):
        return ["'" if chunk == "'" else "''"]  # with nothing beside it, a mark more often closes
    return _pieces(chunk)


def is_word(token: str) -> bool:
    """Whether a token is a word or a number, not punctuation: it has a letter or a digit."""
    return any(map(str.isalnum, token))


def detokenise(tokens: Iterable[str]) -> str:
    """A text a person would read; :func:`tokenise` takes it back to the tokens, but for rare marks.

    >>> detokenise("`` do n't , '' he said -lrb- twice -rrb- .".split())
    '"don\\'t," he said (twice).'
    """
    plain = {mark: bracket for bracket, mark in BRACKETS.items()} | {"``": '"', "''": '"', "`": "'"}
    halves = {(first, second): word for word, (first, second) in TWO_WORDS.items()}
    text, before = "", ""
    for token in tokens:
        attached = (
            not text
            or before in _OPENERS
            or before in ("$", "#")
            or token in ("''", "'", "-rrb-", "-rsb-", "-rcb-", ",", ".", "?", "!", ";", ":", "%", "...", "?!", "!?")
            or bool(re.fullmatch(r"n't|'(?:s|m|d|re|ll|ve)", token))
            or (before, token) in halves
        )
        text += ("" if attached else " ") + plain.get(token, token)
        before = token
    return text


def _pieces(chunk: str) -> list[str]:
    tokens: list[str] = []
    at, end = 0, len(chunk)
    while at < end:
        fresh = all(token in _OPENERS for token in tokens)
        apostrophe = _APOSTROPHE_WORD.match(chunk, at) if chunk[at] == "'" else None
        if apostrophe and apostrophe.group() in ELISIONS and (fresh or apostrophe.end() == end):
            tokens.extend(TWO_WORDS.get(apostrophe.group(), (apostrophe.group(),)))
            at = apostrophe.end()
            continue
        piece = _PIECE.match(chunk, at)
        assert piece is not None, f"no piece of {chunk!r} begins at {at}"
        value, at = piece.group(), piece.end()
        if piece.lastgroup == "word":
            stop = chunk[at : at + 1] == "." and chunk[at : at + 2] != ".."
            if stop and (value in ABBREVIATIONS or _INITIALS.fullmatch(value)):
                value, at = value + ".", at + 1
            tokens.extend(_words(value))
        elif piece.lastgroup == "quote":
            tokens.append(_quote(value, chunk, piece.start(), fresh))
        else:
            tokens.append(BRACKETS.get(value, value))
    return tokens


def _words(word: str) -> list[str]:
    """``wouldn't've`` as ``would n't 've``."""
    suffixes: list[str] = []
    while found := _SUFFIX.search(word):
        word = word[: found.start()]
        suffixes.insert(0, found.group())
    return [*TWO_WORDS.get(word, (word,)), *suffixes]


def _quote(mark: str, chunk: str, start: int, fresh: bool) -> str:
    """Which way a quotation mark faces: it opens at the front of a chunk, or after a dash when a word follows."""
    if mark in ("``", "''", "`"):
        return mark
    after = chunk[start + 1 : start + 2]
    opens = fresh or (chunk[start - 1] in "-*/" and after.isalnum())
    if mark == '"':
        return "``" if opens else "''"
    return "`" if opens else "'"


_LIST = """
a an the this that these those some any no every each either neither both all half such another other others one
ones none much many more most few fewer little less least several enough same own
i you he she it we they me him her us them my your his its our their mine yours hers ours theirs
myself yourself himself herself itself ourselves yourselves themselves thee thou thy thine ye
who whom whose which what whoever whatever whichever somebody someone something anybody anyone anything nobody
nothing everybody everyone everything
and or but nor so yet for if unless because since although though while whereas whether than as lest
of in to on at by with from into onto upon over under above below between among amid through throughout across
along around round about against toward towards behind before after beyond beside besides near off out up down
away back without within during until till despite except per via like unlike
be am is are was were been being have has had having do does did doing done can could will would shall should may
might must ought need dare ca wo sha
not n't never ever always often sometimes just only even also too very quite rather really almost already still
again once twice here there where when why how now then thus hence therefore however perhaps maybe indeed else
instead together apart anyway yes oh ah well ha eh
's 'm 'd 're 'll 've 't na ta
"""
FUNCTION_WORDS = frozenset(_LIST.split())
