"""A provider that repeats our key: it reaches no client, no log and no file.

    record, body ─ without ─▶ the same bytes with *** ─▶ decoder ─▶ events ─ veiled ─▶ events

`without` finds a key that stands in one record, in any of its fields; `veiled` one that the deltas of a text cut into
pieces: the end of a delta that may begin a key waits for the next one. Pure, but for the stream that it passes on.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace

from shepherd.core import BadCall, CallDelta, CallEnded, Event, ReasoningDelta, TextDelta, ToolCall

HIDDEN = "***"


def without(content: bytes, secrets: Iterable[bytes]) -> bytes:
    """`secrets`: as `spelled`."""
    for secret in secrets:
        content = content.replace(secret, HIDDEN.encode())
    return content


def spelled(secrets: Iterable[str]) -> tuple[bytes, ...]:
    """The secrets as they may stand in JSON, the longest first."""
    texts = [text for secret in secrets for text in (secret, json.dumps(secret)[1:-1])]
    forms = {form.encode("utf-8", "replace") for text in texts for form in (text, text.replace("/", "\\/"))}
    return tuple(sorted(forms, key=len, reverse=True))


async def veiled(events: AsyncGenerator[Event, None], secrets: Sequence[str]) -> AsyncGenerator[Event, None]:
    """The events with *** in place of each secret. The caller closes `events`."""
    held: TextDelta | ReasoningDelta | CallDelta | None = None
    """The end of a text that may go on as a secret."""
    async for event in events:
        if not isinstance(event, TextDelta | ReasoningDelta | CallDelta):
            if held is not None:
                yield held
                held = None
            yield _without_in_call(event, secrets) if isinstance(event, CallEnded) else event
            continue
        if held is not None and _part(held) != _part(event):
            yield held
            held = None
        event = _with_tokens(event, held)
        whole = (held.text if held is not None else "") + event.text
        if (text := _hidden(whole, secrets)) != whole:
            event = _bare(event)  # tokens spell it, too
        is_last = isinstance(event, ReasoningDelta) and event.signature is not None
        n_shown = len(text) if is_last else len(text) - _n_begun(text, secrets)
        held = None
        if n_shown == len(text):
            yield replace(event, text=text)
        elif n_shown == 0:
            held = replace(event, text=text)
        else:
            yield replace(_bare(event), text=text[:n_shown])
            held = replace(event, text=text[n_shown:])
    if held is not None:
        yield held


def _without_in_call(event: CallEnded, secrets: Iterable[str]) -> CallEnded:
    match event.call:
        case ToolCall() as call:
            return replace(event, call=replace(call, arguments=_hidden(call.arguments, secrets)))
        case BadCall() as call:
            return replace(event, call=replace(call, raw=_hidden(call.raw, secrets)))


def _hidden(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def _n_begun(text: str, secrets: Iterable[str]) -> int:
    """Characters at the end of a text that are the beginning of a secret."""
    return max(
        (
            n
            for secret in secrets
            for n in range(1, min(len(secret), len(text) + 1))
            if text[-n] == secret[0] and text.endswith(secret[:n])
        ),
        default=0,
    )


def _part(event: TextDelta | ReasoningDelta | CallDelta) -> object:
    """What a delta belongs to."""
    match event:
        case TextDelta():
            return TextDelta, event.refused
        case ReasoningDelta():
            return ReasoningDelta, event.redacted, event.id
    return CallDelta


def _with_tokens(
    event: TextDelta | ReasoningDelta | CallDelta, held: TextDelta | ReasoningDelta | CallDelta | None
) -> TextDelta | ReasoningDelta | CallDelta:
    """The tokens of a text that was held go out with it."""
    if not (isinstance(event, TextDelta) and isinstance(held, TextDelta)):
        return event
    return replace(event, scores=held.scores + event.scores, tokens=held.tokens + event.tokens)


def _bare(event: TextDelta | ReasoningDelta | CallDelta) -> TextDelta | ReasoningDelta | CallDelta:
    return replace(event, scores=(), tokens=()) if isinstance(event, TextDelta) else event
