"""What a back end remembers of its conversations, so that a history which comes back is the same prompt again (K7, K8).

Requests carry whole histories and no memory. What they leave out, or what a client or a template would spell anew, is
remembered here: how the model wrote each answer, how each prompt was written, in which order the tools came, and which
day it was when a conversation began. All of it is found by what was said, and by the session where a client names one;
and all of it is bounded, the longest unused forgotten first. Forgetting costs a prefill, nothing else.

    what breaks the cache                                     what remembers
    the model's own spelling, thoughts that clients drop      Answers
    thoughts that a template shows in the newest turn only    Prompts
    tools in another order, or with their keys in another     Tools
    the date                                                  Days
    how much room is left, told at the front                  nothing: it is left out (`steadied`)

Not here: what is done with an answer that is remembered (`dialects.replay`), who is told (`fingerprint`).
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import TypeVar

from shepherd.core import Image, Message, Reasoning, Request, Text, ToolCall, ToolResult, ToolSpec
from shepherd.core.lru import LruCache
from shepherd.dialects import Piece, Prompt, Stretch
from shepherd.dialects.render.replay import Said, joined, meaning, spelled

V = TypeVar("V")

ENTRY_BYTES = 400
"""What an entry takes besides the texts of its value: its key, its links, and the objects around the texts."""
PIECE_BYTES = 120
"""What a piece of a prompt takes besides its text: itself, and its part of the stretches."""


def weight(pieces: Sequence[Piece], *texts: str) -> int:
    """Bytes of memory that an entry with these pieces and texts takes, about."""
    held = sum(sys.getsizeof(text) for text in texts)
    return ENTRY_BYTES + held + sum(sys.getsizeof(piece.text) + PIECE_BYTES for piece in pieces)


class Answers:
    """The answers of late, each as the model wrote it. Safe from several threads."""

    def __init__(self, limit_bytes: int = 8_000_000) -> None:
        self._by_calls = LruCache[Said](limit_bytes)
        self._by_stage = LruCache[Said](limit_bytes)

    def remember(self, request: Request, answer: Said) -> None:
        """Remember the answer to the request."""
        calls = answer.message.calls
        written = spelled(answer.pieces)
        n_bytes = weight(answer.pieces, written)
        # An id that the model wrote is one that anybody may know: such a call is its conversation's alone.
        if calls and not any(call.id in written for call in calls):
            self._by_calls.keep(by_calls(calls), answer, n_bytes)
        self._by_stage.keep(stages((*request.messages, answer.message))[-1], answer, n_bytes)

    def clear(self) -> None:
        """Forget them all."""
        self._by_calls.clear()
        self._by_stage.clear()

    def find(self, messages: Sequence[Message]) -> dict[int, Said]:
        """The remembered answers among the messages, by their index."""
        found: dict[int, Said] = {}
        if not self._by_stage:
            return found
        for index, (message, stage) in enumerate(zip(messages, stages(messages), strict=True)):
            if message.role != "assistant":
                continue
            answer = self._by_calls.find(by_calls(message.calls)) if message.calls else None
            if answer is None and (there := self._by_stage.find(stage)) is not None and knows(message, there):
                answer = there
            if answer is not None:
                found[index] = answer
        return found


def knows(message: Message, answer: Said) -> bool:
    """Whether whoever sends the message has been given that answer: calls could be guessed, and bring a thought along.

    Ids need not come back, Ollama's protocol has none; then nothing may be hidden from whoever asks.
    """
    own = answer.message
    same_ids = [call.id for call in message.calls] == [call.id for call in own.calls]
    return same_ids or message.reasoning.strip() == own.reasoning.strip()


@dataclass(frozen=True, slots=True)
class Begun:
    """A prompt without its generation prompt."""

    pieces: tuple[Piece, ...]
    stretches: tuple[Stretch, ...]


class Prompts:
    """The prompts of late: one that goes on with another begins with its very characters. Safe from several threads.

    Some templates spell a message in another way once it is old: without its thought, or without the tags around none.
    The prefix up to there would be all that is left of the cache, and at a user's next question that is everything
    before the tool loop that came last. What a model has read once it reads again.
    """

    def __init__(self, limit_bytes: int = 8_000_000) -> None:
        self._begun = LruCache[Begun](limit_bytes)

    def clear(self) -> None:
        """Forget them all."""
        self._begun.clear()

    def going_on(self, request: Request, prompt: Prompt, day: datetime | None = None) -> Prompt:
        """The prompt of the request, with the characters of the longest earlier one that it goes on with.

        `day` is when the conversation began, for templates that print it.
        """
        messages = request.messages
        if not messages or not prompt.stretches:
            return prompt
        # Thoughts stand in it, so it is for those only who call themselves the same.
        who = (request.user, request.session)
        told = (who, day, request.reasoning, request.tool_choice == "none", request.extra.get("chat_template_kwargs"))
        seen = stages(messages, repr((told, *map(canonical, request.tools))), ids=True)
        for n in range(len(messages), 0, -1):
            if (begun := self._begun.find(seen[n - 1])) is not None:
                prompt = spliced(begun, prompt, n) or prompt
                break
        if messages[-1].role != "assistant":  # one that shall be gone on with has no end yet
            stop = prompt.stretches[-1].stop
            kept = Begun(before(prompt.pieces, stop), prompt.stretches)
            self._begun.keep(seen[-1], kept, weight(kept.pieces))
        return prompt


def spliced(begun: Begun, prompt: Prompt, n: int) -> Prompt | None:
    """The prompt with another beginning, of its first `n` messages, if it parts behind them:

        begun    ... text of the nth │ trailer │
        prompt   ... text of the nth │ trailer │ further markup, text of others ...
        spliced  ═ begun ═══════════════════════ prompt ═══════════════════════════

    None where it does not: anything of those messages, or of the tools, stands further behind, or the last of them ends
    in another way than it did, as with two results in one turn.
    """
    own = [at for at, piece in enumerate(prompt.pieces) if piece.origin is not None and piece.origin < n]
    trailer = begun.pieces[-1].text if begun.pieces[-1].origin is None else ""
    text = begun.pieces[-2:-1] if trailer else begun.pieces[-1:]
    if not own or prompt.pieces[own[-1] :][:1] != text:
        return None
    head, rest = prompt.pieces[: own[-1] + 1], prompt.pieces[own[-1] + 1 :]
    is_mixed = any(piece.origin is not None and piece.origin >= n for piece in head)
    if is_mixed or (trailer and not (rest and rest[0].origin is None and rest[0].text.startswith(trailer))):
        return None
    cut = sum(len(piece.text) for piece in head) + len(trailer)
    moved = begun.stretches[-1].stop - cut
    new = [stretch for stretch in prompt.stretches if stretch.message >= n]
    if any(other < n for stretch in new for other in stretch.others):
        return None
    # Where a question's stretch takes in the head of the answer behind it, it does so in both.
    last = max((stretch.stop for stretch in prompt.stretches if stretch.message < n), default=0)
    joint = replace(begun.stretches[-1], stop=max(cut, last) + moved)
    stretches = (replace(each, start=max(each.start, cut) + moved, stop=each.stop + moved) for each in new)
    pieces = joined(begun.pieces, *behind(rest, len(trailer)))
    return replace(prompt, pieces=pieces, stretches=(*begun.stretches[:-1], joint, *stretches))


def before(pieces: Sequence[Piece], stop: int) -> tuple[Piece, ...]:
    """The first `stop` characters."""
    made: list[Piece] = []
    for piece in pieces:
        if stop <= 0:
            break
        made.append(piece if len(piece.text) <= stop else replace(piece, text=piece.text[:stop]))
        stop -= len(piece.text)
    return tuple(made)


def behind(pieces: Sequence[Piece], start: int) -> tuple[Piece, ...]:
    """All but the first `start` characters."""
    made: list[Piece] = []
    for piece in pieces:
        if len(piece.text) > start:
            made.append(piece if start <= 0 else replace(piece, text=piece.text[start:]))
        start -= len(piece.text)
    return tuple(made)


class Tools:
    """The tools of the conversations of late, in the order and the spelling in which each came first.

    Nearly all templates write them at the front. A client may send them in another order, with the keys of a schema in
    another, or with further ones among them; those come last here. Safe from several threads.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._orders = LruCache[tuple[str, ...]](limit)
        """Names in their order, by session or else by stage."""
        self._specs = LruCache[ToolSpec](limit)

    def settled(self, request: Request) -> Request:
        """The request with what its prompt begins with as it was before, as far as it says the same."""
        messages = steadied(request.messages)
        if not request.tools:
            return request if messages is request.messages else replace(request, messages=messages)
        keys: list[object] = [request.session] if request.session else [*stages(messages, "tools")]
        order = next((known for key in reversed(keys) if (known := self._orders.find(key))), ())
        rank = {name: at for at, name in enumerate(order)}
        tools = sorted(map(self._first, request.tools), key=lambda tool: rank.get(tool.name, len(rank)))
        new = dict.fromkeys(tool.name for tool in tools if tool.name not in rank)
        self._orders.keep(keys[-1] if keys else None, (*order, *new))
        return replace(request, messages=messages, tools=tuple(tools))

    def _first(self, tool: ToolSpec) -> ToolSpec:
        """The same tool as it was spelled when it came first."""
        key = canonical(tool)
        if (known := self._specs.find(key)) is None:
            self._specs.keep(key, tool)
        return known or tool


