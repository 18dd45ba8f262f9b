"""The server half of `POST /v1/responses/compact`: a window in place of the conversation so far.

    body ─ decode_request ─▶ Request that pauses ═▶ one item ─ encoder ─▶ the user's messages as they came, the item

The client sends that output, and what is new, in place of the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shepherd.core import BadReply, InvalidRequest, Reply
from shepherd.wire.base import Decoded, Json
from shepherd.wire.openai.responses import codec, stream
from shepherd.wire.openai.responses.codec import COMPACT_NOW, COUNT_BODY, encode_error, message_of
from shepherd.wire.openai.responses.items import COMPACTIONS
from shepherd.wire.openai.responses.stream import ResponsesOptions

__all__ = ["BODY", "Encoder", "decode_request", "encode_error", "encoder"]

BODY = {**COUNT_BODY, "required": ["model"]}


def decode_request(body: Json) -> Decoded[ResponsesOptions]:
    """As that of `codec`; nothing is generated, streamed or stored. The protocol wants the model named here."""
    if body.get("model") is None:
        raise InvalidRequest("model is missing", field="model")
    decoded = codec.decode_request({**body, "store": False})
    given = body.get("input")
    items = [message_of(given)] if isinstance(given, str) else given or []
    users = (item for item in items if item.get("role") == "user" and item.get("type") in (None, "message"))
    options = replace(decoded.options, own_items=tuple(users))
    return Decoded((replace(decoded.request, edits=COMPACT_NOW),), False, options)


class Encoder(stream.Encoder):
    def encode_replies(self, replies: Sequence[Reply]) -> Json:
        """Raises: `BadReply` where a provider has not compacted."""
        whole = super().encode_replies(replies)
        made = [item for item in whole["output"] if item["type"] in COMPACTIONS]
        if not made:
            raise BadReply(f"the provider of {whole['model']} has sent no compaction", backend=whole["model"])
        tail = whole["id"].rpartition("_")[2]
        users = [_in_full(item, f"msg_{tail}_u{at}") for at, item in enumerate(self.options.own_items)]
        kept = {key: whole[key] for key in ("id", "created_at", "usage")}
        return {**kept, "object": "response.compaction", "output": [*users, *made]}


encoder = Encoder


def _in_full(item: Json, id: str) -> Json:
    content = item.get("content")
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content or []
    return {"status": "completed", **item, "type": "message", "id": item.get("id") or id, "content": parts}
