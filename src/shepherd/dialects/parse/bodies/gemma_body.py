"""Calls as Gemma spells them, `call:NAME{key:<|"|>text<|"|>,n:1,list:[true,{k:null}]}`: to JSON.

Keys are bare. Strings stand between quotes of their own, so nothing in them is escaped. Models write Python's or JSON's
quotes instead, write `(key=value)` for `{key:value}`, put a namespace before the name, and leave out the quote before a
string, behind it, or both. They write quotation marks inside a string with the quote, too, as in
`a:<|"|>say <|"|>hi<|"|><|"|>`. A text that cannot be read strictly is read again: then a quote ends a string only if
the call continues behind it (with a comma and a key, or with the brackets that are open), any other quote is a
quotation mark, and a missing quote is put where the next key or the end shows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, partial
from typing import Literal

from shepherd.core import ToolSpec
from shepherd.dialects.parse.bodies.json_text import after_blanks
from shepherd.dialects.parse.bodies.literal_body import LiteralReader, Notation
from shepherd.dialects.parse.bodies.python_body import unescaped
from shepherd.dialects.parse.call import Calls, Found, n_found, read_calls
from shepherd.dialects.parse.values import ANY, argument, find_tool, json_object, json_text, names, value_of

QUOTE = '<|"|>'
NEXT_CALL = re.compile(r"call\s*:")
NEXT_BEGUN = re.compile(r"c(?:a(?:ll?\s*)?)?")
HEAD = re.compile(r"""(?:call\s*:\s*)?([^\s(){}\[\]<>"',;=]+)\s*([({])""")
NAMELESS = re.compile(r"""(?:call\s*:\s*)?([^\s(){}\[\]<>"',;=]*)""")
CLOSERS = {"{": "}", "(": ")", "[": "]"}
QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')(?=\s*(?:[,:=})\]]|\Z))""", re.DOTALL)
KEY = r"""[^\s:=,{}()\[\]"'<>]+"""
BARE_KEY = re.compile(rf"({KEY}(?:[ \t]+{KEY}){{0,8}})\s*[:=]")
LITERAL = re.compile(r"(?:-?\d[\d.eE+-]*|[Tt]rue|[Ff]alse|[Nn]one|null)(?=\s*(?:[,})\]]|\Z))")
BARE_ITEM = re.compile(r"[^{}\[\](),<]*")
LAST_COMMA = re.compile(r",\s*(?:[})]|\Z)")
END = re.compile(r"[\s,;})\]]*(?:call\s*:|\Z)")
"""Behind the brackets of a call."""

Way = Literal["strict", "declared", "repaired"]
WAYS: tuple[Way, ...] = ("strict", "declared", "repaired")
"""How a text is read, until all its calls can be: as it stands; with strings that end before declared parameters only;
with strings that end before any key, and with missing quotes put where they belong."""


class Quote:
    def __init__(self, quote: str) -> None:
        self.text = quote
        mark = re.escape(quote)
        another = rf""",\s*(?:({KEY})|"([^"]{{0,64}})"|'([^']{{0,64}})'|{mark}([\s\S]{{0,64}}?){mark})\s*[:=]"""
        unnamed = re.sub(r"\((?=[^?])", "(?:", another)
        ends = r"[,})\]]"
        self.meaning = '"' if '"' in quote else quote
        """What the quote stands for inside of a string."""
        self.key = re.compile(rf"{mark}(.*?){mark}\s*[:=]", re.DOTALL)
        self.bare_member = re.compile(rf"(?:[^{{}}\[\]()<,]|(?!{unnamed}|,\s*(?:{ends}|\Z)),)*")
        self.unopened_member = re.compile(rf"((?:[^<,]|(?!{unnamed}),)*){mark}(?=\s*(?:{ends}|\Z))")
        """A string that lacks the first of its two quotes."""
        self.unopened_item = re.compile(rf"([^<,\]]*){mark}(?=\s*(?:[,\]]|\Z))")
        self.another = re.compile(another)
        """The next member: a comma, and its key in one of the groups."""
        self.next_item = re.compile(rf""",\s*(?:{mark}|["'\[{{\]]|{LITERAL.pattern}|\Z)""")
        self.unclosed = re.compile(rf",\s*({KEY})\s*[:=]\s*{mark}")
        """What follows a string that lacks the second of its two quotes."""


quote_of = cache(Quote)


def read_gemma_calls(text: str, tools: Sequence[ToolSpec] = (), whole: bool = True, *, quote: str = QUOTE) -> Calls:
    """The calls in `text`; JSON is read, too. Never empty, never raises.

    A name loses its namespace if only the bare name is declared. `whole` is false when the output ended inside of the
    text: complete calls count, the last one is a fault.
    """
    text = text.strip()
    if re.match(r"\[?\s*\{", text):
        return read_calls(text, tools=tools, whole=whole)
    strict: Calls = ()
    for way in WAYS if whole else WAYS[:1]:
        calls = GemmaReader(text, tools, quote, way).calls(whole)
        if n_found(calls) == len(calls):
            return calls
        strict = strict or calls
    return strict


class GemmaReader(LiteralReader):
    """Reads one text in one of the `WAYS`."""

    BLANKS = re.compile(r"\s*")
    BETWEEN = re.compile(r"[\s,;})\[\]]*")
    HOW = f"write call:NAME{{key:{QUOTE}text{QUOTE},other:1}}"

    def __init__(self, text: str, tools: Sequence[ToolSpec], quote: str, way: Way) -> None:
        super().__init__(text)
        self._tools = tools
        self._quote = quote_of(quote)
        self._way = way
        self._tool: ToolSpec | None = None
        self._open: list[str] = []  # brackets

    def _call(self, whole: bool) -> Found:
        head = HEAD.match(self._text, self._at) or NAMELESS.match(self._text, self._at)
        assert head is not None
        self._at = head.end()
        self._name = name = self._named(head[1])
        self._tool = find_tool(self._tools, name)
        opener = head[2] if head.re is HEAD else ""
        if not opener and (not name or not whole or self._ahead()):
            raise self._unreadable("the arguments must stand")
        return Found(name, json_object(self._members(opener, top=True) if opener else []))

    def _named(self, written: str) -> str:
        """The tool of this name, which may have a namespace before it."""
        own = written.rpartition(":")[2]
        return own if find_tool(self._tools, written) is None and find_tool(self._tools, own) else written.strip(":")

    def _members(self, opener: str, *, top: bool = False) -> list[tuple[str, str]]:
        """The members up to the bracket that closes, each with the JSON of its value."""
        members: list[tuple[str, str]] = []
        self._open.append(opener)
        while not self._take(CLOSERS[opener]):
            key = self._key()
            members.append((key, self._value(key if top else None)))
            self._comma(CLOSERS[opener])
        self._open.pop()
        return members

    def _items(self) -> list[str]:
        items: list[str] = []
        self._open.append("[")
        while not self._take("]"):
            items.append(self._value(None, item=True))
            self._comma("]")
        self._open.pop()
        return items

    def _key(self) -> str:
        self._ahead()
        if bare := self._match(BARE_KEY):
            return bare[1]
        if own := self._match(self._quote.key):
            return own[1]
        quoted = self._match(QUOTED)
        if quoted is None or not (self._take(":") or self._take("=")):
            raise self._unreadable("a key must stand")
        return unescaped(quoted[1][1:-1])

    def _value(self, key: str | None, *, item: bool = False) -> str:
        """The JSON of a value; `key` names the parameter that it is, if it is one."""
        first = self._ahead()
        if self._text.startswith(self._quote.text, self._at):
            return json_text(self._string(item))
        if first and first in "{[":
            self._at += 1
            return f"[{', '.join(self._items())}]" if first == "[" else json_object(self._members("{"))
        if quoted := self._match(QUOTED):
            return json_text(unescaped(quoted[1][1:-1]))
        bare = None if self._way == "repaired" else LITERAL.match(self._text, self._at)
        unopened = None if bare else self._match(self._quote.unopened_item if item else self._quote.unopened_member)
        if unopened:
            return json_text(unopened[1])
        bare = bare or (BARE_ITEM if item else self._quote.bare_member).match(self._text, self._at)
        if bare is None or not bare[0].strip():
            raise self._unreadable("a value must stand")
        self._at = bare.end()
        written = bare[0].strip()
        return argument(self._tool, key, written) if key is not None else value_of(written, ANY)

    def _string(self, item: bool) -> str:
        begun = self._at + len(self._quote.text)
        stop = self._text.find(self._quote.text, begun) if self._way == "strict" else self._find_end(begun)
        if self._way != "strict" and not item:
            last = stop if stop >= 0 else len(self._text)
            unclosed = self._quote.unclosed.finditer(self._text, begun, last)
            early = next((found.start() for found in unclosed if self._is_key(found, len(self._open) - 1)), -1)
            if early < 0 and stop < 0 and self._way == "repaired":
                early = self._end(begun)
            if early >= 0:
                self._at = early
                return self._said(begun, early)
        if stop < 0:
            self._at = len(self._text)
            raise self._unreadable("the end of a string must stand")
        self._at = stop + len(self._quote.text)
        return self._said(begun, stop)

    def _said(self, begun: int, stop: int) -> str:
        return self._text[begun:stop].replace(self._quote.text, self._quote.meaning)

    def _find_end(self, begun: int) -> int:
        """The first quote behind which the call continues; negative when there is none."""
        at = self._text.find(self._quote.text, begun)
        while at >= 0 and not self._continues(at + len(self._quote.text)):
            at = self._text.find(self._quote.text, at + 1)
        return at

    def _continues(self, at: int) -> bool:
        """Whether the rest is the next member or item of what is open, or its end and the same of what is around it."""
        for depth in reversed(range(len(self._open))):
            at = after_blanks(self._text, at)
            if at == len(self._text):
                return True
            if self._text[at] == ",":
                if self._open[depth] == "[":
                    return self._quote.next_item.match(self._text, at) is not None
                another = self._quote.another.match(self._text, at)
                return self._is_key(another, depth) if another else LAST_COMMA.match(self._text, at) is not None
            if self._text[at] != CLOSERS[self._open[depth]]:
                return False
            at += 1
        return END.match(self._text, at) is not None

    def _is_key(self, found: re.Match[str], depth: int) -> bool:
        """Whether the key in one of the groups may be a key there: of the arguments, only declared ones at first."""
        declared = names(self._tool) if self._way == "declared" and not depth else ()
        return not declared or next(filter(None, found.groups()), "").strip() in declared

    def _end(self, begun: int) -> int:
        """Where the brackets stand that close everything at the end of the text; negative when they do not."""
        closing = re.compile(rf"(?:\s*[}}\])]){{{len(self._open)}}}\Z").search(self._text, begun)
        inside = self._text[begun : closing.start()] if closing else ""
        return closing.start() if closing and inside.count("{") == inside.count("}") else -1


@cache
def notation(quote: str) -> Notation:
    return Notation(
        read=partial(read_gemma_calls, quote=quote),
        quotes=(quote, '"', "'"),
        escapes=('"', "'"),
        next_call=NEXT_CALL,
        next_begun=NEXT_BEGUN,
    )
