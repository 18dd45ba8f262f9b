"""Recordings in every protocol: what comes in is the same part, what goes out has the same bytes, or is a note."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sounds import FLAC, MP3, wave

from shepherd.core import Audio, InvalidRequest, Message, Request, Text, ToolCall, ToolResult, Unsupported
from shepherd.wire.anthropic import client as anthropic
from shepherd.wire.anthropic import codec as messages_codec
from shepherd.wire.client import ClientCodec, Endpoint
from shepherd.wire.gemini import client as gemini
from shepherd.wire.history import note
from shepherd.wire.ollama import chat as ollama_chat
from shepherd.wire.ollama import client as ollama
from shepherd.wire.ollama import generate
from shepherd.wire.openai import chat
from shepherd.wire.openai import client as openai
from shepherd.wire.openai.responses import client as responses_client
from shepherd.wire.openai.responses import codec as responses_codec

Json = dict[str, Any]
WAVE = wave()
KINDS = {"wav": ("audio/wav", WAVE), "mp3": ("audio/mpeg", MP3), "flac": ("audio/flac", FLAC)}
TAILS = st.binary(max_size=40)
PART = "messages[0].content[0]"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def chat_body(*parts: Json) -> Json:
    return {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}


def spoken(data: str, **more: str) -> Json:
    return {"type": "input_audio", "input_audio": {"data": data, **more}}


def of_responses(*parts: Json) -> Json:
    return {"model": "m", "input": [{"role": "user", "content": list(parts)}]}


SPELLINGS: list[tuple[str, Callable[[str], Json], Callable[[Json], Any], str]] = [
    ("OpenAI", lambda data: chat_body(spoken(data, format="wav")), chat.decode_request, f"{PART}.input_audio.data"),
    ("without a format", lambda data: chat_body(spoken(data)), chat.decode_request, f"{PART}.input_audio.data"),
    ("an address in data", lambda data: chat_body(spoken(f"data:audio/wav;base64,{data}")), chat.decode_request,
     f"{PART}.input_audio.data"),
    ("llama-server", lambda data: chat_body(
        {"type": "input_audio", "input_audio": {"url": f"data:audio/x;base64,{data}"}}),
     chat.decode_request, f"{PART}.input_audio.url"),
    ("Mistral", lambda data: chat_body({"type": "input_audio", "input_audio": data}), chat.decode_request,
     f"{PART}.input_audio"),
    ("vLLM", lambda data: chat_body({"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{data}"}}),
     chat.decode_request, f"{PART}.audio_url.url"),
    ("a file of chat", lambda data: chat_body(
        {"type": "file", "file": {"filename": "a.wav", "file_data": f"data:audio/wav;base64,{data}"}}),
     chat.decode_request, f"{PART}.file.file_data"),
    ("Responses", lambda data: of_responses(spoken(data, format="mp3")), responses_codec.decode_request,
     "input[0].content[0].input_audio.data"),
    ("a file of Responses", lambda data: of_responses({"type": "input_file", "filename": "a", "file_data": data}),
     responses_codec.decode_request, "input[0].content[0].file_data"),
    ("Ollama chat", lambda data: {"model": "m", "messages": [{"role": "user", "content": "", "images": [data]}]},
     ollama_chat.decode_request, "messages[0].images[0]"),
    ("Ollama generate", lambda data: {"model": "m", "images": [data]}, generate.decode_request, "images[0]"),
]  # fmt: skip
NAMES = [name for name, *_ in SPELLINGS]


def only_part(decoded: Any) -> Any:
    (request,) = decoded.requests
    (part,) = request.messages[-1].parts
    return part


@pytest.mark.parametrize(("_", "body", "decode", "path"), SPELLINGS, ids=NAMES)
@given(kind=st.sampled_from(sorted(KINDS)), tail=TAILS)
def test_a_recording_is_the_same_part_in_every_spelling(
    _: str, body: Callable[[str], Json], decode: Callable[[Json], Any], path: str, kind: str, tail: bytes
) -> None:
    media_type, head = KINDS[kind]
    part = only_part(decode(body(b64(head + tail))))
    assert part == Audio(media_type, head + tail)  # the bytes say what it is, whatever the client says
    assert part.path == path


@pytest.mark.parametrize(("_", "body", "decode", "path"), SPELLINGS, ids=NAMES)
def test_lines_of_base64_may_break_in_every_spelling(
    _: str, body: Callable[[str], Json], decode: Callable[[Json], Any], path: str
) -> None:
    broken = base64.encodebytes(WAVE).decode("ascii").replace("\n", "\r\n")
    assert only_part(decode(body(broken))) == Audio("audio/wav", WAVE)


def chosen(name: str) -> tuple[Callable[[str], Json], Callable[[Json], Any], str]:
    return next((body, decode, path) for each, body, decode, path in SPELLINGS if each == name)


@pytest.mark.parametrize("name", [name for name in NAMES if "file" not in name and "Ollama" not in name])
@pytest.mark.parametrize(("data", "words"), [("@@", "holds base64 that cannot be decoded"), ("", "0 bytes|is empty")])
def test_no_base64_and_no_bytes_are_refused_with_the_field(name: str, data: str, words: str) -> None:
    body, decode, path = chosen(name)
    with pytest.raises(InvalidRequest, match=words) as caught:
        decode(body(data))
    assert caught.value.field == path
    assert caught.value.message.startswith(path)


WRONG: list[tuple[Json, str, str]] = [
    ({"type": "input_audio"}, "input_audio", "is missing"),
    ({"type": "input_audio", "input_audio": 5}, "input_audio", "object"),
    ({"type": "input_audio", "input_audio": {}}, "input_audio.data", "is missing"),
    ({"type": "input_audio", "input_audio": {"data": 5}}, "input_audio.data", "a string"),
    ({"type": "input_audio", "input_audio": {"data": b64(WAVE), "format": 5}}, "input_audio.format", "a string"),
    (spoken("https://example.org/a.wav"), "input_audio.data", "recordings are not fetched from addresses"),
    (spoken("file:///etc/passwd"), "input_audio.data", "recordings are not fetched from addresses"),
    (spoken("data:image/png;base64,AAAA"), "input_audio.data", "must look like data:audio/wav;base64"),
    (spoken("data:audio/wav;base64"), "input_audio.data", "must look like data:audio/wav;base64"),
    (spoken("data:audio/wav,AAAA"), "input_audio.data", "must look like data:audio/wav;base64"),
    ({"type": "audio_url", "audio_url": {"url": "http://a.b/c"}}, "audio_url.url", "not fetched from addresses"),
]


@pytest.mark.parametrize(("part", "field", "words"), WRONG)
def test_a_wrong_part_is_refused_in_one_sentence(part: Json, field: str, words: str) -> None:
    for decode, body, place in (
        (chat.decode_request, chat_body(part), PART),
        (responses_codec.decode_request, of_responses(part), "input[0].content[0]"),
    ):
        with pytest.raises(InvalidRequest, match=words) as caught:
            decode(body)
        assert caught.value.field == f"{place}.{field}"


def test_a_format_that_no_model_here_hears_goes_to_the_clients_provider_only() -> None:
    part = spoken(b64(b"OggS" + bytes(20)), format="ogg")
    (request,) = chat.decode_request(chat_body(part)).requests
    assert request.native is not None
    assert request.native.demand is not None
    words = f'{PART}.input_audio.format is "ogg"; send one of wav, mp3, flac'
    assert request.native.demand.message == words
    assert openai.encode_request(request, endpoint())["messages"][0]["content"] == [part]


def test_anthropics_protocol_has_none() -> None:
    block = {"type": "audio", "source": {"type": "base64", "media_type": "audio/wav", "data": b64(WAVE)}}
    with pytest.raises(InvalidRequest, match='is "audio", and this protocol has no recordings; send it to') as caught:
        messages_codec.decode_request({**chat_body(block), "max_tokens": 9})
    assert caught.value.field == f"{PART}.type"


# -- to providers ------------------------------------------------------------------------------------------------------


def endpoint(*quirks: str, hears: bool = True) -> Endpoint:
    return Endpoint("m", "p:m", quirks=frozenset(quirks), hears=hears)


def asking(part: Audio, *earlier: Message) -> Request:
    return Request("m", (*earlier, Message("user", (Text("Listen."), part))))


@given(kind=st.sampled_from(["wav", "mp3", "flac"]), tail=TAILS)
def test_what_the_client_of_a_protocol_sends_its_server_reads(kind: str, tail: bytes) -> None:
    media_type, head = KINDS[kind]
    part = Audio(media_type, head + tail)
    for quirks in [("flac",), ("audio_text", "flac")]:
        (read,) = chat.decode_request(openai.encode_request(asking(part), endpoint(*quirks))).requests
        assert read.messages[-1].parts == (Text("Listen."), part)
    if kind == "wav":
        (read,) = ollama_chat.decode_request(ollama.encode_request(asking(part), endpoint())).requests
        assert set(read.messages[-1].parts) == {Text("Listen."), part}
    sent = gemini.encode_request(asking(part), endpoint())["contents"][-1]["parts"][1]["inlineData"]
    assert base64.b64decode(sent["data"]) == part.data
    assert sent["mimeType"] == {"mp3": "audio/mp3"}.get(kind, media_type)


def test_the_words_of_openai() -> None:
    body = openai.encode_request(asking(Audio("audio/mpeg", MP3)), endpoint())
    assert body["messages"][0]["content"][1] == spoken(b64(MP3), format="mp3")
    body = openai.encode_request(asking(Audio("audio/wav", WAVE)), endpoint("audio_text"))
    assert body["messages"][0]["content"][1] == {"type": "input_audio", "input_audio": b64(WAVE)}


DEAF: list[tuple[ClientCodec, str, bool, str]] = [
    (anthropic, "wav", True, "the protocol of p:m has no place for one"),
    (responses_client, "wav", True, "the protocol of p:m has no place for one"),
    (openai, "flac", True, "p:m hears audio/mpeg, audio/wav, not audio/flac"),
    (ollama, "mp3", True, "p:m hears audio/wav, not audio/mpeg"),
    (openai, "wav", False, "p:m cannot hear"),
    (gemini, "wav", False, "p:m cannot hear"),
    (ollama, "wav", False, "p:m cannot hear"),
]


@pytest.mark.parametrize(("codec", "kind", "hears", "why"), DEAF)
def test_a_new_recording_is_refused_and_an_older_one_is_a_note(
    codec: ClientCodec, kind: str, hears: bool, why: str
) -> None:
    media_type, data = KINDS[kind]
    part = Audio(media_type, data, path="messages[0].content[1]")
    aim = endpoint(hears=hears)
    with pytest.raises(Unsupported) as caught:
        codec.encode_request(asking(part), aim)
    assert caught.value.field == part.path
    assert caught.value.message == f"{part.path} is a recording, and {why}; leave it out, or name another model"
    call = ToolCall("c", "record", "{}")
    history = (
        *asking(part).messages,
        Message("assistant", (call,)),
        Message("tool", (ToolResult("c", (Text("Done."), part), "record"),)),
        Message.user("And now?"),
    )
    sent = str(codec.encode_request(Request("m", history), aim))
    assert sent.count(note(part, why)) == 2
    assert b64(data) not in sent
    # While the model calls tools, its question is the newest input no more.
    assert note(part, why) in str(codec.encode_request(Request("m", history[:-1]), aim))


@pytest.mark.parametrize("codec", [openai, ollama, gemini])
def test_the_recording_of_a_result_reaches_a_model_that_hears(codec: ClientCodec) -> None:
    part, call = Audio("audio/wav", WAVE), ToolCall("c", "record", "{}")
    result = Message("tool", (ToolResult("c", (part,), "record"),))
    messages = (Message.user("x"), Message("assistant", (call,)), result)
    assert str(codec.encode_request(Request("m", messages), endpoint())).count(b64(WAVE)) == 1


@pytest.mark.parametrize("data", [b"<html>Not found</html>", "Größe".encode() * 400, b"{}"])
def test_a_text_in_place_of_a_recording_is_refused_and_later_a_note(data: bytes) -> None:
    part = Audio("audio/wav", data, path="messages[0].content[1]")
    with pytest.raises(InvalidRequest, match="is a text; send a recording in its place") as caught:
        openai.encode_request(asking(part), endpoint())
    assert caught.value.field == part.path
    later = Request("m", (*asking(part).messages, Message.user("And?")))
    assert "; it is a text]" in str(openai.encode_request(later, endpoint()))
    assert b64(data) not in str(openai.encode_request(later, endpoint()))
