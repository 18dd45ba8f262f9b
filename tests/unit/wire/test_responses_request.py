"""Requests in the Responses protocol: what is understood, what is left out, what is refused and how."""

import base64
import json
import logging
from typing import Any

import pytest

from shepherd.core import (
    Document,
    Image,
    InvalidRequest,
    Message,
    Opaque,
    Reasoning,
    Request,
    Sampling,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from shepherd.wire.base import Json
from shepherd.wire.history import plain
from shepherd.wire.openai import chat as openai_chat
from shepherd.wire.openai.responses.codec import decode_hybrid, decode_request

BIG = '{"n": 12345678901234567890}'
LOOK: Json = {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}}
DOCS: Json = {"type": "namespace", "name": "mcp__docs__", "tools": [{"type": "function", "name": "find"}]}
PATCH: Json = {
    "type": "custom",
    "name": "patch",
    "description": "Patches.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x+/"},
}
SEARCH: Json = {"type": "web_search", "external_web_access": True}
ONLY_SEARCH: Json = {"type": "allowed_tools", "mode": "required", "tools": [SEARCH]}
TOOLS = [LOOK, SEARCH, DOCS, PATCH]
PIXEL = base64.b64encode(b"\x89PNG").decode()


def request_of(**fields: Any) -> Request:
    return decode_request({"model": "m", "input": "Hello", **fields}).request


def messages_of(*items: Json, **fields: Any) -> tuple[Message, ...]:
    return request_of(input=list(items), **fields).messages


def said(role: str, *parts: Json, **fields: Any) -> Json:
    return {"type": "message", "role": role, "content": list(parts), **fields}


def text(value: str, kind: str = "input_text") -> Json:
    return {"type": kind, "text": value}


# ---- the conversation


def test_a_string_is_what_the_user_says() -> None:
    assert request_of().messages == (Message.user("Hello"),)
    assert request_of(instructions="Be brief.").messages == (Message.system("Be brief."), Message.user("Hello"))


def test_what_the_model_said_in_pieces_is_one_message_again() -> None:
    found = messages_of(
        {"role": "developer", "content": "Rules."},
        said("user", text("a"), text("b")),
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [text("Hm.", "reasoning_text")]},
        said("assistant", text("Look:", "output_text"), id="msg_1", status="completed"),
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": BIG},
        {"type": "function_call", "call_id": "c2", "name": "find", "namespace": "mcp__docs__", "arguments": "{oops"},
        {"type": "custom_tool_call", "call_id": "c3", "name": "patch", "input": "*** \n"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [text("two"), text("three")]},
        {"type": "custom_tool_call_output", "call_id": "c3", "output": "done"},
        said("assistant", text("Yes.", "output_text")),
        said("system", text("Later.")),
        said("user", text("More?")),
        tools=TOOLS,
    )
    assert found == (
        Message.system("Rules."),
        Message.user("a\nb"),
        Message(
            "assistant",
            (
                Reasoning("Hm."),
                Text("Look:"),
                ToolCall("c1", "look", BIG),
                ToolCall("c2", "mcp__docs__find", "{oops"),
                ToolCall("c3", "patch", '{"input": "*** \\n"}'),
            ),
        ),
        Message("tool", (ToolResult("c1", (Text("one"),), "look"),)),
        Message("tool", (ToolResult("c2", (Text("two\nthree"),), "mcp__docs__find"),)),
        Message("tool", (ToolResult("c3", (Text("done"),), "patch"),)),
        Message.assistant("Yes."),
        Message.system("Later."),
        Message.user("More?"),
    )


def test_two_messages_of_the_model_in_a_row_are_two_answers() -> None:
    found = messages_of(said("assistant", text("a", "output_text")), {"role": "assistant", "content": "b"})
    assert found == (Message.assistant("a"), Message.assistant("b"))


