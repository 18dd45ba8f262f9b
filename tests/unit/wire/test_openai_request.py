"""Requests in OpenAI's chat protocol: what is understood, what is refused and how."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from shepherd.core import (
    Document,
    Grammar,
    Image,
    InvalidRequest,
    Message,
    Native,
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
from shepherd.wire.openai.chat import ChatOptions, decode_request

USER = {"role": "user", "content": "Hello"}
BIG = '{"n": 12345678901234567890}'
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def request_of(**fields: Any) -> Request:
    return decode_request({"model": "m", "messages": [USER], **fields}).request


# ---- requests that are understood


def test_a_whole_conversation_is_decoded() -> None:
    body = {
        "model": "gpt-4",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Really."}]},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "look", "arguments": BIG}},
                    {"id": "c2", "function": {"name": "look", "arguments": "{broken"}},
                    {"id": "c3", "function": {"name": "look", "arguments": {"ü": 1}}},
                    {"id": "c4", "function": {"name": "look", "arguments": None}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c9", "name": "other", "content": [{"type": "text", "text": "two"}]},
            {"role": "assistant", "content": None, "refusal": "No."},
            {"role": "user", "content": ""},
        ],
        "tools": [
            {"type": "function", "function": {"name": "look", "description": None, "parameters": None, "strict": True}},
            {"function": {"name": "see", "description": "Sees.", "parameters": {"type": "object", "x": [1]}}},
        ],
    }  # fmt: skip
    assert decode_request(body).request == Request(
        model="gpt-4",
        messages=(
            Message.system("Be brief."),
            Message.system("Really."),
            Message.user("a\nb"),
            Message(
                "assistant",
                (
                    Reasoning("Hm."),
                    ToolCall("c1", "look", BIG),
                    ToolCall("c2", "look", "{broken"),
                    ToolCall("c3", "look", '{"ü": 1}'),
                    ToolCall("c4", "look", "{}"),
                ),
            ),
            Message("tool", (ToolResult("c1", (Text("one"),), "look"),)),
            Message("tool", (ToolResult("c9", (Text("two"),), "other"),)),
            Message.assistant("No."),
            Message("user"),
        ),
        tools=(ToolSpec("look", strict=True), ToolSpec("see", "Sees.", {"type": "object", "x": [1]})),
    )


def test_images_come_by_value_or_by_reference() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw==", "detail": "low"}},
        {"type": "image_url", "image_url": "https://example.org/a.jpg"},
        {"type": "input_image", "image_url": "data:image/jpeg;base64,iVBORw"},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg/%3E"}},
    ]
    assert request_of(messages=[{"role": "user", "content": parts}]).messages[0].parts == (
        Image("image/png", b"\x89PNG", detail="low"),
        Image(url="https://example.org/a.jpg"),
        Image("image/jpeg", b"\x89PNG"),
        Image("image/svg+xml", b"<svg/>"),
    )


def test_every_sampling_option_arrives() -> None:
    options: Json = {
        "temperature": 0, "top_k": -1, "top_p": 1, "min_p": 0.05, "typical_p": 0.9, "top_n_sigma": -1,
        "repetition_penalty": 1.1, "frequency_penalty": -2, "presence_penalty": 2, "repeat_last_n": -1,
        "dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 64,
        "dry_sequence_breakers": ["\n"], "xtc_probability": 0.5, "xtc_threshold": 0.1, "mirostat": 2,
        "mirostat_tau": 5, "mirostat_eta": 0.1, "seed": -(2**63),
        "logit_bias": {"50256": -100, "7": 1.5, " no": -1, "²": 1},
        "ignore_eos": True,
    }  # fmt: skip
    assert request_of(**options).sampling == Sampling(
        temperature=0.0, top_k=0, top_p=1.0, min_p=0.05, typical_p=0.9, top_n_sigma=-1.0,
        repetition_penalty=1.1, frequency_penalty=-2.0, presence_penalty=2.0, repeat_last_n=-1,
        dry_multiplier=0.8, dry_base=1.75, dry_allowed_length=2, dry_penalty_last_n=64,
        dry_sequence_breakers=("\n",), xtc_probability=0.5, xtc_threshold=0.1, mirostat=2,
        mirostat_tau=5.0, mirostat_eta=0.1, seed=-(2**63),
        logit_bias=((50256, -100.0), (7, 1.5), (" no", -1.0), ("²", 1.0)),
        ignore_eos=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"repeat_penalty": 1.2}, "repetition_penalty", 1.2),
        ({"repeat_penalty": 1.2, "repetition_penalty": 1.1}, "repetition_penalty", 1.1),
        ({"seed": 2**64 - 1}, "seed", 2**64 - 1),
        ({"top_k": 40.0}, "top_k", 40),
    ],
)
def test_a_sampling_option_has_other_names_and_spellings(fields: Json, name: str, value: object) -> None:
    assert getattr(request_of(**fields).sampling, name) == value


@pytest.mark.parametrize(
    ("fields", "max_tokens"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7, "max_tokens": 5}, 7),
        ({"max_completion_tokens": None, "max_tokens": 5}, 5),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 64_000}, 64_000),
        ({}, None),
    ],
)
def test_the_newer_name_of_max_tokens_wins(fields: Json, max_tokens: int | None) -> None:
    assert request_of(**fields).max_tokens == max_tokens


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({}, None),
        ({"reasoning_effort": "none"}, "off"),
        ({"reasoning_effort": "minimal"}, "low"),
        ({"reasoning_effort": "medium"}, "medium"),
        ({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}}, "off"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, "on"),
        ({"chat_template_kwargs": {"thinking": True}}, "on"),
        ({"chat_template_kwargs": {"thinking": False}, "enable_thinking": True}, "off"),
        ({"enable_thinking": True, "reasoning_effort": "low"}, "low"),
        ({"enable_thinking": False}, "off"),
        ({"reasoning_effort": "xhigh"}, "max"),
        ({"reasoning_effort": "max"}, "max"),
        ({"reasoning": {"effort": "low", "exclude": True}}, "low"),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}, "high"),
        ({"reasoning": {"enabled": False}, "reasoning_effort": "high"}, "off"),
        ({"reasoning": {"enabled": True}}, "medium"),
        ({"reasoning": {"max_tokens": 2000}}, None),
        ({"thinking": False}, "off"),
        ({"thinking": True, "reasoning_effort": "high"}, "high"),
        ({"thinking": {"type": "disabled"}}, "off"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "medium"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {}}, None),
    ],
)
def test_reasoning_has_one_level(fields: Json, level: str | None) -> None:
    assert request_of(**fields).reasoning == level


@pytest.mark.parametrize(
    ("form", "keeps", "hides"),
    [
        (None, (False, False), False),
        ("auto", (False, False), False),
        ("deepseek", (False, False), False),
        ("parsed", (False, False), False),
        ("none", (True, True), False),
        ("raw", (True, True), False),
        ("deepseek-legacy", (False, True), False),
        ("hidden", (False, False), True),
    ],
)
def test_thoughts_stay_in_the_text_where_a_client_wants_them_there(
    form: str | None, keeps: tuple[bool, bool], hides: bool
) -> None:
    found = [
        decode_request({"messages": [USER], "reasoning_format": form, "stream": stream}) for stream in (False, True)
    ]
    assert tuple(each.request.keeps_thoughts for each in found) == keeps
    assert {each.options.hides_reasoning for each in found} == {hides}


CONTINUED = "continue_final_message"
HALF, HM = {"role": "assistant", "content": "It is"}, {"role": "assistant", "content": "", "reasoning_content": "Hm"}
CALLING = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}],
}


@pytest.mark.parametrize(
    ("last", "fields", "start"),
    [
        (HALF, {}, None),
        (HALF, {CONTINUED: True}, None),
        (HALF, {CONTINUED: True, "add_generation_prompt": False}, None),
        (HALF, {CONTINUED: "auto"}, None),
        (HALF, {CONTINUED: "content"}, "text"),
        (HALF, {CONTINUED: False}, "turn"),
        (HALF, {"add_generation_prompt": True}, "turn"),
        (HALF, {CONTINUED: False, "add_generation_prompt": True}, "turn"),
        (HALF, {CONTINUED: False, "add_generation_prompt": False}, "nothing"),
        (HALF, {"add_generation_prompt": False}, None),
        (HM, {CONTINUED: "reasoning_content"}, None),
        (HM, {CONTINUED: "content"}, "text"),
        (USER, {"add_generation_prompt": False}, "nothing"),
        (USER, {CONTINUED: None, "add_generation_prompt": None}, None),
    ],
)
def test_a_request_sets_how_the_answer_begins(last: Json, fields: Json, start: str | None) -> None:
    assert request_of(messages=[USER, last], **fields).start == start


@pytest.mark.parametrize(
    ("last", "fields", "said"),
    [
        (HALF, {CONTINUED: True, "add_generation_prompt": True}, "cannot both be true"),
        (HALF, {CONTINUED: "content", "add_generation_prompt": True}, "cannot both be true"),
        (USER, {CONTINUED: True}, "needs a last message of the assistant"),
        (CALLING, {CONTINUED: True}, "no tool calls"),
        ({"role": "assistant", "content": ""}, {CONTINUED: True}, "with a text"),
        (HALF, {CONTINUED: "reasoning_content"}, "needs a last message with reasoning_content and no content"),
        (HALF, {CONTINUED: 1}, "true, false, auto, content or reasoning_content"),
    ],
)
def test_a_start_that_the_messages_do_not_have_is_refused(last: Json, fields: Json, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        request_of(messages=[USER, last], **fields)
    assert caught.value.field == CONTINUED


def test_an_answer_continues_no_second_message_of_the_assistant_unasked() -> None:
    with pytest.raises(InvalidRequest, match="the last two messages are the assistant's") as caught:
        request_of(messages=[USER, HALF, HALF])
    assert caught.value.field == "messages"
    assert request_of(messages=[USER, HALF, HALF], add_generation_prompt=True).start == "turn"
    assert request_of(messages=[USER, HALF, HALF], continue_final_message=True).start is None
    assert request_of(messages=[HALF, HALF, USER]).start is None


@pytest.mark.parametrize(
    ("fields", "session"),
    [
        ({"user": "u"}, "u"),
        ({"user": "u", "prompt_cache_key": "k"}, "k"),
        ({"user": "u", "prompt_cache_key": "k", "session_id": "s"}, "s"),
        ({"user": ""}, None),
    ],
)
def test_the_most_precise_key_names_the_session(fields: Json, session: str | None) -> None:
    assert request_of(**fields).session == session


@pytest.mark.parametrize(
    ("choice", "decoded"),
    [
        (None, "auto"),
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("any", "required"),  # Mistral's word
        ({"type": "function", "function": {"name": "look"}}, ("named", "look")),
    ],
)
def test_a_tool_choice_keeps_its_name(choice: object, decoded: object) -> None:
    assert request_of(tools=[TOOL], tool_choice=choice).tool_choice == decoded


@pytest.mark.parametrize(("mode", "choice"), [("auto", "auto"), ("required", "required"), (None, "auto")])
def test_tools_that_are_not_allowed_are_left_out(mode: str | None, choice: str) -> None:
    tools = [TOOL, {"function": {"name": "jump"}}, {"function": {"name": "run"}}]
    named = [{"type": "function", "function": {"name": name}} for name in ("run", "look")]
    allowed = {"mode": mode, "tools": named}
    request = request_of(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert ([tool.name for tool in request.tools], request.tool_choice) == (["look", "run"], choice)


@pytest.mark.parametrize(("said", "decoded"), [(True, True), (False, False), (None, None)])
def test_parallel_calls_are_asked_for_or_not(said: bool | None, decoded: bool | None) -> None:
    assert request_of(tools=[TOOL], parallel_tool_calls=said).parallel_calls == decoded


# ---- the form of the answer

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
OBJECT = {"type": "object"}
GBNF = 'root ::= "yes" | "no"'


@pytest.mark.parametrize(
    ("fields", "schema", "path"),
    [
        ({"response_format": {"type": "json_object"}}, OBJECT, "response_format"),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, SCHEMA, "response_format.schema"),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, SCHEMA, "response_format.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a-b_1", "schema": SCHEMA}}},
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"strict": True, "schema": {}}}},
            {},
            "response_format.json_schema.schema",
        ),
        ({"json_schema": SCHEMA}, SCHEMA, "json_schema"),
        ({"guided_json": SCHEMA, "response_format": {"type": "text"}}, SCHEMA, "guided_json"),
        ({"guided_json": '{"type": "object", "const": "\\ud800"}'}, {**OBJECT, "const": "\ufffd"}, "guided_json"),
        ({"structured_outputs": {"json": SCHEMA}}, SCHEMA, "structured_outputs.json"),
        ({"structured_outputs": {"json_object": True}}, OBJECT, "structured_outputs.json_object"),
    ],
)
def test_a_schema_for_the_answer_comes_in_many_ways(fields: Json, schema: Json, path: str) -> None:
    request = request_of(**fields)
    assert (request.schema, request.grammar) == (schema, None)
    assert request.extra == {"constrained_by": path}
    assert request.strict_schema == ("strict" in str(fields))


@pytest.mark.parametrize(
    ("fields", "grammar", "path"),
    [
        ({"grammar": GBNF}, Grammar("gbnf", GBNF), "grammar"),
        ({"guided_grammar": GBNF}, Grammar("gbnf", GBNF), "guided_grammar"),
        ({"guided_regex": "a+"}, Grammar("regex", "a+"), "guided_regex"),
        ({"guided_choice": ["yes", 'n"o']}, Grammar("lark", r'start: "yes" | "n\"o"'), "guided_choice"),
        ({"structured_outputs": {"regex": "a+"}}, Grammar("regex", "a+"), "structured_outputs.regex"),
        ({"structured_outputs": {"choice": ["yes"]}}, Grammar("lark", 'start: "yes"'), "structured_outputs.choice"),
        ({"structured_outputs": {"grammar": GBNF}}, Grammar("gbnf", GBNF), "structured_outputs.grammar"),
    ],
)
def test_a_grammar_for_the_answer_comes_in_many_ways(fields: Json, grammar: Grammar, path: str) -> None:
    request = request_of(**fields)
    assert (request.schema, request.grammar) == (None, grammar)
    assert request.extra == {"constrained_by": path}


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "text"}},
        {"grammar": ""},
        {"grammar_lazy": False},
        {"structured_outputs": {"json_object": False, "regex": None}},
        {"structured_outputs": {}},
    ],
)
def test_some_ways_say_that_any_answer_will_do(fields: Json) -> None:
    assert request_of(**fields) == request_of()


@pytest.mark.parametrize(("stop", "decoded"), [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ()), (None, ())])
def test_stop_is_a_string_or_an_array(stop: object, decoded: tuple[str, ...]) -> None:
    assert request_of(stop=stop).stop == decoded


def test_null_is_absent_everywhere() -> None:
    names = [
        "tools", "tool_choice", "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "typical_p",
        "repetition_penalty", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "max_tokens",
        "max_completion_tokens", "stop", "n", "response_format", "logprobs", "reasoning_effort",
        "chat_template_kwargs", "user", "prompt_cache_key", "parallel_tool_calls", "functions", "function_call",
        "dry_sequence_breakers", "mirostat", "ignore_eos", "top_logprobs", "reasoning", "thinking", "modalities",
        "prediction", "store", "metadata", "service_tier", "audio",
    ]  # fmt: skip
    message = {"role": "user", "content": "Hello", "name": None, "tool_calls": None}
    decoded = decode_request({"model": None, "messages": [message]} | dict.fromkeys(names))
    assert decoded.request == Request("", (Message.user("Hello"),))
    assert (decoded.stream, decoded.options) == (False, ChatOptions())


def test_unknown_fields_are_ignored() -> None:
    plain = request_of()
    ignored: Json = {
        "store": True, "metadata": {"a": 1}, "service_tier": "auto", "n": 1, "modalities": ["text"],
        "audio": {"voice": "x"}, "verbosity": "low", "logprobs": False,
        "top_logprobs": 0, "stream_options": {"include_obfuscation": False}, "web_search_options": {}, "n_probs": 0,
    }  # fmt: skip
    message = {**USER, "cache_control": {"type": "ephemeral"}}
    assert request_of(messages=[message], **ignored) == plain


def test_each_choice_is_a_request_with_a_seed_of_its_own() -> None:
    body: Json = {"messages": [USER], "n": 3}
    assert decode_request(body).requests == (request_of(model=None),) * 3
    assert [request.sampling.seed for request in decode_request({**body, "seed": 7}).requests] == [7, 8, 9]
    assert decode_request(body).options == ChatOptions(n=3)


@pytest.mark.parametrize(
    ("fields", "logprobs"),
    [({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 20}, 20), ({"logprobs": None}, None), ({}, None)],
)
def test_logprobs_are_wanted_or_not(fields: Json, logprobs: int | None) -> None:
    assert request_of(**fields).logprobs == logprobs
    assert decode_request({"messages": [USER], **fields}).options.logprobs == (logprobs is not None)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_come_back_under_any_name(name: str) -> None:
    (message,) = request_of(messages=[{"role": "assistant", "content": "Yes.", name: "Hm."}]).messages
    assert message.parts == (Reasoning("Hm."), Text("Yes."))


def test_files_of_text_are_text_and_others_documents_which_a_model_here_reads_as_a_note() -> None:
    def file(content: bytes, kind: str, name: str) -> Json:
        data = f"data:{kind};base64,{base64.b64encode(content).decode()}"
        return {"type": "file", "file": {"filename": name, "file_data": data}}

    parts = [
        file("Grüße".encode(), "text/plain", "a.txt"),
        file(b"%PDF-1.4" + bytes(34_000), "application/pdf", "b.pdf"),
        file(b"%PDF-1.4 all of it is text", "application/pdf", "c.pdf"),
        file(b"\x89PNG", "image/png", "d.png"),
        {"type": "input_file", "filename": "e.md", "file_data": base64.b64encode(b"# E").decode()},
    ]
    messages = request_of(messages=[{"role": "user", "content": parts}]).messages
    assert messages[0].parts == (
        Text("[document: a.txt]\nGrüße"),
        Document("b.pdf", "application/pdf", b"%PDF-1.4" + bytes(34_000)),
        Document("c.pdf", "application/pdf", b"%PDF-1.4 all of it is text"),
        Image("image/png", b"\x89PNG"),
        Text("[document: e.md]\n# E"),
    )
    assert plain(messages)[0].parts == (
        Text(
            "[document: a.txt]\nGrüße\n"
            "[document: b.pdf, application/pdf, 34 kB; it cannot be read here]\n"
            "[document: c.pdf, application/pdf, 1 kB; it cannot be read here]"
        ),
        Image("image/png", b"\x89PNG"),
        Text("[document: e.md]\n# E"),
    )


def test_the_whole_body_stays_with_the_request_for_a_provider_of_the_same_protocol() -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "service_tier": "flex"}
    assert decode_request(body).request.native == Native("openai.chat", body)


def test_proofs_of_thoughts_and_of_calls_are_kept() -> None:
    details = [{"type": "reasoning.text", "text": "Hm.", "signature": "c2ln"}]
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    extra = {"google": {"thought_signature": "CiQB"}}
    answer = {"role": "assistant", "reasoning": "Hm.", "reasoning_details": details}
    (found,) = request_of(messages=[{**answer, "tool_calls": [{**call, "extra_content": extra}]}]).messages
    assert found.parts == (
        Reasoning("Hm.", 'openai.chat:[{"type":"reasoning.text","text":"Hm.","signature":"c2ln"}]'),
        ToolCall("c", "look", "{}", signature="gemini:CiQB"),
    )


def test_proofs_with_more_in_them_are_kept_as_they_are() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    extra = {"google": {"thought_signature": "CiQB", "thought": True}, "x": [1.5, "\u2028"]}
    answer = {"role": "assistant", "content": "A", "extra_content": extra}
    (found,) = request_of(messages=[{**answer, "tool_calls": [{**call, "extra_content": extra}]}]).messages
    said = '{"google":{"thought_signature":"CiQB","thought":true},"x":[1.5,"\u2028"]}'
    assert found.parts == (
        Text("A"),
        ToolCall("c", "look", "{}", signature=f"openai.chat:{said}"),
        Reasoning("", f'openai.chat:{{"extra_content":{said}}}'),
    )


PATCH = {"type": "custom", "custom": {"name": "patch", "description": "Edits.", "format": {"type": "text"}}}


def test_a_tool_of_any_text_is_a_function_of_one() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}
    flat = {"type": "custom", "name": "run", "format": grammar}
    history = [
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "patch", "input": 'a"'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    chosen = {"type": "custom", "custom": {"name": "run"}}
    body = {"messages": [USER, *history], "tools": [PATCH, flat, TOOL], "tool_choice": chosen}
    decoded = decode_request(body)
    request = decoded.request
    assert decoded.options.custom == {"patch", "run"}
    assert request.tool_choice == ("named", "run")
    assert [tool.name for tool in request.tools] == ["patch", "run", "look"]
    patch, run, _ = request.tools
    assert (patch.description, patch.parameters["required"]) == ("Edits.", ["input"])
    assert "a+" in run.description
    assert request.messages[1].calls == (ToolCall("c", "patch", '{"input": "a\\""}'),)
    assert request.messages[2].parts == (ToolResult("c", (Text("done"),), "patch"),)


def test_functions_are_tools_in_the_old_way() -> None:
    function = {"name": "look", "parameters": {"type": "object"}}
    history = [
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": "one"},
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": BIG}},
        {"role": "function", "name": "look", "content": "two"},
        {"role": "function", "name": "jump", "content": "nobody asked"},
    ]
    decoded = decode_request({"messages": [USER, *history], "functions": [function], "function_call": {"name": "look"}})
    request = decoded.request
    assert request.tools == (ToolSpec("look", parameters={"type": "object"}),)
    assert (request.tool_choice, request.parallel_calls) == (("named", "look"), False)
    assert decoded.options.is_legacy
    calls = [call for message in request.messages for call in message.calls]
    results = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
    assert len({call.id for call in calls}) == 2
    assert [result.call_id for result in results] == [calls[0].id, calls[1].id, "jump"]


def test_parts_in_the_way_of_anthropic_are_understood() -> None:
    """Cursor sends them to models with such names."""
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    history = [
        {"role": "user", "content": [{"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}},
                {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a cat"}]},
                {"type": "tool_result", "tool_use_id": "c2", "content": "nothing", "is_error": True},
                {"type": "image", "source": source},
                {"type": "text", "text": "And now?"},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c9"}]},
    ]
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    request = request_of(messages=history, tools=[tool])
    assert request.tools == (ToolSpec("look", "Looks.", {"type": "object"}),)
    assert request.messages[1:] == (
        Message(
            "assistant",
            (
                Reasoning("Hm.", "anthropic:s"),
                Text("I look."),
                ToolCall("c1", "look", '{"at": 1}'),
                ToolCall("c2", "look", "{}"),
            ),
        ),
        Message("tool", (ToolResult("c1", (Text("a cat"),), "look"),)),
        Message("tool", (ToolResult("c2", (Text("nothing"),), "look", is_error=True),)),
        Message("user", (Image("image/png", b"\x89PNG"), Text("And now?"))),
        Message("tool", (ToolResult("c9", ()),)),
    )


@pytest.mark.parametrize("key", ["tools", "functions"])
def test_tools_may_be_written_without_their_wrapper(key: str) -> None:
    described: Json = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    request = request_of(**{key: [{**described, **({"type": "function"} if key == "tools" else {})}]})
    assert request.tools == (ToolSpec("look", "Looks.", {"type": "object"}),)


def test_the_body_of_a_responses_request_is_understood() -> None:
    """Cursor sends these here, and reads the answer as chat."""
    asked: Json = {"model": "m", "input": "Hello", "stream": True, "stream_options": {"include_usage": True}}
    decoded = decode_request(asked)
    assert decoded.request.messages == (Message.user("Hello"),)
    assert (decoded.stream, decoded.options) == (True, ChatOptions(include_usage=True))


def test_stream_options_reach_the_encoder() -> None:
    body = {"messages": [USER], "stream": True, "stream_options": {"include_usage": True}}
    decoded = decode_request(body)
    assert (decoded.stream, decoded.options) == (True, ChatOptions(include_usage=True))


# ---- requests that are refused

IMAGE = "messages[0].content[0].image_url.url"


def form(said: object) -> Json:
    return {"response_format": {"type": "json_schema", "json_schema": said}}


def allowed(**said: object) -> Json:
    return {"tool_choice": {"type": "allowed_tools", "allowed_tools": said}}


def user(part: object) -> Json:
    return {"messages": [{"role": "user", "content": [part]}]}


def image(url: object) -> Json:
    return user({"type": "image_url", "image_url": {"url": url}})


def call(**fields: object) -> Json:
    return {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", **fields}]}]}


def refuse(**fields: Any) -> None:
    """Raises: the error for a model that is none of a provider of the protocol."""
    native = request_of(**fields).native
    if native is not None and native.demand is not None:
        raise native.demand


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"model": 4}, "model", "a string, not 4"),
        ({"messages": None}, "messages", "missing"),
        ({"messages": []}, "messages", "empty"),
        ({"messages": "Hi"}, "messages", 'an array, not "Hi"'),
        ({"messages": ["Hi"]}, "messages[0]", 'an object, not "Hi"'),
        ({"messages": [USER, {"content": "x"}]}, "messages[1].role", "missing"),
        ({"messages": [{"role": "robot"}]}, "messages[0].role", '"robot"; the roles are system'),
        ({"messages": [{"role": "function"}]}, "messages[0].name", "names the function"),
        ({"messages": [{"role": "user", "content": 42}]}, "messages[0].content", "not 42"),
        ({"messages": [{"role": "user", "content": {"a": 1}}]}, "messages[0].content", "not an object"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "missing"),
        (
            {"messages": [{"role": "assistant", "function_call": {"arguments": "{}"}}]},
            "messages[0].function_call.name",
            "missing",
        ),
        ({"messages": [{"role": "assistant", "reasoning_content": 1}]}, "messages[0].reasoning_content", "a string"),
        (user("Hi"), "messages[0].content[0]", "an object"),
        (user({"text": "x"}), "messages[0].content[0].type", "missing"),
        (user({"type": "text"}), "messages[0].content[0].text", "missing"),
        (user({"type": "text", "text": 3}), "messages[0].content[0].text", "a string"),
        (user({"type": "input_audio"}), "messages[0].content[0].input_audio", "missing"),
        (user({"type": "video_url"}), "messages[0].content[0].type", '"video_url", which is not supported'),
        (
            user({"type": "file", "file": {"file_id": "f"}}),
            "messages[0].content[0].file.file_data",
            "this server stores no files",
        ),
        (user({"type": "file", "file": {}}), "messages[0].content[0].file.file_data", "missing; send"),
        (user({"type": "file", "file": {"file_data": "@"}}), "messages[0].content[0].file.file_data", "base64"),
        (image(None), IMAGE, "missing"),
        (image("file:///etc/passwd"), IMAGE, "http"),
        (image("data:image/png;base64,@@@@"), IMAGE, "base64"),
        (image("data:image/png;base64,ü"), IMAGE, "base64"),
        (image("data:image/png;base64,"), IMAGE, "0 bytes"),
        (image("data:application/pdf;base64,AAAA"), IMAGE, "data:image/png"),
        (image("data:image/png"), IMAGE, "data:image/png"),
        (
            {"messages": [{"role": "system", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
            "not supported here",
        ),
        (call(), "messages[0].tool_calls[0].function", "missing"),
        (call(type="custom"), "messages[0].tool_calls[0].custom", "missing"),
        (call(type="shell"), "messages[0].tool_calls[0].type", '"shell"'),
        (call(function={"arguments": "{}"}), "messages[0].tool_calls[0].function.name", "missing"),
        (call(id=None, function={"name": "x"}), "messages[0].tool_calls[0].id", "missing"),
        (call(function={"name": "x", "arguments": 3}), "messages[0].tool_calls[0].function.arguments", "not 3"),
        ({"tools": {}}, "tools", "an array, not an object"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", '"web_search"'),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing"),
        ({"tools": [{"function": {"name": ""}}]}, "tools[0].function.name", "empty"),
        ({"tools": [{"function": {"name": "a", "parameters": []}}]}, "tools[0].function.parameters", "an object"),
        ({"functions": [{"name": "a"}], "tools": [TOOL]}, "functions", "send tools"),
        ({"functions": [{"name": 1}]}, "functions[0].name", "a string"),
        (
            {"functions": [{"name": "a"}], "function_call": {"name": "b"}},
            "function_call.name",
            "not among the tools (a)",
        ),
        ({"tools": [{"type": "custom"}]}, "tools[0].custom", "missing"),
        ({"tools": [{"type": "custom", "custom": {"name": "a", "format": 1}}]}, "tools[0].custom.format", "an object"),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tool_choice": "sometimes"}, "tool_choice", '"auto"'),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools", "missing"),
        ({"tool_choice": {"type": "custom"}}, "tool_choice.custom", "missing"),
        ({"tool_choice": {"type": "robot"}}, "tool_choice", '"auto"'),
        ({"tools": [TOOL], **allowed(tools=[])}, "tool_choice.allowed_tools.tools", "no tool"),
        ({"tools": [TOOL], **allowed(mode="never", tools=[TOOL])}, "tool_choice.allowed_tools.mode", '"never"'),
        (
            {"tools": [TOOL], **allowed(tools=[{"function": {"name": "jump"}}])},
            "tool_choice.allowed_tools.tools[0].function.name",
            "not among the tools",
        ),
        ({"tools": [{"function": {"name": "a", "strict": 1}}]}, "tools[0].function.strict", "true or false"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "true or false"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "jump"}}},
            "tool_choice.function.name",
            '"jump", which is not among the tools (look)',
        ),
        ({"temperature": -0.1}, "temperature", "from 0 to 100, not -0.1"),
        ({"temperature": "hot"}, "temperature", 'a number from 0 to 100, not "hot"'),
        ({"temperature": True}, "temperature", "not true"),
        ({"top_p": 1.5}, "top_p", "from 0 to 1, not 1.5"),
        ({"top_k": -2}, "top_k", "not -2"),
        ({"top_k": 1.5}, "top_k", "an integer"),
        ({"repetition_penalty": 0}, "repetition_penalty", "from 0.01 to 100"),
        ({"dry_sequence_breakers": ["a"] * 33}, "dry_sequence_breakers", "has 33 strings; at most 32 are allowed"),
        ({"dry_sequence_breakers": ["a", "é" * 21]}, "dry_sequence_breakers[1]", "has 42 bytes; at most 40"),
        ({"logit_bias": dict.fromkeys(map(str, range(1025)), 1)}, "logit_bias", "has 1025 tokens; at most 1024"),
        ({"max_tokens": 2**63}, "max_tokens", "below 2^63"),
        ({"presence_penalty": 2.1}, "presence_penalty", "from -2 to 2"),
        ({"mirostat": 3}, "mirostat", "from 0 to 2"),
        ({"seed": 2**64}, "seed", "18446744073709551615"),
        ({"seed": "abc"}, "seed", "an integer"),
        ({"ignore_eos": 1}, "ignore_eos", "true or false"),
        ({"dry_sequence_breakers": [1]}, "dry_sequence_breakers[0]", "a string"),
        ({"logit_bias": [[1, 2], [None, 2]]}, "logit_bias[1]", "a token id or a text, and a number"),
        ({"logit_bias": {"9" * 10: 1}}, "logit_bias.9999999999", "a token id or a text, and a number"),
        ({"logit_bias": {"": 1}}, "logit_bias", "has an empty text; name a token by its id or its text"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias", "has 5000 bytes in one text; at most 256"),
        ({"logit_bias": {"7": 101}}, "logit_bias.7", "from -100 to 100"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": -2}, "max_tokens", "at least 1"),
        ({"max_completion_tokens": "5"}, "max_completion_tokens", "an integer"),
        ({"stop": ""}, "stop", "empty"),
        ({"stop": ["a", ""]}, "stop[1]", "empty"),
        ({"stop": ["a"] * 257}, "stop", "has 257 strings; at most 256 are allowed"),
        ({"stop": "a" * 4097}, "stop", "has 4097 characters; at most 4096 are allowed"),
        ({"stop": ["a" * 4000, "b" * 97]}, "stop", "has 4097 characters"),
        ({"stop": 5}, "stop", "a string or an array"),
        ({"stop": [5]}, "stop[0]", "a string"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"stream_options": []}, "stream_options", "an object"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "true or false"),
        ({"n": 17}, "n", "from 1 to 16, not 17"),
        ({"n": 0}, "n", "from 1 to 16, not 0"),
        ({"n": "2"}, "n", "an integer"),
        ({"logprobs": 5}, "logprobs", "true or false, not 5"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "from 0 to 20, not 21"),
        ({"top_logprobs": 2}, "top_logprobs", "send logprobs: true"),
        ({"modalities": ["text", "audio"]}, "modalities", '"audio"; models here answer in text only'),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "one of none, minimal"),
        ({"reasoning": "high"}, "reasoning", "an object"),
        ({"thinking": "on"}, "thinking", "true or false"),
        ({"thinking": {"type": 1}}, "thinking.type", "a string"),
        ({"response_format": {"type": "xml"}}, "response_format.type", '"text", "json_object" or "json_schema"'),
        ({"response_format": {}}, "response_format.type", "missing"),
        ({"response_format": "json"}, "response_format", "an object"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing"),
        (form({}), "response_format.json_schema.schema", "missing"),
        (form({"schema": [OBJECT]}), "response_format.json_schema.schema", "an object, not an array"),
        (form({"schema": True}), "response_format.json_schema.schema", "an object, not true"),
        (form({"schema": OBJECT, "name": "a b"}), "response_format.json_schema.name", "letters, digits"),
        (form({"schema": OBJECT, "name": 5}), "response_format.json_schema.name", "a string"),
        (form({"schema": OBJECT, "strict": "yes"}), "response_format.json_schema.strict", "true or false"),
        ({"response_format": {"type": "json_object", "schema": []}}, "response_format.schema", "an object"),
        ({"grammar": 5}, "grammar", "a string"),
        ({"grammar": GBNF, "grammar_lazy": True}, "grammar_lazy", "not available"),
        ({"json_schema": []}, "json_schema", "a JSON schema: an object"),
        ({"guided_json": "{"}, "guided_json", "guided_json is not valid JSON: line 1"),
        ({"guided_json": "[1]"}, "guided_json", "object"),
        ({"guided_regex": ""}, "guided_regex", "empty"),
        ({"guided_choice": []}, "guided_choice", "at least one string"),
        ({"guided_choice": ["a", 1]}, "guided_choice[1]", "a string"),
        ({"structured_outputs": []}, "structured_outputs", "an object"),
        ({"structured_outputs": {"structural_tag": {"a": 1}}}, "structured_outputs.structural_tag", "not available"),
        ({**form({"schema": OBJECT}), "grammar": GBNF}, "grammar", "response_format.json_schema.schema and grammar"),
        (
            {"structured_outputs": {"regex": "a", "json": OBJECT}},
            "structured_outputs.regex",
            "structured_outputs.json and structured_outputs.regex both say",
        ),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "one of none, minimal"),
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs.enable_thinking", "true or false"),
        ({"user": 5}, "user", "a string"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_the_rule(fields: Json, field: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse(**fields)
    assert caught.value.field == field
    assert said in caught.value.message
    assert len(caught.value.message) < 300
    assert caught.value.status == 400


# ---- what clients really send


def test_recorded_conversations_of_opencode_are_understood(conformance: Path) -> None:
    folder = conformance / "clients" / "opencode"
    if not folder.is_dir():
        pytest.skip(f"no recordings at {folder}")
    bodies: list[Json] = [json.loads(file.read_text())["body"] for file in sorted(folder.glob("*.json"))]
    assert bodies
    for body in bodies:
        decoded = decode_request(body)
        request = decoded.request
        assert len(request.messages) == len(body["messages"])
        assert [tool.name for tool in request.tools] == [tool["function"]["name"] for tool in body.get("tools", ())]
        assert decoded.stream == body.get("stream", False)
        sent = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or ()]
        assert [call.id for message in request.messages for call in message.calls] == sent
        results = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
        assert {result.call_id for result in results} <= set(sent)
        assert all(result.name for result in results), "each result knows whose it is"
