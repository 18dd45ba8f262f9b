"""The inside of a call block that is a name and pairs of tags; nothing in a value is escaped.

    NAME<arg_key>K</arg_key><arg_value>V</arg_value>...</tool_call>        GLM, Ling, Spark, Laguna: any blanks between
    NAME<tool_sep:x><arg_key:x>K</arg_key:x><arg_value:x>V</arg_value:x>...</tool_call:x>            Hunyuan 3: suffixes

    lead ──name──> tags ──<arg_value>──> value ──closer, markup follows──> tags ──block's closer──> ended
      ├─{ [──> json_body     name( name{──> python_body     <function──> tagged: models mix what they have learnt
      └─other──> declined: the text speaks of the tag

Values may be code about such tags. `</arg_value>` ends a value if markup of the call follows, `</tool_call>` if another
call follows. Models leave out each of the tags, so the first possible end is remembered: it is the end unless a certain
one comes before the next call. The text behind it waits until then. Not here: the meaning of a value (`values`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, partial

from shepherd.core import ToolSpec
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.json_text import after_blanks
from shepherd.dialects.parse.bodies.machine import HandingOver
from shepherd.dialects.parse.bodies.python_body import PythonBody
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.call import Fault, Found, read_arguments
from shepherd.dialects.parse.markup import MakeBody, Markers, Opening, markers_of
from shepherd.dialects.parse.values import find_tool, object_text

HOW = "write NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value> and close every tag"
CUT = f"the output ended inside of the call; {HOW}"
TAG = re.compile(r"<(\w*?)tool_call((?::\w+)?)>")
HEAD = re.compile(r"""([^\s<>{}()\[\]"'`=,]{0,128})(\s{0,256})""")
"""A call's name and the blanks behind it, up to the length that is held back."""
XML = Markers(("<function", "<invoke"))


class Tags:
    """The tags that belong to a block's opener, for they share its prefix and its suffix, and patterns of them."""

    def __init__(self, opener: str) -> None:
        match = TAG.fullmatch(opener)
        prefix, suffix = match.groups() if match else ("", "")
        self.key, self.value, self.separator = (
            f"<{prefix}{word}{suffix}>" for word in ("arg_key", "arg_value", "tool_sep")
        )
        self.key_end, self.value_end = self.key.replace("<", "</"), self.value.replace("<", "</")
        k, ke, v, ve = map(re.escape, (self.key, self.key_end, self.value, self.value_end))
        self.any = re.compile(f"{k}|{ke}|{v}")
        self.member = re.compile(rf"\s*(?:{k}\s*)*(?P<key>[^<>]*?)\s*(?:(?:{ke}\s*)+(?:{v})?|{v})")
        """A key and its tags, one of which may be missing or doubled; `key` is the name."""
        self.end = re.compile(rf"(?:{ve}\s*)+(?=\Z|{k}|[^<>\n]{{1,64}}{ke})|(?={k}[^<>]{{1,128}}(?:{ke}|{v}))|\s*\Z")
        """Where a value ends in a call that is complete."""
        self.cut = re.compile(rf"({ve}\s*)</[^<>]*\Z")
        """A value's closer, and behind it the beginning of another closer, where the output ends."""


tags_of = cache(Tags)


class PairsBody(HandingOver):
    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._step = self._lead
        block = opening.block
        self._tags = tags = tags_of(block.opener)
        self._markers = markers_of(*self._openers, *block.closers, tags.key, tags.key_end, tags.value, tags.separator)
        self._in_value = markers_of(tags.value_end, *block.closers, block.opener)
        self._follows = markers_of(tags.key, tags.value_end, *block.closers, block.opener)
        self._n_openers = 1
        self._whole = False  # the output did not end within the call
        self._closer = ""
        self._maybe: tuple[int, str] | None = None  # a possible end: the length of its marker, the closer if it is one
        self._seen = 0  # how much has been looked at from the beginning of that marker on

    def _settle(self, *, cut: bool) -> None:
        if not self.declined:
            written = "".join(self._written)
            inside = written[: len(written) - len(self._closer)].replace(self._block.opener, "", self._n_openers)
            self._report((read_pairs(inside, self._tags, self._tools, self._whole),))

    def _lead(self, text: str, at: int, final: bool) -> int:
        if text[at : at + 1].isspace():
            return after_blanks(text, at)
        head = HEAD.match(text, at)
        assert head is not None
        name, gap, stop = head[1], head[2], head.end()
        if stop == len(text) or self._markers.is_begun(text, stop) or XML.is_open(text, stop):
            self.ended = final
            return len(text) if final else at
        marker = self._markers.standing(text, stop)
        if marker == self._block.opener and not name:
            self._n_openers += 1
            return stop + len(marker)  # written twice
        if marker and (name or marker not in self._openers):
            self._step = self._between
            return stop
        if notation := self._notation(text, at, name, gap):
            self._hand_over(notation)
        elif not find_tool(self._tools, name):
            self.ended = True
            self.declined = "".join(self._written)
        elif "\n" in gap:
            self.ended = self._whole = True  # it has no arguments and lacks its closer
            return stop - len(gap)
        else:
            self._step = self._between
        return at

    def _notation(self, text: str, at: int, name: str, gap: str) -> MakeBody | None:
        """The body for a block in another notation; `None` when it is in this one."""
        following = text[at + len(name + gap)]
        if name:
            return PythonBody if following == "{" or (following == "(" and not gap) else None
        if following in "{[":
            return JsonBody
        return partial(TaggedBody, padded=True) if XML.standing(text, at) else None

    def _between(self, text: str, at: int, final: bool) -> int:
        stop, marker = self._markers.find_settled(text, at, final)
        if not marker:
            self.ended = final
            return stop
        if marker in self._block.closers or marker in self._openers:
            closer = marker if marker in self._block.closers else ""
            return self._finish(stop + len(closer), closer)
        if marker in (self._tags.value, self._tags.key_end):
            self._step = self._value if marker == self._tags.value else self._behind_key
        return stop + len(marker)

    def _behind_key(self, text: str, at: int, final: bool) -> int:
        after = after_blanks(text, at)
        if not final and (after == len(text) or self._markers.is_begun(text, after)):
            return at
        marker = self._markers.standing(text, after)
        if marker == self._tags.key_end:
            return after + len(marker)  # written twice
        self._step = self._between if marker or after == len(text) else self._value
        return after

    def _value(self, text: str, at: int, final: bool) -> int:
        start = at if self._maybe else -1
        seen = at + self._seen
        while True:
            stop, marker = self._in_value.find_settled(text, seen, final)
            if not marker:
                seen = stop
                break
            behind, after = self._behind(text, stop, marker)
            is_cut = self._follows.is_open(text, after)
            if is_cut and not final:
                seen = stop
                break
            follows = self._follows.standing(text, after)
            if marker == self._tags.value_end and (follows or is_cut):
                self._step, self._maybe, self._seen = self._between, None, 0
                return behind
            if marker == self._block.opener:
                calls = self._call_follows(text, behind, final) if self._maybe else False
                if calls is None:
                    seen = stop
                    break
            else:
                if not self._maybe:
                    start = stop
                    self._maybe = (behind - stop, marker if marker in self._block.closers else "")
                calls = marker != self._tags.value_end and follows == self._block.opener
            if calls:
                final = True
                break
            seen = behind
        if not self._maybe:
            self.ended = final
            return seen
        if final:
            length, closer = self._maybe
            return self._finish(start + length, closer)
        self._seen = seen - start
        return start

    def _behind(self, text: str, at: int, marker: str) -> tuple[int, int]:
        """Where a marker that stands at `at` ends, a value's closer with its repetitions; and the blanks behind it."""
        while True:
            at += len(marker)
            after = after_blanks(text, at)
            if marker != self._tags.value_end or not text.startswith(marker, after):
                return at, after
            at = after

    def _call_follows(self, text: str, at: int, final: bool) -> bool | None:
        """Whether the opener that ends at `at` opens a call; `None` while it needs more text."""
        head = HEAD.match(text, at)
        assert head is not None
        if not final and (head.end() == len(text) or self._markers.is_begun(text, head.end())):
            return None
        return bool(head[1] and self._markers.standing(text, head.end()))

    def _finish(self, stop: int, closer: str) -> int:
        self.ended = self._whole = True
        self._closer, self.closed = closer, bool(closer)
        return stop


def read_pairs(text: str, tags: Tags, tools: Sequence[ToolSpec], whole: bool) -> Found | Fault:
    """The call that a name and pairs of tags spell; `whole` is false when the output ended within it. Never raises."""
    if not whole:
        text = tags.cut.sub(r"\1", text)
    first = tags.any.search(text)
    at = first.start() if first else len(text)
    name, _, behind = (part.strip() for part in text[:at].partition(tags.separator))
    if behind.startswith("{"):
        return read_arguments(name, behind, whole=whole)[0]
    if first and first[0] == tags.key_end:
        # The first key lacks its opening tag.
        known = max((tool.name for tool in tools if name.startswith(tool.name)), key=len, default="")
        name = known or name.partition(" ")[0]
        at = text.index(name) + len(name)
    elif name.split()[1:]:
        return Fault(f"the call cannot be read; {HOW}" if whole else CUT, name.split()[0])
    pairs: list[tuple[str, str]] = []
    while member := tags.member.match(text, at):
        end = tags.end.search(text, member.end())
        assert end is not None
        if not whole and not end[0].strip() and end.end() == len(text):
            return Fault(CUT, name)
        pairs.append((member["key"], text[member.end() : end.start()]))
        at = end.end()
    if not name:
        return Fault(f"the call names no tool; {HOW}" if whole else CUT)
    rest = text[at:].strip()
    tool = find_tool(tools, name)
    if not whole:
        required = tool.parameters.get("required", ()) if tool else ()
        if not pairs or rest or {*required} - {key for key, _ in pairs}:
            return Fault(CUT, name)
    elif rest:
        return Fault(f"the call cannot be read from {rest[:20]!r} on; {HOW}", name)
    return Found(name, object_text(tool, pairs))
