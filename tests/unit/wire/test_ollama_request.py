"""Bodies of Ollama's protocol, read: conversations, prompts, options, and what is refused in which words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.core import (
    Completion,
    Image,
    InvalidRequest,
    Message,
    Reasoning,
    Request,
    Sampling,
    Text,
    ToolCall,
    ToolResult,
)
from shepherd.wire.base import Fields, decode_json
from shepherd.wire.ollama import chat as ollama_chat
from shepherd.wire.ollama import generate as ollama_generate
from shepherd.wire.ollama.context import context_of, read_context
from shepherd.wire.ollama.fields import FOR_EVER, decode_keep_alive

HELLO = {"role": "user", "content": "Hello"}


def chat(**fields: Any) -> Request:
    return ollama_chat.decode_request({"model": "m", "messages": [HELLO], **fields}).request


def generate(**fields: Any) -> Request:
    return ollama_generate.decode_request({"model": "m", "prompt": "Hello", **fields}).request


def called(name: str, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **fields}


# -- the conversation


def test_every_role_and_part_is_read() -> None:
    png, jpeg = "iVBORw0KGgo=", "data:image/jpeg;base64,/9j/4A=="
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "USER", "content": "What?", "images": [png, jpeg, "AAAA"]},
        {"role": "assistant", "thinking": "Hm.", "content": "I look.", "tool_calls": [called("look", {"at": 2**63})]},
        {"role": "tool", "tool_name": "look", "content": "a sheep", "images": [png]},
        {"role": "system", "content": "Be quick."},
        {"role": "assistant", "content": None},
    ]
    picture = Image("image/png", b"\x89PNG\r\n\x1a\n")
    assert chat(messages=messages).messages == (
        Message.system("Be brief."),
        Message(
            "user",
            (
                picture,
                Image("image/jpeg", b"\xff\xd8\xff\xe0"),
                Image("application/octet-stream", b"\0\0\0"),
                Text("What?"),
            ),
        ),
        Message(
            "assistant", (Reasoning("Hm."), Text("I look."), ToolCall("call_1", "look", '{"at": 9223372036854775808}'))
        ),
        Message("tool", (ToolResult("call_1", (picture, Text("a sheep")), "look"),)),
        Message.system("Be quick."),
        Message("assistant"),
    )


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([{"tool_name": "b"}, {"tool_name": "a"}, {"tool_name": "a"}], [("call_2", "b"), ("call_1", "a"), ("x", "a")]),
        ([{"name": "a"}, {}, {}], [("call_1", "a"), ("call_2", "b"), ("x", "a")]),
        ([{"tool_call_id": "x"}, {"tool_name": "a"}], [("x", "a"), ("call_1", "a")]),
        ([{"tool_call_id": "gone"}, {"tool_name": "c"}], [("gone", ""), ("call_3", "c")]),
        ([{}] * 4, [("call_1", "a"), ("call_2", "b"), ("x", "a"), ("call_3", "")]),
    ],
)
def test_a_result_belongs_to_the_oldest_call_of_its_tool(
    results: list[dict[str, Any]], expected: list[tuple[str, str]]
) -> None:
    calls = [called("a"), called("b", {}), called("a", {}, id="x")]
    messages = [HELLO, {"role": "assistant", "tool_calls": calls}]
    messages += [{"role": "tool", "content": "done", **result} for result in results]
    told = [message.parts[0] for message in chat(messages=messages).messages[2:]]
    assert told == [ToolResult(id, (Text("done"),), name) for id, name in expected]


def test_numbers_that_a_client_has_taken_are_not_given_again() -> None:
    messages = [{"role": "assistant", "tool_calls": [called("a", {}, id="call_1"), called("b"), called("c")]}]
    assert [call.id for call in chat(messages=messages).messages[0].calls] == ["call_1", "call_2", "call_3"]


def test_arguments_that_are_no_object_stay_what_they_are() -> None:
    messages = [{"role": "assistant", "tool_calls": [called("a", "{oops"), called("b", '{"x": 1}'), called("c")]}]
    assert [call.arguments for call in chat(messages=messages).messages[0].calls] == ["{oops", '{"x": 1}', "{}"]


def test_the_same_history_is_the_same_prompt_with_more_behind_it() -> None:
    messages = [HELLO, {"role": "assistant", "tool_calls": [called("a"), called("b")]}]
    messages += [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]
    messages += [{"role": "assistant", "tool_calls": [called("a")]}, {"role": "tool", "content": "3"}]
    whole = chat(messages=messages).messages
    for end in range(1, len(messages) + 1):
        assert chat(messages=messages[:end]).messages == whole[:end]


def test_tools_are_offered() -> None:
    tools = [{"type": "function", "function": {"name": "look", "description": None, "parameters": {"type": "object"}}}]
    (tool,) = chat(tools=tools).tools
    assert (tool.name, tool.description, tool.parameters) == ("look", "", {"type": "object"})


# -- how to answer


def test_a_call_can_be_demanded() -> None:
    look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    named = {"type": "function", "function": {"name": "look"}}
    for choice, expected in (("required", "required"), ("none", "none"), (None, "auto"), (named, ("named", "look"))):
        assert chat(tools=[look], tool_choice=choice).tool_choice == expected
    with pytest.raises(InvalidRequest, match="tool_choice"):
        chat(tools=[look], tool_choice="sometimes")


def test_options_are_those_of_the_sampler() -> None:
    options = {
        "temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.8, "repeat_penalty": 1.1,
        "repeat_last_n": -1, "presence_penalty": 0.2, "frequency_penalty": 0.3, "mirostat": 2, "mirostat_tau": 5.0,
        "mirostat_eta": 0.1, "seed": 42, "stop": ["a", "b"], "num_predict": 10, "num_ctx": 100_000,
        "num_keep": 5, "num_gpu": 99, "numa": True, "penalize_newline": True, "tfs_z": 1.0,
    }  # fmt: skip
    request = chat(options=options)
    assert request.sampling == Sampling(
        temperature=0.5, top_k=40, top_p=0.9, min_p=0.1, typical_p=0.8, repetition_penalty=1.1, repeat_last_n=-1,
        presence_penalty=0.2, frequency_penalty=0.3, mirostat=2, mirostat_tau=5.0, mirostat_eta=0.1, seed=42,
    )  # fmt: skip
    assert (request.stop, request.max_tokens) == (("a", "b"), 10)
    assert request.extra == {"num_ctx": 100_000}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"options": {"num_predict": -1}}, {"max_tokens": None}),
        ({"options": {"num_predict": -2}}, {"max_tokens": None}),
        ({"options": {"num_predict": 0}}, {"max_tokens": None}),
        ({"options": {"stop": "END"}}, {"stop": ("END",)}),
        ({"options": None, "format": None, "think": None, "keep_alive": None, "logprobs": None}, {"extra": {}}),
        ({"think": True}, {"reasoning": "medium"}),
        ({"think": False}, {"reasoning": "off"}),
        ({"think": "low"}, {"reasoning": "low"}),
        ({"format": ""}, {"schema": None}),
        ({"format": "json"}, {"schema": {"type": "object"}, "extra": {"constrained_by": "format"}}),
        ({"format": {"type": "array"}}, {"schema": {"type": "array"}}),
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 3}, {"logprobs": 3}),
        ({"logprobs": False, "top_logprobs": 3}, {"logprobs": None}),
        ({"truncate": True}, {"on_full": "evict"}),
        ({"truncate": False}, {"on_full": "error"}),
        ({}, {"on_full": None, "model": "m", "reasoning": None}),
    ],
)
def test_both_ways_say_alike_how_to_answer(fields: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for request in (chat(**fields), generate(**fields)):
        assert {name: getattr(request, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (None, None), (300, 300.0), (0, 0.0), (1.5, 1.5), (-1, FOR_EVER), (-0.5, FOR_EVER), ("5m", 300.0), ("0", 0.0),
        ("1h30m", 5400.0), ("250ms", 0.25), ("1.5h", 5400.0), ("-1m", FOR_EVER), ("-1", FOR_EVER), ("300", 300.0),
        ("0s", 0.0), ("+2s", 2.0), (".5s", 0.5), ("10us", 1e-5), ("10µs", 1e-5),
    ],
)  # fmt: skip
def test_how_long_a_model_is_kept(said: Any, seconds: float | None) -> None:
    assert decode_keep_alive(Fields({"keep_alive": said})) == (pytest.approx(seconds) if seconds is not None else None)


@pytest.mark.parametrize("said", ["", "soon", "m5", "5 m", "5d", "1m-5s", "--1s", True, [], {}, 10**400, "9" * 400])
def test_a_time_that_is_none_is_refused(said: Any) -> None:
    with pytest.raises(InvalidRequest, match="keep_alive must be a number of seconds or a duration"):
        decode_keep_alive(Fields({"keep_alive": said}))


def test_it_streams_unless_told_not_to() -> None:
    for decode in (ollama_chat.decode_request, ollama_generate.decode_request):
        streams = [decode({"model": "m", **said}).stream for said in ({}, {"stream": None}, {"stream": True})]
        assert streams == [True] * 3
        assert decode({"model": "m", "stream": False}).stream is False


# -- one prompt


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"prompt": "p", "system": "s"}, Request("m", (Message.system("s"), Message.user("p")))),
        ({"prompt": "p", "raw": True, "system": "s", "template": "t"}, Request("m", completion=Completion("p"))),
        ({"prompt": "p", "suffix": "s"}, Request("m", completion=Completion("p", "s"))),
        ({"prompt": "p", "suffix": "", "raw": False, "context": []}, Request("m", (Message.user("p"),))),
        ({"prompt": "", "system": "s"}, Request("m")),
        ({"prompt": None, "keep_alive": 0}, Request("m", extra={"keep_alive": 0.0})),
        ({"images": ["AAAA"]}, Request("m", (Message("user", (Image("application/octet-stream", b"\0\0\0"),)),))),
    ],
)
def test_a_prompt_with_and_without_a_template(fields: Mapping[str, Any], expected: Request) -> None:
    assert ollama_generate.decode_request({"model": "m", **fields}).request == expected


SAID = (Message.system("Be brief."), Message.user("I am Ann. 🐑"))
CONTEXT = context_of(SAID, "Hello, Ann.")
TOLD = (*SAID, Message.assistant("Hello, Ann."))


def test_a_context_is_the_conversation_before_the_prompt() -> None:
    (request,) = ollama_generate.decode_request({"model": "m", "prompt": "And I?", "context": CONTEXT}).requests
    assert request.messages == (*TOLD, Message.user("And I?"))
    again = {"model": "m", "prompt": "And I?", "context": CONTEXT, "system": "Be long."}
    changed = ollama_generate.decode_request(again).request.messages
    assert changed == (Message.system("Be long."), *TOLD[1:], Message.user("And I?"))


@pytest.mark.parametrize(
    "context",
    [
        [1, 2, 3], [CONTEXT[0]], CONTEXT[:-1], [*CONTEXT, 5], [CONTEXT[0], -1], [CONTEXT[0], 0], [*CONTEXT[:-1], 2**24],
        [*CONTEXT[:-1], -1], [*CONTEXT[:-1], 0xFFFFFF], [*CONTEXT[:-1], 1.5], [*CONTEXT[:-1], "1"], [True, True],
        [*CONTEXT[:-1], None], ["a"], [[]],
    ],
)  # fmt: skip
def test_a_context_of_another_program_or_one_that_was_cut_is_refused(context: Any) -> None:
    with pytest.raises(
        InvalidRequest, match="context is not as an answer of this server had it; send the one of"
    ) as no:
        ollama_generate.decode_request({"model": "m", "prompt": "p", "context": context})
    assert no.value.field == "context"


@given(st.lists(st.text(), max_size=3), st.text())
def test_every_conversation_comes_back(texts: list[str], answer: str) -> None:
    messages = tuple(map(Message.user, texts))
    context = context_of(messages, answer)
    assert all(type(number) is int and 0 <= number < 2**24 for number in context)
    assert read_context(context, "context") == (*messages, Message.assistant(answer))


def test_ignored_fields_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    generate(system="s")
    assert caplog.messages == []
    generate(raw=True, system="a secret", template="a secret", context=[1])
    assert caplog.messages == ["/api/generate: ignored template, context, system"]


@pytest.mark.parametrize(
    ("messages", "keep_alive", "errand"),
    [([], None, "load"), (None, "5m", "load"), ([], 0, "unload"), ([], "0s", "unload"), ([HELLO], 0, "")],
)
def test_a_body_without_messages_is_an_errand(messages: Any, keep_alive: Any, errand: str) -> None:
    decoded = ollama_chat.decode_request({"model": "m", "messages": messages, "keep_alive": keep_alive})
    assert decoded.options.errand == errand
    assert decoded.request.messages == ((Message.user("Hello"),) if messages else ())


# -- what is refused


@pytest.mark.parametrize(
    ("fields", "words", "field"),
    [
        ({"model": 5}, "model must be a string, not 5", "model"),
        ({"messages": {}}, "messages must be an array, not an object", "messages"),
        ({"messages": [5]}, "messages[0] must be an object, not 5", "messages[0]"),
        ({"messages": [{}]}, "messages[0].role is missing", "messages[0].role"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content must be", "messages[0].content"),
        ({"messages": [{"role": "user", "images": "x"}]}, "messages[0].images must be", "messages[0].images"),
        ({"messages": [{"role": "user", "images": [""]}]}, "an image of 0 bytes", "messages[0].images[0]"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
            "messages[0].tool_calls[0].function is missing",
            "messages[0].tool_calls[0].function",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [called("a", [1])]}]},
            "arguments must be an object, or a string of JSON, not an array",
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"options": []}, "options must be an object", "options"),
        ({"options": {"top_p": 2}}, "options.top_p must be a number from 0 to 1", "options.top_p"),
        ({"options": {"num_ctx": "4k"}}, "options.num_ctx must be an integer", "options.num_ctx"),
        ({"stream": "yes"}, 'stream must be true or false, not "yes"', "stream"),
        ({"top_logprobs": 21}, "top_logprobs must be an integer from 0 to 20", "top_logprobs"),
        ({"tools": [{"function": {}}]}, "tools[0].function.name is missing", "tools[0].function.name"),
    ],
)
def test_a_wrong_field_is_named(fields: Mapping[str, Any], words: str, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(**fields)
    assert words in caught.value.message
    assert caught.value.field == field


def test_a_picture_in_a_bare_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="leave out a suffix or images"):
        generate(images=["AAAA"], suffix="s")


# -- what clients really sent


def test_recorded_bodies_are_understood(conformance: Path) -> None:
    n_read = 0
    for file in sorted((conformance / "providers" / "ollama").glob("ollama-native-*.json")):
        body = json.loads(file.read_bytes())["request"].get("body")
        if body is None:
            continue
        decoded = ollama_chat.decode_request(decode_json(json.dumps(body).encode()))
        assert [(message.role, message.text) for message in decoded.request.messages] == [
            (message["role"], message["content"]) for message in body["messages"]
        ]
        assert [tool.name for tool in decoded.request.tools] == [
            tool["function"]["name"] for tool in body.get("tools") or ()
        ]
        assert decoded.stream is body["stream"]
        n_read += 1
    assert n_read > 5
