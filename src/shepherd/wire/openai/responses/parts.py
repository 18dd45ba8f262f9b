"""What a message of a Responses body consists of: texts, images, documents, sealed thoughts.

What nobody here knows is left out, with a line in the log: agents send whole histories, and one odd part must not end a
conversation for good.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import zlib
from collections.abc import Iterator
from typing import Any

from shepherd.core import Image, InvalidRequest, Reasoning, Text
from shepherd.wire.base import Fields, shown, wrong
from shepherd.wire.parts import decode_document, decode_image_url

logger = logging.getLogger(__name__)


def decode_content(item: Fields, key: str = "content") -> list[Text | Image]:
    """A string, or an array of parts. Raises: `InvalidRequest`."""
    content = item.find_any(key)
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [Text(content)]
    if not isinstance(content, list):
        raise wrong(item.at(key), "a string or an array of parts", content)
    return [part for fields in item.objects(key) for part in decode_part(fields)]


def decode_part(part: Fields) -> Iterator[Text | Image]:
    """What one part holds; nothing, if nobody here knows its type. Raises: `InvalidRequest`."""
    kind = part.find_string("type")
    if (key := _TEXTS.get(kind or "")) is not None:
        if text := part.find_string(key):
            yield Text(text)
    elif kind in _IMAGES:
        yield _decode_image(part)
    elif kind in _DOCUMENTS:
        yield decode_document(part)
    else:
        logger.info("a content part of type %s is left out: it is not known here", shown(kind))


_TEXTS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
_IMAGES = ("input_image", "image_url", "image", "computer_screenshot")
"""The second and the third are those of chat completions and of Anthropic: Cursor sends them, too."""
_DOCUMENTS = ("input_file", "file")


def _decode_image(part: Fields) -> Image:
    path = part.at("image_url")
    if (source := part.find_object("source")) is not None:
        url = source.find_string("url") or _data_url(source)
        path = source.path
    elif isinstance(part.find_any("image_url"), dict):
        image = part.get_object("image_url")
        url, path = image.find_string("url"), image.at("url")
    else:
        url = part.find_string("image_url")
    if url:
        return decode_image_url(url, path)
    hint = ": this server stores no files, so file_id cannot be resolved" if part.has("file_id") else ""
    raise InvalidRequest(f"{path} is missing{hint}; send a data:, http: or https: URL", field=path)


def _data_url(source: Fields) -> str | None:
    data = source.find_string("data")
    return data and f"data:{source.find_string('media_type') or 'image/png'};base64,{data}"


# ---- thoughts

_SEAL = "shepherd1."
_MAX_THOUGHT_BYTES = 16 * 2**20
"""Of one thought, unpacked: far more than any context holds."""


def seal(thought: Reasoning) -> str:
    """The thought as one opaque word, for clients that keep nothing but such words. `unseal` reads it."""
    content = json.dumps([thought.text, thought.signature, thought.redacted])
    return _SEAL + base64.urlsafe_b64encode(zlib.compress(content.encode("ascii"), 1)).decode("ascii")


def unseal(word: str) -> Reasoning | None:
    """The thought in a word of `seal`; `None` for anybody else's."""
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
    """What a `reasoning` item says, from the place that says most. `None` for one that says nothing."""
    sealed = item.find_string("encrypted_content")
    if sealed and (known := unseal(sealed)) is not None:
        return known
    told = "".join(part.text for part in decode_content(item, "content") if isinstance(part, Text))
    if not told:
        told = "\n\n".join(part.text for part in decode_content(item, "summary") if isinstance(part, Text))
    if sealed:  # of the provider who wrote it
        return Reasoning(told, sealed, redacted=not told)
    return Reasoning(told) if told else None
