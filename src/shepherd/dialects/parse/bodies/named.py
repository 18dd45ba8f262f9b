"""The inside of a call that names its tool before its arguments: `NAME separator {arguments}`, in many spellings.

    header ──{──> value ──}──> after ──end of one call, opener of another──> header
       │                         └─────closer, or text────────────────────> ended
       ├─closer──> ended, a call without arguments
       └─prose───> ended, declined: the text speaks of the marker

Where nothing stands before the brace, the object names its tool (Mistral's older models, and slips). A `Form` holds the
differences between families. Not here: how JSON is repaired (`call`), where a value ends (`json_text`).
"""

from __future__ import annotations

import re

from shepherd.core.dataclasses import dataclass
from shepherd.dialects.parse.bodies.json_text import FENCE, FENCE_BEGUN, JsonText, after_blanks
from shepherd.dialects.parse.bodies.machine import Machine
from shepherd.dialects.parse.bodies.python_body import read_python_calls
from shepherd.dialects.parse.call import HERMES_KEYS, Calls, Fault, Found, Keys, read_arguments, read_calls
from shepherd.dialects.parse.markup import Opening, markers_of

PART = re.compile(r"\s*(?:[\w$][\w$.:/@-]{0,255})?\s*")
"""The text between two markers of a header: a name, an id or nothing."""
WORD = re.compile(r"[\w$][\w$.:/@-]{0,255}")
JUNK = re.compile(r"[}\],;)]+")


@dataclass(frozen=True, slots=True)
class Form:
    header: re.Pattern[str]
    """The header before the arguments, with its markers and without the blanks around it; its groups are `name`, and
    `id` where models write ids."""
    separators: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()
    """The markers that begin calls; a block's opener that is none of these is a part of the header."""
    ends: tuple[str, ...] = ()
    """The markers that end one call, but not the block."""
    chained: bool = False
    """Another header may follow arguments with nothing in between."""
    keys: Keys = HERMES_KEYS
    """Of calls that are a whole object."""


