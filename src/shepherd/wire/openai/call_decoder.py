"""The calls of an answer in the chat protocol, put together from their pieces.

    {"index": 0, "id": "a", "function": {"name": "look", "arguments": ""}}     CallStarted
    {"index": 0, "function": {"arguments": "{}"}}                              CallDelta
    {"index": 1, "id": "b", ...}                                               CallEnded, CallStarted
    {"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}}   nothing: it repeats a call

Servers leave indexes, ids and names out, repeat them, or give one index to all calls. A call that names no id gets one.
A server that sends a call again, under its id or at its index, must not make a client run it twice: what may be a
repetition is held until its end, and sent only if it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shepherd.core import CallDelta, CallEnded, CallStarted, Event, ToolCall
from shepherd.wire.arguments import Arguments
from shepherd.wire.base import Json, compact_json
from shepherd.wire.openai.shared_fields import arguments_in
from shepherd.wire.openai.signatures import PROTOCOL
from shepherd.wire.signature import signed
from shepherd.wire.tools import free_arguments
from shepherd.wire.values import BrokenAnswer, ended_call, index_in, object_at, same_arguments, text_in


class Calls:
    """The calls of one answer. The first that is open goes out as it comes; one that comes between its pieces waits."""

    def __init__(self, unique: Callable[[str], str]) -> None:
        """`unique`: the id of a call, by the id that the provider sends."""
        self.n = 0
        self._unique = unique
        self._open: list[Call] = []
        """Calls that have not ended; the first is being sent."""
        self._all: dict[Any, Call] = {}
        """The last call at each index."""
        self._by_id: dict[str, Call] = {}
        """The first call of each id of the provider."""
        self._last: Call | None = None
        self.has_indexes = False
        """The server counts its calls: two at one index are one."""

    def feed(self, fragment: Json) -> Iterator[Event]:
        """Take a piece of a call. Raises: `BrokenAnswer` for one of a call that is over."""
        function = object_at(fragment, "function")
        text = arguments_in(function.get("arguments"))
        custom = object_at(fragment, "custom")
        if custom:
            function, text = custom, text_in(custom, "input")
        id, name, index = text_in(fragment, "id").strip(), text_in(function, "name"), index_in(fragment, "index")
        self.has_indexes |= bool(index)
        call = self._of(id, name, index, text)
        if call is None:
            call = self._begin(id, name, index)
            if len(self._open) > 1 and self._open[0].is_whole:
                yield from self._end_first()
        elif call not in self._open:
            if text.strip():
                raise BrokenAnswer("arguments of a call come after its end")
            return
        call.own_id, call.name = call.own_id or id, call.name or name
        if call.own_id:
            self._by_id.setdefault(call.own_id, call)
        self._last = call
        call.is_free |= bool(custom)
        call.add(text, is_headed=bool(id or name))
        if fragment.get("extra_content"):
            call.signature = signed(PROTOCOL, compact_json(fragment["extra_content"]))
        if call is self._open[0] and call.name:
            yield from call.send()

    def end(self) -> Iterator[Event]:
        while self._open:
            yield from self._end_first()

    def _of(self, id: str, name: str, index: int | None, text: str) -> Call | None:
        """The call that a piece belongs to; None where it begins one."""
        call = self._last if index is None else self._all.get(index)
        if index is None and id:
            call = self._by_id.get(id, call)
        if call is None:
            begun = self._by_id.get(id)
            if begun is None or begun.is_whole or begun not in self._open or name not in ("", begun.name):
                return None
            self._all[index] = begun  # it goes on at another index (LocalAI)
            return begun
        if id and call.own_id and id != call.own_id:
            return None
        is_same = bool(id and id == call.own_id) or (self.has_indexes and index is not None)
        is_over = call.is_whole or call not in self._open
        if is_over and (id or name) and (text.strip() if not is_same else name):
            return None
        return call

    def _begin(self, id: str, name: str, index: int | None) -> Call:
        self.n += 1
        earlier = self._by_id.get(id) if id else self._all.get(index) if self.has_indexes else None
        call = Call(self._unique(id), id, name, earlier)
        self._all[len(self._all) if index is None else index] = call
        self._open.append(call)
        return call

    def _end_first(self) -> Iterator[Event]:
        yield from self._open.pop(0).finish()
        if self._open and self._open[0].name:
            yield from self._open[0].send()


class Call:
    def __init__(self, id: str, own_id: str, name: str, earlier: Call | None = None) -> None:
        self.id, self.own_id, self.name = id, own_id, name
        """`own_id`: as the provider sends it."""
        self.arguments = Arguments()
        self.signature: str | None = None
        self.is_free = False
        """It has a text in place of arguments, which become one when the text is whole."""
        self._earlier = earlier
        """The call that this one may repeat."""
        self._has_begun = False

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are an object that is complete."""
        return not self.is_free and self.arguments.is_whole

    def add(self, text: str, *, is_headed: bool) -> None:
        """Take a piece of the arguments; `is_headed`: it comes with an id or a name, and may repeat what came."""
        n = self.arguments.n_chars
        if is_headed and not self.is_free and 1 < n <= len(text) and text.startswith(self.arguments.text):
            text = text[n:]
        self.arguments.add(text)

    def send(self) -> Iterator[Event]:
        """What has come since the last time."""
        if self._earlier is not None:
            return
        if not self._has_begun:
            self._has_begun = True
            yield CallStarted(self.id, self.name)
        if not self.is_free and (text := self.arguments.ready()):
            yield CallDelta(text)

    def finish(self) -> Iterator[Event]:
        if self.is_free:
            text, self.arguments, self.is_free = self.arguments.text, Arguments(), False
            self.arguments.add(free_arguments(text))
        if (earlier := self._earlier) is not None:
            if self.name in ("", earlier.name) and (
                self.arguments.is_empty or same_arguments(self.arguments.text, earlier.arguments.text)
            ):
                return
            self._earlier = None
        yield from self.send()
        if rest := self.arguments.end():
            yield CallDelta(rest)
        call = ended_call(self.id, self.name, self.arguments.text)
        if self.signature is not None and isinstance(call, ToolCall):
            call = ToolCall(call.id, call.name, call.arguments, signature=self.signature)
        yield CallEnded(call)
