"""The server half of OpenAI's older protocol, `POST /v1/completions`: texts to continue, without messages or markup.

A body may hold several prompts and ask for several choices of each: a request for every one of them, in this order.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring_ascii as quote

from shepherd.core import (
    Completion,
    Event,
    Finished,
    InvalidRequest,
    Reply,
    Request,
    Started,
    TextDelta,
    TextOrTokens,
    TokenScore,
)
from shepherd.core.dataclasses import dataclass, replace
from shepherd.wire.base import Decoded, Fields, Json, compact, field_error
from shepherd.wire.openai import shapes as openai_shapes
from shepherd.wire.openai.chunks import FINISH_REASONS, ChunkOptions, Chunks
from shepherd.wire.openai.format import RESPONSE_FORMAT
from shepherd.wire.openai.settings import NAMES, RETURN_PROGRESS, STREAM_OPTIONS, TIMINGS_PER_TOKEN, request_settings
from shepherd.wire.openai.shapes import logprob_of
from shepherd.wire.sampling import GENERATION, repeat_request, token_limit
from shepherd.wire.sse import MEDIA_TYPE, PING, encode_event
from shepherd.wire.table import BOOLEAN, STRING, Field, FieldKind, body_schema, integer, read_fields
from shepherd.wire.texts import TEXTS, decode_texts

__all__ = ["CompletionOptions", "Encoder", "decode_request", "encode_error", "encoder"]

DEFAULT_TOKENS = 16
"""Of an answer without a limit: OpenAI's own number, which old clients count on."""
MAX_LOGPROBS = 20
"""As many as of a chat; OpenAI itself gives 5."""
MAX_CHOICES = 64
"""Of one body: as many as may wait for a cache."""


@dataclass(frozen=True, slots=True)
class CompletionOptions(ChunkOptions):
    n_choices: int = 1
    """Of all prompts."""


# ---- the request


def _decode_prompts(body: Fields, key: str) -> tuple[TextOrTokens, ...]:
    hint = "for messages there is /v1/chat/completions" if body.has("messages") else "send a text, or tokens"
    return decode_texts(body, key, hint)


FIELDS = (
    *GENERATION,
    Field(
        "prompt",
        FieldKind(_decode_prompts, TEXTS),
        "A text, tokens, or an array of either. No text becomes a control token.",
    ),
    Field("suffix", STRING, "The text after the gap; for models that can fill gaps."),
    Field("echo", BOOLEAN, "Repeat the prompt before the answer.", default=False),
    Field("logprobs", integer(0, MAX_LOGPROBS), "With echo, of the prompt as well.", also=("n_probs",)),
    Field("max_tokens", token_limit(0), default=DEFAULT_TOKENS, also=("max_completion_tokens", "n_predict")),
    Field("n", integer(1, MAX_CHOICES), "Choices of each prompt.", default=1),
    Field("best_of", integer(), "Only n: all that is generated is returned."),
    STREAM_OPTIONS,
    RETURN_PROGRESS,
    TIMINGS_PER_TOKEN,
    RESPONSE_FORMAT,
    *NAMES,
)
_EXAMPLE = {"model": "default", "prompt": "Once upon a time", "max_tokens": 32}
BODY = body_schema(*FIELDS, required=["prompt"], example=_EXAMPLE)


def decode_request(body: Json) -> Decoded[CompletionOptions]:
    given = read_fields(Fields(body), FIELDS)
    prompts, n = given["prompt"], given["n"]
    if n * len(prompts) > MAX_CHOICES:
        raise InvalidRequest(
            f"prompt has {len(prompts)} texts and n is {n}, which makes {n * len(prompts)} choices; "
            f"at most {MAX_CHOICES} can be asked for at a time",
            field="prompt" if n == 1 else "n",
        )
    if given["best_of"] not in (None, n):
        why = f"is {given['best_of']}, and n is {n}; all that is generated is returned here: leave best_of out"
        raise field_error("best_of", why)
    request = Request(
        logprobs=given["logprobs"],
        archive=False,  # no turn of any conversation
        recall=False,
        **request_settings(given, given["response_format"], given["max_tokens"]),
    )
    requests = [
        choice
        for prompt in prompts
        # An empty suffix is no gap.
        for choice in repeat_request(
            replace(request, completion=Completion(prompt, given["suffix"] or None, given["echo"])), n
        )
    ]
    options = CompletionOptions(
        given["stream_options"]["include_usage"],
        n,
        given["logprobs"] is not None,
        given["return_progress"],
        given["timings_per_token"],
        len(requests),
    )
    return Decoded(tuple(requests), given["stream"], options)


