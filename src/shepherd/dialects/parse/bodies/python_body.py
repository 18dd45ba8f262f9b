"""Calls as Python spells them, `[fn(a=1, b="x"), pkg.fn()]`: to JSON.

Nothing is compiled or run. Values are literals and become JSON by their own characters, so that integers of any length
and 1.10 survive. A value that is no literal, such as a name or `1 + 1`, is a fault; so is an argument without a name.

    '…' "…" '''…'''  with any prefix, raw line breaks and unknown escapes allowed   string
    1_000 0x1F .5 5. +7 007                                                        number
    True true None null                                                            JSON's word
    [] () {1, 2}  {"k": 1}                                                         array, object

Models forget to escape quotes, for some templates show them strings without escapes. A text that cannot be read is read
again; then a quote ends a string only if the call continues behind it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from functools import partial
from typing import Literal

from shepherd.dialects.parse.bodies.literal_body import LiteralBody, LiteralReader, Notation
from shepherd.dialects.parse.bodies.machine import HandingOver
from shepherd.dialects.parse.call import (
    Calls,
    Found,
    Unreadable,
    json_string,
    n_found,
    read_arguments,
    read_calls,
    sliced,
)
from shepherd.dialects.parse.markup import MakeBody, Opening
from shepherd.dialects.parse.values import json_object, json_text

Quoting = Literal["python", "backslashes", "quotes"]
"""What ends a string. `python`: a quote, as in Python. `backslashes`: a quote behind which the call continues, even an
escaped one (paths end in backslashes). `quotes`: the same without escaped ones."""

NAME = r"""[^\s()\[\]{},;:='"`<>+*#]+"""
HEAD = re.compile(rf"(?:print\s*\(\s*(?={NAME}\s*\()|await\s+|[^\W\d]\w*\s*=\s*)*({NAME})\s*\(")
FIRST_HEAD = re.compile(rf"\s*\[?\s*{HEAD.pattern}")
HEAD_BEGUN = re.compile(r"""[^)\]{}"'`,;:#+*<>]*""")
LONGEST_HEAD = 256
"""So many characters are held back at most to read the name of a call."""
NAMED = re.compile(rf"({NAME})\s*(?=\{{)")
KEY = re.compile(r"""(?:([^\s()\[\]{},;:='"]+(?:[ \t]+[^\s()\[\]{},;:='"]+)*)|"([^"\\]*)"|'([^'\\]*)')\s*[=:](?!=)""")
MEMBER = re.compile(r"([^\W\d][\w-]*)\s*:")
UNPACKED = re.compile(r"\*\*\s*(?=\{)")
QUOTE = re.compile(r"([rbuf]{0,2})('''|\"\"\"|'|\")", re.IGNORECASE)
NUMBER = re.compile(
    r"(?=[+-]?\.?\d)([+-]?)(?:(0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+)"
    r"|((?:\d(?:_?\d)*)?)(\.?)((?:\d(?:_?\d)*)?)((?:[eE][+-]?\d(?:_?\d)*)?))(?![\w.])"
)
WORD = re.compile(r"[^\W\d]\w*(?:\(\s*\))?(?![\w(.])")
WORDS = {"true": "true", "false": "false", "none": "null", "null": "null"}
EMPTY = {"set": "[]", "list": "[]", "tuple": "[]", "dict": "{}"}
CLOSERS = {"[": "]", "(": ")"}
ESCAPE = re.compile(
    r"\\(?:(\n)|([\\'\"abfnrtv])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(00[01][0-9a-fA-F]{5})|([0-7]{1,3})|N\{([^}]+)\})"
)
ESCAPED = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
OPERATORS = frozenset("+-*/%.&|<>@")
ANOTHER = rf"""(?:{NAME}|"[^"\\]*"|'[^'\\]*')\s*=(?!=)"""
CALL_CONTINUES = re.compile(
    rf"\s*(?:,\s*(?:$|\)|\*\*|{ANOTHER})|\)\s*(?:$|[\])]\s*(?:$|[,;\])])|[,;]?\s*{NAME}\s*\(|[,;]\s*$))"
)
"""Behind a string that is an argument: the next argument, or the end of the call."""
ITEMS_CONTINUE = re.compile(r"\s*(?:[,:\]})]|$)")
"""Behind a string within a list or a dict."""


def read_python_calls(text: str, *, whole: bool = True) -> Calls:
    """The calls in `text`: a list of them, or some side by side; JSON is read, too. Never empty, never raises.

    Names keep their dots. `whole` is false when the output ended inside of the text: complete calls count, the last one
    is a fault.
    """
    text = text.strip()
    if re.match(r"\[?\s*\{", text):
        return read_calls(text, whole=whole)
    if named := NAMED.match(text):
        return read_arguments(named[1], text[named.end() :], whole=whole)
    reader = PythonReader(text, "python")
    calls = reader.calls(whole)
    if n_found(calls) < len(calls) and reader.failed not in OPERATORS:
        for quoting in ("backslashes", "quotes"):
            others = PythonReader(text, quoting).calls(whole)
            if n_found(others) > n_found(calls):
                calls = others
    return calls


class PythonReader(LiteralReader):
    BLANKS = re.compile(r"(?:\s|#[^\n]*|\\\n)*")
    BETWEEN = re.compile(r"(?:[\s,;()\[\]]|#[^\n]*)*")
    HOW = "write [name(argument=value, ...)] with every argument named and every value a literal"

    def __init__(self, text: str, quoting: Quoting) -> None:
        super().__init__(text)
        self._quoting = quoting
        self.failed = ""
        """The character that could not be read; empty when there was none."""

    def _call(self, whole: bool) -> Found:
        head = self._match(HEAD)
        if head is None:
            raise self._unreadable("a call must stand")
        self._name = head[1]
        return Found(self._name, json_object(self._arguments(whole)))

    def _arguments(self, whole: bool) -> list[tuple[str, str]]:
        """The members up to the closing parenthesis, each with the JSON of its value."""
        members: list[tuple[str, str]] = []
        while not self._take(")"):
            if self._match(UNPACKED):
                members += sliced(self._value(ITEMS_CONTINUE)).items()
            elif key := self._match(KEY):
                members.append((key[1] or key[2] or key[3] or "", self._value(CALL_CONTINUES)))
            else:
                raise self._unreadable("an argument with a name must stand")
            if whole and self._ahead() in ("", "]"):
                break  # only the parenthesis is missing
            self._comma(")")
        return members

    def _value(self, continuation: re.Pattern[str]) -> str:
        """The JSON of a literal. `continuation` is what may follow a string."""
        opener = self._ahead()
        if opener in CLOSERS:
            return self._sequence(opener)
        if opener == "{":
            return self._braces()
        if QUOTE.match(self._text, self._at):
            return json_text(self._strings(continuation))
        if number := self._match(NUMBER):
            return json_number(number)
        word = WORD.match(self._text, self._at)
        name = word[0].partition("(")[0] if word else ""
        value = (WORDS.get(name.lower()) if word and name == word[0] else EMPTY.get(name)) or ""
        if not word or not value:
            raise self._unreadable("a literal must stand")
        self._at = word.end()
        return value

    def _sequence(self, opener: str) -> str:
        self._take(opener)
        items: list[str] = []
        comma = ""
        while not self._take(CLOSERS[opener]):
            items.append(self._value(ITEMS_CONTINUE))
            comma = self._comma(CLOSERS[opener])
        if opener == "(" and len(items) == 1 and not comma:
            return items[0]
        return f"[{', '.join(items)}]"

    def _braces(self) -> str:
        self._take("{")
        items: list[str] = []
        members: list[tuple[str, str]] = []
        while not self._take("}"):
            if bare := self._match(MEMBER):
                members.append((WORDS.get(bare[1].lower(), bare[1]), self._value(ITEMS_CONTINUE)))
            else:
                value = self._value(ITEMS_CONTINUE)
                if self._take(":"):
                    members.append((json_string(value) or value.strip('"'), self._value(ITEMS_CONTINUE)))
                else:
                    items.append(value)
            self._comma("}")
        if items and members:
            raise self._unreadable("neither a set nor a dict may end")
        return f"[{', '.join(items)}]" if items else json_object(members)

    def _strings(self, continuation: re.Pattern[str]) -> str:
        characters: list[str] = []
        while opening := self._match(QUOTE):
            prefix, quote = opening[1].lower(), opening[2]
            stop = self._string_end(quote, continuation)
            inside = self._text[self._at : stop]
            self._at = stop + len(quote)
            if "f" in prefix and "{" in inside:
                raise self._unreadable("a string without placeholders must stand")
            characters.append(inside if "r" in prefix else unescaped(inside))
        # Python spells an emoji of two escapes as two halves; UTF-16 puts them together.
        return "".join(characters).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _string_end(self, quote: str, continuation: re.Pattern[str]) -> int:
        """Where the quote stands that ends the string which begins here."""
        at = self._at
        while (stop := self._text.find(quote, at)) >= 0:
            at = stop + 1
            if self._quoting != "backslashes" and is_escaped(self._text, stop, self._at):
                continue
            after = stop + len(quote)
            if self._text.startswith(quote[2:] or "\0", after):
                continue  # a string in triple quotes ends with the last three of them
            if self._quoting == "python" or continuation.match(self._text, after):
                return stop
        self._at = len(self._text)
        raise self._unreadable("the end of a string must stand")

    def _unreadable(self, reason: str) -> Unreadable:
        self.failed = self._ahead()
        return super()._unreadable(reason)


def json_number(number: re.Match[str]) -> str:
    sign = number[1].replace("+", "")
    if number[2]:
        return sign + str(int(number[2], 0))
    whole, rest, exponent = (number[group].replace("_", "") for group in (3, 5, 6))
    return sign + (whole.lstrip("0") or "0") + (f".{rest or 0}" if number[4] else "") + exponent


def unescaped(text: str) -> str:
    """The characters that the inside of a string literal spells; unknown escapes spell themselves."""
    return ESCAPE.sub(character, text) if "\\" in text else text


def character(escape: re.Match[str]) -> str:
    newline, plain, *codes, octal, name = escape.groups()
    if newline or plain:
        return ESCAPED.get(plain, plain or "")
    if name:
        try:
            return unicodedata.lookup(name)
        except KeyError:
            return escape[0]
    code = int(octal, 8) if octal else int(next(filter(None, codes)), 16)
    return chr(code) if code <= 0x10FFFF else escape[0]


def is_escaped(text: str, at: int, start: int) -> bool:
    """Whether an odd number of backslashes stands before `at`, in a string that begins at `start`."""
    before = at
    while before > start and text[before - 1] == "\\":
        before -= 1
    return (at - before) % 2 == 1


QUOTES = ("'''", '"""', "'", '"')
PYTHON = Notation(
    read=lambda text, tools, whole: read_python_calls(text, whole=whole),
    quotes=QUOTES,
    escapes=QUOTES,
    next_call=re.compile(rf"{NAME}\("),
    next_begun=re.compile(NAME),
)
PythonBody: MakeBody = partial(LiteralBody, notation=PYTHON)


class PythonFenceBody(HandingOver):
    """Python calls of declared tools alone, to the block's closer; a block of anything else is text.

    Code that computes is no call: the block is declined at the first character that shows it.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._names = {tool.name for tool in opening.tools}
        self._calls: list[tuple[str, Calls]] = []
        self._step = self._first_head

    def feed(self, text: str, at: int, final: bool) -> int:
        at = super().feed(text, at, final)
        self._calls += super().take_calls()
        named = [self._declared(call.name) for _, calls in self._calls for call in calls]
        if self.ended and not (named and all(named)):
            self.declined = "".join(written for written, _ in self._calls) or self._block.opener
        return at

    def take_calls(self) -> list[tuple[str, Calls]]:
        if not self.ended or self.declined:
            return []
        return [
            (written, tuple(replace(call, name=self._declared(call.name)) for call in calls))
            for written, calls in self._calls
        ]

    def _first_head(self, text: str, at: int, final: bool) -> int:
        begun = text[at : at + LONGEST_HEAD]
        if not final and len(begun) < LONGEST_HEAD and HEAD_BEGUN.fullmatch(begun):
            return at
        head = FIRST_HEAD.match(begun)
        if head and self._declared(head[1]):
            self._hand_over(PythonBody)
        else:
            self.ended = True
        return at

    def _declared(self, name: str) -> str:
        """The declared tool of this name, which may stand in a module; empty when there is none."""
        return next((known for known in (name, name.rpartition(".")[2]) if known in self._names), "")
