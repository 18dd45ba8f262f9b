"""A turn: answers and the calls in them, until an answer has none. Over any back end, for any transcript.

    request ─▶ answer ─ calls? ─▶ the toolbox, side by side ─▶ results ─▶ answer ... ─▶ an answer without calls
                                        │
                       CallProgress* CallReturned, one for each call, between the events of two answers

However a turn ends, by a failure or by a caller that stops reading, its messages are a valid transcript: complete parts
are kept, and every call has a result, the real one where the call has ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

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
from shepherd.core.dataclasses import dataclass, replace
from shepherd.tools.base import CallOutcome
from shepherd.tools.tool import Toolbox

MAX_ROUNDS = 32
"""Answers with calls in one turn; the one after them must do without tools."""
MAX_REPEATS = 3
"""The same call with the same arguments is refused at this count, if nothing new came in between."""
MAX_STUCK = 2
"""Answers in a row with only refused repetitions; the one after them must do without tools, too."""
MAX_PARALLEL_CALLS = 8
"""Calls of one answer that run at the same time; the others wait."""

NOT_DONE = "this call was not carried out: the turn was stopped before."
BROKEN_OFF = "this call was stopped while it was being carried out: a part of it may have been done."
"""Results, for the model, of calls without one."""


@dataclass(frozen=True, slots=True)
class CallProgress:
    """The progress of a running call: one line, replaced by the next."""

    call: ToolCall
    line: str


@dataclass(frozen=True, slots=True)
class CallReturned:
    """A call has ended, or was refused. They come in the order of the calls."""

    call: ToolCall | BadCall
    result: ToolResult
    summary: str = ""
    """One line for a person; empty when the result is enough."""
    diff: str = ""
    """The change of a file."""


TurnEvent = Event | CallProgress | CallReturned
"""The events of a turn: one stream after the other, and those of the calls in between."""


async def run_turn(
    backend: Backend,
    request: Request,
    toolbox: Toolbox | None = None,
    *,
    transcript: list[Message] | None = None,
    max_rounds: int = MAX_ROUNDS,
    max_repeats: int = MAX_REPEATS,
) -> AsyncGenerator[TurnEvent, None]:
    """Answer `request`, carry out the calls that the toolbox knows, and answer again; close the iterator to stop it.

    The messages of `transcript` follow those of the request, and the turn appends its own to them. The tools of the
    request itself belong to the caller: they are offered beside those of the toolbox, and the turn ends with their
    calls.

    Raises: as `Backend.stream`; everything before the answer that failed stays. If results do not fit into the context,
    an error for the model takes their place, once.
    """
    transcript = [] if transcript is None else transcript
    theirs = {spec.name for spec in request.tools}
    repeats = RepeatDetector(max_repeats)
    n_round = n_stuck = n_new_results = 0
    is_over = False
    try:
        while not is_over:
            is_last = n_round >= max_rounds or n_stuck >= MAX_STUCK
            reason: StopReason = "end"
            asked = _next_request(request, toolbox, transcript, is_first=n_round == 0, is_last=is_last)
            try:
                async with aclosing(_answer(backend, asked, transcript)) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            reason = event.reason
                        yield event
            except ContextFull as full:
                if not n_new_results or transcript[-1].role != "tool":
                    raise
                transcript[-n_new_results:] = [
                    _without_content(message, full) for message in transcript[-n_new_results:]
                ]
                n_new_results = 0  # once: if it does not fit even so, the caller gets the error
                continue
            calls = calls_of(transcript[-1])
            mine = [call for call in calls if call.name not in theirs] if toolbox is not None else []
            is_over = is_last or not calls or len(mine) < len(calls)
            if toolbox is None or not mine:
                break
            repeated = [repeats.has(call) for call in mine]
            refused = [_refusal(*of, reason, is_last=is_last) for of in zip(mine, repeated, strict=True)]
            n_round += 1
            n_stuck = n_stuck + 1 if all(repeated) else 0
            lanes = 1 if request.parallel_calls is False else MAX_PARALLEL_CALLS
            async with aclosing(_carry_out(toolbox, mine, refused, transcript, lanes)) as outcomes:
                async for outcome in outcomes:
                    yield outcome
            n_new_results = len(mine)
    finally:
        if not is_over:
            transcript += unanswered(transcript)


def calls_of(message: Message) -> list[ToolCall | BadCall]:
    """The calls of a message, unreadable ones included."""
    return [part for part in message.parts if isinstance(part, ToolCall | BadCall)]


def unanswered(messages: Sequence[Message]) -> list[Message]:
    """Results for calls of the last answer that were not carried out."""
    at = next((n for n in range(len(messages) - 1, -1, -1) if messages[n].role != "tool"), None)
    if at is None:
        return []
    done = {result.call_id for message in messages[at:] for result in message.results}
    return [Message("tool", (_error(call, NOT_DONE),)) for call in calls_of(messages[at]) if call.id not in done]


class RepeatDetector:
    """Detects a model in a loop: the same calls again and again, and no new one in between."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[tuple[str, str], int] = {}

    def has(self, call: ToolCall | BadCall) -> bool:
        """Count this call; whether it is one too many."""
        key = (call.name, _meaning(call))
        if key not in self._counts:  # a test that runs again after every change is no loop
            self._counts = dict.fromkeys(self._counts, 0)
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key] >= self._limit