class NamedBody(Machine):
    def __init__(self, opening: Opening, *, form: Form) -> None:
        super().__init__(opening)
        self._step = self._in_header
        self._form = form
        block = opening.block
        self._closers = frozenset(block.closers) - set(form.ends)
        # Openers that hold a separator are the beginnings of headers without the marker that is due before them.
        others = (opener for opener in opening.openers if not any(mark in opener for mark in form.separators))
        self._all_stops = tuple(sorted({*others, *form.openers, *form.ends, *form.separators, *block.closers} - {""}))
        self._all_markers = markers_of(*self._all_stops)
        self._header_marks = markers_of(*self._all_stops, "{", "```")
        self._reported = False  # a call has been reported
        self._prose = False  # all of this is text
        self._begin(block.opener)
        self._header = "" if block.opener in form.openers else block.opener
        self._sure = any(mark in self._header for mark in form.separators)

    def _begin(self, written: str) -> None:
        self._written = [written]
        self._header = ""
        self._part = ""  # what stands behind the header's last marker
        self._sure = False  # this is certainly a call
        self._fenced = False
        self._whole = True  # the output did not end inside of the call
        self._value = JsonText(self._all_markers, self._all_stops)
        self._junk: list[str] = []  # what stands where the arguments should
        self._near = True  # no blank stands behind the arguments

    def _settle(self, *, cut: bool) -> None:
        if self._prose:
            self.declined = "".join(self._written)
        else:
            self._end_call()

    def _end_call(self) -> None:
        nothing = self._header.strip() and self._part.strip() in {"null", "None"}
        header, value = self._header + ("" if nothing else self._part), self._value.text + "".join(self._junk)
        if header.strip() or value or self._fenced or not self._reported:
            written = "".join(self._written)
            # Blanks between calls belong to the block, those behind an unclosed call to the text.
            written = written.rstrip() if self.ended and not self.closed else written
            self._ready.append((written, self._calls(header.strip(), value)))
            self._reported = True

    def _calls(self, header: str, value: str) -> Calls:
        if not header:
            return read_calls(value, keys=self._form.keys, tools=self._tools, whole=self._whole)
        match = self._form.header.fullmatch(header)
        if match is None or self._junk:
            calls = read_python_calls(header + value, whole=self._whole)
            name = match["name"] if match else next(iter(WORD.findall(header)), "")
            unread = Fault("the call is not a name and a JSON object", name)
            return calls if all(isinstance(call, Found) for call in calls) else (unread,)
        name, call_id = match["name"], match.groupdict().get("id") or ""
        needed = next((tool.parameters.get("required") for tool in self._tools if tool.name == name), None)
        if not value and self._whole and not needed:
            return (Found(name, "{}", call_id),)
        return read_arguments(name, value, call_id=call_id, whole=self._whole)

    def _in_header(self, text: str, at: int, final: bool) -> int:
        if not self._part.strip():
            after = after_blanks(text, at)
            if after == len(text):
                self._part = (self._part + text[at:after])[:1]
                self._break_off(final)
                return after
            marked = self._all_markers.standing(text, after) or (not final and self._all_markers.is_begun(text, after))
            if text[after] in '["' and not marked:
                self._step = self._in_value
                return after
        start, marker = self._header_marks.find_settled(text, at, final=False)
        if start > at:
            return self._take_part(text, at, start)
        if marker:
            return self._take_marker(marker, text, at, final)
        if final and start < len(text):
            self._junk.append(text[start:])  # the beginning of a marker
            self._break_off(final)
            return len(text)
        if final:
            begins_name = any(tool.name.startswith(self._part.strip()) for tool in self._tools)
            self._prose = not (self._sure or self._reported or begins_name) and self._part[0] in " \t"
        self._break_off(final)
        return at

    def _take_part(self, text: str, at: int, stop: int) -> int:
        part = self._part + text[at:stop]
        plausible = PART.match(part)
        if plausible and plausible.end() < len(part):
            # Before the first character that is wrong, so that it does not matter how the text is cut.
            stop = at + plausible.end() - len(self._part)
            self._give_up(plausible[0])
        self._part += text[at:stop]
        return stop

    def _take_marker(self, marker: str, text: str, at: int, final: bool) -> int:
        after = at + len(marker)
        empty = not (self._header + self._part).strip()
        if marker == "{":
            self._step = self._in_value
            return at
        if marker == "```":
            fence = FENCE.match(text, at)
            if fence:
                self._fenced = True
                return fence.end()
            if not final and FENCE_BEGUN.fullmatch(text, at):
                return at
            self._give_up(self._part)
            self._junk.append(marker)
            return after
        if marker in self._form.separators:
            self._header += self._part + marker
            self._part = ""
            self._sure = True
            return after
        if marker in self._form.openers:
            if not empty:
                self._end_call()
                self._begin("")
            self._sure = True
            return after
        self._step = self._after
        return at

    def _give_up(self, part: str) -> None:
        """No header follows the opener: this is a broken call, or text that speaks of the opener."""
        word = WORD.search(part)
        named = word is not None and any(tool.name == word[0] for tool in self._tools)
        self._prose = self.ended = not (self._sure or self._reported or named)
        self._step = self._garbage

    def _break_off(self, final: bool) -> None:
        self.ended = self.ended or final
        self._whole = not final

    def _in_value(self, text: str, at: int, final: bool) -> int:
        stop = self._value.feed(text, at, final)
        if self._value.ended or self._value.cut:
            self._step = self._after
        elif final:
            self._break_off(final)
        return stop

    def _after(self, text: str, at: int, final: bool) -> int:
        blank = after_blanks(text, at)
        if blank > at or at == len(text):
            self._near = self._near and blank == at
            self.ended = final and blank == len(text)
            return blank
        junk = JUNK.match(text, at) if self._near or self._closers or self._form.ends else None
        if junk and self._value.text:
            return junk.end()
        if self._fenced and text[at] == "`":
            return at + 1
        marker = self._all_markers.standing(text, at)
        if marker in self._form.ends:
            return at + len(marker)
        name = WORD.match(text, at) if self._form.chained else None
        stop = name.end() if name else at
        if text[at] in "{[":  # another call, without its opener
            continues = not (self._header + self._part).strip() and bool(self._value.text)
        else:
            continues = stop > at and self._all_markers.standing(text, stop) in self._form.separators
        may_continue = self._all_markers.is_begun(text, at) or (stop > at and self._all_markers.is_open(text, stop))
        if marker in (*self._form.openers, *self._form.separators) or continues:
            self._end_call()
            self._begin("")
            self._step = self._in_header
        elif marker or final or not may_continue:
            self.ended = True
            self.closed = marker in self._closers
            return at + len(marker) if self.closed else at
        return at

    def _garbage(self, text: str, at: int, final: bool) -> int:
        stop, marker = self._all_markers.find(text, at)
        line = -1 if self._closers or self._form.ends else text.find("\n", at, stop)
        if line >= 0:
            self.ended = True
            stop = line
        elif marker:
            self._step = self._after
        elif final:
            self.ended = True
        else:
            stop -= self._all_markers.begun(text, at)
        self._junk.append(text[at:stop])
        return stop
