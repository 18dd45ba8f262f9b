"""The calls of an answer in the chat protocol, put together from their pieces.

    {"index": 0, "id": "a", "function": {"name": "look", "arguments": ""}}     CallStarted
    {"index": 0, "function": {"arguments": "{}"}}                              CallDelta
    {"index": 1, "id": "b", ...}                                               CallEnded, CallStarted

Servers leave indexes, ids and names out, repeat them, or give one index to all calls. A call that names no id gets one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shepherd.core import CallDelta, CallEnded, CallStarted, Event, ToolCall
from shepherd.wire.base import Json, compact_json
from shepherd.wire.openai.shared_fields import arguments_in, ended_call
from shepherd.wire.openai.signatures import PROTOCOL
from shepherd.wire.signature import signed
from shepherd.wire.tools import free_arguments
from shepherd.wire.values import BrokenAnswer, object_at, text_in


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
        self._last: Call | None = None

    def feed(self, fragment: Json) -> Iterator[Event]:
        """Take a piece of a call. Raises: `BrokenAnswer` for one of a call that is over."""
        function = object_at(fragment, "function")
        text = arguments_in(function.get("arguments"))
        custom = object_at(fragment, "custom")
        if custom:
            function, text = custom, text_in(custom, "input")
        id, name, index = text_in(fragment, "id"), text_in(function, "name"), fragment.get("index")
        index = index if isinstance(index, int) else None
        call = self._last if index is None else self._all.get(index)
        if index is None and id:
            call = next((each for each in self._all.values() if each.own_id == id), call)
        if (
            call is None
            or (id and call.own_id and id != call.own_id)
            or (name and not id and text.strip() and call.is_whole)
        ):
            call = self._begin(id, name, index)
            if len(self._open) > 1 and self._open[0].is_whole:
                yield from self._end_first()
        elif call not in self._open:
            if text.strip():
                raise BrokenAnswer("arguments of a call come after its end")
            return
        call.own_id, call.name = call.own_id or id, call.name or name
        self._last = call
        call.is_free |= bool(custom)
        call.texts.append(text)
        if fragment.get("extra_content"):
            call.signature = signed(PROTOCOL, compact_json(fragment["extra_content"]))
        if call is self._open[0] and call.name:
            yield from call.send()

    def end(self) -> Iterator[Event]:
        while self._open:
            yield from self._end_first()

    def _begin(self, id: str, name: str, index: int | None) -> Call:
        self.n += 1
        call = Call(self._unique(id), id, name)
        self._all[len(self._all) if index is None else index] = call
        self._open.append(call)
        return call

    def _end_first(self) -> Iterator[Event]:
        yield from self._open.pop(0).finish()
        if self._open and self._open[0].name:
            yield from self._open[0].send()


class Call:
    def __init__(self, id: str, own_id: str, name: str) -> None:
        self.id, self.own_id, self.name = id, own_id, name
        """`own_id`: as the provider sends it."""
        self.texts: list[str] = []
        self.signature: str | None = None
        self.is_free = False
        """It has a text in place of arguments, which become one when the text is whole."""
        self._n_sent = 0
        self._has_begun = False

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are an object that is complete."""
        return not self.is_free and isinstance(ended_call("", "?", "".join(self.texts) or "."), ToolCall)

    def send(self) -> Iterator[Event]:
        """What has come since the last time."""
        if not self._has_begun:
            self._has_begun = True
            yield CallStarted(self.id, self.name)
        if self.is_free:
            return
        text = "".join(self.texts[self._n_sent :])
        self._n_sent = len(self.texts)
        if text:
            yield CallDelta(text)

    def finish(self) -> Iterator[Event]:
        if self.is_free:
            self.texts, self.is_free = [free_arguments("".join(self.texts))], False
        if not "".join(self.texts).strip():
            self.texts = self.texts[: self._n_sent]
            self.texts.append("{}")
        yield from self.send()
        call = ended_call(self.id, self.name, "".join(self.texts))
        if self.signature is not None and isinstance(call, ToolCall):
            call = ToolCall(call.id, call.name, call.arguments, signature=self.signature)
        yield CallEnded(call)
