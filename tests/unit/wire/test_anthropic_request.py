"""Requests in Anthropic's protocol: what is understood, and what is left out."""

import base64
import json
import logging
from typing import Any

import jsonschema
import pytest

from shepherd.core import Image, Message, Reasoning, Request, Sampling, Text, ToolCall, ToolResult, ToolSpec
from shepherd.wire.anthropic.codec import MessageOptions, decode_request
from shepherd.wire.base import Json
from shepherd.wire.history import plain

USER = {"role": "user", "content": "Hello"}
TOOL = {"name": "look", "input_schema": {"type": "object"}}
PNG = base64.b64encode(b"a png").decode()


def request_of(**fields: Any) -> Request:
    return decode_request({"model": "m", "max_tokens": 9, "messages": [USER], **fields}).request


def messages_of(*messages: Json, **fields: Any) -> tuple[Message, ...]:
    """As a model in this process reads them."""
    return plain(request_of(messages=list(messages), **fields).messages)


def said(role: str, *blocks: object) -> Json:
    return {"role": role, "content": [text(block) if isinstance(block, str) else block for block in blocks]}


def text(words: str, **more: object) -> Json:
    return {"type": "text", "text": words, **more}


def call(id: str, name: str = "look", **input: object) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result(id: str, *content: object, **more: object) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": list(content), **more}


# ---- conversations


def test_a_whole_conversation_is_decoded() -> None:
    body = {
        "model": "claude-x",
        "max_tokens": 64000,
        "system": [text("Be brief.", cache_control={"type": "ephemeral"}), text("Really.")],
        "messages": [
            {"role": "user", "content": "Look!"},
            {"role": "system", "content": "It is late."},
            said(
                "assistant",
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "b3BhcXVl"},
                "I look: ",
                "twice.",
                call("c1", at=12345678901234567890),
                call("c2", "see", ü="ß"),
            ),
            said("user", result("c1", text("one"), text("two")), result("c2", is_error=True), "And?"),
        ],
        "tools": [TOOL],
        "stop_sequences": ["###"],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "stream": True,
    }
    decoded = decode_request(body)
    assert decoded.stream
    assert decoded.request == Request(
        model="claude-x",
        messages=(
            Message.system("Be brief.\nReally."),
            Message.user("Look!"),
            Message.system("It is late."),
            Message(
                "assistant",
                (
                    Reasoning("Hm.", "anthropic:c2ln"),
                    Reasoning("", "anthropic:b3BhcXVl", redacted=True),
                    Text("I look: twice."),
                    ToolCall("c1", "look", '{"at": 12345678901234567890}'),
                    ToolCall("c2", "see", '{"ü": "ß"}'),
                ),
            ),
            Message("tool", (ToolResult("c1", (Text("one\ntwo"),), "look"),)),
            Message("tool", (ToolResult("c2", (), "see", is_error=True),)),
            Message.user("And?"),
        ),
        tools=(ToolSpec("look", "", {"type": "object"}),),
        sampling=Sampling(temperature=0.5, top_p=0.9, top_k=40),
        max_tokens=64000,
        stop=("###",),
        reasoning="off",
    )


def test_the_newest_message_is_the_same_as_blocks_with_a_mark_and_as_a_string() -> None:
    marked = said("user", text("Which files are here?", cache_control={"type": "ephemeral"}))
    assert messages_of(marked) == messages_of({"role": "user", "content": "Which files are here?"})
    result_as_string = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
    assert messages_of(said("user", result("c", text("x")))) == messages_of(said("user", result_as_string))


@pytest.mark.parametrize(
    ("blocks", "whole"),
    [(("a", "b"), "a\nb"), (("a\n", "b"), "a\nb"), (("a", "\nb"), "a\nb"), (("a", "", "b"), "a\nb"), (("", ""), "")],
)
def test_neighbouring_texts_of_a_user_are_lines_of_one(blocks: tuple[str, ...], whole: str) -> None:
    (message,) = messages_of(said("user", *blocks))
    assert message == Message("user", (Text(whole),) if whole else ())


