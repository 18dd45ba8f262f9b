"""Constrained output on a really started server: the constrained part of scenario 11, and every way to ask for it."""

from __future__ import annotations

import concurrent.futures
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import jsonschema
import openai
import pytest
from tests.cases import amount

pytestmark = pytest.mark.model

Json = dict[str, Any]


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{server}/v1", timeout=120) as made:
        yield made


def asked(text: str) -> list[Json]:
    return [{"role": "user", "content": text}]


def post(client: httpx2.Client, **fields: Any) -> httpx2.Response:
    body = {"model": "lamb", "messages": asked("What is the weather in Paris?"), "max_tokens": 300, **fields}
    return client.post("/chat/completions", json=body)


def choice(client: httpx2.Client, **fields: Any) -> Any:
    answer = post(client, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def content(client: httpx2.Client, **fields: Any) -> str:
    found = choice(client, **fields)
    assert found["finish_reason"] == "stop"
    return str(found["message"]["content"])


def streamed(client: httpx2.Client, **fields: Any) -> str:
    """The whole text of a streamed answer."""
    lines = post(client, stream=True, **fields).text.splitlines()
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def tool(name: str, **parameters: Any) -> Json:
    return {"type": "function", "function": {"name": name, "description": f"Can {name}.", "parameters": parameters}}


WEATHER = tool(
    "get_weather",
    type="object",
    properties={
        "city": {"type": "string", "maxLength": 20},
        "unit": {"enum": ["celsius", "kelvin"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    required=["city", "unit"],
)
CALCULATE = tool(
    "calculate",
    type="object",
    properties={
        "terms": {"type": "array", "items": {"$ref": "#/$defs/term"}, "minItems": 2, "maxItems": 4},
        "exact": {"type": "boolean"},
    },
    required=["terms"],
    additionalProperties=False,
    **{"$defs": {"term": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 999}, {"type": "null"}]}}},
)
TOOLS = [WEATHER, CALCULATE]
SAMPLED: Json = {"temperature": 1.5, "max_tokens": 160}
NAMED = {"type": "function", "function": {"name": "calculate"}}


# 11. Client-side tools over HTTP: with constrained output on, sampled calls all validate against the schema


def check(call: Json) -> None:
    parameters = next(t["function"]["parameters"] for t in TOOLS if t["function"]["name"] == call["function"]["name"])
    jsonschema.validate(json.loads(call["function"]["arguments"]), parameters)


@pytest.mark.parametrize(
    ("n", "fields"),
    [
        (amount(4, 50), {"tool_choice": "required"}),
        (amount(4, 50), {"tool_choice": "required", "parallel_tool_calls": False}),
        (amount(4, 50), {"tool_choice": NAMED}),
        (amount(4, 50), {}),
        (amount(4, 50), {"parallel_tool_calls": False}),
        (amount(2, 10), {"tool_choice": "required", "response_format": {"type": "json_object"}}),
        (amount(2, 10), {"tool_choice": "required", "reasoning_effort": "high"}),
    ],
    ids=["required", "one", "named", "auto", "one of its own accord", "with a format", "thinking"],
)
def test_11_sampled_answers_hold_right_calls_only(client: httpx2.Client, n: int, fields: Json) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda seed: choice(client, tools=TOOLS, **SAMPLED, seed=seed, **fields), range(n)))
    n_called = 0
    for found in answers:
        message = found["message"]
        calls = message.get("tool_calls", [])
        for call in calls:
            check(call)
        assert "<tool_call>" not in message["content"]
        assert "invalid tool call" not in message["content"]
        assert (found["finish_reason"] == "tool_calls") == bool(calls) or found["finish_reason"] == "length"
        if "tool_choice" in fields and found["finish_reason"] != "length":
            assert calls
            assert message["content"] == ""
        if fields.get("parallel_tool_calls") is False or fields.get("tool_choice") == NAMED:
            assert len(calls) <= 1
        if fields.get("tool_choice") == NAMED:
            assert {call["function"]["name"] for call in calls} <= {"calculate"}
        n_called += bool(calls)
    assert n_called >= (n // 2 if "tool_choice" in fields else 1)


def test_11_the_check_of_a_call_can_fail() -> None:
    with pytest.raises(jsonschema.ValidationError):
        check({"function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}})


# Answers that have a form

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


def form(schema: Json, **more: Any) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": form(PERSON)},
        {"response_format": form(PERSON, strict=True)},
        {"response_format": {"type": "json_object", "schema": PERSON}},
        {"json_schema": PERSON},
        {"guided_json": PERSON},
        {"structured_outputs": {"json": json.dumps(PERSON)}},
        {"response_format": form(PERSON), "reasoning_effort": "high"},
        {"response_format": form(PERSON), "tools": TOOLS, "tool_choice": "none"},
    ],
    ids=["schema", "strict", "object", "llama.cpp", "guided", "structured", "thinking", "tools"],
)
def test_an_answer_satisfies_its_schema(client: httpx2.Client, fields: Json, stream: bool) -> None:
    ask = streamed if stream else content
    for seed in range(amount(1, 5)):
        jsonschema.validate(json.loads(ask(client, **fields, temperature=1.5, seed=seed)), PERSON)


def test_any_json_object_may_be_asked_for(client: httpx2.Client) -> None:
    fields: Json = {"response_format": {"type": "json_object"}, "messages": asked("Hello!"), "max_tokens": 200}
    for seed in range(amount(1, 5)):
        found = choice(client, temperature=1.2, seed=seed, **fields)
        if found["finish_reason"] == "stop":
            assert isinstance(json.loads(found["message"]["content"]), dict)
        else:
            assert found["finish_reason"] == "length"
            assert found["message"]["content"].startswith("{")


def test_an_answer_that_is_cut_off_says_so(client: httpx2.Client) -> None:
    found = choice(client, response_format=form(PERSON), max_tokens=3)
    assert found["finish_reason"] == "length"
    assert found["message"]["content"].startswith("{")


def test_an_answer_with_a_form_or_a_call_comes_where_both_may(client: httpx2.Client) -> None:
    for seed in range(10):
        found = choice(client, tools=TOOLS, response_format=form(PERSON), temperature=1.5, seed=seed)
        for call in found["message"].get("tool_calls", []):
            check(call)
        if found["finish_reason"] == "stop":
            jsonschema.validate(json.loads(found["message"]["content"]), PERSON)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"grammar": 'root ::= "yes" | "no" [!?]{2}'}, r"yes|no[!?]{2}"),
        ({"guided_grammar": 'root ::= "(" root ")" | [a-c]{2}'}, r"\(*[a-c]{2}\)*"),
        ({"guided_regex": r"[A-Z][a-z]{2,5}/\d\d"}, r"[A-Z][a-z]{2,5}/\d\d"),
        ({"guided_choice": ["the sun", "the\nrain", "</think>"]}, r"the sun|the\nrain|</think>"),
        ({"structured_outputs": {"regex": "(yes|no){2}"}}, r"(yes|no){2}"),
        ({"structured_outputs": {"choice": ["<tool_call>", '{"name": "add"}']}}, r'<tool_call>|\{"name": "add"\}'),
    ],
    ids=["gbnf", "recursive gbnf", "regex", "choice", "structured regex", "markup"],
)
def test_an_answer_is_what_a_grammar_describes(client: httpx2.Client, fields: Json, pattern: str) -> None:
    for seed in range(amount(1, 5)):
        for ask in (content, streamed):
            assert re.fullmatch(pattern, ask(client, **fields, temperature=1.5, seed=seed))


