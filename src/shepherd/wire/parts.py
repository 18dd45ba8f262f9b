"""Images, recordings and documents as the protocols of the OpenAI family send them: by value, in base64, or by address.

    {"type": "input_audio", "input_audio": {"data": base64, "format": "wav"}}     OpenAI
    {"type": "input_audio", "input_audio": {"url": "data:audio/wav;base64,…"}}    llama-server; `data` may be one, too
    {"type": "input_audio", "input_audio": base64}                                Mistral
    {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,…"}}        vLLM

A recording comes by value: no address is fetched. Its type is what its bytes are, where they are WAV, MP3 or FLAC, and
else what the client names.

A document of text becomes its text. Any other stays a document: a model that cannot read it gets a note with its name
and size, so that one unreadable attachment does not end a conversation. Texts side by side become one, as every
protocol needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from urllib.parse import unquote, unquote_to_bytes

from shepherd.core import Audio, Document, Image, InvalidRequest, Part, Text
from shepherd.core.encoding import read_base64
from shepherd.media.sound import find_type
from shepherd.wire.base import Fields, field_error, shown

AUDIO_TYPES = ("input_audio", "audio_url")
AUDIO_FORMATS: Mapping[str, str] = {"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac"}
"""The media types of the words of `format`."""


def decode_image_url(url: str, path: str) -> Image:
    """The image of a data:, http: or https: URL; `path` names the field. Raises: `InvalidRequest`."""
    scheme = url.split(":", 1)[0].lower()
    if scheme == "data":
        return _decode_data_url(url, path)
    if scheme not in ("http", "https"):
        # A `file:` URL would let a client read the disk of the server.
        raise field_error(path, f"must be a data:, http: or https: URL, not {shown(url)}")
    return Image(url=url, path=path)


def _decode_data_url(url: str, path: str) -> Image:
    head, comma, payload = url.partition(",")
    media_type, *parameters = head[len("data:") :].lower().split(";")
    if not comma or not media_type.startswith("image/"):
        raise field_error(path, f"must look like data:image/png;base64,…, not {shown(url)}")
    if "base64" in (parameter.strip() for parameter in parameters):
        content = decode_base64(unquote(payload), path)
    else:
        content = unquote_to_bytes(payload)
    if not content:
        raise field_error(path, "holds an image of 0 bytes")
    return Image(media_type, content, path=path)


def decode_base64(payload: str, path: str) -> bytes:
    """The bytes; `path` names the field. Raises: `InvalidRequest`."""
    try:
        return read_base64(payload)
    except ValueError as error:
        raise field_error(path, f"holds base64 that cannot be decoded: {error}") from error


def decode_audio(part: Fields) -> Audio:
    """The recording in a part of one of `AUDIO_TYPES`. Raises: `InvalidRequest`."""
    key = part.get_string("type")
    if isinstance(text := part.find_any(key), str):
        return read_recording(text, part.at(key))
    held = part.get_object(key)
    name = "url" if held.has("url") and not held.has("data") else "data"
    media_type = AUDIO_FORMATS.get(held.find_string("format") or "", "")
    return read_recording(held.get_string(name), held.at(name), media_type)


def read_recording(text: str, path: str, media_type: str = "") -> Audio:
    """The recording in base64 or a data: URL; `path` names the field. Raises: `InvalidRequest`."""
    scheme, colon, _ = text[:20].partition(":")
    if scheme.lower() == "data" and colon:
        head, comma, payload = text.partition(",")
        kind, *parameters = head[len("data:") :].lower().split(";")
        if not comma or not kind.startswith("audio/") or "base64" not in parameters:
            raise field_error(path, f"must look like data:audio/wav;base64,…, not {shown(text)}")
        text, media_type = unquote(payload), kind
    elif colon:
        why = "recordings are not fetched from addresses; send the content in base64"
        raise field_error(path, f"is {shown(text)}, and {why}")
    data = decode_base64(text, path)
    if not data:
        raise field_error(path, "holds a recording of 0 bytes")
    return Audio(find_type(data) or media_type or "application/octet-stream", data, path=path)


def _foreign_audio(part: Fields) -> InvalidRequest | None:
    """The error for a recording in a format that only the client's own provider reads; None for others."""
    held = part.body.get("input_audio")
    if part.body.get("type") != "input_audio" or not isinstance(held, dict):
        return None
    word, path = held.get("format"), f"{part.at('input_audio')}.format"
    if not isinstance(word, str) or word in AUDIO_FORMATS:
        return None
    return field_error(path, f"is {shown(word)}; send one of {', '.join(AUDIO_FORMATS)}")


def decode_document(part: Fields) -> Text | Image | Audio | Document:
    """A `file` part of chat completions, an `input_file` of Responses. Raises: `InvalidRequest`."""
    document = part.find_object("file") or part
    name = document.find_string("filename") or "unnamed"
    data, path = document.find_string("file_data"), document.at("file_data")
    if data is None:
        where = document.find_string("file_url")
        if where is None:
            raise field_error(path, "is missing; send the file's content in base64")
        return Document(name, url=where)
    head, comma, payload = data.partition(",")
    media_type = head[len("data:") :].split(";")[0] if comma else ""
    content = decode_base64(unquote(payload if comma else data), path)
    if media_type.startswith("image/") and content:
        return Image(media_type, content, path=path)
    kind = find_type(content) if media_type in ("", "application/octet-stream") else media_type
    if kind is not None and kind.startswith("audio/") and content:
        return Audio(find_type(content) or kind, content, path=path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text and not text.startswith("%PDF-"):
        return Text(f"[document: {name}]\n{text}")
    return Document(name, media_type, content)


def only_provider(part: Fields) -> InvalidRequest | None:
    """The error for a part that only the client's own provider reads: a file by its id, a recording in a format that
    no model here hears; None for others."""
    kind = part.find_any("type")
    if (error := _foreign_audio(part)) is not None:
        return error
    inner = part.body.get("file")
    held = Fields(inner, part.at("file")) if isinstance(inner, dict) else part
    if kind not in ("file", "input_file", "input_image") or not held.has("file_id"):
        return None
    if any(held.has(key) for key in ("file_data", "file_url", "image_url", "source")):
        return None
    path, hint = held.at("file_data"), "send the file's content in base64"
    if kind == "input_image":
        path, hint = held.at("image_url"), "send a data:, http: or https: URL"
    why = "this server stores no files, so file_id cannot be resolved"
    return field_error(path, f"is missing: {why}; {hint}")


def seen(parts: Iterable[Part]) -> tuple[Text | Image | Audio, ...]:
    """The parts of the result of a tool, which holds no documents: a note stands for each."""
    readable = (Text(part.note) if isinstance(part, Document) else part for part in parts)
    return tuple(part for part in joined(readable, "\n") if isinstance(part, Text | Image | Audio))


def joined(parts: Iterable[Part], between: str) -> Iterator[Part]:
    """The parts with neighbouring texts as one; `between` them unless a line ends there anyway."""
    for is_text, run in groupby(parts, lambda part: isinstance(part, Text)):
        if not is_text:
            yield from run
            continue
        pieces: list[str] = []
        for part in run:
            assert isinstance(part, Text)
            if pieces and not pieces[-1].endswith("\n") and not part.text.startswith("\n"):
                pieces.append(between)
            pieces.append(part.text)
        yield Text("".join(pieces))