def test_texts_go_on_as_they_are_when_the_client_adds_a_block() -> None:
    before, after = messages_of(said("user", "a", "b")), messages_of(said("user", "a", "b", "c"))
    assert after[0].text.startswith(before[0].text)


def test_results_come_first_and_what_the_user_says_beside_them_is_not_lost() -> None:
    messages = messages_of(said("assistant", call("c")), said("user", "before", result("c", text("r")), "after"))
    assert messages[1:] == (Message("tool", (ToolResult("c", (Text("r"),), "look"),)), Message.user("before\nafter"))


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}, {"content": []}])
def test_a_result_may_be_empty(content: Json) -> None:
    assert messages_of(said("user", {"type": "tool_result", "tool_use_id": "c", **content})) == (
        Message("tool", (ToolResult("c", ()),)),
    )


@pytest.mark.parametrize("given", [None, "{broken", [1], {"a": {"b": [1, None]}}])
def test_what_a_model_wrote_into_a_call_never_stops_the_conversation(given: object) -> None:
    block = {"type": "tool_use", "id": "c", "name": "f", "input": given}
    ((said_call,),) = (message.calls for message in messages_of(said("assistant", block)))
    assert said_call.arguments == ("{}" if given is None else given if isinstance(given, str) else json.dumps(given))


# ---- system prompts


BILLING = "x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;"


@pytest.mark.parametrize(
    ("system", "decoded"),
    [
        (None, None),
        ("", None),
        ([], None),
        ("Be brief.", "Be brief."),
        ([text(BILLING), text("Be brief.")], "Be brief."),
        ([text(BILLING), text("x-anthropic-other"), text("\nBe"), text("brief.")], "\nBe\nbrief."),
        ([text(f"{BILLING}\nBe brief.")], "Be brief."),
        (f"{BILLING}\n{BILLING}\nBe brief.", "Be brief."),
        ([text(BILLING)], None),
        ([text("Be brief."), text(BILLING)], f"Be brief.\n{BILLING}"),
        ("Say x-anthropic-version.", "Say x-anthropic-version."),
    ],
)
def test_accounting_in_front_of_the_system_prompt_is_no_part_of_it(system: object, decoded: str | None) -> None:
    assert messages_of(USER, system=system) == (
        *(Message.system(said) for said in [decoded] if said),
        *messages_of(USER),
    )


def test_system_messages_stay_where_they_are() -> None:
    late = {"role": "system", "content": [text("<total_tokens>9</total_tokens>")], "clear_at": "next_user_message"}
    roles = [message.role for message in messages_of(USER, late, said("assistant", "Hi"), USER, late)]
    assert roles == ["user", "system", "assistant", "user", "system"]


def test_a_system_message_that_says_nothing_is_none() -> None:
    silent = {"role": "system", "output_config": {"effort": "low"}}
    assert messages_of(USER, silent, said("system", {"type": "odd"}), {"role": "system", "content": ""}) == messages_of(
        USER
    )


