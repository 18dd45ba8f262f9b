"""How many tokens a request has, about, and which old messages leave when it has too many. Pure.

    Request ─ sizes ─▶ weights ─ Estimate.tokens ─▶ tokens ─ too many ─▶ dropped_indices

Only the provider knows its tokenizer: an estimate begins at four characters for a token, and each answer's `usage`
corrects it. Messages leave by whole turns, as in a cache of our own (`local/turns.py`), in large steps: the prompts of
the next turns begin alike, so that the provider's cache keeps helping.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from shepherd.core import Audio, Document, Image, Message, Opaque, Part, Reasoning, Request, Text, ToolCall, ToolResult

OF_MESSAGE = 4.0
OF_IMAGE = 1_000.0
OF_DOCUMENT_BYTE = 1 / 30
OF_AUDIO_BYTE: Mapping[str, float] = {"audio/wav": 1 / 1_000, "audio/flac": 1 / 500}
OF_OTHER_AUDIO_BYTE = 1 / 250
"""Weights: about a token each. A page of a PDF has some 2,000 tokens and 60 kB. A second of a recording has 32 tokens,
as Google says (OpenAI: 10), and 32 kB as WAV with 16,000 samples, half as FLAC; as MP3 8 kB, for speech."""
STEP = 0.25
"""Of the window: what leaves at once, so that the next turns have room."""
_SURE = 2.0
"""A prompt has at least its weight divided by this, with any tokenizer."""


class Estimate:
    """How many tokens a weight is, for one model; learns from every answer."""

    def __init__(self) -> None:
        self._ratio = 1.0
        self.is_learnt = False

    def tokens(self, weight: float) -> int:
        return math.ceil(weight * self._ratio)

    def least(self, weight: float) -> int:
        return math.ceil(weight * self._ratio * 0.85 if self.is_learnt else weight / _SURE)

    def learn(self, weight: float, tokens: int) -> None:
        if weight < 200 or tokens <= 0:  # a short prompt shows little
            return
        ratio = min(max(tokens / weight, 0.3), 3.0)
        self._ratio = ratio if not self.is_learnt else 0.5 * (self._ratio + ratio)
        self.is_learnt = True


def weight_of(request: Request) -> float:
    """Of everything that becomes the prompt."""
    return fixed_weight(request) + sum(map(message_weight, request.messages))


def fixed_weight(request: Request) -> float:
    """Of what never leaves: the tools, the schema of the answer."""
    tools = sum(
        12 + _text(tool.name) + _text(tool.description) + _text(json.dumps(dict(tool.parameters), default=str))
        for tool in request.tools
    )
    return tools + (_text(json.dumps(dict(request.schema), default=str)) if request.schema is not None else 0.0)


def message_weight(message: Message) -> float:
    return OF_MESSAGE + sum(map(_weight, message.parts))


def _weight(part: Part) -> float:
    match part:
        case Text() | Reasoning():
            return _text(part.text) + (len(part.signature) / 8 if isinstance(part, Reasoning) and part.signature else 0)
        case ToolCall():
            return 8 + _text(part.name) + _text(part.arguments)
        case ToolResult():
            return 8 + sum(map(_weight, part.parts))
        case Image():
            return OF_IMAGE
        case Audio():
            return len(part.data) * OF_AUDIO_BYTE.get(part.media_type, OF_OTHER_AUDIO_BYTE)
        case Document():
            return max(OF_IMAGE, len(part.data or b"") * OF_DOCUMENT_BYTE)
        case Opaque():
            return _text(part.body) / 2
        case _:
            return _text(part.raw)


def _text(text: str) -> float:
    return len(text) / 4 if text.isascii() else len(text.encode("utf-8", "replace")) / 3


def dropped_indices(messages: Sequence[Message], excess: float, step: float) -> tuple[int, ...]:
    """The indexes of the messages that leave, so that at least `excess` of their weight does; empty if that cannot be.

    Whole turns and calls with their results, the oldest first. The system's messages, the first of the user's and the
    newest turn stay. What leaves is a multiple of `step`, if there is so much: it stays the same for some turns.
    """
    from shepherd.backends.local.turns import placements  # noqa: PLC0415 - loads the dialects

    places = placements(messages)
    first = next((at for at, message in enumerate(messages) if message.is_input), -1)
    groups: dict[int, list[int]] = {}
    for at, (message, place) in enumerate(zip(messages, places, strict=True)):
        if not place.keep and message.role != "system" and at != first:
            groups.setdefault(place.turn, []).append(at)
    wanted = math.ceil(excess / step) * step
    left, weight = list[int](), 0.0
    for turn in sorted(groups):
        if weight >= wanted:
            break
        left += groups[turn]
        weight += sum(message_weight(messages[at]) for at in groups[turn])
    return tuple(sorted(left)) if weight >= excess else ()