def test_an_empty_answer_stays_an_answer() -> None:
    found = messages_of({"role": "user", "content": "a"}, {"role": "assistant", "content": []}, said("user", text("b")))
    assert [message.role for message in found] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("item", "thought"),
    [
        ({"summary": [text("a", "summary_text"), text("b", "summary_text")]}, Reasoning("a\n\nb")),
        ({"summary": [text("s", "summary_text")], "content": [text("all", "reasoning_text")]}, Reasoning("all")),
        (
            {"id": "rs_1", "summary": [], "encrypted_content": "gAAAA", "status": None},
            Reasoning(
                "",
                'openai.responses:{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAA"}',
                redacted=True,
            ),
        ),
        (
            {"summary": [text("s", "summary_text")], "encrypted_content": "gAAAA"},
            Reasoning(
                "s",
                'openai.responses:{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],'
                '"encrypted_content":"gAAAA"}',
            ),
        ),
    ],
)
def test_thoughts_are_taken_from_where_most_is_said(item: Json, thought: Reasoning) -> None:
    (found,) = messages_of({"type": "reasoning", **item}, said("assistant", text("x", "output_text")))
    assert found.parts == (thought, Text("x"))


@pytest.mark.parametrize(
    ("call", "output", "expected", "result"),
    [
        (
            {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "local_shell_call_output", "id": "c", "output": "a.txt"},
            ToolCall("c", "local_shell", '{"type": "exec", "command": ["ls"]}'),
            "a.txt",
        ),
        (
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "ü", "stderr": ""}]},
            ToolCall("c", "shell", '{"commands": ["ls"]}'),
            '[{"stdout": "ü", "stderr": ""}]',
        ),
        (
            {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}},
            {"type": "apply_patch_call_output", "call_id": "c", "output": "gone", "status": "completed"},
            ToolCall("c", "apply_patch", '{"type": "delete_file", "path": "a"}'),
            "gone",
        ),
        (
            {"type": "function_call", "id": "c", "name": "look", "arguments": {"ü": 1}},
            {"type": "function_call_output", "call_id": "c", "output": {"a": 1}},
            ToolCall("c", "look", '{"ü": 1}'),
            '{"a": 1}',
        ),
    ],
)
def test_calls_of_every_kind_come_with_their_results(call: Json, output: Json, expected: ToolCall, result: str) -> None:
    answer, told = plain(messages_of(call, output))
    assert answer == Message("assistant", (expected,))
    assert told == Message("tool", (ToolResult("c", (Text(result),), expected.name),))


def test_a_remote_call_brings_its_own_result() -> None:
    call = {"type": "mcp_call", "id": "m1", "name": "find", "server_label": "docs", "arguments": "{}"}
    asked = ToolCall("m1", "docs__find", "{}")
    for more, parts in (
        ({"output": "found"}, (asked, ToolResult("m1", (Text("found"),), "docs__find"))),
        ({"error": "no"}, (asked, ToolResult("m1", (Text("no"),), "docs__find", is_error=True))),
        ({}, (asked,)),
    ):
        (message, _) = messages_of({**call, **more}, said("user", text("a")))
        assert message.parts == (
            Opaque("openai.responses", json.dumps({**call, **more}, separators=(",", ":")), parts),
        )
    assert [each.role for each in plain(messages_of({**call, "output": "found"}))] == ["assistant", "tool"]


