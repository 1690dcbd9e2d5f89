"""Tokenisation as in the LAMBADA files: Penn Treebank conventions in lower case.

``"Don't," she said.`` becomes `````` do n't , '' she said .``. A *chunk* is the text between two blanks; its tokens
depend on nothing outside it, so they can be cached.
"""

from __future__ import annotations

import re


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
ABBREVIATIONS = _word_set(
    "mr mrs ms messrs mme mlle dr prof rev hon gen col lt capt sgt cpl maj adm gov sen rep st jr sr esq "
    "co corp inc ltd vs etc alex wm jos"
)
"""Words that keep their full stop, as single letters do: ``a.m.``, ``j.``"""
_PAIRS = ("can not", "gon na", "wan na", "got ta", "gim me", "lem me", "'t is", "'t was")
CONTRACTIONS = {pair.replace(" ", ""): tuple(pair.split()) for pair in _PAIRS}
"""Words that the Penn Treebank splits in two, such as ``cannot``."""
ELISIONS = _word_set("'em 'cause 'n 'bout 'til 'round 'tis 'twas 't 's 'm 'd 're 'll 've")
"""Words that begin with an apostrophe, which would otherwise open a quotation."""
END_MARKS = frozenset({".", "?", "!", "...", "?!", "!?", "!!", "??", "!!!", "???"})
CLOSING_MARKS = frozenset({"''", "'", "-rrb-", "-rsb-", "-rcb-"})
"""Closing quotation marks and brackets, which belong to the sentence before them."""
FUNCTION_WORDS = _word_set("""
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
""")
"""Words of grammar rather than content; they are hardly ever the answer of a LAMBADA passage."""
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
