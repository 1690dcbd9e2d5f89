"""Words that hold a sentence together; LAMBADA hardly ever asks for one."""

from __future__ import annotations

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
