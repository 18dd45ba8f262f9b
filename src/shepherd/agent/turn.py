"""A turn: answers and the calls in them, until an answer has none. Over any back end, for any transcript.

    request ─▶ answer ─ calls? ─▶ the toolbox, side by side ─▶ results ─▶ answer ... ─▶ an answer without calls
                                        │
                       Working* Returned, one for each call, between the events of two answers

Whatever ends a turn, a failure or whoever stops reading, the messages it leaves are a valid transcript: what was said
is kept, and every call of it has its result, which is what the call really did where it had an end.

Not here: who says what next and what is remembered of it (`session.py`), and what stands between a call and its tool
(`tools/toolbox.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from shepherd.backends.base import Backend
from shepherd.core import (
    Assembler,
    BadCall,
    ContextFull,
    Event,
    Finished,
    Message,
    Reasoning,
    Request,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
)
from shepherd.tools.base import CallOutcome
from shepherd.tools.tool import Toolbox

MOST_ROUNDS = 32
"""Answers with calls in one turn; the one after them must do without tools."""
MOST_REPEATS = 3
"""The same call with the same arguments so often, and nothing new in between, is refused."""
MOST_STUCK = 2
"""Answers in a row of nothing but refused repetitions; the one after them must do without tools, too."""
SIDE_BY_SIDE = 8
"""Calls of one answer that are carried out at the same time; the others wait for them."""

NOT_DONE = "this call was not carried out: the turn was stopped before."
BROKEN_OFF = "this call was stopped while it was being carried out: a part of it may have been done."
"""What the model reads of calls that have no result of their own."""


@dataclass(frozen=True, slots=True)
class Working:
    """A call on its way says how far it is: one line, replaced by the next."""

    call: ToolCall
    line: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A call has been carried out, or refused. They come in the order of the calls."""

    call: ToolCall | BadCall
    result: ToolResult
    summary: str = ""
    """One line for a person; empty when the result says it all."""
    diff: str = ""
    """What it has changed in a file."""


Happening = Event | Working | Returned
"""Of a turn: one stream of events after the other, and what happens in between."""


async def turn(
    backend: Backend,
    request: Request,
    toolbox: Toolbox | None = None,
    *,
    said: list[Message] | None = None,
    max_rounds: int = MOST_ROUNDS,
    max_repeats: int = MOST_REPEATS,
) -> AsyncGenerator[Happening, None]:
    """Answer `request`, carry out the calls that the toolbox knows, and answer again; close the iterator to stop it.

    The messages of `said` follow those of the request, and what is said now is put behind them. The tools of the
    request itself are the caller's: they are offered with those of the toolbox, and a turn ends with their calls.

    Raises: as `Backend.stream`; everything before the answer that failed stays. Results for which there is no room in
    the context are taken out once, and the model is told so.
    """
    said = [] if said is None else said
    theirs = {spec.name for spec in request.tools}
    repeats = Repeats(max_repeats)
    n_round = n_stuck = n_fresh = 0
    is_over = False
    try:
        while not is_over:
            is_last = n_round >= max_rounds or n_stuck >= MOST_STUCK
            reason: StopReason = "end"
            asked = _asked(request, toolbox, said, is_first=n_round == 0, is_last=is_last)
            try:
                async with aclosing(_answer(backend, asked, said)) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            reason = event.reason
                        yield event
            except ContextFull as full:
                if not n_fresh or said[-1].role != "tool":
                    raise
                said[-n_fresh:] = [_without_content(message, full) for message in said[-n_fresh:]]
                n_fresh = 0  # once: what does not fit even so is the caller's to deal with
                continue
            calls = calls_of(said[-1])
            mine = [call for call in calls if call.name not in theirs] if toolbox is not None else []
            is_over = is_last or not calls or len(mine) < len(calls)
            if toolbox is None or not mine:
                break
            repeated = [repeats.has(call) for call in mine]
            refused = [_refusal(*of, reason, is_last=is_last) for of in zip(mine, repeated, strict=True)]
            n_round += 1
            n_stuck = n_stuck + 1 if all(repeated) else 0
            lanes = 1 if request.parallel_calls is False else SIDE_BY_SIDE
            async with aclosing(_carry_out(toolbox, mine, refused, said, lanes)) as happenings:
                async for happening in happenings:
                    yield happening
            n_fresh = len(mine)
    finally:
        if not is_over:
            said += unanswered(said)


def calls_of(message: Message) -> list[ToolCall | BadCall]:
    """The calls of a message, those that cannot be read included."""
    return [part for part in message.parts if isinstance(part, ToolCall | BadCall)]


def unanswered(messages: Sequence[Message]) -> list[Message]:
    """Results for the calls of the last answer that have none: they were not carried out."""
    at = next((n for n in range(len(messages) - 1, -1, -1) if messages[n].role != "tool"), None)
    if at is None:
        return []
    done = {part.call_id for message in messages[at:] for part in message.parts if isinstance(part, ToolResult)}
    return [_told(call, NOT_DONE) for call in calls_of(messages[at]) if call.id not in done]


