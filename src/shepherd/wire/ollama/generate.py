"""The server half of Ollama's `POST /api/generate`: one prompt, with or without a chat template around it.

Without one, the model continues a bare prompt (`raw`) or fills a gap (`suffix`), as editors need it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from shepherd.core import Completion, InvalidRequest, Message, Request, Text
from shepherd.wire.base import Decoded, Fields, Json
from shepherd.wire.ollama.answer import AnswerOptions, encoder
from shepherd.wire.ollama.context import read_context
from shepherd.wire.ollama.fields import COMMON, IMAGES, common_settings, decode_errand, encode_error
from shepherd.wire.table import BOOLEAN, STRING, Field, FieldKind, body_schema, read_fields

__all__ = ["decode_request", "encode_error", "encoder"]

logger = logging.getLogger(__name__)


FIELDS = (
    *COMMON,
    Field("prompt", STRING, "Empty: the model is loaded; with keep_alive 0 it is unloaded.", default=""),
    Field("suffix", STRING, "The text after the gap that the answer fills.", default=""),
    Field("system", STRING, "Instructions."),
    Field("raw", BOOLEAN, "Continue the prompt as it is, without a chat template.", default=False),
    IMAGES,
    Field("template", STRING, "Ignored: the model's own is the one it was trained with."),
    Field(
        "context",
        FieldKind(Fields.find_array, {"type": "array"}),
        "That of the answer before, to go on with its conversation.",
    ),
)
BODY = body_schema(*FIELDS, example={"model": "default", "prompt": "Why is the sky blue?", "stream": False})


def decode_request(body: Json) -> Decoded[AnswerOptions]:
    """A body without a prompt asks to load the model, or to unload it: an empty request."""
    began = time.perf_counter_ns()
    fields = Fields(body)
    given = read_fields(fields, FIELDS)
    settings = common_settings(given)
    prompt, suffix, images = given["prompt"], given["suffix"], given["images"]
    is_bare = given["raw"] or bool(suffix)
    if ignored := [key for key in ("template", "context", *(["system"] if is_bare else ())) if given[key]]:
        logger.info("/api/generate: ignored %s", ", ".join(ignored))
    if images and is_bare:
        how = "a suffix" if suffix else "raw"
        raise InvalidRequest(f"images cannot be shown in a bare prompt; leave out {how} or images", field="images")
    options = AnswerOptions(chat=False, began=began)
    if not (prompt or suffix or images):
        request, errand = decode_errand(fields, settings["extra"])
        options = AnswerOptions(chat=False, began=began, errand=errand)
    elif is_bare:
        request = Request(completion=Completion(prompt, suffix or None), **settings)
    else:
        question = Message("user", (*images, *((Text(prompt),) if prompt else ())))
        earlier = read_context(given["context"] or (), fields.at("context"))
        if given["system"]:  # it takes the place of the earlier one
            earlier = (Message.system(given["system"]), *(one for one in earlier if one.role != "system"))
        request = Request(messages=(*earlier, question), **settings)
        options = replace(options, conversation=request.messages)
    return Decoded((request,), given["stream"], options)