def test_what_looks_like_markup_inside_of_an_answer_with_a_form_stays_there(client: httpx2.Client) -> None:
    text = '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>'
    answer = content(client, response_format=form({"const": {"a": text, "b": "<think></think>"}}))
    assert json.loads(answer) == {"a": text, "b": "<think></think>"}


@pytest.mark.parametrize(
    ("begun", "fields", "pattern"),
    [
        ("Here it is: ", {"response_format": form({"enum": [True, False]})}, r"true|false"),
        ("ye", {"grammar": 'root ::= "yes" | "no"'}, "s"),
    ],
)
def test_an_answer_that_has_been_begun_is_continued(
    client: httpx2.Client, begun: str, fields: Json, pattern: str
) -> None:
    history = [*asked("Who is it?"), {"role": "assistant", "content": begun}]
    for seed in range(amount(1, 5)):
        assert re.fullmatch(pattern, content(client, messages=history, temperature=1.5, seed=seed, **fields))


def test_a_schema_that_has_been_begun_is_continued(client: httpx2.Client) -> None:
    begun = '{"name": "Ad'
    history = [*asked("Who is it?"), {"role": "assistant", "content": begun}]
    for seed in range(amount(1, 5)):
        rest = content(client, messages=history, temperature=1.5, seed=seed, response_format=form(PERSON))
        jsonschema.validate(json.loads(begun + rest), PERSON)