class Repeats:
    """Recognises a model that goes round in circles: the same calls again and again, and no new one in between."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[tuple[str, str], int] = {}

    def has(self, call: ToolCall | BadCall) -> bool:
        """Whether this call, which is counted, is one too many."""
        key = (call.name, _meaning(call))
        if key not in self._counts:  # a test that is run again behind every change is no circle
            self._counts = dict.fromkeys(self._counts, 0)
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key] >= self._limit


def _asked(
    request: Request, toolbox: Toolbox | None, said: Sequence[Message], *, is_first: bool, is_last: bool
) -> Request:
    """The next request of a turn."""
    theirs = {spec.name for spec in request.tools}
    ours = [spec for spec in toolbox.specs if spec.name not in theirs] if toolbox is not None else []
    choice = request.tool_choice
    if is_last:
        choice = "none"
    elif not is_first and choice != "none":
        choice = "auto"  # a call that must come has come
    return replace(request, messages=(*request.messages, *said), tools=(*request.tools, *ours), tool_choice=choice)


async def _answer(backend: Backend, request: Request, said: list[Message]) -> AsyncGenerator[Event, None]:
    """One answer, from the back end into the transcript; as much as came of one that has no end.

    The last message grows if it is an answer that can: the back end goes on with it.
    """
    assembler = Assembler()
    is_whole = False

    def add(message: Message) -> None:
        if said and said[-1].role == "assistant":
            message = joined(said.pop(), message)
        said.append(message)

    try:
        async with aclosing(backend.stream(request)) as events:
            async for event in events:
                assembler.feed(event)
                if isinstance(event, Finished):
                    is_whole = True
                    add(assembler.reply().message)
                yield event
    finally:
        if not is_whole and (partial := assembler.partial()).parts:
            add(partial)


def joined(begun: Message, rest: Message) -> Message:
    """An answer and what was added to it, as one message."""
    parts = list(begun.parts)
    for part in rest.parts:
        match parts[-1] if parts else None, part:
            case Text(text=text, aside=False), Text(aside=False):
                parts[-1] = Text(text + part.text)
            case Reasoning(text=text, signature=None, redacted=False), Reasoning(redacted=False):
                parts[-1] = replace(part, text=text + part.text)
            case _:
                parts.append(part)
    # What only its origin understands goes back to nobody where two have had a part in it.
    return Message("assistant", tuple(parts), begun.origin if begun.origin == rest.origin else None)


def _refusal(call: ToolCall | BadCall, is_repeated: bool, reason: StopReason, *, is_last: bool) -> str:
    """Why a call is not carried out; empty when it is."""
    if is_last:
        return "there are no more calls in this turn. Answer with what you have."
    if isinstance(call, BadCall) and reason == "length":
        return "the answer reached its limit of tokens before this call was complete. Do less in one call."
    if isinstance(call, BadCall):
        return f"{call.error} Call it again"
    if is_repeated:
        return (
            "this call has come with the same arguments before, and again will give nothing new. Use the results that "
            "you have, change the arguments, or answer."
        )
    return ""


async def _carry_out(
    toolbox: Toolbox,
    calls: Sequence[ToolCall | BadCall],
    refused: Sequence[str],
    said: list[Message],
    lanes: int,
) -> AsyncGenerator[Working | Returned, None]:
    """Carry out the calls of an answer, `lanes` at a time; all results go into the transcript, in order (X6)."""
    free = asyncio.Semaphore(lanes)
    share = max(1, refused.count(""))
    news: dict[int, str] = {}
    changed = asyncio.Event()
    begun: set[int] = set()

    def tell(at: int, line: str) -> None:
        news[at] = line
        changed.set()

    async def run(at: int, call: ToolCall | BadCall, why: str) -> CallOutcome:
        if why or isinstance(call, BadCall):
            return CallOutcome(_error(call, why))
        async with free:
            begun.add(at)
            return await toolbox.run(call, share=share, tell=lambda line: tell(at, line))

    tasks = [asyncio.create_task(run(at, call, why)) for at, (call, why) in enumerate(zip(calls, refused, strict=True))]
    for task in tasks:
        task.add_done_callback(lambda _: changed.set())
    try:
        n = 0
        while n < len(tasks):
            await changed.wait()
            changed.clear()
            for at in sorted(news):
                line, call = news.pop(at), calls[at]
                if not tasks[at].done() and isinstance(call, ToolCall):
                    yield Working(call, line)
            while n < len(tasks) and tasks[n].done():
                # One that was cancelled by something of its own is no reason to end the turn.
                ran = CallOutcome(_error(calls[n], BROKEN_OFF)) if tasks[n].cancelled() else tasks[n].result()
                yield Returned(calls[n], ran.result, ran.summary, ran.diff)
                n += 1
    finally:
        for task in tasks:
            task.cancel()
        try:
            await asyncio.wait(tasks)
        finally:  # whoever stops it twice does not wait for tools to tidy up
            for at, (call, task) in enumerate(zip(calls, tasks, strict=True)):
                is_done = task.done() and not task.cancelled() and task.exception() is None
                why = BROKEN_OFF if at in begun else NOT_DONE
                said.append(Message("tool", (task.result().result,)) if is_done else _told(call, why))


def _without_content(message: Message, full: ContextFull) -> Message:
    """A result that is too long for the context: what is said in its place lets the model ask for less."""
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    n = full.needed - full.limit
    why = f"Error: the results of these calls do not fit into the context, by {n} tokens. Ask for less, or answer."
    return Message("tool", (replace(result, parts=(Text(why),), is_error=True),))


def _meaning(call: ToolCall | BadCall) -> str:
    """The same for arguments that mean the same."""
    if isinstance(call, BadCall):
        return call.raw
    try:
        return json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return call.arguments


def _told(call: ToolCall | BadCall, why: str) -> Message:
    return Message("tool", (_error(call, why),))


def _error(call: ToolCall | BadCall, why: str) -> ToolResult:
    return ToolResult(call.id, (Text(f"Error: {why}"),), call.name, is_error=True)