# ---- blocks


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            (Image("image/png", b"a png"),),
        ),
        (
            {"type": "image", "source": {"type": "url", "url": f"data:image/png;base64,{PNG}"}},
            (Image("image/png", b"a png"),),
        ),
        ({"type": "image", "source": {"type": "url", "url": "https://x.y/a.png"}}, (Image(url="https://x.y/a.png"),)),
        (
            {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
            (Text("[image: file_1; it cannot be seen here]"),),
        ),
        (
            {"type": "document", "title": "T", "context": "C", "source": {"type": "text", "data": "D"}},
            (Text("[document: T]\nC\nD"),),
        ),
        ({"type": "document", "source": {"type": "content", "content": "D"}}, (Text("[document]\nD"),)),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": PNG}},
            (Text("[document]\na png"),),
        ),
        (
            {
                "type": "document",
                "title": "a.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA" * 11_000},
            },
            (Text("[document: a.pdf, application/pdf, 33 kB; it cannot be read here]"),),
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "https://x.y/a.pdf"}},
            (Text("[document: unnamed, https://x.y/a.pdf; only its address was sent, so it cannot be read here]"),),
        ),
        (
            {"type": "search_result", "title": "T", "source": "https://x.y", "content": [text("found")]},
            (Text("[search result: T, https://x.y]\nfound"),),
        ),
        ({"type": "compaction", "content": "So far: nothing."}, (Text("So far: nothing."),)),
        ({"type": "compaction", "content": None}, ()),
        ({"type": "container_upload", "file_id": "file_1"}, (Text("[file: file_1; it cannot be read here]"),)),
        (
            {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "see"}},
            (Text("[from here on there is the tool see]"),),
        ),
        (
            {"type": "tool_removal", "tool": {"type": "mcp_toolset_reference", "server_name": "git"}},
            (Text("[from here on the tool git must not be called]"),),
        ),
        ({"type": "fallback", "from": {}, "to": {}}, ()),
        ({"type": "something_of_2031", "text": 5}, ()),
    ],
)
def test_every_block_says_what_it_can(block: Json, parts: tuple[Text | Image, ...]) -> None:
    assert messages_of(said("user", block)) == (Message("user", parts),)
    assert messages_of(said("user", result("c", block))) == (Message("tool", (ToolResult("c", parts),)),)


def test_texts_around_an_image_stay_apart() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://x.y/a.png"}}
    (message,) = messages_of(said("user", "a", image, "b"))
    assert message.parts == (Text("a"), Image(url="https://x.y/a.png"), Text("b"))


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "ruby"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "s1",
    "content": [{"type": "web_search_result", "title": "Ruby 4", "url": "https://r.y", "encrypted_content": "x" * 999}],
}


def test_a_call_that_another_server_has_run_is_a_call_and_its_result() -> None:
    messages = messages_of(USER, said("assistant", "I look.", SEARCH, FOUND, "It is ", "4."), USER)
    assert messages[1:-1] == (
        Message("assistant", (Text("I look."), ToolCall("s1", "web_search", '{"query": "ruby"}'))),
        Message("tool", (ToolResult("s1", (Text('{"title": "Ruby 4", "url": "https://r.y"}'),), "web_search"),)),
        Message.assistant("It is 4."),
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("plain", "plain"),
        ([text("a"), text("b")], "a\nb"),
        ({"type": "web_search_tool_result_error", "error_code": "unavailable"}, '{"error_code": "unavailable"}'),
        ({"type": "x_result", "stdout": "4\n", "return_code": 0}, '{"stdout": "4\\n", "return_code": 0}'),
        (
            {"content": {"source": {"type": "base64", "data": "AAAA", "media_type": "application/pdf"}}},
            '{"content": {"source": {"media_type": "application/pdf"}}}',
        ),
        (None, ""),
    ],
)
def test_the_result_of_a_tool_elsewhere_is_told_in_words(content: object, told: str) -> None:
    use = {"type": "mcp_tool_use", "id": "m1", "name": "f", "server_name": "git", "input": {}}
    messages = messages_of(
        said("assistant", use, {"type": "mcp_tool_result", "tool_use_id": "m1", "content": content, "is_error": True})
    )
    (answer,) = messages[1].parts
    assert answer == ToolResult("m1", (Text(told),) if told else (), "f", is_error=True)


def test_a_call_elsewhere_without_a_result_and_a_result_without_a_call_are_left_out() -> None:
    assert messages_of(said("assistant", SEARCH, "a")) == (Message.assistant("a"),)
    assert messages_of(said("assistant", FOUND, "a")) == (Message.assistant("a"),)


def test_only_the_type_of_what_is_left_out_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        messages_of(
            said("user", {"type": "odd_block", "text": "secret"}), tools=[{"type": "odd_2031", "name": "secret"}]
        )
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
    assert "odd_block" in caplog.text
    assert "odd_2031" in caplog.text
    assert "secret" not in caplog.text


# ---- tools