def test_a_call_that_has_been_begun_is_continued(client: httpx2.Client) -> None:
    begun = '<tool_call>\n{"name": "get_w'
    history = [*asked("What is the weather in Paris?"), {"role": "assistant", "content": begun}]
    for seed in range(amount(1, 5)):
        found = choice(client, messages=history, tools=TOOLS, temperature=1.5, seed=seed)
        (call,) = found["message"]["tool_calls"]
        check(call)


def test_the_official_client_parses_what_it_asks_for(server: str) -> None:
    with openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0) as official:
        answer = official.chat.completions.create(
            model="lamb",
            messages=[{"role": "user", "content": "Who is it?"}],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "person", "schema": PERSON, "strict": True},
            },
            max_tokens=200,
        )
    jsonschema.validate(json.loads(answer.choices[0].message.content or ""), PERSON)


# What cannot be done


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        (
            {"response_format": form({"type": "object", "properties": {"a": {"type": "strung"}}})},
            "response_format.json_schema.schema.properties.a.type",
            "strung",
        ),
        ({"response_format": form({"$ref": "#/$defs/no"})}, "response_format.json_schema.schema.$ref", "$defs/no"),
        (
            {"response_format": form({"properties": {"a": {"pattern": "(?=x)"}}}, strict=True)},
            "response_format.json_schema.schema.properties.a.pattern",
            "look-around",
        ),
        ({"structured_outputs": {"json": {"not": {}}}}, "structured_outputs.json.not", "allows nothing"),
        ({"grammar": "root ::= other"}, "grammar", "'other'"),
        ({"grammar": 'root ::= "'}, "grammar", "line 1"),
        ({"guided_regex": "("}, "guided_regex", "unclosed group"),
        ({"guided_grammar": "start: other"}, "guided_grammar", "GBNF"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "strict": True, "parameters": {"type": "x"}}}]},
            "tools[0].function.parameters.type",
            "invalid type",
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "b"}}},
            "tool_choice.function.name",
            '"b"',
        ),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_to_is_refused_by_name(
    client: httpx2.Client, fields: Json, field: str, reason: str
) -> None:
    answer = post(client, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, field)
    assert error["message"].startswith(field)
    assert reason in error["message"]