def test_images_and_documents_arrive() -> None:
    (message,) = messages_of(
        said(
            "user",
            {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
            {"type": "input_image", "image_url": "https://example.org/a.png"},
            {"type": "input_file", "filename": "a.txt", "file_data": base64.b64encode("Grüß".encode()).decode()},
            {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"},
        )
    )
    assert message.parts == (
        Image("image/png", b"\x89PNG", detail="auto"),
        Image(url="https://example.org/a.png"),
        Text("[document: a.txt]\nGrüß"),
        Document("a.pdf", "application/pdf", b"\x89PNG"),
    )


@pytest.mark.parametrize(
    "item",
    [
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}},
        {"type": "computer_call_output", "call_id": "c", "output": {}},
        {"type": "something_of_next_year"},
    ],
)
def test_an_item_that_only_a_provider_knows_is_kept_for_it_and_not_read_by_others(item: Json) -> None:
    kept = Opaque("openai.responses", json.dumps(item, separators=(",", ":")))
    question, answer = said("user", text("a")), said("assistant", text("b", "output_text"))
    for items, expected in (
        ((item, question), (Message("user", (kept, Text("a"))),)),
        ((item, answer), (Message("assistant", (kept, Text("b"))),)),
        ((answer, item, question), (Message("assistant", (Text("b"), kept)), Message.user("a"))),
        ((question, item), (Message.user("a"), Message("assistant", (kept,)))),
    ):
        messages = messages_of(*items)
        assert messages == expected
        assert [message.text for message in plain(messages)] == [message.text for message in expected]


def test_the_phase_of_a_message_stands_in_front_of_its_text() -> None:
    (message,) = messages_of(
        said("assistant", text("I look.", "output_text"), phase="commentary"),
        said("assistant", text("Found.", "output_text"), phase="final_answer"),
    )
    first, second = (
        Opaque("openai.responses", f'{{"type":"message","phase":"{word}"}}') for word in ("commentary", "final_answer")
    )
    assert message.parts == (first, Text("I look."), second, Text("Found."))


def test_a_part_that_nobody_knows_is_left_out_with_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert messages_of(said("user", {"type": "input_smell"}, text("a"))) == (Message.user("a"),)
    assert "input_smell" in caplog.text


@pytest.mark.parametrize("asked", ["", [], [{"role": "user", "content": ""}]])
def test_a_probe_that_says_nothing_is_a_question(asked: Any) -> None:
    request = request_of(input=asked, max_output_tokens=1)
    assert (request.messages, request.max_tokens) == ((Message("user"),), 1)
    assert request_of(input=[], instructions="Be brief.").messages[-1] == Message("user")


# ---- tools


def test_tools_of_every_kind_are_functions_for_the_model() -> None:
    look, find, patch = request_of(tools=TOOLS).tools
    assert look == ToolSpec("look", "Looks.", {"type": "object"})
    assert find == ToolSpec("mcp__docs__find")
    assert (patch.name, patch.parameters["required"]) == ("patch", ["input"])
    assert patch.description.startswith("Patches.")
    assert patch.description.endswith("(lark):\nstart: /x+/")
    assert request_of(tools=[{**LOOK, "strict": True}]).tools[0].strict


def test_names_that_would_meet_are_told_apart_and_lead_back() -> None:
    both = [{"type": "function", "name": "mcp__docs__find"}, DOCS]
    decoded = decode_request({"input": "", "tools": both})
    assert [tool.name for tool in decoded.request.tools] == ["mcp__docs__find", "mcp__docs__find_2"]
    own = decoded.options.box.own("mcp__docs__find_2")
    assert (own.namespace, own.name) == ("mcp__docs__", "find")
    assert decoded.options.box.own("mcp__docs__find").namespace is None


def test_the_later_of_two_offers_with_one_name_is_meant() -> None:
    assert request_of(tools=[LOOK, {**LOOK, "description": "New."}]).tools == (
        ToolSpec("look", "New.", {"type": "object"}),
    )


def test_tools_between_the_messages_are_offered_too() -> None:
    items = [{"type": "additional_tools", "tools": [LOOK]}, {"type": "tool_search_output", "tools": [DOCS]}]
    request = request_of(input=[*items, said("user", text("a"))])
    assert [tool.name for tool in request.tools] == ["look", "mcp__docs__find"]
    assert plain(request.messages) == (Message.user("a"),)


def test_tools_in_the_shapes_of_other_protocols_are_understood() -> None:
    chat = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}
    assert request_of(tools=[chat]).tools == request_of(tools=[LOOK]).tools
    anthropic = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    assert request_of(tools=[anthropic]).tools == request_of(tools=[LOOK]).tools


