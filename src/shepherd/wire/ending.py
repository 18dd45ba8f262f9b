"""Why an answer ended, in the words of every protocol and of the gateways between them.

    "MAX_TOKENS"  "max-tokens"  "FinishReason.MAX_TOKENS"  {"type": "length"} ─ ending_of ─▶ "length"

Gateways pass the word of the model's own provider on, so that any word may come in any protocol. A word that is not
in the table does not mean a whole answer: a decoder counts it as one that was cut off, and logs it.
"""

from __future__ import annotations

from typing import Any, Literal

from shepherd.core import StopReason

Ending = StopReason | Literal["failed", "unreadable"]
"""`failed`: the provider has failed, and the answer is an error. `unreadable`: the model has written what the provider
cannot read, such as a call that is no JSON; another attempt may do better."""

_WORDS: dict[Ending, str] = {
    "end": "stop end eos eostoken endturn pauseturn compaction complete completed done finish finished normal success"
    " endofturn endoftext load unload",
    "stop": "stopsequence stopstring stopword stopcriteria",
    "tool_calls": "toolcalls toolcall tooluse functioncall functioncalls",
    "length": "length maxtokens maxoutputtokens maxlength modellength tokenlimit limit truncated incomplete"
    " modelcontextwindowexceeded contextlengthexceeded contextlength maxcompletiontokens maxnewtokens notfinished"
    " timelimit repetition abort aborted cancel cancelled canceled usercancel",
    "filtered": "contentfilter contentfiltered safety recitation language blocklist prohibitedcontent spii refusal"
    " imagesafety imageprohibitedcontent imagerecitation imageother noimage guardrailintervened sensitive blocked"
    " modelarmor errortoxic outputsensitive inputsensitive moderation",
    "failed": "error failed insufficientsystemresource networkerror timeout errorlimit internalerror overloaded",
    "unreadable": "malformedfunctioncall malformedresponse malformedtooluse malformedmodeloutput unexpectedtoolcall"
    " toomanytoolcalls missingthoughtsignature",
}
"""Small letters only, as `_folded` leaves them."""
_ENDINGS = {word: ending for ending, words in _WORDS.items() for word in words.split()}
LONGEST_WORD = 80
"""Characters of a word that are read and logged."""


def word_of(value: Any) -> str:
    """The reason in a record: a text, an object with a type (SGLang), a number; empty where there is none."""
    if isinstance(value, dict):
        value = value.get("type")
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    word = str(value)[:LONGEST_WORD] if isinstance(value, str) else f"{value:.9g}"
    return "" if word.strip().lower() in ("", "null", "none") else word


def ending_of(word: str) -> Ending | None:
    """What a word means; None for one that is not known."""
    return _ENDINGS.get(_folded(word))


def _folded(word: str) -> str:
    """The letters and digits of a word in lower case, without the name of its type: `FinishReason.MAX_TOKENS`."""
    return "".join(filter(str.isalnum, word.rpartition(".")[2].lower()))