ODD: Json = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "format": "path", "maxLength": 4},
        "price": {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d{0,4}\.?\d{0,2}$"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True, "maxItems": 3},
    },
    "required": ["path", "price", "tags"],
    "additionalProperties": False,
}
LEFT_OUT = ("properties.path.format", "properties.tags.uniqueItems")
WAYS: dict[str, tuple[str, Json, str, tuple[str | int, ...]]] = {
    "chat": (
        "/v1/chat/completions",
        {"messages": asked("Go"), "max_tokens": 200, "response_format": form(ODD)},
        "response_format.json_schema.schema",
        ("choices", 0, "message", "content"),
    ),
    "responses": (
        "/v1/responses",
        {
            "input": "Go",
            "max_output_tokens": 200,
            "text": {"format": {"type": "json_schema", "name": "a", "schema": ODD}},
        },
        "text.format.schema",
        ("output", 0, "content", 0, "text"),
    ),
    "messages": (
        "/v1/messages",
        {
            "messages": asked("Go"),
            "max_tokens": 200,
            "output_config": {"format": {"type": "json_schema", "schema": ODD}},
        },
        "output_config.format.schema",
        ("content", 0, "text"),
    ),
    "ollama": (
        "/api/chat",
        {"messages": asked("Go"), "options": {"num_predict": 200}, "stream": False, "format": ODD},
        "format",
        ("message", "content"),
    ),
    "llama-server": (
        "/completion",
        {"prompt": "Go", "n_predict": 200, "json_schema": ODD},
        "json_schema",
        ("content",),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_form_cannot_be_kept_to_is_named_and_the_rest_is_kept_to(client: httpx2.Client, way: str) -> None:
    path, body, field, place = WAYS[way]
    answer = client.post(str(client.base_url).split("/v1")[0] + path, json={"model": "lamb", "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-shepherd-left-out"] == ", ".join(f"{field}.{each}" for each in LEFT_OUT)
    value = answer.json()
    for step in place:
        value = value[step]
    found = json.loads(value)
    kept = json.loads(json.dumps(ODD).replace('"uniqueItems": true', '"uniqueItems": false'))
    jsonschema.validate(found, kept)


def test_a_model_that_is_stuck_comes_to_the_end_of_its_answer(client: httpx2.Client) -> None:
    """The embedded model writes one digit again and again."""
    numbers = {
        "type": "object",
        "properties": {"lat": {"type": "number"}, "n": {"type": "integer"}},
        "required": ["lat", "n"],
    }
    for question in ("Where is Rome?", "Bob is 7.", "What is 12*12?", "When did the war end?"):
        answer = content(client, messages=asked(question), temperature=0, max_tokens=100, response_format=form(numbers))
        found = json.loads(answer)
        assert abs(found["n"]) <= 2**53
        assert len(re.sub(r"\s", "", answer)) < 80, answer


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": {"type": "strung"}}, "required": "a"},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?!x)"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "http://example.org/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "propertyNames": {"type": "string"}},
        {"type": "object", "required": ["a"], "properties": {"a": False}},
        {"type": "string"},
        {"$ref": "#"},
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("wanted", ["auto", "required"])
def test_a_schema_that_cannot_be_kept_to_fails_no_request(client: httpx2.Client, parameters: Json, wanted: str) -> None:
    odd = {"type": "function", "function": {"name": "odd", "parameters": parameters}}
    answer = post(client, tools=[odd, WEATHER], tool_choice=wanted, temperature=1, seed=1)
    assert answer.status_code == 200 or answer.json()["error"]["param"] == "tools"


# ---- no call, and the same prompt

PARAMETERS = WEATHER["function"]["parameters"]
FLAT = {"type": "function", "name": "weather", "parameters": PARAMETERS}
SURFACES: dict[str, tuple[Json, Json, Json]] = {
    "/chat/completions": (
        {"messages": asked("Get the weather for Paris"), "max_tokens": 200, "tools": [WEATHER]},
        {"tool_choice": "none"},
        {"prompt": ("prompt_tokens",), "cached": ("prompt_tokens_details", "cached_tokens")},
    ),
    "/responses": (
        {"input": asked("What is the weather in Paris?"), "max_output_tokens": 200, "tools": [FLAT]},
        {"tool_choice": "none"},
        {"prompt": ("input_tokens",), "cached": ("input_tokens_details", "cached_tokens")},
    ),
    "/messages": (
        {
            "messages": asked("What is the weather in Paris?"),
            "max_tokens": 200,
            "tools": [{"name": "weather", "input_schema": PARAMETERS}],
        },
        {"tool_choice": {"type": "none"}},
        {"prompt": ("input_tokens",), "cached": ("cache_read_input_tokens",)},
    ),
}


@pytest.mark.parametrize("path", SURFACES)
def test_a_choice_of_none_forbids_the_calls_and_computes_the_prompt_only_once(client: httpx2.Client, path: str) -> None:
    body, none, places = SURFACES[path]

    def ask(**more: Any) -> tuple[str, dict[str, int]]:
        answer = client.post(path, json={"model": "lamb", "temperature": 0, **body, **more}).json()
        usage = {}
        for name, place in places.items():
            value = answer["usage"]
            for key in place:
                value = value[key]
            usage[name] = value
        return json.dumps({key: value for key, value in answer.items() if key != "tools"}), usage

    free, _ = ask()
    held, usage = ask(**none)
    again, _ = ask()
    assert re.search(r"tool_call|tool_use|function_call", free)
    assert not re.search(r"\btool_calls?\b|tool_use|function_call\b", held.replace('tool_calls": null', "")), held
    n_prompt = usage["prompt"] + (usage["cached"] if path == "/messages" else 0)
    assert usage["cached"] == n_prompt - 1, "the last token is always computed, and nothing else is"
    assert re.search(r"tool_call|tool_use|function_call", again)
