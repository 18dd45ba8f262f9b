"""The server half of llama-server's `POST /infill`: editors send the text around the cursor, and get the text between.

    {"input_prefix": "def f(", "input_suffix": "): pass"} ─▶ {"content": "x", "stop": true, ...}

llama.vim, llama.vscode and Continue speak it. The text of other files (`input_extra`) comes before the prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

from shepherd.core import (
    Completion,
    Event,
    Finished,
    InvalidRequest,
    Reply,
    Request,
    Started,
    StopReason,
    TextDelta,
    Usage,
)
from shepherd.wire.base import Decoded, Fields, Json
from shepherd.wire.openai.completions import encode_error
from shepherd.wire.sampling import GENERATION, limit_of, sampling_of, token_limit
from shepherd.wire.sse import MEDIA_TYPE, PING, encode_event
from shepherd.wire.table import STRING, Field, Kind, body_schema, read_fields

__all__ = ["Encoder", "decode_request", "encode_error", "encoder"]


def _decode_others(body: Fields, key: str) -> str:
    found = [(other.find_string("filename"), other.find_string("text")) for other in body.objects(key)]
    return "".join(f"--- {name or 'snippet'} ---\n{text or ''}\n\n" for name, text in found)


_OTHER = body_schema(Field("filename", STRING), Field("text", STRING))
FIELDS = (
    *GENERATION,
    Field("input_prefix", STRING, "The text before the cursor.", default=""),
    Field("input_suffix", STRING, "The text after the cursor.", default=""),
    Field("input_extra", Kind(_decode_others, {"type": "array", "items": _OTHER}), "The text of other files."),
    Field("prompt", STRING, "Text after input_prefix.", default=""),
    Field("n_predict", token_limit(0), "Tokens at most; -1 = no limit.", also=("max_tokens",)),
)
BODY = body_schema(*FIELDS, example={"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n"})


def decode_request(body: Json) -> Decoded[None]:
    """The request of a body. Raises: `InvalidRequest`, and nothing else, for any JSON object."""
    fields = Fields(body)
    if not fields.has("input_prefix") and not fields.has("input_suffix"):
        raise InvalidRequest("input_prefix is missing: the text before the cursor", field="input_prefix")
    given = read_fields(fields, FIELDS)
    # `prompt` is the text typed since the editor cut the prefix off at the line.
    before = given["input_extra"] + given["input_prefix"] + given["prompt"]
    request = Request(
        model=given["model"],
        completion=Completion(before, given["input_suffix"]),
        sampling=sampling_of(given),
        max_tokens=limit_of(given["n_predict"]),
        stop=given["stop"],
        archive=False,  # no turn of any conversation
        recall=False,
    )
    return Decoded((request,), given["stream"], None)


class Encoder:
    """Writes one answer. Not for sharing; events must come in the order of the grammar."""

    media_type = MEDIA_TYPE
    ping = PING

    def __init__(self, options: None, *, id: str, created: int, model: str) -> None:
        self._model = model

    def encode(self, event: Event, choice: int = 0) -> bytes:
        match event:
            case TextDelta(text):
                return encode_event({"index": 0, "content": text, "tokens": [], "stop": False})
            case Started(model):
                self._model = self._model or model
                return b""
            case Finished(reason, usage, stop):
                return encode_event(self._whole("", reason, usage, stop))
            case _:
                return b""

    def encode_failure(self, error: Exception) -> bytes:
        return encode_event(encode_error(error)[1])

    def encode_replies(self, replies: Sequence[Reply]) -> Json:
        (reply,) = replies
        self._model = self._model or reply.model
        return self._whole(reply.message.text, reply.reason, reply.usage, reply.stop)

    def _whole(self, text: str, reason: StopReason, usage: Usage, stop: str | None) -> Json:
        n_new = usage.prompt - usage.cache_read
        return {
            "index": 0,
            "content": text,
            "tokens": [],
            "stop": True,
            "model": self._model,
            "tokens_predicted": usage.output,
            "tokens_evaluated": usage.prompt,
            "tokens_cached": usage.cache_read,
            "truncated": False,
            "stop_type": _STOP_TYPES.get(reason, "eos"),
            "stopping_word": stop or "",
            "timings": {"prompt_n": n_new, "cache_n": usage.cache_read, "predicted_n": usage.output},
        }


_STOP_TYPES: dict[StopReason, str] = {"length": "limit", "stop": "word"}
encoder = Encoder