def test_custom_tools_are_taken_as_they_are() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "$defs": {}}
    tools = request_of(
        tools=[
            {"name": "a", "description": "A.", "input_schema": schema, "strict": True, "defer_loading": True},
            {"type": "custom", "name": "b", "description": None, "input_schema": None, "cache_control": {}},
            {"type": "custom_of_2031", "name": "c", "input_schema": schema, "eager_input_streaming": True},
        ]
    ).tools
    assert tools == (ToolSpec("a", "A.", schema, strict=True), ToolSpec("b"), ToolSpec("c", "", schema))


@pytest.mark.parametrize(
    ("kind", "name", "needed"),
    [
        ("bash_20250124", "bash", {"command", "restart"}),
        ("text_editor_20241022", "str_replace_editor", {"command", "path", "new_str"}),
        ("text_editor_20250728", "str_replace_based_edit_tool", {"command", "path", "insert_text"}),
        ("memory_20250818", "memory", {"command", "old_path", "new_path"}),
    ],
)
def test_tools_that_the_client_runs_are_offered_with_a_schema(kind: str, name: str, needed: set[str]) -> None:
    (tool,) = request_of(tools=[{"type": kind, "name": "mine"}]).tools
    assert tool.name == "mine"
    assert tool.description
    assert needed <= tool.parameters["properties"].keys()
    assert request_of(tools=[{"type": kind}]).tools[0].name == name


@pytest.mark.parametrize(
    ("kind", "call", "lacks"),
    [
        ("memory_20250818", {"command": "view", "path": "/memories"}, "path"),
        ("memory_20250818", {"command": "create", "path": "/memories/a", "file_text": ""}, "file_text"),
        ("memory_20250818", {"command": "str_replace", "path": "a", "old_str": "b", "new_str": "c"}, "new_str"),
        ("memory_20250818", {"command": "insert", "path": "a", "insert_line": 0, "insert_text": "b"}, "insert_line"),
        ("memory_20250818", {"command": "delete", "path": "a"}, "path"),
        ("memory_20250818", {"command": "rename", "old_path": "a", "new_path": "b"}, "new_path"),
        ("text_editor_20250728", {"command": "create", "path": "a", "file_text": "b"}, "file_text"),
        (
            "text_editor_20250728",
            {"command": "insert", "path": "a", "insert_line": 0, "insert_text": "b"},
            "insert_text",
        ),
        ("text_editor_20241022", {"command": "insert", "path": "a", "insert_line": 0, "new_str": "b"}, "new_str"),
        ("text_editor_20241022", {"command": "undo_edit", "path": "a"}, "path"),
    ],
)
def test_each_command_of_the_vendors_tools_has_the_arguments_that_it_needs(
    kind: str, call: dict[str, Any], lacks: str
) -> None:
    """The AI SDK refuses a call without them."""
    (tool,) = request_of(tools=[{"type": kind}]).tools
    schema = jsonschema.Draft202012Validator(tool.parameters)
    assert schema.is_valid(call)
    assert not schema.is_valid({name: value for name, value in call.items() if name != lacks})


@pytest.mark.parametrize(
    "kind",
    ["web_search_20250305", "web_fetch_20260318", "code_execution_20260521", "tool_search_tool_bm25_20251119",
     "computer_toolset_20260801", "mcp_toolset"],
)  # fmt: skip
def test_tools_that_only_the_vendor_runs_are_left_out(kind: str) -> None:
    assert request_of(tools=[{"type": kind, "name": "web_search"}, TOOL]).tools == (
        ToolSpec("look", "", {"type": "object"}),
    )


def test_a_tool_that_the_conversation_defines_goes_behind_the_others() -> None:
    definition = {"name": "late", "description": "L.", "input_schema": {"type": "object"}}
    block = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}
    request = request_of(messages=[USER, {"role": "system", "content": [block]}], tools=[TOOL])
    assert [tool.name for tool in request.tools] == ["look", "late"]
    assert request.messages[1] == Message.system("[from here on there is the tool late]")


