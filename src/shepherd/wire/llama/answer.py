"""The answers of llama-server's own endpoints, `/completion` and `/infill`, whole or streamed.

A stream is one object for each piece of text, and a last one with everything but the text. A body with several
prompts, or `n`, is answered with an array. Not here: what the body says (`completion`, `infill`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii as quote

from shepherd.core import (
    ContextFull,
    Event,
    Finished,
    Reply,
    Started,
    StopReason,
    TextDelta,
    TokenScore,
)
from shepherd.wire.base import Json
from shepherd.wire.openai import shapes
from shepherd.wire.sse import MEDIA_TYPE, PING, encode_event
from shepherd.wire.watch import Watch


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How to write the answer."""

    prompts: tuple[str, ...] = ("",)
    """Of each choice, repeated at its end; empty for tokens."""
    max_tokens: int | None = None
    settings: Json = field(default_factory=dict)
    """`generation_settings`: what the body asks for, by llama-server's names."""
    probabilities: bool = False
    tokens: bool = False
    return_progress: bool = False
    fields: tuple[str, ...] = ()
    """Of a whole answer, the only ones that are wanted, as paths such as `timings/predicted_n`; empty = all."""


def encode_error(error: Exception) -> tuple[int, Json]:
    """HTTP status and body. Reveals nothing of an unexpected exception."""
    status, body = shapes.encode_error(error, prompt="prompt")
    if isinstance(error, ContextFull):
        counts = {"n_prompt_tokens": error.needed, "n_ctx": error.limit}
        body["error"] |= {"code": status, "type": "exceed_context_size_error", **counts}
    return status, body


class Encoder:
    """Writes one answer. Not for sharing; the events of each choice must come in the order of the grammar."""

    media_type = MEDIA_TYPE
    ping = PING

    def __init__(self, options: AnswerOptions, *, id: str, created: int, model: str) -> None:
        n = len(options.prompts)
        self._options = options
        self._model = model
        self._watches = [Watch() for _ in range(n)]
        self._has_new_line = [False] * n
        self._heads = [b'data: {"index":%d,"content":' % at for at in range(n)]

    def encode(self, event: Event, choice: int = 0) -> bytes:
        if type(event) is TextDelta and not event.scores and self._watches[choice].has_text:
            self._has_new_line[choice] |= "\n" in event.text
            return self._heads[choice] + quote(event.text).encode("ascii") + _NOT_STOPPED
        watch = self._watches[choice]
        watch.note_time(event)
        chunks = []
        if self._options.return_progress and (progress := watch.progress(event)) is not None:
            chunks.append(encode_event({**self._part(choice, "", ()), "prompt_progress": progress}))
        match event:
            case TextDelta(text, scores):
                self._has_new_line[choice] |= "\n" in text
                chunks.append(encode_event(self._part(choice, text, scores)))
            case Started(model):
                self._model = self._model or model
            case Finished():
                chunks.append(encode_event(self._last(choice, event)))
            case _:
                pass
        return b"".join(chunks)

    def note_time(self, event: Event) -> None:
        for watch in self._watches:
            watch.note_time(event)

    def encode_failure(self, error: Exception) -> bytes:
        return encode_event(encode_error(error)[1])

    def encode_replies(self, replies: Sequence[Reply]) -> Json | list[Json]:
        made = []
        for at, reply in enumerate(replies):
            self._model = self._model or reply.model
            text = reply.message.text
            self._has_new_line[at] = "\n" in text
            body = self._last(at, Finished(reply.reason, reply.usage, reply.stop), text, reply.scores)
            if self._options.probabilities:
                body["completion_probabilities"] = _probabilities(reply.scores)
            made.append(_chosen(body, self._options.fields))
        return made if len(made) > 1 else made[0]

    def _part(self, choice: int, text: str, scores: Sequence[TokenScore]) -> Json:
        body: Json = {"index": choice, "content": text, "tokens": [score.id for score in scores], "stop": False}
        return body | ({"completion_probabilities": _probabilities(scores)} if self._options.probabilities else {})

    def _last(self, choice: int, end: Finished, text: str = "", scores: Sequence[TokenScore] = ()) -> Json:
        options, usage = self._options, end.usage
        is_cut = end.reason == "length"
        return {
            "index": choice,
            "content": text,
            "tokens": [score.id for score in scores] if options.tokens else [],
            "id_slot": -1,
            "stop": True,
            "model": self._model,
            "tokens_predicted": usage.output,
            "tokens_evaluated": usage.prompt,
            "generation_settings": options.settings,
            "prompt": options.prompts[choice],
            "has_new_line": self._has_new_line[choice],
            # The context was full before the answer had the length that it may have.
            "truncated": is_cut and (options.max_tokens is None or usage.output < options.max_tokens),
            "stop_type": _STOP_TYPES.get(end.reason, "eos"),
            "stopping_word": end.stop or "",
            "tokens_cached": usage.cache_read,
            "timings": self._watches[choice].timings(usage),
        }


_NOT_STOPPED = b',"tokens":[],"stop":false}\n\n'
_STOP_TYPES: dict[StopReason, str] = {"length": "limit", "stop": "word"}


def _probabilities(scores: Sequence[TokenScore]) -> list[Json]:
    return [
        _probability(score.id, score.piece, score.logprob) | {"top_logprobs": [_probability(*top) for top in score.top]}
        for score in scores
    ]


def _probability(id: int, piece: bytes, logprob: float) -> Json:
    return {
        "id": id,
        "token": piece.decode("utf-8", "replace"),
        "bytes": list(piece),
        "logprob": shapes.logprob_of(logprob),
    }


def _chosen(body: Json, paths: Sequence[str]) -> Json:
    """What is at these paths; the whole body without any."""
    if not paths:
        return body
    found: Json = {}
    for path in paths:
        value = body
        for key in path.split("/"):
            value = value.get(key) if isinstance(value, dict) else None  # type: ignore[assignment] # any JSON
        if value is not None:
            found[path] = value
    return found