# ---- the answer


def encode_error(error: Exception) -> tuple[int, Json]:
    return openai_shapes.encode_error(error, prompt="prompt")


class Encoder:
    media_type = MEDIA_TYPE
    ping = PING

    def __init__(self, options: CompletionOptions, *, id: str, created: int, model: str) -> None:
        n_choices = options.n_choices
        self._options = options
        self._chunks = Chunks(options, n_choices, kind="text_completion", id=id, created=created, model=model)
        self._text_heads = [b""] * n_choices
        """Of the chunks of each choice, empty until it has text."""
        self._tail = b',"logprobs":null,"finish_reason":null}]' + self._chunks.tail
        self._tables = [_Table() for _ in range(n_choices)]

    def encode(self, event: Event, choice: int = 0) -> bytes:
        if type(event) is TextDelta and not event.scores and (head := self._text_heads[choice]):
            # Once per token: everything but the text is a constant.
            return head + quote(event.text).encode("ascii") + self._tail
        self.note_time(event)
        if isinstance(event, Started):
            self._chunks.begin(choice, event.model, '"text":')
        progress = self._chunks.progress(choice, event, _EMPTY_MIDDLE)
        match event:
            case TextDelta(text, scores):
                if not self._options.timings_per_token:
                    self._text_heads[choice] = self._chunks.heads[choice]
                logprobs = compact(self._tables[choice].encode(scores)) if scores else b"null"
                middle = quote(text).encode("ascii") + b',"logprobs":' + logprobs + b',"finish_reason":null}]'
                return progress + self._chunks.heads[choice] + middle + self._chunks.timed_tail(event)
            case Finished(reason, usage):
                ending = _EMPTY_MIDDLE.replace(b":null}", b":" + compact(FINISH_REASONS.get(reason, "stop")) + b"}")
                return progress + self._chunks.end(choice, ending, usage)
            case _:
                return progress

    def note_time(self, event: Event) -> None:
        self._chunks.watch.note_time(event)

    def encode_failure(self, error: Exception) -> bytes:
        """An error in the middle: OpenAI's clients raise at the `error` field. No `[DONE]`, for it is not done."""
        return encode_event(encode_error(error)[1])

    def encode_replies(self, replies: Sequence[Reply]) -> Json:
        choices = [
            {
                "index": at,
                "text": reply.message.text,
                "logprobs": self._tables[at].encode(reply.scores) if self._options.logprobs else None,
                "finish_reason": FINISH_REASONS.get(reply.reason, "stop"),
            }
            for at, reply in enumerate(replies)
        ]
        return self._chunks.whole(choices, replies)


encoder = Encoder

_EMPTY_MIDDLE = b'"","logprobs":null,"finish_reason":null}]'
"""The middle of a chunk without text."""


class _Table:
    """The logprobs of one choice, in columns; counts the characters of the text so far."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def encode(self, scores: Iterable[TokenScore]) -> Json:
        columns: Json = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for score in scores:
            logprob = logprob_of(score.logprob)
            columns["tokens"].append(_written(score.piece))
            columns["token_logprobs"].append(logprob)
            columns["top_logprobs"].append(None if logprob is None else _encode_top(score))
            columns["text_offset"].append(self._offset)
            self._offset += len(self._utf8.decode(score.piece))
        return columns


def _encode_top(score: TokenScore) -> Json:
    """The likeliest tokens and the one that was drawn. Of two that look alike, the likelier."""
    top: Json = {}
    for _, piece, logprob in (*score.top, (score.id, score.piece, score.logprob)):
        top.setdefault(_written(piece), logprob_of(logprob))
    return top


def _written(piece: bytes) -> str:
    """A token as OpenAI writes it, also one that ends within a character."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
