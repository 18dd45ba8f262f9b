"""The answers of llama-server's own endpoints, `/completion` and `/infill`, whole or streamed.

A stream is one object for each piece of text, and a last one with everything but the text. A body with several
prompts, or `n`, is answered with an array. Not here: what the body says (`completion`, `infill`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quote

from shepherd.core import (
    ContextFull,
    Event,
    Evicted,
    Finished,
    ReadPrompt,
    Reply,
    Started,
    StopReason,
    TextDelta,
    TokenScore,
)
from shepherd.core.dataclasses import dataclass, field
from shepherd.wire.base import Json
from shepherd.wire.openai import shapes
from shepherd.wire.read import encode_read
from shepherd.wire.sse import MEDIA_TYPE, PING, encode_event
from shepherd.wire.watch import Watch


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    n_choices: int = 1
    max_tokens: int | None = None
    settings: Json = field(default_factory=dict)
    """`generation_settings`: what the body asks for, by llama-server's names."""
    probabilities: bool = False
    drawn: bool = False
    """Probabilities after sampling, in place of the logarithms of the model's."""
    tokens: bool = False
    return_progress: bool = False
    timings_per_token: bool = False
    fields: tuple[str, ...] = ()
    """Of a whole answer, the only ones that are wanted, as paths such as `timings/predicted_n`; empty = all."""


def encode_error(error: Exception, prompt: str = "prompt") -> tuple[int, Json]:
    """As `shapes.encode_error`; a full context as llama-server's clients know it (ADR 18)."""
    status, body = shapes.encode_error(error, prompt=prompt)
    if isinstance(error, ContextFull):
        body["error"] |= {"code": status, "type": "exceed_context_size_error"}
        body["error"]["message"] += "; it exceeds the available context size"  # llama-server's words
    return status, body


class Encoder:
    media_type = MEDIA_TYPE
    ping = PING

    def __init__(self, options: AnswerOptions, *, id: str, created: int, model: str) -> None:
        n = options.n_choices
        self._options = options
        self._model = model
        self._watches = [Watch() for _ in range(n)]
        self._has_new_line = [False] * n
        self._has_lost = [False] * n
        """Whether text left the context to make room."""
        self._is_plain = [False] * n
        """Whether the next chunk of each choice is constant but for its text."""
        self._read: list[ReadPrompt | None] = [None] * n
        self._heads = [b'data: {"index":%d,"content":' % at for at in range(n)]

    def encode(self, event: Event, choice: int = 0) -> bytes:
        if type(event) is TextDelta and not event.scores and self._is_plain[choice]:
            self._has_new_line[choice] |= "\n" in event.text
            tokens = repr(list(event.tokens)).encode("ascii")
            return self._heads[choice] + quote(event.text).encode("ascii") + b',"tokens":' + tokens + _NOT_STOPPED
        watch = self._watches[choice]
        watch.note_time(event)
        self._is_plain[choice] = watch.has_text and not self._options.timings_per_token
        chunks = []
        if self._options.return_progress and (progress := watch.progress(event)) is not None:
            part = self._part(choice, "", (), ()) | {"prompt_progress": progress}
            if self._options.timings_per_token:
                part["timings"] = watch.timings_of(progress)
            chunks.append(encode_event(part))
        match event:
            case TextDelta(text, scores, ids):
                self._has_new_line[choice] |= "\n" in text
                so_far = watch.timings_so_far(event) if self._options.timings_per_token else None
                timings = {"timings": so_far} if so_far else {}
                chunks.append(encode_event(self._part(choice, text, scores, ids) | timings))
            case Started(model):
                self._model, self._read[choice] = self._model or model, event.read
            case Evicted():
                self._has_lost[choice] = True
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
            text, self._read[at] = reply.message.text, reply.read
            self._has_new_line[at], self._has_lost[at] = "\n" in text, reply.evicted > 0
            body = self._last(at, Finished(reply.reason, reply.usage, reply.stop), text, reply.scores)
            if self._options.probabilities:
                body["completion_probabilities"] = self._probabilities(reply.scores)
            made.append(_chosen(body, self._options.fields))
        return made if len(made) > 1 else made[0]

    def _part(self, choice: int, text: str, scores: Sequence[TokenScore], tokens: Sequence[int]) -> Json:
        body: Json = {"index": choice, "content": text, "tokens": list(tokens), "stop": False}
        return body | ({"completion_probabilities": self._probabilities(scores)} if self._options.probabilities else {})

    def _probabilities(self, scores: Sequence[TokenScore]) -> list[Json]:
        write, key = (_drawn, "top_probs") if self._options.drawn else (_probability, "top_logprobs")
        return [
            write(score.id, score.piece, score.logprob) | {key: [write(*top) for top in score.top]} for score in scores
        ]

    def _last(self, choice: int, end: Finished, text: str = "", scores: Sequence[TokenScore] = ()) -> Json:
        options, usage = self._options, end.usage
        is_cut = end.reason == "length"
        read = self._read[choice] or ReadPrompt("")
        was_read = encode_read(read)
        return {
            "index": choice,
            "content": text,
            "tokens": [score.id for score in scores] if options.tokens else [],
            "id_slot": -1,
            "stop": True,
            "model": self._model,
            "tokens_predicted": usage.output,
            "tokens_evaluated": usage.prompt,
            "generation_settings": was_read["generation_settings"] | options.settings,
            "prompt": was_read["prompt"],
            "has_new_line": self._has_new_line[choice],
            # The context was full before the answer had the length that it may have, or lost text for it.
            "truncated": self._has_lost[choice]
            or (is_cut and (options.max_tokens is None or usage.output < options.max_tokens)),
            "stop_type": _STOP_TYPES.get(end.reason, "eos"),
            "stopping_word": end.stop or "",
            "tokens_cached": usage.cache_read,
            "timings": self._watches[choice].timings(usage),
        }


_NOT_STOPPED = b',"stop":false}\n\n'
_STOP_TYPES: dict[StopReason, str] = {"length": "limit", "stop": "word"}


def _probability(id: int, piece: bytes, logprob: float) -> Json:
    return {"id": id, **shapes.encode_score(piece, logprob)}


def _drawn(id: int, piece: bytes, logprob: float) -> Json:
    score = shapes.encode_score(piece, logprob)
    del score["logprob"]
    return {"id": id, **score, "prob": math.exp(logprob)}


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