@pytest.mark.parametrize(
    ("choice", "expected", "n_tools"),
    [
        ("auto", "auto", 3),
        ("none", "none", 3),
        ("required", "required", 3),
        ({"type": "function", "name": "look"}, ("named", "look"), 3),
        ({"type": "function", "function": {"name": "look"}}, ("named", "look"), 3),
        ({"type": "function", "name": "find", "namespace": "mcp__docs__"}, ("named", "mcp__docs__find"), 3),
        ({"type": "function", "name": "find"}, ("named", "mcp__docs__find"), 3),
        ({"type": "function", "name": "mcp__docs__find"}, ("named", "mcp__docs__find"), 3),
        ({"type": "custom", "name": "patch"}, ("named", "patch"), 3),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "patch"}, SEARCH]}, "auto", 1),
        ({"type": "allowed_tools", "mode": "required", "tools": [DOCS, LOOK]}, "required", 2),
    ],
)
def test_a_choice_of_tools_is_kept(choice: Any, expected: Any, n_tools: int) -> None:
    request = request_of(tools=TOOLS, tool_choice=choice)
    assert (request.tool_choice, len(request.tools)) == (expected, n_tools)


# ---- how to answer


def test_the_other_fields_reach_the_request() -> None:
    request = request_of(
        max_output_tokens=64_000,
        temperature=0.5,
        top_p=0.9,
        parallel_tool_calls=False,
        reasoning={"effort": "xhigh", "summary": "auto"},
        text={
            "format": {"type": "json_schema", "name": "a", "strict": True, "schema": {"type": "object"}},
            "verbosity": "low",
        },
        truncation="auto",
        prompt_cache_key="thread-1",
        user="ann",
        top_logprobs=3,
    )
    assert request.max_tokens == 64_000
    assert request.sampling == Sampling(temperature=0.5, top_p=0.9)
    assert (request.parallel_calls, request.reasoning, request.logprobs) == (False, "max", 3)
    assert (request.schema, request.extra) == ({"type": "object"}, {"constrained_by": "text.format.schema"})
    assert request.strict_schema
    assert (request.on_full, request.session, request.user) == ("evict", "thread-1", "ann")


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"reasoning": {"effort": "none"}}, "reasoning", "off"),
        ({"reasoning": {"effort": "minimal"}}, "reasoning", "low"),
        ({"reasoning": {"summary": "auto"}}, "reasoning", None),
        ({"truncation": "disabled"}, "on_full", "error"),
        ({}, "on_full", None),
        ({"safety_identifier": "s"}, "session", "s"),
        ({"text": {"format": {"type": "json_object"}}}, "schema", {"type": "object"}),
        ({"text": {"format": {"type": "text"}}}, "schema", None),
        ({"include": ["message.output_text.logprobs"]}, "logprobs", 0),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "reasoning", "off"),
    ],
)
def test_each_word_has_its_meaning(fields: Json, name: str, value: Any) -> None:
    assert getattr(request_of(**fields), name) == value


def test_null_is_absent_and_unknown_fields_are_nobodys_business() -> None:
    nulls = dict.fromkeys(
        ["instructions", "tools", "tool_choice", "temperature", "max_output_tokens", "reasoning", "text", "truncation",
         "metadata", "store", "stream", "include", "previous_response_id", "conversation", "background", "prompt",
         "user", "prompt_cache_key", "parallel_tool_calls", "top_logprobs", "stream_options", "service_tier"]
    )  # fmt: skip
    assert request_of(**nulls, client_metadata={"a": "b"}, stop=None) == request_of()


def test_a_stream_is_made_only_when_it_is_asked_for() -> None:
    assert [decode_request({"input": "a", "stream": said}).stream for said in (True, False, None)] == [
        True,
        False,
        False,
    ]