def canonical(tool: ToolSpec) -> bytes:
    """A hash of what a tool is, in whatever order the keys of its schema came."""
    said = json.dumps((tool.name, tool.description, tool.strict, tool.parameters), sort_keys=True, default=dict)
    return hashlib.blake2b(said.encode("utf-8", "replace"), digest_size=16).digest()


VOLATILE = re.compile(r"\s*<total_tokens>[^<>]{0,80}</total_tokens>")
"""How much room is left, as Claude Code tells it."""


def steadied(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages without what changes with every request and stands before all else; where it stands among the turns
    it stays, for there it was true when it was said."""
    leading = tuple(takewhile(lambda message: message.role == "system", messages))
    if not any(VOLATILE.search(message.text) for message in leading):
        return messages
    steady = (
        replace(
            message, parts=tuple(replace(p, text=VOLATILE.sub("", p.text)) for p in message.parts if type(p) is Text)
        )
        for message in leading
    )
    return (*steady, *messages[len(leading) :])


class Days:
    """The day on which each conversation of late began. Safe from several threads.

    A conversation is known by how it began: a request whose first messages were all of an earlier request goes on with
    that one and keeps its day. A request that goes on with none begins today, even if another one began with the same
    words; from its second message on it is told apart.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._days = LruCache[datetime](limit)

    def begin(self, request: Request, day: datetime) -> None:
        """The conversation of this request began on that day."""
        for stage in stages(request.messages[:2], request.session or ""):
            self._days.keep(stage, day)

    def day_of(self, request: Request, today: datetime) -> datetime:
        """When the conversation of this request began."""
        seen = stages(request.messages, request.session or "")
        if not seen:
            return today
        known = seen if request.session else seen[:-1]
        day = next((day for stage in reversed(known) if (day := self._days.find(stage))), today)
        self._days.keep(seen[-1], day)
        return day


def stages(messages: Sequence[Message], apart: str = "", *, ids: bool = False) -> list[bytes]:
    """For each message a hash of what was said up to it; thoughts aside, which clients keep or drop as they like.

    `apart` tells conversations apart that say the same; `ids`: so do the ids of calls.
    """
    hashed = hashlib.blake2b(apart.encode("utf-8", "replace"), digest_size=16)
    made: list[bytes] = []
    for message in messages:
        for word in (message.role, *said_in(message, ids=ids), "."):
            data = word.encode("utf-8", "replace")
            hashed.update(b"%d:" % len(data))
            hashed.update(data)
        made.append(hashed.digest())
    return made


def said_in(message: Message, *, ids: bool = False) -> Iterator[str]:
    """What a message says: its text, what it shows, and what it calls or answers. Clients strip answers."""
    yield message.text.strip() if message.role == "assistant" else message.text
    for part in message.parts:
        match part:
            case ToolCall():
                yield repr(("call", part.id if ids else "", *meaning(part)))
            case ToolResult():
                yield repr(("result", part.call_id if ids else "", len(part.parts)))
                yield from map(shown, part.parts)
            case Image():
                yield shown(part)
            case Text() | Reasoning():
                pass
            case _:
                yield repr(("bad", part.raw))


def shown(part: Text | Image) -> str:
    """What of a part a model can see."""
    return part.text if isinstance(part, Text) else repr((part.media_type, part.url, len(part.data or b"")))


def by_calls(calls: Sequence[ToolCall]) -> bytes:
    """A hash of calls with their ids."""
    said = [(call.id, *meaning(call)) for call in calls]
    return hashlib.blake2b(repr(said).encode("utf-8", "replace"), digest_size=16).digest()