def _next_request(
    request: Request, toolbox: Toolbox | None, transcript: Sequence[Message], *, is_first: bool, is_last: bool
) -> Request:
    theirs = {spec.name for spec in request.tools}
    ours = [spec for spec in toolbox.specs if spec.name not in theirs] if toolbox is not None else []
    choice, start = request.tool_choice, request.start if is_first else None
    if is_last:
        choice = "none"
    elif not is_first and choice != "none":
        choice = "auto"  # the call that had to come has come
    messages, tools = (*request.messages, *transcript), (*request.tools, *ours)
    return replace(request, messages=messages, tools=tools, tool_choice=choice, start=start)


async def _answer(backend: Backend, request: Request, transcript: list[Message]) -> AsyncGenerator[Event, None]:
    """One answer, from the back end into the transcript; an interrupted one as far as it came. If the last message is
    an answer, the back end continues it, and it grows."""
    assembler = Assembler()
    is_whole = False

    def add(message: Message) -> None:
        if transcript and transcript[-1].role == "assistant":
            message = joined(transcript.pop(), message)
        transcript.append(message)

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
    """An answer and its continuation as one message."""
    parts = list(begun.parts)
    for part in rest.parts:
        match parts[-1] if parts else None, part:
            case Text(text=text, aside=False), Text(aside=False):
                parts[-1] = Text(text + part.text)
            case Reasoning(text=text, signature=None, redacted=False), Reasoning(redacted=False):
                parts[-1] = replace(part, text=text + part.text)
            case _:
                parts.append(part)
    # Parts that only one origin understands have no origin where two models wrote the message.
    return Message("assistant", tuple(parts), begun.origin if begun.origin == rest.origin else None)


def _refusal(call: ToolCall | BadCall, is_repeated: bool, reason: StopReason, *, is_last: bool) -> str:
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
    transcript: list[Message],
    lanes: int,
) -> AsyncGenerator[CallProgress | CallReturned, None]:
    """Run the calls of an answer, `lanes` at a time; all results go into the transcript, in order (X6)."""
    free = asyncio.Semaphore(lanes)
    share = max(1, refused.count(""))
    news: dict[int, str] = {}
    changed = asyncio.Event()
    begun: set[int] = set()

    def report(at: int, line: str) -> None:
        news[at] = line
        changed.set()

    async def run(at: int, call: ToolCall | BadCall, why: str) -> CallOutcome:
        if why or isinstance(call, BadCall):
            return CallOutcome(_error(call, why))
        async with free:
            begun.add(at)
            return await toolbox.run(call, share=share, tell=lambda line: report(at, line))

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
                    yield CallProgress(call, line)
            while n < len(tasks) and tasks[n].done():
                # A call that its own tool has cancelled does not end the turn.
                ran = CallOutcome(_error(calls[n], BROKEN_OFF)) if tasks[n].cancelled() else tasks[n].result()
                yield CallReturned(calls[n], ran.result, ran.summary, ran.diff)
                n += 1
    finally:
        for task in tasks:
            task.cancel()
        try:
            await asyncio.wait(tasks)
        finally:  # a second cancellation does not wait for the tools to end
            for at, (call, task) in enumerate(zip(calls, tasks, strict=True)):
                is_done = task.done() and not task.cancelled() and task.exception() is None
                why = BROKEN_OFF if at in begun else NOT_DONE
                transcript.append(Message("tool", (task.result().result if is_done else _error(call, why),)))


def _without_content(message: Message, full: ContextFull) -> Message:
    """An error in place of a result that is too long, so that the model asks for less."""
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    by = f", by {full.needed - full.limit} tokens" if full.limit else ""
    why = f"Error: the results of these calls do not fit into the context{by}. Ask for less, or answer."
    return Message("tool", (replace(result, parts=(Text(why),), is_error=True),))


def _meaning(call: ToolCall | BadCall) -> str:
    """A key that is equal for equal arguments in any spelling."""
    if isinstance(call, BadCall):
        return call.raw
    try:
        return json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return call.arguments


def _error(call: ToolCall | BadCall, why: str) -> ToolResult:
    return ToolResult(call.id, (Text(f"Error: {why}"),), call.name, is_error=True)
