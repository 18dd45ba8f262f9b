"""Headers, for families that head their messages instead of tagging thoughts and calls.

    <|start|>assistant<|channel|>analysis<|message|>   a thought follows
    <|start|>assistant to=functions.f<|message|>       a call follows, read by the body that the header names
    <|start|>assistantHello                            no header after all: text follows, the markup is dropped
    "use <|start|> to begin"                           the text speaks of the marker: it stays

A header is taken in when it is decided, not before, so that every cutting reads the same text. It is decided at the
first character that cannot belong to it, and after `LIMIT` characters at the latest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import NamedTuple

from shepherd.core import ToolSpec
from shepherd.core.dataclasses import dataclass, replace
from shepherd.dialects.parse.call import Calls, Fault, Found, read_arguments
from shepherd.dialects.parse.markup import MAX_BLANKS, Block, Body, MakeBody, Markers, Opening, Thought
from shepherd.dialects.parse.values import find_tool, json_object, json_text, kinds

LIMIT = 160
"""No text between two markers of a header is longer."""
LONGEST = 3 * LIMIT
"""No header is."""
SPOKEN_OF = re.compile(r"[^\w\n?\-\u2013\u2014]")
"""What follows a marker that a text speaks of: a quote, a bracket, a blank. A real marker is followed by a word or the
end of a line, or by the dashes and question marks that models spoil headers with."""
LEAD = re.compile(r"\s*(?:assistant)*")
LEAD_CUT = re.compile(r"\s*(?:(?:assistant)*|a(?:s(?:s(?:i(?:s(?:t(?:an?)?)?)?)?)?)?)\s*")
ROLE = re.compile(r"\s*(user|system|developer|tool|functions)(?![^\W\d_])")
TO = re.compile(r"to=([^\s{<]+)(?:\s+(?:json|code|text)\b)?")
NEW_LINE = re.compile(r"\n\s*(?=\S)")
VISIBLE = re.compile(r"\S")
JSON_STARTS = "{[`"
LETTERS = re.compile(r"[^\W\d_]")


class Header(NamedTuple):
    stop: int
    """Where it ends and what it heads begins."""
    inside: MakeBody | None = None
    """Makes the body that reads the call behind the header; its block's opener is the whole header. `None`: no call
    follows."""
    then: Thought | None = None
    declined: str = ""


ReadHeader = Callable[[str, str, int, bool, Sequence[ToolSpec]], Header | None]
"""`read(opener, text, at, final, tools)`: the header that `opener` begins and whose rest stands in `text` from `at` on;
`None` while it needs more text, never if that is final."""


class HeaderBody:
    """A `Body`: a header and the call that it heads, if it does."""

    # No `HandingOver`: that costs a tenth of the speed of all families with headers.

    def __init__(self, opening: Opening, *, read: ReadHeader) -> None:
        self.ended = self.closed = False
        self.declined = ""
        self.then: Thought | None = None
        self._opening = opening
        self._read = read
        self._inner: Body | None = None  # reads the call

    def feed(self, text: str, at: int, final: bool) -> int:
        inner = self._inner
        if inner is None:
            block, _, tools, _ = opening = self._opening
            head = self._read(block.opener, text, at, final, tools)
            if head is None:
                return at
            if head.inside is None:
                self.ended = self.closed = True
                self.then, self.declined = head.then, head.declined
                return head.stop
            if head.stop > at:
                opening = opening._replace(block=replace(block, opener=block.opener + text[at : head.stop]))
            self._inner = inner = head.inside(opening)
            at = head.stop
        at = inner.feed(text, at, final)
        if inner.ended:
            self.ended, self.closed, self.declined, self.then = True, inner.closed, inner.declined, inner.then
        return at

    def take_calls(self) -> list[tuple[str, Calls]]:
        return self._inner.take_calls() if self._inner else []


@dataclass(frozen=True, slots=True)
class HeaderFields:
    """The words of a header that have a meaning; of several of a kind the last one."""

    role: str = ""
    """Of another than the assistant."""
    channel: str = ""
    to: str = ""
    others: tuple[str, ...] = ()
    """What stands alone behind a mark and is no known channel."""


@dataclass(frozen=True)
class HeaderFormat:
    """How a family writes its headers: `start role (mark words)* message`; models leave out any part of it."""

    start: str
    message: str
    ends: tuple[str, ...]
    """Markers behind what a header heads; another header follows, or nothing."""
    role: re.Pattern[str]
    """Matches as a whole all that may stand between `start` and the next marker, and every beginning of it."""
    about: Callable[[HeaderFields, int, Sequence[ToolSpec]], Header]
    """`about(fields, at, tools)`: the header that has these words and ends at `at`."""
    marks: tuple[str, ...] = ()
    """Markers within headers; the first one stands before a channel."""
    channel: re.Pattern[str] = re.compile(r"(?!)")
    """A known channel as a group, with what models write around it by mistake."""
    no_tools: tuple[str, ...] = ()

    @cached_property
    def markers(self) -> Markers:
        return Markers((self.start, self.message, *self.marks, *self.ends))

    @cached_property
    def nothing(self) -> re.Pattern[str]:
        """Ends of messages, and beginnings without more."""
        return re.compile(rf"(?:\s|{'|'.join(map(re.escape, self.ends))}|{re.escape(self.start)}(?:assistant)?)*")

    def read(self, opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
        return HeaderReader(self, opener, text, final, tools).head(at)


class HeaderReader:
    """Reads a header as far as it has come. One per attempt."""

    def __init__(self, headers: HeaderFormat, opener: str, text: str, final: bool, tools: Sequence[ToolSpec]) -> None:
        self._headers = headers
        self._opener = opener
        self._text = text
        self._final = final
        self._tools = tools
        self._fields = HeaderFields()
        self._end = 0  # of the words behind the last marker that have a meaning

    def head(self, at: int) -> Header | None:
        headers, text = self._headers, self._text
        mark, begin = self._opener, at
        while mark != headers.message:
            stop, following = headers.markers.find(text, at)
            if not following:
                stop -= headers.markers.begun(text, at)
            words = text[at : min(stop, at + LIMIT + 1)]
            is_role, is_first = mark not in headers.marks, at == begin
            stop = self._n_role(words) if is_role else self._n_words(words, first=is_first)
            good, bad = words[:stop], words[stop : stop + 1]
            (self._take_role if is_role else self._take_words)(mark, good)
            if bad and is_first and SPOKEN_OF.match(words):
                return Header(at, declined=mark)
            if bad:
                return self._broken(mark, at, good, bad, first=is_first)
            if not following:
                return self._cut(mark, at, good, first=is_first) if self._final else None
            if following in (headers.start, *headers.ends):
                return self._abandoned(mark, at, good, first=is_first)
            mark, at = following, at + len(good) + len(following)
            if at - begin > LONGEST:
                break
        return self._about(at)

    def _about(self, at: int) -> Header:
        return self._headers.about(self._fields, at, self._tools)

    def _n_role(self, words: str) -> int:
        """How many of the characters may stand behind a start, or behind an end where the next start is missing."""
        fits = self._headers.role.fullmatch
        return min(len(words), LIMIT) if fits(words) else next(n for n in range(len(words)) if not fits(words[: n + 1]))

    def _n_words(self, words: str, *, first: bool) -> int:
        if first and SPOKEN_OF.match(words):
            return 0
        new_line = NEW_LINE.search(words)
        brace = re.search(r"(?={)" if self._fields.to else r"to=[^\s<{]+[^{]*(?={)", words)
        channel = self._headers.channel.match(words)
        glued = channel is not None and words[channel.end() : channel.end() + 1].isupper()
        ends = [found.end() for found in (new_line, brace, channel if glued else None) if found]
        return min(len(words), LIMIT, *ends)

    def _take_role(self, mark: str, words: str) -> None:
        lead = LEAD.match(words)
        self._end = lead.end() if lead else 0
        channel = self._headers.channel.match(words, self._end)
        role = None if channel or words[: self._end].strip() else ROLE.match(words)
        self._fields = HeaderFields(role[1] if role else "", channel[1] if channel else "", self._recipient(words))

    def _take_words(self, mark: str, words: str) -> None:
        channel = self._headers.channel.match(words) if mark == self._headers.marks[0] else None
        recipients = list(TO.finditer(words))
        self._end = max([found.end() for found in (channel, *recipients) if found], default=0)
        self._fields = replace(
            self._fields,
            channel=channel[1] if channel else self._fields.channel,
            to=self._recipient(words) or self._fields.to,
            others=(*self._fields.others, *(() if channel or recipients else (words.strip(),))),
        )

    def _recipient(self, words: str) -> str:
        found = [str(name) for name in TO.findall(words) if name not in self._headers.no_tools]
        return found[-1] if found else ""

    def _abandoned(self, mark: str, at: int, words: str, *, first: bool) -> Header | None:
        """The header that another one, or the end of a message, cuts off behind these words."""
        stop = at + len(words)
        letters = LETTERS.search(words, self._end) if mark in self._headers.marks[:1] else None
        if self._fields.to or (letters and self._fields.channel):
            return Header(at, declined=mark) if first and letters else self._about(at + self._end)
        if not letters:
            return Header(stop)
        # No known word: junk if something follows, else the answer itself.
        headers, text = self._headers, self._text
        nothing = headers.nothing.match(text, stop, stop + LONGEST)
        end = nothing.end() if nothing else stop
        is_open = headers.markers.is_open(text, end) or "assistant".startswith(text[end:])
        if not is_open:
            return Header(stop)
        return Header(len(text), declined=words.strip()) if self._final else None

    def _broken(self, mark: str, at: int, good: str, bad: str, *, first: bool) -> Header:
        """The header without its last marker: a character stands there that no header has."""
        if bad == "{" and self._fields.to:
            return self._about(at + len(good))
        if mark in self._headers.marks:
            is_there = not good[self._end :].strip(" ") or good[self._end :].startswith("\n")
            # In the middle of a text only what looks like a header is one.
            return self._about(at + self._end) if is_there or not first else Header(at, declined=mark)
        if mark == self._headers.start and self._fields.channel and bad.isupper():
            return self._about(at + len(good))
        self._fields = HeaderFields()
        return self._about(at + (self._end if mark == self._headers.start else 0))

    def _cut(self, mark: str, at: int, words: str, *, first: bool) -> Header:
        end = len(self._text)
        if self._fields.to or self._fields.role:
            return self._about(end)
        if mark in self._headers.marks:
            if not words[self._end :].strip() or self._headers.role.fullmatch(words):
                return self._about(end)
            return Header(at, declined=mark) if first else self._about(at + self._end)
        if LEAD_CUT.fullmatch(words) or "to=" in words:
            return Header(end)
        return Header(at + (self._end if mark == self._headers.start else 0))


def at_once(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header:
    """A `ReadHeader` of a marker without content that ends an open thought."""
    return Header(at)


def declined(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header:
    """A `ReadHeader` of an opener that is text."""
    return Header(at, declined=opener)


def before(body: MakeBody) -> ReadHeader:
    """A `ReadHeader` of a marker that counts everywhere unless a text speaks of it: `body` reads what follows if that
    begins like JSON, or if a word follows without a blank."""

    def read(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
        visible = VISIBLE.search(text, at, at + MAX_BLANKS)
        if visible is None:
            return Header(at, inside=body) if final or len(text) - at >= MAX_BLANKS else None
        is_call = visible[0] in JSON_STARTS or (visible.start() == at and visible[0].isalnum())
        return Header(at, inside=body) if is_call else Header(at, declined=opener)

    return read


def answer_tags(opener: str, closer: str = "") -> Callable[[Sequence[ToolSpec]], tuple[Block, ...]]:
    """A function for `Markup.declared`: the tags around a visible answer that are ordinary words of markup.

    They are dropped as a pair only, so that an answer that shows XML with the same tags, such as `<response>`, keeps
    them: the opener counts where nothing visible stands before it, the closer only behind such an opener.
    """

    def declared(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
        is_open = False

        def read(mark: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header:
            nonlocal is_open
            was_open, is_open = is_open, mark == opener
            return Header(at, declined=mark if was_open == is_open else "")

        body = partial(HeaderBody, read=read)
        blocks = (Block(opener, (), body, "start", "never"), Block(closer, (), body, "anywhere", "never"))
        return blocks if closer else blocks[:1]

    return declared


def read_named(name: str, text: str, tools: Sequence[ToolSpec], whole: bool) -> Calls:
    """The call of a tool that a header names, as a `Read`; a tool without required arguments may be sent nothing."""
    tool = find_tool(tools, name)
    if not text.strip() and not whole:
        return (Fault("the output ended before the call's arguments; write them as one JSON object", name),)
    if not text.strip() and tool and not tool.parameters.get("required"):
        return (Found(name, "{}"),)
    return read_arguments(name, text, whole=whole)


def read_program(tool: ToolSpec | None, text: str) -> Found | None:
    """The call of a tool that takes one text and was sent that text alone; `None` when it takes something else."""
    named = list(tool.parameters.get("properties", {})) if tool else []
    needed = list(tool.parameters.get("required", named)) if tool else []
    strings = [name for name in named if kinds(tool, name) == {"string"}]
    if tool is None or not text.strip() or len(strings) != 1 or needed != strings:
        return None
    return Found(tool.name, json_object([(strings[0], json_text(text.strip()))]))


def prefixes(*words: str) -> str:
    """A regular expression for the words and all their beginnings but the empty one."""
    return "|".join(re.escape(word[:length]) for word in words for length in range(len(word), 0, -1))