def refuse(**fields: Any) -> None:
    """Raises: the error for a model that is none of a provider of the protocol."""
    native = request_of(**fields).native
    if native is not None and native.demand is not None:
        raise native.demand


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"input": None}, "input", "is missing"),
        ({"input": 3}, "input", "a string or an array of items, not 3"),
        ({"input": ["a"]}, "input[0]", 'must be an object, not "a"'),
        ({"input": [{}]}, "input[0].type", "is missing"),
        ({"input": [{"role": "robot", "content": ""}]}, "input[0].role", "the roles are user"),
        ({"input": [{"role": "user", "content": 3}]}, "input[0].content", "a string or an array of parts"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].name", "is missing"),
        ({"input": [{"type": "function_call", "name": "a"}]}, "input[0].call_id", "is missing"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]", 'refers to item "msg_1"'),
        (
            {"input": [said("user", {"type": "input_image", "image_url": "file:///etc/passwd"})]},
            "input[0].content[0].image_url",
            "must be a data:, http: or https: URL",
        ),
        (
            {"input": [said("user", {"type": "input_image", "file_id": "file-1"})]},
            "input[0].content[0].image_url",
            "this server stores no files",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "is missing"),
        ({"tools": {}}, "tools", "must be an array"),
        ({"tool_choice": "required"}, "tool_choice", "no tool is offered that can be called here"),
        ({"tools": [SEARCH], "tool_choice": "required"}, "tool_choice", "no tool is offered that can be called here"),
        ({"tools": TOOLS, "tool_choice": ONLY_SEARCH}, "tool_choice", "no tool is offered that can be called here"),
        ({"tool_choice": "maybe"}, "tool_choice", "must be"),
        ({"tools": [LOOK], "tool_choice": {"type": "function", "name": "see"}}, "tool_choice.name", "(look)"),
        ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.tools", "names no tool"),
        ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
        ({"temperature": "hot"}, "temperature", 'not "hot"'),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "one of none, minimal"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", '"json_schema"'),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "is missing"),
        ({"truncation": "middle"}, "truncation", '"auto" or "disabled"'),
        ({"metadata": {"a": 1}}, "metadata.a", "a string, not 1"),
        ({"store": "yes"}, "store", "true or false"),
        ({"background": True}, "background", "while the client waits"),
        ({"conversation": "conv_1"}, "conversation", "previous_response_id"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "instructions and input"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "this server stores no answers"),
        ({"top_logprobs": 21}, "top_logprobs", "from 0 to 20"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence_that_names_the_field(
    fields: Json, field: str, words: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse(**fields)
    assert caught.value.field == field
    assert words in caught.value.message
    assert field in caught.value.message


# ---- Cursor: such a body sent to chat completions


CURSOR: Json = {
    "model": "m",
    "input": [
        {"role": "system", "content": "Rules."},
        {"role": "user", "content": [text("Patch it.")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "seen"}, text("Go on.")]},
        {"role": "assistant", "tool_calls": [{"id": "t2", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "t2", "content": "seen again"},
    ],
    "tools": [LOOK, PATCH],
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "stream": True,
    "stream_options": {"include_usage": True},
}  # fmt: skip


def test_a_body_of_cursors_is_understood_with_the_shapes_of_three_protocols_in_it() -> None:
    request, stream = decode_hybrid(CURSOR)
    assert stream
    assert [tool.name for tool in request.tools] == ["look", "patch"]
    assert request.messages == (
        Message.system("Rules."),
        Message.user("Patch it."),
        Message("assistant", (ToolCall("t1", "look", '{"a": 1}'),)),
        Message("tool", (ToolResult("t1", (Text("seen"),), "look"),)),
        Message.user("Go on."),
        Message("assistant", (ToolCall("t2", "look", "{}"),)),
        Message("tool", (ToolResult("t2", (Text("seen again"),), "look"),)),
    )


def test_chat_completions_reads_such_a_body_and_counts_when_asked() -> None:
    decoded = openai_chat.decode_request(CURSOR)
    assert decoded.request == decode_hybrid(CURSOR)[0]
    assert (decoded.stream, decoded.options.include_usage) == (True, True)