@pytest.mark.parametrize(
    ("choice", "decoded"),
    [
        (None, ("auto", None)),
        ({"type": "auto"}, ("auto", None)),
        ({"type": "auto", "disable_parallel_tool_use": True}, ("auto", False)),
        ({"type": "any", "disable_parallel_tool_use": False}, ("required", None)),
        ({"type": "tool", "name": "look", "disable_parallel_tool_use": True}, (("named", "look"), False)),
        ({"type": "none"}, ("none", None)),
    ],
)
def test_a_tool_choice_keeps_its_name(choice: object, decoded: object) -> None:
    request = request_of(tools=[TOOL], tool_choice=choice)
    assert (request.tool_choice, request.parallel_calls) == decoded


# ---- thinking, form, session


@pytest.mark.parametrize(
    ("fields", "level", "display"),
    [
        ({}, "off", "hidden"),
        ({"thinking": None}, "off", "hidden"),
        ({"thinking": {"type": "disabled"}}, "off", "hidden"),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}}, "off", "hidden"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low", "shown"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10_000}}, "medium", "shown"),
        ({"thinking": {"type": "enabled", "budget_tokens": 31_999}}, "high", "shown"),
        ({"thinking": {"type": "adaptive"}}, None, "shown"),
        ({"thinking": {"type": "adaptive", "display": "summarized"}}, None, "shown"),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, None, "signed"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, "low", "shown"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max", "shown"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "of 2031"}}, None, "shown"),
        ({"thinking": {"type": "between_tools"}}, None, "shown"),
        ({"thinking": {"type": "of 2031"}, "output_config": {"effort": "medium"}}, "medium", "shown"),
    ],
)
def test_thinking_has_one_level_and_one_display(fields: Json, level: str | None, display: str) -> None:
    decoded = decode_request({"messages": [USER], **fields})
    assert (decoded.request.reasoning, decoded.options.thinking) == (level, display)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "output_config.format.schema"),
        ({"output_format": {"type": "json_schema", "schema": SCHEMA, "strict": True}}, "output_format.schema"),
    ],
)
def test_a_schema_for_the_answer_comes_in_two_ways(fields: Json, path: str) -> None:
    request = request_of(**fields)
    assert (request.schema, request.extra) == (SCHEMA, {"constrained_by": path})
    assert request.strict_schema == ("strict" in str(fields))


@pytest.mark.parametrize(
    ("user_id", "session"),
    [
        (None, None),
        ("ann", None),
        ('{"device_id": "d", "account_uuid": "a", "session_id": "7cc7f675-4892"}', "7cc7f675-4892"),
        ("user_0a_account_1b_session_7cc7f675-4892", "7cc7f675-4892"),
        ('{"session_id": 5}', None),
        ("[1]", None),
        ("{", None),
    ],
)
def test_the_id_of_a_user_may_name_a_session_and_is_nobodys_memory(user_id: str | None, session: str | None) -> None:
    request = request_of(metadata={"user_id": user_id})
    assert (request.session, request.user) == (session, None)


@pytest.mark.parametrize(
    ("fields", "max_tokens", "silent"),
    [
        ({}, None, False),
        ({"max_tokens": None}, None, False),
        ({"max_tokens": 7}, 7, False),
        ({"max_tokens": 0}, 1, True),
    ],
)
def test_max_tokens_may_be_missing_and_zero_only_reads_the_prompt(
    fields: Json, max_tokens: int | None, silent: bool
) -> None:
    decoded = decode_request({"messages": [USER], **fields})
    assert (decoded.request.max_tokens, decoded.options) == (max_tokens, MessageOptions(silent=silent))


def test_null_is_absent_everywhere() -> None:
    names = (
        "max_tokens system stream tools tool_choice thinking metadata stop_sequences temperature top_p top_k "
        "output_config output_format cache_control container service_tier"
    )
    assert decode_request({"model": None, "messages": [USER], **dict.fromkeys(names.split())}) == decode_request(
        {"messages": [USER]}
    )


def test_unknown_fields_are_ignored() -> None:
    more = {"betas": 5, "mcp_servers": "x", "speed": {}, "of_2031": None, "container": 1}
    assert request_of(**more) == request_of()
