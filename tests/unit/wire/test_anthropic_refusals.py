"""Requests in Anthropic's protocol: what is refused, and in which words."""

from typing import Any

import pytest

from shepherd.core import InvalidRequest, Request
from shepherd.wire.anthropic.codec import decode_request, encode_error
from shepherd.wire.base import Json

USER = {"role": "user", "content": "Hello"}
TOOL = {"name": "look", "input_schema": {"type": "object"}}


def request_of(**fields: Any) -> Request:
    return decode_request({"messages": [USER], **fields}).request


def user(block: object) -> Json:
    return {"messages": [{"role": "user", "content": [block]}]}


def image(**source: object) -> Json:
    return user({"type": "image", "source": source})


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"messages": None}, "messages", "missing"),
        ({"messages": []}, "messages", "empty"),
        ({"messages": "Hi"}, "messages", 'an array, not "Hi"'),
        ({"messages": ["Hi"]}, "messages[0]", "an object"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role", "missing"),
        ({"messages": [{"role": "robot"}]}, "messages[0].role", "user, assistant and system"),
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages[0].content",
            "a string or an array of blocks, not 5",
        ),
        (user("Hi"), "messages[0].content[0]", "an object"),
        (user({"text": "Hi"}), "messages[0].content[0].type", "missing"),
        (user({"type": "text", "text": 5}), "messages[0].content[0].text", "a string, not 5"),
        (user({"type": "text"}), "messages[0].content[0].text", "missing"),
        (user({"type": "tool_result", "content": "x"}), "messages[0].content[0].tool_use_id", "names the call"),
        (
            user({"type": "tool_result", "tool_use_id": "c", "content": [5]}),
            "messages[0].content[0].content[0]",
            "an object, not 5",
        ),
        (user({"type": "tool_use", "name": "f"}), "messages[0].content[0].id", "missing"),
        (user({"type": "tool_use", "id": "c"}), "messages[0].content[0].name", "missing"),
        (user({"type": "image"}), "messages[0].content[0].source", "missing"),
        (image(type="base64", data="!"), "messages[0].content[0].source.data", "cannot be decoded"),
        (image(type="base64", data=" "), "messages[0].content[0].source.data", "0 bytes"),
        (image(type="url", url="file:///etc/passwd"), "messages[0].content[0].source.url", "http: or https:"),
        (image(type="url", url="data:image/png,x"), "messages[0].content[0].source.url", "base64"),
        ({"system": 5}, "system", "a string or an array of blocks, not 5"),
        ({"max_tokens": -1}, "max_tokens", "an integer"),
        ({"max_tokens": "9"}, "max_tokens", 'not "9"'),
        ({"temperature": -1}, "temperature", "from 0 to 100, not -1"),
        ({"temperature": 101}, "temperature", "from 0 to 100, not 101"),
        ({"max_tokens": 2**63}, "max_tokens", "from 0 to 9223372036854775807"),
        ({"stop_sequences": ["a"] * 257}, "stop_sequences", "has 257 strings; at most 256 are allowed"),
        ({"stop_sequences": ["a" * 4097]}, "stop_sequences", "has 4097 characters; at most 4096 are allowed"),
        ({"stop_sequences": ["a", ""]}, "stop_sequences[1]", "empty"),
        ({"top_p": 2}, "top_p", "from 0 to 1"),
        ({"top_k": 1.5}, "top_k", "an integer"),
        ({"stop_sequences": [5]}, "stop_sequences[0]", "a string"),
        ({"stop_sequences": ["x"] * 257}, "stop_sequences", "at most 256"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"metadata": []}, "metadata", "an object"),
        ({"metadata": {"user_id": 5}}, "metadata.user_id", "a string"),
        ({"thinking": "yes"}, "thinking", "an object"),
        ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens", "an integer"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type", '"json_schema", not "xml"'),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema", "missing"),
        ({"tools": {}}, "tools", "an array"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name", "missing"),
        ({"tools": [{"name": "f", "input_schema": []}]}, "tools[0].input_schema", "an object"),
        ({"tool_choice": "auto"}, "tool_choice", "an object"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type", '"any"'),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "no tool is offered"),
        ({"tool_choice": {"type": "tool", "name": "f"}, "tools": [TOOL]}, "tool_choice.name", "(look)"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_the_rule(fields: Json, field: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request_of(**fields)
    assert caught.value.field == field
    assert field in caught.value.message
    assert words in caught.value.message


def test_new_messages_alone_are_refused_in_the_words_that_make_the_client_send_them_all() -> None:
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    with pytest.raises(InvalidRequest) as caught:
        request_of(thread=thread)
    status, body = encode_error(caught.value)
    assert (status, body["error"]["type"]) == (404, "not_found_error")
    assert body["error"]["details"] == {"error_code": "thread_not_found"}
    assert request_of(thread={"type": "create"}) == request_of()
