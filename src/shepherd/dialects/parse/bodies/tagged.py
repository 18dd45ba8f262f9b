"""The inside of a call block that is tags: a name, and a raw value for every parameter.

    <tool_call>                       outer    the calls of a block; or JSON after all (`json_body`)
    <function=NAME>                   tag
    <parameter=K>                     call     between parameters
    VALUE                             value
    </parameter>                      follow   is this the end of the value?
    </function>
    </tool_call>                      between  is there another call?

Nothing in a value is escaped, and values may be code about such tags: `value` decides where one ends. A block that only
quotes a call is text.

Every character is read once and never given back, so the cost is linear for any cutting. A call that was cut off is a
`Fault` unless all its declared parameters are there. Not here: the meaning of a value (`values`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from shepherd.core import ToolSpec
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.json_text import after_blanks
from shepherd.dialects.parse.bodies.machine import HandingOver, Step, kept_blanks
from shepherd.dialects.parse.bodies.tag import TAG_END, WORDS, Tag, read_tag
from shepherd.dialects.parse.bodies.value import CDATA, CDATA_END, PossibleEnd, Value, tags
from shepherd.dialects.parse.call import Calls, Fault, Found, read_arguments
from shepherd.dialects.parse.markup import Opening, markers_of
from shepherd.dialects.parse.values import (
    argument,
    find_tool,
    is_complete,
    json_object,
    json_text,
    json_value,
    kinds,
    names,
    object_text,
)

HOW = "write every argument in a parameter tag of its own and close every tag"
CUT = f"the output ended inside of the call; {HOW}"
PROSE = re.compile(r"[^\S\n]+.|[^\s\w\"'(]")
NAME = re.compile(r"[\w.:/-]+")
ELEMENT = re.compile(r"\s*<([\w.:-]+)>")
PAIR = re.compile(r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
WRAPPER_CLOSERS = tuple(f"</{word}>" for word, kind in WORDS.items() if kind == "wrapper")


class TaggedBody(HandingOver):
    """Calls as tags, between an opener and its closers; an opener without `>` is the beginning of a tag."""

    def __init__(
        self,
        opening: Opening,
        *,
        padded: bool = False,
        cdata: bool = False,
        repair: Callable[[str, Calls], Calls] | None = None,
    ) -> None:
        """`padded`: values stand on lines of their own. `cdata`: they may be wrapped as XML has it. `repair` changes
        the calls of a text that is written so; its block is never text."""
        super().__init__(opening)
        block = self._block
        self._bare = not block.opener.endswith(">")
        self._padded = padded
        self._cdata = cdata
        self._repair = repair
        self._wrappers = tuple(closer.strip("</>") for closer in block.closers)
        self._pieces = [block.opener[block.opener.rindex("<") :]] if self._bare else []  # of the tag that comes in
        self._judge: Step = self._tagged  # what comes behind that tag
        self._step = self._tag if self._bare else self._outer
        self._head: Tag | None = None  # of the open call
        self._tool: ToolSpec | None = None
        self._arguments: list[tuple[Tag, str]] = []  # the tag of each parameter and its text
        self._loose = ""  # what stands in the call outside of its parameters
        self._whole = False  # the call has been closed
        self._value = Value(None, {})
        self._closer = PossibleEnd("parameter")
        self._pending: list[str] = []  # the closer and the blanks behind it, until it is known whether it is one
        self._prose = False  # it is text that speaks of a call
        self._cut_off = False  # the output has ended inside of a call
        self._reported = False  # a call has been reported
        self._due = True  # the block has no call yet

    def _settle(self, *, cut: bool) -> None:
        if self._prose:
            self.declined = "" if self._repair else "".join(self._written)
        elif self._head or self._due:
            self._cut_off = cut
            self._end_call()

    def take_calls(self) -> list[tuple[str, Calls]]:
        repair = self._repair
        ready = super().take_calls()
        return [(written, repair(written, calls)) for written, calls in ready] if repair else ready

    def _outer(self, text: str, at: int, final: bool) -> int:
        after = after_blanks(text, at)
        if after == len(text):
            self.ended = final
        elif text[after] == "<":
            self._expect_tag()
        elif text[after] in "{[`":
            self._hand_over(JsonBody)
            return at  # the blanks belong to the JSON
        elif not self._reported and self._is_sentence(text[at : after + 1]):
            self._decline()
        else:
            self._step = self._garbage
        return after

    def _garbage(self, text: str, at: int, final: bool) -> int:
        stop, mark = self._stops().find_settled(text, at, final)
        tag = read_tag(mark)
        if tag and tag.kind == "call" and mark not in self._block.closers:
            self._expect_tag()
        elif mark or final:
            return self._close(mark, stop)
        return stop

    def _expect_tag(self, judge: Step | None = None) -> None:
        """A tag comes in; `judge` is the step behind it."""
        self._pieces = []
        self._judge = judge or self._tagged
        self._step = self._tag

    def _tag(self, text: str, at: int, final: bool) -> int:
        end = TAG_END.search(text, at if self._pieces else at + 1)
        stop = len(text) if end is None else end.end() if end[0] == ">" else end.start()
        self._pieces.append(text[at:stop])
        if end or final:
            self._step = self._judge
        return stop

    def _tagged(self, text: str, at: int, final: bool) -> int:
        written = "".join(self._pieces)
        if final and at == len(text) and not written.endswith(">"):
            closing = written.startswith("</") and self._closer.kind != "cdata"  # whose parameter is yet to be closed
            self._whole = self._whole or (closing and bool(self._arguments)) or self._is_complete()
            self.ended = True
        elif self._head is None:
            self._open(read_tag(written), written)
        else:
            self._act_in_call(self._head, self._read_tag(written), written)
        return at

    def _read_tag(self, written: str) -> Tag | None:
        """A tag in an open call, which may have been opened by a tag of the tool's own name."""
        head = self._head
        if head and written == f"</{head.label}>":
            return Tag("call", head.word, head.prefix, closing=True)
        return read_tag(written)

    def _open(self, tag: Tag | None, written: str) -> None:
        """Acts on a tag where a call is due."""
        self._step = self._outer
        name = written.strip("<>")
        if tag is None and find_tool(self._tools, name):
            tag = Tag("call", name, "", closing=False, name=name)
        match tag:
            case None if self._bare and not self._reported:
                self._decline()
            case None:
                self._step = self._garbage
            case Tag("wrapper", closing=True):
                self.ended = self.closed = True
            case Tag("call", closing=False):
                self._begin(tag)
            case Tag("parameter", closing=False):
                self._head = Tag("call", "invoke", tag.prefix, closing=False)
                self._begin_value(tag)

    def _act_in_call(self, head: Tag, tag: Tag | None, written: str) -> None:
        """Acts on a tag in an open call, or behind a closed one."""
        self._step = self._between if self._whole else self._call
        match tag:
            case None if self._is_prose():
                self._decline()
            case None if not written.startswith("</"):
                self._begin_value(None, written)
            case Tag("parameter", closing=False):
                self._begin_value(tag)
            case Tag("call", closing=True):
                self._step, self._whole = self._between, True
            case Tag("wrapper", closing=True):
                self._whole = self.ended = self.closed = True
            case Tag(closing=False) if self._whole or self._arguments or self._loose or tag.name != head.name:
                self._whole = self._whole or bool(self._arguments or self._loose)
                self._end_call(len(written))
                self._step, self._due = self._outer, True
                if tag.kind == "call":
                    self._begin(tag)

    def _begin(self, tag: Tag) -> None:
        if self._bare and not self._reported and not NAME.fullmatch(tag.name):
            self._decline()
            return
        self._head, self._whole = tag, tag.empty
        self._tool = find_tool(self._tools, tag.name)
        self._arguments, self._loose = [], ""
        self._step = self._between if tag.empty else self._call
        if tag.lead.strip():
            self._begin_value(None, tag.lead)

    def _is_prose(self, behind: str = "") -> bool:
        """Whether the text only speaks of a tool: neither a block nor arguments show a call, and the tool is unknown
        or a sentence continues behind its tag."""
        is_call = not self._bare or self._reported or self._arguments or self._loose or self._whole
        return not is_call and (not self._tool or self._is_sentence(behind))

    def _is_sentence(self, behind: str) -> bool:
        return PROSE.fullmatch("".join(self._written).rpartition(">")[2] + behind) is not None

    def _decline(self) -> None:
        self.ended = self._prose = True

    def _call(self, text: str, at: int, final: bool) -> int:
        after = after_blanks(text, at)
        if after == len(text):
            self._whole = self._whole or self._is_complete()
            self.ended = final
        elif text[after] == "<":
            self._expect_tag()
        elif text[after] != "{" and self._is_prose(text[at : after + 1]):
            self._decline()
        else:
            self._begin_value(None)
        return after

    def _is_complete(self) -> bool:
        return is_complete(self._tool, (tag.name for tag, _ in self._arguments))

    def _begin_value(self, tag: Tag | None, lead: str = "") -> None:
        assert self._head is not None
        self._value = Value.opened(tag, self._head, self._wrappers, names(self._tool))
        self._value.add(lead + (tag.lead if tag else ""))
        self._step = self._lead if tag and self._cdata else self._in_value
        if tag and tag.empty:
            self._end_value()

    def _lead(self, text: str, at: int, final: bool) -> int:
        after = after_blanks(text, at)
        self._value.add(text[at:after])
        if text.startswith(CDATA, after):
            self._value.text, self._value.is_sealed = [], True
            self._step = self._in_cdata
            return after + len(CDATA)
        if final or not CDATA.startswith(text[after:]):
            self._step = self._in_value
        return after

    def _in_cdata(self, text: str, at: int, final: bool) -> int:
        stop, mark = markers_of(CDATA_END).find_settled(text, at, final)
        self._value.add(text[at:stop])
        if mark:
            self._suspect(PossibleEnd("cdata"), mark)
        elif final:
            self._cut()
        return stop + len(mark)

    def _in_value(self, text: str, at: int, final: bool) -> int:
        stop, mark = self._value.marks.find_settled(text, at, final)
        self._value.add(text[at:stop])
        if mark:
            self._expect_tag(self._marked)
        elif final:
            self._cut()
        return stop

    def _marked(self, text: str, at: int, final: bool) -> int:
        value, written = self._value, "".join(self._pieces)
        tag = self._read_tag(written)
        if at == len(text) and not final and value.kind(tag) in ("call", "wrapper"):
            return at  # it may open a call inside of the value; the character behind it decides
        self._step = self._in_value
        if closer := value.closer(tag, written):
            self._suspect(closer, written)
        elif tag and value.is_ended_by(tag, written):
            self._end_value(unclosed=True)
            self._begin_value(tag)
        else:
            value.take_in(tag, written, text[at : at + 1])
        return at

    def _suspect(self, closer: PossibleEnd, written: str) -> None:
        self._closer, self._pending, self._step = closer, [written], self._follow

    def _follow(self, text: str, at: int, final: bool) -> int:
        """Decides by what follows whether the last closer ends the value."""
        after = after_blanks(text, at)
        self._pending.append(text[at:after])
        following = self._value.following(text, after, final)
        kind = self._closer.kind
        if following == "unknown":
            return after
        if not self._value.ends(self._closer, following):
            self._value.inner -= 1 if kind == "parameter" and self._value.inner else 0
            self._value.add("".join(self._pending))
            self._step = self._in_cdata if kind == "cdata" else self._in_value
            return after
        self._end_value(unclosed=kind in ("call", "wrapper"))
        if kind == "call":
            self._step, self._whole = self._between, True
        elif kind == "wrapper":
            self._whole = self.ended = self.closed = True
        return after

    def _end_value(self, *, unclosed: bool = False) -> None:
        value = self._value
        self._step = self._call
        if value.tag is None:
            self._loose += value.so_far
        else:
            text = value.spelt(unclosed, padded=self._padded, cdata=self._cdata)
            self._arguments.append((value.tag, text))

    def _cut(self) -> None:
        """The output ends inside of a value, which may have taken in its own end."""
        self._whole = self._value.is_whole()
        self._end_value(unclosed=True)
        self.ended = True

    def _between(self, text: str, at: int, final: bool) -> int:
        assert self._head is not None
        after = after_blanks(text, at)
        label, prefix = self._head.label, self._head.prefix
        own = tags((label, prefix + "parameter", prefix + "param"))
        ends = (*self._block.closers, *WRAPPER_CLOSERS)
        marks = markers_of(*ends, *self._openers, *own)
        mark = marks.standing(text, after)
        behind = text[after + len(mark) : after + len(mark) + 1]
        if after == len(text) and not final:
            return kept_blanks(at, after)
        if mark in ends:
            self.ended = self.closed = True
            return after + len(mark)
        if marks.is_open(text, after) or (mark in own and not behind):
            self.ended = final
            return len(text) if final else kept_blanks(at, after)
        if mark.startswith(f"<{label}") or (mark in own and (mark.startswith("</") or behind in "= \t")):
            self._expect_tag()
            return after
        self.ended = True
        return kept_blanks(at, after)

    def _end_call(self, keep: int = 0) -> None:
        self._report((self._read(),), keep)
        self._head, self._reported, self._due = None, True, False

    def _read(self) -> Found | Fault:
        if self._head is None:
            return Fault(CUT if self._cut_off else f"the block holds no call; {HOW}")
        name, loose = self._head.name, self._loose.strip()
        if not name:
            return Fault(f"the call names no tool; {HOW}")
        if not self._whole:
            return Fault(CUT if self._cut_off else f"the call of {name!r} is not closed; {HOW}", name)
        if loose and not self._arguments:
            return read_loose(self._tool, name, loose)
        if loose or not all(tag.name for tag, _ in self._arguments):
            return Fault(f"something in the call of {name!r} is no parameter; {HOW}", name)
        return Found(name, json_object((tag.name, self._value_of(tag, text)) for tag, text in self._arguments))

    def _value_of(self, tag: Tag, text: str) -> str:
        if tag.is_string and kinds(self._tool, tag.name) <= {"string"}:
            return json_text(text)
        as_json = json_value(text.strip()) if tag.is_string is False else ""
        return as_json or argument(self._tool, tag.name, text)


def read_loose(tool: ToolSpec | None, name: str, text: str) -> Found | Fault:
    """The call whose arguments stand in no parameter tags: in JSON, in tags of their own names, in pairs of tags."""
    if text.startswith("{"):
        return read_arguments(name, text)[0]
    pairs: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        if pair := PAIR.match(text, at):
            pairs.append((pair[1].strip(), pair[2]))
            at = pair.end()
        elif (opened := ELEMENT.match(text, at)) and (end := text.find(f"</{opened[1]}>", opened.end())) >= 0:
            pairs.append((opened[1], text[opened.end() : end]))
            at = end + len(opened[1]) + 3
        else:
            return Fault(f"what stands in the call of {name!r} are no parameters; {HOW}", name)
        at = after_blanks(text, at)
    return Found(name, object_text(tool, pairs))
