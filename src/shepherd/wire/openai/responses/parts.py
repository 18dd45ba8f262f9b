"""The parts of a message of a Responses body: texts, images, recordings, documents, sealed thoughts.

Unknown parts are left out, with a line in the log: one odd part of a long history must not end a conversation.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from shepherd.core import Audio, Document, Image, Opaque, Reasoning, Text
from shepherd.wire.base import Fields, Json, compact_json, field_error, parse_object, shown, wrong
from shepherd.wire.parts import AUDIO_TYPES, decode_audio, decode_document, decode_image_url, only_provider
from shepherd.wire.signature import Protocol, raw_for, signed

logger = logging.getLogger(__name__)

PROTOCOL: Protocol = "openai.responses"


def decode_content(item: Fields, key: str = "content") -> list[Text | Image | Audio | Document | Opaque]:
    """A string, or an array of parts. Raises: `InvalidRequest`."""
    content = item.find_any(key)
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [Text(content)]
    if not isinstance(content, list):
        raise wrong(item.at(key), "a string or an array of parts", content)
    return [part for fields in item.objects(key) for part in decode_part(fields)]


def decode_part(part: Fields) -> Iterator[Text | Image | Audio | Document | Opaque]:
    """The value of one part; nothing for an unknown type. Raises: `InvalidRequest`."""
    kind = part.find_string("type")
    if only_provider(part) is not None:
        yield Opaque(PROTOCOL, compact_json(part.body))
    elif (key := _TEXTS.get(kind or "")) is not None:
        if text := part.find_string(key):
            yield Text(text)
    elif kind in _IMAGES:
        yield _decode_image(part)
    elif kind in AUDIO_TYPES:
        yield decode_audio(part)
    elif kind in _DOCUMENTS:
        yield decode_document(part)
    else:
        logger.info("left out a content part of unknown type %s", shown(kind))


_TEXTS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
_IMAGES = ("input_image", "image_url", "image", "computer_screenshot")
"""Cursor also sends the second and the third, those of chat completions and of Anthropic."""
_DOCUMENTS = ("input_file", "file")


def _decode_image(part: Fields) -> Image:
    path = part.at("image_url")
    if (source := part.find_object("source")) is not None:
        url, path = source.find_string("url"), source.path
        if not url and (data := source.find_string("data")):
            url = f"data:{source.find_string('media_type') or 'image/png'};base64,{data}"
    elif isinstance(part.find_any("image_url"), dict):
        image = part.get_object("image_url")
        url, path = image.find_string("url"), image.at("url")
    else:
        url = part.find_string("image_url")
    if url:
        return replace(decode_image_url(url, path), detail=part.find_string("detail") or "")
    raise field_error(path, "is missing; send a data:, http: or https: URL")


# ---- thoughts

_SEAL = "shepherd1."
_MAX_THOUGHT_BYTES = 16 * 2**20
"""Of one thought, unpacked: far more than any context holds."""


def seal(thought: Reasoning) -> str:
    """The thought as one opaque word, for clients that keep only such words. `unseal` reads it."""
    content = json.dumps([thought.text, thought.signature, thought.redacted])
    return _SEAL + base64.urlsafe_b64encode(zlib.compress(content.encode("ascii"), 1)).decode("ascii")


def unseal(word: str) -> Reasoning | None:
    """The thought in a word of `seal`; `None` for other words."""
    if not word.startswith(_SEAL):
        return None
    try:
        packed = base64.b64decode(word[len(_SEAL) :], altchars=b"-_", validate=True)
        content: Any = json.loads(zlib.decompressobj().decompress(packed, _MAX_THOUGHT_BYTES))
    except (binascii.Error, ValueError, RecursionError, zlib.error):
        return None
    match content:
        case [str() as text, (str() | None) as signature, bool() as redacted]:
            return Reasoning(text, signature, redacted)
        case _:
            return None


def decode_thought(item: Fields) -> Reasoning | None:
    """The thought of a `reasoning` item: sealed, as content, or as a summary. `None` for an empty one."""
    sealed = item.find_string("encrypted_content")
    if sealed and (known := unseal(sealed)) is not None:
        return known
    text = "".join(part.text for part in decode_content(item, "content") if isinstance(part, Text))
    if not text:
        text = "\n\n".join(part.text for part in decode_content(item, "summary") if isinstance(part, Text))
    if sealed:  # by another provider
        return Reasoning(text, signed(PROTOCOL, compact_json(without_nulls(item.body))), redacted=not text)
    return Reasoning(text) if text else None


# ---- items as they are


def without_nulls(item: Json) -> Json:
    """The item without null fields: OpenAI sends some that it does not take back."""
    return {key: value for key, value in item.items() if value is not None}


def phase_of(word: str) -> Opaque:
    """What stands in front of the text of a message with a phase."""
    return Opaque(PROTOCOL, compact_json({"type": "message", "phase": word}))


def annotated(notes: list[Json]) -> Opaque:
    """What stands behind the text of a message with annotations, such as the addresses of what was found."""
    return Opaque(PROTOCOL, compact_json({"type": "message", "annotations": notes}))


def is_part(block: Opaque) -> bool:
    """Whether the block stands in a message, not beside it."""
    item = parse_object(block.body) if block.protocol == PROTOCOL else None
    return item is not None and str(item.get("type")).startswith("input_")


def facts_in(block: Opaque) -> Json | None:
    """The facts about a message that stands beside the block; None for a block that is an item of its own."""
    item = parse_object(block.body) if block.protocol == PROTOCOL else None
    return item if item is not None and item.get("type") == "message" and not item.get("content") else None


def own_thought(signature: str | None) -> Json | None:
    """The `reasoning` item in a signature of this protocol."""
    item = parse_object(raw_for(PROTOCOL, signature))
    return item if item is not None and item.get("type") == "reasoning" else None
