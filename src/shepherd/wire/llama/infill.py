"""The server half of llama-server's `POST /infill`: editors send the text around the cursor, and get the text between.

    {"input_prefix": "def f(", "input_suffix": "): pass"} ─▶ {"content": "x", "stop": true, ...}

llama.vim, llama.vscode and Continue speak it. The text of other files (`input_extra`) comes before the prefix.
"""

from __future__ import annotations

from shepherd.core import Completion, InvalidRequest, Request
from shepherd.wire.base import Decoded, Fields, Json
from shepherd.wire.llama.answer import AnswerOptions, Encoder, encode_error
from shepherd.wire.sampling import GENERATION, computing_of, limit_of, sampling_of, token_limit
from shepherd.wire.table import STRING, Field, FieldKind, body_schema, read_fields

__all__ = ["Encoder", "decode_request", "encode_error", "encoder"]


def _decode_others(body: Fields, key: str) -> str:
    found = [(other.find_string("filename"), other.get_text("text")) for other in body.objects(key)]
    return "".join(f"--- {name or 'snippet'} ---\n{text}\n\n" for name, text in found)


_OTHER = body_schema(Field("filename", STRING), Field("text", STRING), required=["text"])
FIELDS = (
    *GENERATION,
    Field("input_prefix", STRING, "The text before the cursor.", default=""),
    Field("input_suffix", STRING, "The text after the cursor.", default=""),
    Field("input_extra", FieldKind(_decode_others, {"type": "array", "items": _OTHER}), "The text of other files."),
    Field("prompt", STRING, "Text after input_prefix.", default=""),
    Field("n_predict", token_limit(0), "Tokens at most; -1 = no limit.", also=("max_tokens",)),
)
BODY = body_schema(*FIELDS, example={"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n"})


def decode_request(body: Json) -> Decoded[AnswerOptions]:
    fields = Fields(body)
    if not fields.has("input_prefix") and not fields.has("input_suffix"):
        raise InvalidRequest("input_prefix is missing: the text before the cursor", field="input_prefix")
    given = read_fields(fields, FIELDS)
    # `prompt` is the text typed since the editor cut the prefix off at the line.
    before = given["input_extra"] + given["input_prefix"] + given["prompt"]
    request = Request(
        model=given["model"],
        completion=Completion(before, given["input_suffix"]),
        report=True,
        sampling=sampling_of(given),
        max_tokens=limit_of(given["n_predict"]),
        stop=given["stop"],
        lora=given["lora"],
        **computing_of(given),
        archive=False,  # no turn of any conversation
        recall=False,
    )
    return Decoded((request,), given["stream"], AnswerOptions(max_tokens=request.max_tokens))


encoder = Encoder
