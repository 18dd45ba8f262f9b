"""Texts side by side in one message, in every protocol that has parts: each begins a line, as in llama-server."""

from collections.abc import Callable
from typing import Any

import pytest

from shepherd.core import Image, Message, Request, Text
from shepherd.wire.anthropic import codec as anthropic
from shepherd.wire.base import Json
from shepherd.wire.openai import chat
from shepherd.wire.openai.responses import codec as responses

Read = Callable[..., tuple[Message, ...]]


def _reader(decode: Callable[[Json], Any], key: str, **fields: Any) -> Read:
    def read(*messages: Json) -> tuple[Message, ...]:
        request: Request = decode({"model": "m", key: list(messages), **fields}).request
        return request.messages

    return read


PROTOCOLS = {
    "chat": _reader(chat.decode_request, "messages"),
    "responses": _reader(responses.decode_request, "input"),
    "messages": _reader(anthropic.decode_request, "messages", max_tokens=1),
}
WORDS = ["What is", "the best book", "", "of all?\n", "One."]
PIXEL = "data:image/png;base64,iVBORw=="


def parts(*texts: str) -> list[Json]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize("read", PROTOCOLS.values(), ids=PROTOCOLS)
@pytest.mark.parametrize("role", ["user", "system"])
def test_each_text_of_a_message_begins_a_line(read: Read, role: str) -> None:
    said = read({"role": role, "content": parts(*WORDS)}, {"role": "user", "content": "Hello"})
    assert said[0].parts == (Text("What is\nthe best book\nof all?\nOne."),)


@pytest.mark.parametrize("read", PROTOCOLS.values(), ids=PROTOCOLS)
def test_an_answer_that_comes_back_in_pieces_is_what_the_model_wrote(read: Read) -> None:
    said = read({"role": "user", "content": "Hello"}, {"role": "assistant", "content": parts("Good", "bye.")})
    assert said[1].text == "Goodbye."


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_an_image_between_two_texts_keeps_its_place(name: str) -> None:
    image = {"type": "image_url", "image_url": {"url": PIXEL}}
    (said,) = PROTOCOLS[name]({"role": "user", "content": [*parts("a", "b"), image, *parts("c", "d")]})
    assert said.parts == (Text("a\nb"), Image("image/png", b"\x89PNG"), Text("c\nd"))


def test_the_texts_of_a_result_are_lines() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = PROTOCOLS["chat"](
        {"role": "user", "content": "Look"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": parts("one", "two")},
    )
    (result,) = said[2].parts
    assert getattr(result, "parts", None) == (Text("one\ntwo"),)
