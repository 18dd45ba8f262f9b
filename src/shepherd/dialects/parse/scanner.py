"""Turns generated text into events as it streams: one scanner for all families, whose markup is data.

It looks only for the markers that may come at its place:

    text      openers of thoughts and calls, stray closers
    thought   its closer, and a call that starts a line, because models leave out closers
    block     nothing: the body knows where it ends (`bodies`)

The rules, each of them tested:

* Every way of cutting the text gives the same events. The scanner holds back blanks and a marker's beginning at most.
* Blanks beside markup belong to it: blank lines are dropped there, indentation is kept. So blanks wait for what follows
  them, except where no markup can follow: there they go out at once.
* A thought begins only where nothing visible stands before it in the answer or since the last block, so that "use the
  <think> tag" stays text.
* `markup.Where` says where a call begins: mostly at the start of a line, or anywhere if the inside of a call follows,
  so that "use the <tool_call> tag" stays text.
* A block may turn out to be text, or to open a thought: headers do, and bare JSON (C28).
* A stray closer is markup if it starts or ends a line or a block lacks its closer; else it is text.
* A call is reported when it is complete, never in part (SCN-18).
* Every character is in exactly one event, or in markup, or a blank beside markup (SCN-20).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence

from shepherd.core import (
    BadCall,
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolSpec,
)
from shepherd.dialects.base import Keep, Parser
from shepherd.dialects.parse.call import Calls, Fault, Found
from shepherd.dialects.parse.markup import MAX_BLANKS, Block, Body, Markers, Markup, Opening, Thought, Where, markers_of

VISIBLE = re.compile(r"\S")
ANY = re.compile(r".", re.DOTALL)


def new_call_id() -> str:
    return f"call_{secrets.token_urlsafe(18)}"


class Scanner:
    """A `Parser` for any markup. One per answer, not for sharing."""

    def __init__(
        self,
        markup: Markup,
        *,
        tools: Sequence[ToolSpec] = (),
        opened: str = "",
        reasoning: Keep = "split",
        ids: Callable[[], str] = new_call_id,
    ) -> None:
        self._tools = tools
        self._keep = reasoning == "keep"
        self._ids = ids
        own = {block.opener for block in markup.blocks}
        blocks = (*markup.blocks, *(block for block in markup.declared(tools) if block.opener not in own))
        self._blocks = {block.opener: block for block in blocks}
        self._thoughts = {thought.opener: thought for thought in markup.thoughts if thought.opener}
        self._skips = frozenset(markup.skips)
        self._call_closers = frozenset(closer for block in blocks for closer in block.closers)
        thought_closers = frozenset(closer for thought in markup.thoughts for closer in thought.closers)
        closers = (thought_closers | self._call_closers) - self._skips
        self._openers = (*self._thoughts, *self._blocks)
        self._tags = (*self._thoughts, *own)  # what may end a block that lacks its closer
        self._at_start = markers_of(*self._openers, *sorted(closers), *sorted(self._skips))
        # Most text has something visible before it: there the markers that count at the start only are left out.
        later = [opener for opener, block in self._blocks.items() if block.where not in ("start", "never")]
        self._in_text = markers_of(*later, *sorted(closers), *sorted(self._skips))
        self._in_thought = markers_of()  # of the open thought
        # Whether text may be followed by markup that blanks belong to; a stray closer leaves them alone.
        self._takes_blanks = bool(self._skips or later)
        self._has_markers = bool(self._openers or closers or self._skips)

        self._buffer = ""
        self._at = 0  # buffer[:at] is settled
        self._step: Callable[[bool], bool] = self._text
        self._thought: Thought | None = None  # the open one
        self._body: Body | None = None
        # The state to restore if the block is text: thought, gap, trim, empty, line start.
        self._before_block: tuple[Thought | None, str, bool, bool, bool] = (None, "", False, True, True)
        self._opened: Block | None = None  # the last block
        self._held: list[tuple[str, Calls]] = []  # its calls that have not been reported
        self._inside = ""  # what it holds, if a thought may go on behind its opener
        self._unclosed = False  # the last block has not had its closer
        self._spoken: Sequence[str] = ()  # the closers of a block that was text are text, too
        self._gap = ""  # blanks held back until something visible or markup comes
        self._trim = False  # markup was last: blank lines that follow belong to it
        self._empty = True  # nothing visible since the start or the last block
        self._line_start = True  # nothing visible on this line
        self._has_output = False  # anything has been reported
        self._events: list[Event] = []
        if opened:
            self._prime(opened)

    def feed(self, text: str) -> list[Event]:
        if (
            text
            and not (self._empty or self._trim or self._body)
            and self._at == len(self._buffer)
            and not self._markers().can_begin_in(text)
        ):  # most tokens of most answers: nothing to find, nothing to hold back but blanks
            visible = text.rstrip(" ")
            if visible and not visible[-1].isspace():
                settled = visible if self._holds_blanks() else text
                shown, self._gap, self._line_start = self._gap + settled, text[len(settled) :], False
                return [self._delta(shown)]
        self._buffer = self._buffer[self._at :] + text
        self._at = 0
        return self._run(final=False)

    def close(self, *, truncated: bool = False) -> list[Event]:
        """The events that the end completes. `truncated`: the beginning of a marker at the very end is markup, too."""
        if truncated:
            # Within a block a single character counts: the call was cut off anyway.
            cut = markers_of(*self._openers, *self._call_closers, *self._skips) if self._body else self._markers()
            begun = cut.begun(self._buffer, self._at)
            self._buffer = self._buffer[: len(self._buffer) - begun] if begun > 1 or self._body else self._buffer
        events = self._run(final=True)
        if self._gap and not self._trim:
            events.append(self._delta(self._gap))
        self._gap = ""
        return events

    def _prime(self, opened: str) -> None:
        self.feed(opened)
        self._gap = ""
        self._has_output = False
        thought = self._thought
        if thought and thought.opener and (self._keep or (thought.spoken and opened.strip() == thought.opener)):
            # The text keeps the tag that the prompt opened, and a thought the words that the template begins it with.
            self._gap = opened[opened.rfind(thought.opener) :]

    def _run(self, *, final: bool) -> list[Event]:
        while self._step(final):
            pass
        events, self._events = self._events, []
        return events

    def _markers(self) -> Markers:
        return self._in_thought if self._thought else self._at_start if self._empty else self._in_text

    # Each step reads what it can of the buffer; true if another step may read more.

    def _text(self, final: bool) -> bool:
        marker = self._emit_to_marker(final)
        if not marker:
            return False
        after = self._at + len(marker)
        if marker in self._thoughts:
            if not self._empty:
                return self._emit(after)
            thought = self._thoughts[marker]
            self._pass_tag(marker)
            self._enter(thought)
            if thought.spoken and not self._keep:
                self._emit_text(marker)
            return True
        if marker in self._blocks:
            begins = self._begins(self._blocks[marker], self._blocks[marker].where, after, final)
            return begins is not None and (self._open_block(marker) if begins else self._emit(after))
        if marker in self._skips:
            self._at = after
            self._border()
            return True
        stray = self._is_stray(marker, after, final)
        if not stray:
            return stray is not None and self._emit(after)
        self._at = after
        self._unclosed = self._unclosed and marker not in self._call_closers
        return True

    def _thinking(self, final: bool) -> bool:
        marker = self._emit_to_marker(final)
        if not marker:
            return False
        thought = self._thought
        assert thought is not None
        after = self._at + len(marker)
        if marker in thought.closers:
            self._pass_tag(marker)
            self._thought, self._step = None, self._text
            return True
        if marker in self._blocks:
            begins = self._begins(self._blocks[marker], self._blocks[marker].within, after, final)
            if begins:
                return self._open_block(marker)
            return begins is not None and self._emit(after)
        if marker in self._thoughts and self._empty and not self._keep:
            self._at = after  # the prompt has opened the thought; the model opens it again
            return True
        return self._emit(after)

    def _block(self, final: bool) -> bool:
        body, block = self._body, self._opened
        assert body is not None
        assert block is not None
        start, self._at = self._at, body.feed(self._buffer, self._at, final)
        is_last = block.within == "last" and self._before_block[0]
        if is_last:
            self._inside += self._buffer[start : self._at]
        self._held += body.take_calls()
        if not is_last:
            self._report_held()
        if not body.ended:
            return False
        self._body = None
        if body.declined or block.unseen:
            self._thought, self._gap, self._trim, self._empty, self._line_start = self._before_block
            self._step = self._thinking if self._thought else self._text
            self._spoken = block.closers
            is_first = self._empty and not self._thought
            self._emit_text(body.declined.removeprefix(block.opener) if block.mute and is_first else body.declined)
            return True
        self._unclosed = not body.closed and not body.then
        self._step = self._behind_last if is_last else self._text
        self._border()
        if body.then:
            self._enter(body.then)
            if self._keep:
                self._gap, self._trim = self._before_block[1] + body.then.opener, False
        return True

    def _behind_last(self, final: bool) -> bool:
        """A call in a thought has ended: it is one if no text follows, else the thought continues behind its opener."""
        visible, block, thought = VISIBLE.search(self._buffer, self._at), self._opened, self._before_block[0]
        assert block is not None
        assert thought is not None
        follows = visible is not None and not markers_of(*self._openers).standing(self._buffer, visible.start())
        if visible is None or (follows and markers_of(*self._openers).is_begun(self._buffer, visible.start())):
            if not final:
                return False
            follows = visible is not None
        if not follows and not any(closer in self._inside for closer in thought.closers):
            self._step = self._text
            self._report_held()
            return True
        self._held = []
        self._buffer, self._at = self._inside + self._buffer[self._at :], 0
        self._thought, self._gap, self._trim, self._empty, self._line_start = self._before_block
        self._step = self._thinking
        self._emit_text(block.opener)
        return True

    def _report_held(self) -> None:
        for written, calls in self._held:
            for number, call in enumerate(calls):
                self._report(call, written if number == 0 else "")
        self._held = []

    def _emit_to_marker(self, final: bool) -> str:
        """The next marker, which then stands at `_at`; empty when there is none yet."""
        while True:
            markers = self._markers()
            start, marker = markers.find(self._buffer, self._at)
            settled = len(self._buffer) - (0 if final else markers.begun(self._buffer, self._at))
            if settled <= start:  # there is none, or a longer one may stand there or before it
                self._emit(settled)
                return ""
            self._emit(start)
            if markers is self._markers() or self._in_text.standing(self._buffer, start) == marker:
                return marker
            # Text has come before it: here it may be no marker.

    def _begins(self, block: Block, where: Where, after: int, final: bool) -> bool | None:
        """Whether an opener that ends at `after` opens its block; `None` while it needs more text."""
        if where != "line":
            return where in ("anywhere", "last") or (where == "start" and self._empty)
        if self._line_start != bool(self._thought):
            return self._line_start  # in a thought its inside must follow, too
        visible = (ANY if block.tight else VISIBLE).search(self._buffer, after)
        if visible is None:
            return False if final else None
        return re.match(block.starts, visible[0]) is not None

    def _is_stray(self, closer: str, after: int, final: bool) -> bool | None:
        """Whether a closer that closes nothing is markup; `None` while it needs more text."""
        if closer in self._spoken:
            self._spoken = ()
            return False
        if self._keep and closer not in self._call_closers:
            return self._empty and not self._has_output  # it closes what the prompt has opened
        if self._line_start or (self._unclosed and closer in self._call_closers):
            return True
        if after == len(self._buffer):
            return True if final else None
        return self._buffer[after] == "\n"

    def _enter(self, thought: Thought) -> None:
        self._thought = thought
        self._in_thought = markers_of(*self._thoughts, *thought.closers, *self._blocks)
        self._step = self._thinking

    def _pass_tag(self, tag: str) -> None:
        """Passes a thought's tag: markup, or text when thoughts are kept."""
        self._at += len(tag)
        if self._keep:
            self._events.append(TextDelta(self._gap + tag))
        self._border()
        self._trim = not self._keep

    def _open_block(self, opener: str) -> bool:
        self._before_block = (self._thought, self._gap, self._trim, self._empty, self._line_start)
        self._at += len(opener)
        self._opened = block = self._blocks[opener]
        self._inside = ""
        self._body = block.body(Opening(block, self._tags, self._tools))
        self._thought = None
        self._step = self._block
        self._border()
        return True

    def _border(self) -> None:
        """Markup stands here: the blanks on both sides belong to it."""
        self._gap = ""
        self._trim = self._empty = self._line_start = True

    def _emit(self, stop: int) -> bool:
        """Reports the text up to `stop`; blanks at its end later, if they may be part of what follows. Always true."""
        text = self._buffer[self._at : stop]
        self._at = stop
        self._emit_text(text)
        return True

    def _emit_text(self, text: str) -> None:
        visible = text.rstrip()
        blanks = text[len(visible) :]
        shown = self._gap + visible if visible else ""
        self._gap = blanks if visible else self._gap + blanks
        if visible:
            if self._trim:
                indented = len(shown) - len(shown.lstrip())
                shown = shown[max(shown.rfind("\n", 0, indented) + 1, indented - MAX_BLANKS) :]
            self._trim = self._empty = self._line_start = False
        self._line_start = self._line_start or "\n" in blanks
        if self._trim:
            self._gap = self._gap[self._gap.rfind("\n") + 1 :][-MAX_BLANKS:]
        else:
            settled = max(0, len(self._gap) - (MAX_BLANKS if self._holds_blanks() else 0))
            shown, self._gap = shown + self._gap[:settled], self._gap[settled:]
        if shown:
            self._events.append(self._delta(shown))

    def _holds_blanks(self) -> bool:
        """Whether markup may follow that blanks before it belong to."""
        return self._thought is not None or (self._has_markers if self._empty else self._takes_blanks)

    def _delta(self, text: str) -> Event:
        self._has_output = True
        return ReasoningDelta(text) if self._thought and not self._keep else TextDelta(text)

    def _report(self, call: Found | Fault, written: str) -> None:
        if isinstance(call, Fault) and call.idle and self._has_output:
            return
        self._has_output = True
        call_id = (call.id if isinstance(call, Found) else "") or self._ids()
        self._events.append(CallStarted(call_id, call.name))
        if isinstance(call, Fault):
            self._events.append(CallEnded(BadCall(written, call.error, call_id, call.name)))
            return
        self._events.append(CallDelta(call.arguments))
        self._events.append(CallEnded(ToolCall(call_id, call.name, call.arguments, written)))


_parser: type[Parser] = Scanner
