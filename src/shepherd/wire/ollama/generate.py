"""The server half of Ollama's `POST /api/generate`: one prompt, with or without a chat template around it.

Without one it is a bare prompt to be continued (`raw`), or a gap to be filled (`suffix`), which is how editors ask for
completions. The answer is `answer`'s.
"""

from __future__ import annotations

import logging
import time

from shepherd.core import Completion, InvalidRequest, Message, Request, Text
from shepherd.wire.base import Decoded, Fields, Json
from shepherd.wire.ollama.answer import AnswerOptions, Clock, encoder
from shepherd.wire.ollama.fields import decode_common, decode_images, encode_error, side_task_of, streams

__all__ = ["decode_request", "encode_error", "encoder"]

logger = logging.getLogger(__name__)


def decode_request(body: Json, *, clock: Clock = time.perf_counter_ns) -> Decoded[AnswerOptions]:
    """What the client asks. Raises: `InvalidRequest`, and nothing else, whatever JSON object comes.

    A body without a prompt asks for the model to be loaded, or unloaded: a request with nothing in it.
    """
    began = clock()
    fields = Fields(body)
    common = decode_common(fields)
    prompt = fields.find_string("prompt") or ""
    suffix = fields.find_string("suffix") or ""
    system = fields.find_string("system")
    images = decode_images(fields)
    is_bare = fields.find_boolean("raw") is True or bool(suffix)
    _pass_over(fields, system if is_bare else None)
    if images and is_bare:
        how = "a suffix" if suffix else "raw"
        raise InvalidRequest(f"images cannot be shown in a bare prompt; leave out {how} or images", field="images")
    options = AnswerOptions(chat=False, began=began)
    if not (prompt or suffix or images):
        errand = side_task_of(common["extra"])
        options = AnswerOptions(chat=False, began=began, errand=errand)
        request = Request(model=common["model"], extra=common["extra"])
    elif is_bare:
        request = Request(completion=Completion(prompt, suffix or None), **common)
    else:
        said = (*images, *((Text(prompt),) if prompt else ()))
        instructions = (Message.system(system),) if system else ()
        request = Request(messages=(*instructions, Message("user", said)), **common)
    return Decoded((request,), streams(fields), options)


def _pass_over(fields: Fields, system: str | None) -> None:
    """Say in the log what is not done: the model's own template is the one it was trained with, and earlier turns are
    the client's to send as messages."""
    fields.find_string("template")
    fields.find_array("context")
    ignored = [key for key in ("template", "context") if fields.find_any(key)]
    if system:
        ignored.append("system")
    if ignored:
        logger.info("/api/generate: passed over %s", ", ".join(ignored))
