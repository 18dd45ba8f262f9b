"""Grammars for constrained output: what they allow is what the families write, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.cases import amount
from tests.unit.dialects.conformance import each_template, templates
from tests.unit.dialects.grammars import TOOLS, allows, allows_beginning, compiled, sampled
from tests.unit.dialects.outputs import TOOLS as OFFERED
from tests.unit.dialects.outputs import calls_of, spelled_blocks
from tests.unit.dialects.streams import dialect

from shepherd.core import BadCall, Message, Text, ToolCall, ToolResult, ToolSpec
from shepherd.dialects import Template, derive, detect, get, names, parse, render
from shepherd.dialects.families.hermes import HERMES
from shepherd.dialects.families.plain import PLAIN
from shepherd.dialects.grammar import (
    Schema,
    closed,
    document,
    grammar,
    json_answer,
    literals,
    spelled,
    standalone,
    unannotated,
    written,
    written_out,
)
from shepherd.dialects.parse.markup import Block, Markup, Thought
from shepherd.dialects.parse.tags import TagDialect


def made(markup: Markup, tools: Sequence[ToolSpec], **more: Any) -> str:
    lark = grammar(markup, tools, **more)
    assert lark is not None
    return lark


def blocks(spoken: TagDialect, *tools: ToolSpec) -> list[Block]:
    return spelled(spoken.markup, spoken.markup.declared(tools))


SPELLING = [name for name in names() if blocks(dialect(name), TOOLS["say"])]


def hints(spoken: TagDialect, tool: ToolSpec) -> list[str]:
    spelling = blocks(spoken, tool)[0].spelling
    assert spelling is not None
    return list(dict.fromkeys(written(spelling.call(tool))))


# ---- every family


EACH = [(name, tool) for name in SPELLING for tool in TOOLS.values()]


@pytest.mark.parametrize(
    ("name", "tool"),
    # Neither five nor eleven has a common factor with the number of tools: no tool is left out.
    [pytest.param(name, tool, id=f"{name}-{tool.name}") for name, tool in EACH[:: amount(11, 1)]],
)
def test_what_a_family_may_write_are_calls_that_satisfy_their_schema(name: str, tool: ToolSpec) -> None:
    spoken = dialect(name)
    texts = [
        text
        for parallel in (False, True)
        for lark in [grammar(spoken.markup, [tool], choice="required", parallel=parallel, thinks=False)]
        if lark is not None
        for text in sampled(lark, hints(spoken, tool), amount(1, 6))
    ]
    assert texts
    for text in texts:
        message = parse(text, dialect=spoken, tools=[tool])
        assert message.calls, text
        assert [part for part in message.parts if not isinstance(part, ToolCall)] == [], text
        for call in message.calls:
            assert call.name == tool.name, text
            jsonschema.validate(json.loads(call.arguments), dict(tool.parameters))


WRITE, NESTED = TOOLS["write"], TOOLS["nested"]
CALL = ToolCall("abcdefgh1", "write", '{"path": "/tmp/a b", "content": "x < y\\n\\"z\\"", "mode": 7}')


def derived(source: str) -> TagDialect | None:
    return derive.derived(derive.observed(source))


def printed(name: str, calls: Sequence[ToolCall], *, hidden: bool = False) -> tuple[TagDialect, str] | None:
    """What a template prints for these calls from behind the head of the turn to the result; `None` if it does not."""
    source = templates()[name]
    spoken = (derived(source) or PLAIN).fitted(source) if hidden else detect(source, derive=derived)
    template = Template(source)
    user = Message.user("Hello")
    result = Message("tool", (ToolResult(calls[0].id, (Text("RESULT"),), calls[0].name),))
    asked = render(template, spoken, [user], tools=[WRITE, NESTED])
    whole = render(template, spoken, [user, Message("assistant", tuple(calls)), result], tools=[WRITE, NESTED]).text
    head = asked.text.removesuffix(asked.opened)
    if not whole.startswith(head):
        return None
    text = whole[len(head) :].partition("RESULT")[0]
    # Some print the closer of a thought that they have cut off.
    return spoken, next((opener for opener, closer in spoken.thoughts if text.startswith(closer)), "") + text


@each_template(0.1)
@pytest.mark.parametrize("hidden", [False, True])
def test_what_a_template_prints_for_a_call_may_be_written(name: str, hidden: bool) -> None:
    found = printed(name, [CALL], hidden=hidden)
    if found is None or name in OTHERWISE:
        pytest.skip(OTHERWISE.get(name, "what it prints for history does not begin like what it prints to be answered"))
    if hidden and (found[0].name == "plain" or name in NOT_DERIVED):
        pytest.skip("it is not derived, or its calls are written without the tags around all of them")
    spoken, text = found
    for choice in ("auto", "required"):
        lark = made(spoken.markup, [WRITE, NESTED], choice=choice)
        end = compiled(lark).validate_tokens(list(text.encode()))
        calls = parse(text.encode()[:end].decode(errors="replace"), dialect=spoken, tools=[WRITE, NESTED]).calls
        assert [call.name for call in calls] == ["write"], f"{text.encode()[:end]!r}, not {text.encode()[end:][:40]!r}"


NONE = "the template knows no calls in history"
IDS = "our ids are shorter or longer than those of the family, or it prints none for what it writes"
ANEW = "the template writes the head of the turn anew, and the call with it"
OTHERWISE = {
    "Apriel-1.6-15b-Thinker-fixed.jinja": IDS,
    "Kimi-K3.jinja": ANEW,
    "LFM2-8B-A1B.jinja": NONE,
    "LFM2.5-Instruct.jinja": NONE,
    "ibm-granite-granite-3.3-2B-Instruct.jinja": NONE,
    "muse-glimmer.jinja": ANEW,
    "openai-gpt-oss-120b.jinja": ANEW,
    "own-harmony.jinja": ANEW,
    "unsloth-Apriel-1.5.jinja": IDS,
    "upstage-Solar-Open-100B.jinja": IDS,
}
"""Templates that print calls otherwise than models write them."""
NOT_DERIVED = {"tencent-Hy3.jinja"}


# ---- free text, and calls from their triggers on

ADD = ToolSpec("add", "", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
SAY = TOOLS["say"]
ONE = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
TWO = '<tool_call>\n{"name": "say", "arguments": {"text": "</tool_call> <think> {"}}\n</tool_call>'
THOUGHT = "<think>Hm, <tool_call> it is.</think>"
WRONG = '<tool_call>\n{"name": "add", "arguments": {"a": "one"}}\n</tool_call>'
UNKNOWN = '<tool_call>\n{"name": "subtract", "arguments": {"a": 1}}\n</tool_call>'


def hermes(**more: Any) -> str:
    return made(HERMES.markup, [ADD, SAY], **more)


FREE = hermes()


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "Hello", "{}", '{"name": "add"}', "```json\n{\n```", "é \u2028 \U0001f600 \x00\x7f", "\n\n\n",
        "a < b > c </tool_call>", "use the <tool_call> tag", "`<tool_call>`", "so: <tool_call> and </tool_call>",
        "<tool_cal", "a\n <tool_cal\nb", "<think>", "<think>Hm", "Hello <think>", "</think>", THOUGHT,
        THOUGHT + "\n\nHello", "<think>\n<tool_call> or not",
        ONE, TWO, ONE + TWO, ONE + "\n" + TWO + "\n\n", "Hello\n" + ONE, "Hello " + ONE,
        "Hello " + ONE.replace("\n", "", 1), ONE + " and " + TWO + " that is all.", THOUGHT + ONE,
        THOUGHT + "\n\n" + ONE + THOUGHT + TWO, "<think>Hm\n" + ONE, " \n\t" + ONE,
        ONE.replace('{"a": 1}', '{\n  "a" : 1\n}'),
    ],
)  # fmt: skip
def test_text_is_free_and_calls_may_come_anywhere(text: str) -> None:
    assert allows(FREE, text)


@pytest.mark.parametrize(
    "text",
    [
        WRONG, UNKNOWN, "Hello " + WRONG, ONE + WRONG, THOUGHT + WRONG, "<think>Hm\n" + WRONG, "Hello\n" + UNKNOWN,
        "<tool_call>Hello", "Hello\n<tool_call> Hello", "<tool_call>", "Hello <tool_call> [", ONE[:-1],
        ONE.replace("1", '1, "b": 2'), ONE.replace('"a": 1', ""), ONE.replace("\n</tool_call>", "</tool_call>"),
    ],
)  # fmt: skip
def test_a_call_that_has_begun_must_be_a_right_one(text: str) -> None:
    assert not allows(FREE, text)


FRAGMENTS = st.sampled_from(
    [
        *("<tool_call>", "\n", " ", "so {", "<tool_call> {", "use <tool_call> [", "a", "é", "<tool_"),
        THOUGHT,
        ONE,
        TWO,
        WRONG,
    ]
)


@settings(deadline=None, max_examples=amount(15, 3000))
@given(st.lists(FRAGMENTS, max_size=8).map("".join))
@example(THOUGHT + ONE + WRONG)
def test_what_the_parser_takes_for_text_is_free_and_what_it_takes_for_a_call_is_not(text: str) -> None:
    # A slip that is read as a call; no spelling leads to it.
    assume(not re.search(r"<tool_call>\s*<", text))
    parts = parse(text, dialect=HERMES, tools=[ADD, SAY]).parts
    calls = [part for part in parts if isinstance(part, ToolCall | BadCall)]
    if not calls:
        assert allows(FREE, text)
    elif allows(FREE, text):
        assert all(isinstance(call, ToolCall) and is_right(call) for call in calls)


def is_right(call: ToolCall) -> bool:
    schema = {tool.name: tool.parameters for tool in (ADD, SAY)}.get(call.name)
    return schema is not None and jsonschema.Draft202012Validator(dict(schema)).is_valid(json.loads(call.arguments))


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("name", SPELLING)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<[{`~]>"), max_size=60))
@settings(deadline=None, max_examples=amount(1, 100))
def test_text_without_markup_is_free_in_every_family(name: str, text: str) -> None:
    lark = made(dialect(name).markup, [SAY, WRITE])
    message = parse(text, dialect=dialect(name), tools=[SAY, WRITE])
    assert message.calls or allows(lark, text)


BARE = '{"name": "add", "parameters": {"a": 1}}'


@pytest.mark.parametrize("name", SPELLING)
def test_where_no_call_may_come_text_and_thoughts_are_free_and_no_call_can_begin(name: str) -> None:
    spoken = dialect(name)
    lark = made(spoken.markup, OFFERED, choice="none")
    free = ["", 'Two\n\n lines, {"name": 1} and [1] <b>.', "a" * 200]
    free += [f"{thought.opener}Hm.{thought.closers[0]}So." for thought in written_out(spoken.markup)]
    free += [f"{spoken.markup.answer[0]}So.{spoken.markup.answer[1]}"]
    assert [text for text in free if not allows(lark, text)] == []
    calls = [call for block in spelled_blocks(spoken) for call in calls_of(block)]
    assert calls
    assert [call for call in calls if allows_beginning(lark, f"Well.\n{call}")] == []


def test_where_no_call_may_come_a_malformed_schema_does_not_matter() -> None:
    broken = ToolSpec("add", "", {"type": [1], "properties": 7, "$ref": {}})
    for name in SPELLING:
        assert grammar(dialect(name).markup, [broken], choice="none"), name


def test_bare_json_is_free_unless_it_calls_a_tool() -> None:
    tools = [ADD, SAY, replace(SAY, name="add_all"), *(replace(SAY, name=f"tool_{n}") for n in range(40))]
    for parallel in (True, False):
        lark = made(dialect("llama-3").markup, tools, parallel=parallel)
        for text in (
            BARE,
            '{"name": "Ada", "age": 36}',
            '{"name": "ad',
            '{"name": "address"}',
            "{}",
            '[{"name": "add"}]',
        ):
            assert allows_beginning(lark, text), text
        assert allows(lark, '{"name": "Ada", "age": 36}')
        assert allows(lark, BARE)
        assert not allows_beginning(lark, BARE.replace("1", '"'))
        assert not allows_beginning(lark, BARE.replace("add", "tool_17"))


def test_one_call_at_most_leaves_the_text_behind_it_free_of_others() -> None:
    lark = hermes(parallel=False)
    assert allows(lark, "Hello")
    assert allows(lark, THOUGHT + "Hello " + ONE + "\nThat is <all> {of} it. <tool_cal")
    assert not allows_beginning(lark, ONE + TWO)
    assert not allows_beginning(lark, ONE + "\nText <tool_call>")


# ---- calls that must come


@pytest.mark.parametrize(
    "text", [ONE, ONE + TWO, ONE + "\n" + TWO, THOUGHT + "\n\n" + TWO, "\n" + ONE, "<think>\n" + ONE]
)
def test_a_required_call_comes_at_once_or_behind_a_thought(text: str) -> None:
    assert allows(hermes(choice="required"), text)


@pytest.mark.parametrize(
    "text", ["", "Hello", "{", THOUGHT, THOUGHT + "Hello", WRONG, "<think>Hm", ONE + " so", ONE + THOUGHT]
)
def test_nothing_else_may_come_instead_of_a_required_call(text: str) -> None:
    assert not allows(hermes(choice="required"), text)


@pytest.mark.parametrize("parallel", [True, False])
def test_a_named_tool_is_called_once(parallel: bool) -> None:
    lark = hermes(choice=("named", "say"), parallel=parallel)
    assert allows(lark, THOUGHT + TWO)
    assert not allows_beginning(lark, ONE)
    assert not allows_beginning(lark, TWO + "<")


def test_a_required_call_is_alone_where_calls_may_not_be_parallel() -> None:
    lark = hermes(choice="required", parallel=False)
    assert allows(lark, ONE)
    assert not allows_beginning(lark, ONE + "<")


def test_models_that_do_not_think_are_not_let_begin_where_something_has_a_form() -> None:
    assert not allows_beginning(hermes(choice="required", thinks=False), "<th")
    assert allows(hermes(thinks=False), THOUGHT)


LISTED = get("mistral-list")


def test_calls_of_one_block_are_counted_too() -> None:
    text = '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}, "id": "abcdefgh1"}%s]'
    two = text % ', {"name": "say", "arguments": {"text": ""}, "id": "abcdefgh2"}'
    for parallel in (True, False):
        lark = made(LISTED.markup, [ADD, SAY], choice="required", parallel=parallel)
        assert allows(lark, text % "")
        assert allows(lark, two) == parallel


def test_an_output_ends_where_the_closer_is_an_end_token() -> None:
    assert allows(hermes(choice="required", ends=["</tool_call>"]), ONE.removesuffix("</tool_call>"))
    lark = hermes(ends=["</tool_call>"])
    assert allows(lark, "Hello\n" + ONE.removesuffix("</tool_call>"))
    assert not allows_beginning(lark, ONE.removesuffix("/tool_call>"))


# ---- the form of the answer

YES = 'answer: "yes" | "no"'


def test_an_answer_has_its_form_behind_a_thought() -> None:
    lark = made(HERMES.markup, (), answer=json_answer({"type": "object"}))
    for text in ("{}", '{"a": [1, {"b": "<think>"}]}', THOUGHT + "\n\n{}"):
        assert allows(lark, text)
    for text in ("", "Hello", THOUGHT, "[]", "{} {}", "{} so", "\n{}", THOUGHT + " {}", ONE):
        assert not allows(lark, text)


def test_an_answer_has_a_form_or_is_a_call() -> None:
    lark = hermes(answer=json_answer({"type": "object"}))
    for text in ("{}", THOUGHT + "{}", ONE + TWO, THOUGHT + "\n" + ONE):
        assert allows(lark, text)
    for text in ("Hello", WRONG, ONE + "{}", "{}" + ONE):
        assert not allows(lark, text)
    assert not allows_beginning(hermes(answer=YES, choice="required"), "y")


def test_the_answer_stands_between_what_its_family_writes_around_it() -> None:
    markup = Markup(
        headed=(Thought("<|channel|>analysis<|message|>", ("<|end|><|start|>assistant",)),),
        answer=("<|channel|>final<|message|>", "<|return|>"),
    )
    lark = made(markup, (), answer=YES)
    assert allows(lark, "<|channel|>final<|message|>yes<|return|>")
    assert allows(
        lark, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>no<|return|>"
    )
    assert not allows(lark, "yes")


def test_what_needs_no_grammar_has_none() -> None:
    assert grammar(HERMES.markup, ()) is None
    assert grammar(Markup(), [ADD], choice="none") is None
    assert grammar(Markup(), [ADD]) is None
    assert grammar(Markup(), [ADD], choice="required") is None


# ---- schemas


@pytest.mark.parametrize(
    ("parameters", "right", "wrong"),
    [
        ({}, ["{}", '{"a": [1]}'], ["[]", "1"]),
        ({"properties": {}}, ["{}"], ['{"a": 1}']),
        ({"properties": {"a": {}}}, ["{}", '{"a": null}'], ['{"b": 1}']),
        ({"properties": {"a": {}}, "additionalProperties": True}, ['{"b": 1}'], ["[]"]),
        ({"properties": {"a": {}}, "required": ["b"]}, ['{"b": 1}'], ["{}"]),
        ({"properties": [], "required": "a"}, ["{}"], ["[]"]),
        ({"anyOf": [{"properties": {"a": {"type": "null"}}}, {"required": ["b"]}]}, ['{"a": null}', '{"b": 1}'], []),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "required": ["a"]}}}, ['{"a": 1}'], ["{}"]),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "tool:x", "type": "object"}, ["{}"], ["1"]),
        ({"properties": {'a"\\\n/*': {"const": '"</'}}}, [json.dumps({'a"\\\n/*': '"</'})], ['{"a": 1}']),
    ],
)  # fmt: skip
def test_parameters_are_closed_unless_they_say_otherwise(
    parameters: Schema, right: list[str], wrong: list[str]
) -> None:
    lark = made(HERMES.markup, [ToolSpec("t", "", parameters)], choice="required")
    call = '<tool_call>\n{"name": "t", "arguments": %s}\n</tool_call>'
    assert [text for text in right if not allows(lark, call % text)] == []
    assert [text for text in wrong if allows(lark, call % text)] == []


INNER = {"type": "object", "properties": {"b": {"type": "integer"}}}
BASE = {"type": "object", "properties": {"c": {}}}


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"properties": {"a": INNER}, "required": ["a"]}, ['{"a":{"b":1}}'], ['{"a":{"x":1}}', '{"a":{},"x":1}']),
        ({"type": "array", "items": INNER}, ['[{"b":1},{}]'], ['[{"x":1}]']),
        ({"type": "array", "prefixItems": [INNER]}, ['[{"b":1}]'], ['[{"x":1}]']),
        ({"type": "object", "additionalProperties": INNER}, ['{"x":{"b":1}}'], ['{"x":{"x":1}}']),
        ({"anyOf": [INNER, {"type": "null"}]}, ["null", '{"b":1}'], ['{"x":1}']),
        ({"properties": {"a": {"allOf": [INNER], "default": {}}}}, ['{"a":{"b":1}}'], ['{"a":{"x":1}}']),
        ({"$ref": "#/$defs/i", "$defs": {"i": INNER}}, ['{"b":1}'], ['{"x":1}']),
        ({"properties": {"a": {"$ref": "#"}}}, ['{"a":{"a":{}}}'], ['{"a":{"x":1}}']),
        ({"properties": {"a": {**INNER, "additionalProperties": True}}}, ['{"a":{"x":1}}'], ['{"x":1}']),
        ({"type": "object"}, ['{"x":1}'], []),
        # What applies to one object together names its properties together.
        ({"allOf": [INNER, BASE]}, ['{"b":1,"c":2}'], ['{"b":"no"}']),
        ({"allOf": [{"$ref": "#/$defs/i"}, BASE], "$defs": {"i": INNER}}, ['{"b":1,"c":2}'], ['{"b":"no"}']),
        (
            {"allOf": [{"$ref": "#/$defs/j"}, BASE], "$defs": {"i": INNER, "j": {"$ref": "#/$defs/i"}}},
            ['{"b":1,"c":2}'], ['{"b":"no"}'],
        ),
        ({**BASE, "anyOf": [{"properties": {"b": {}}, "required": ["b"]}, {"required": ["c"]}]}, ['{"c":2,"b":1}'], []),
        ({**INNER, "required": ["z"]}, ['{"b":1,"z":2}'], ["{}"]),
        ({"properties": {"a/b": {"allOf": [{"$ref": "#/properties/a~1b/$defs/i"}, BASE], "$defs": {"i": INNER}}}},
         ['{"a/b":{"b":1,"c":2}}'], ['{"x":1}']),
    ],
)  # fmt: skip
def test_an_object_of_an_answer_has_the_properties_that_its_schema_names(
    schema: Schema, right: list[str], wrong: list[str]
) -> None:
    lark = made(HERMES.markup, (), answer=json_answer(schema))
    assert [text for text in right if not allows(lark, text)] == []
    assert [text for text in wrong if allows(lark, text)] == []


def test_no_key_of_a_closed_object_comes_twice() -> None:
    lark = made(HERMES.markup, (), answer=json_answer(INNER))
    assert not allows_beginning(lark, '{"b":1,')


def test_references_without_end_leave_a_schema_as_it_is() -> None:
    chain: dict[str, Any] = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(50)}
    schema: Schema = {"allOf": [{"$ref": "#/$defs/d0"}, BASE], "$defs": {**chain, "d50": INNER}}
    assert closed(schema) == schema


@pytest.mark.parametrize(
    "broken", [{"allOf": 3}, {"anyOf": {}}, {"properties": [], "required": 5}, {"properties": {}, "required": [[]]}]
)
def test_a_malformed_part_of_a_schema_stays_for_the_reader_of_schemas(broken: dict[str, Any]) -> None:
    assert closed({"type": "array", "items": broken})["items"] in (broken, broken | {"additionalProperties": False})


def test_blanks_between_the_tokens_of_json_are_not_endless() -> None:
    lark = made(HERMES.markup, (), answer=json_answer({"type": "object"}))
    for blanks in ("", " ", "\n", "\r\n  ", "\n\n\t\t", "\n" + " " * 32, " " * 8):
        assert allows(lark, f'{{{blanks}"a"{blanks}:{blanks}[{blanks}]{blanks}}}')
    for blanks in ("\n\n\n", " \n ", " " * 9, "\n" + " " * 33):
        assert not allows(lark, f"{{{blanks}}}")


def test_references_lead_to_where_they_led_when_a_part_stands_alone() -> None:
    parameters = {
        "$id": "x",
        "properties": {"a": {"type": "integer"}, "b": {"items": {"$ref": "#/properties/a"}}, "c": {"$ref": "#"}},
        "$defs": {"n": {"$ref": "#/$defs/n/not"}},
    }
    alone = standalone(parameters["properties"]["b"], parameters)  # type: ignore[index]
    assert jsonschema.Draft202012Validator(dict(alone)).is_valid([1, 2])
    assert not jsonschema.Draft202012Validator(dict(alone)).is_valid(["x"])
    assert standalone({"type": "string"}, parameters) == {"type": "string"}
    assert (standalone(True, parameters), standalone(False, parameters)) == ({}, {"not": {}})
    assert standalone(parameters, parameters) == {key: parameters[key] for key in ("properties", "$defs")}


def test_what_is_said_for_readers_is_left_out_of_a_schema() -> None:
    said = {"title": "T", "description": "D", "default": {"title": 1}, "examples": [1], "$comment": "C"}
    schema = {
        **said, "type": "object", "$defs": {"title": {**said, "const": {"title": "T"}}},
        "properties": {"description": {**said, "type": "string"}, "title": {"anyOf": [{**said, "enum": [said]}]}},
    }  # fmt: skip
    assert unannotated(schema) == {
        "type": "object",
        "$defs": {"title": {"const": {"title": "T"}}},
        "properties": {"description": {"type": "string"}, "title": {"anyOf": [{"enum": [said]}]}},
    }


def test_a_document_says_how_it_is_kept_to_and_may_say_more() -> None:
    assert json.loads(document({"type": "object"}))["x-guidance"].keys() == {"whitespace_pattern"}
    assert json.loads(document({"x-guidance": {"lenient": True}}))["x-guidance"]["lenient"] is True


def test_what_can_be_kept_to_of_a_schema_is_asked() -> None:
    asked = []

    def fit(tool: ToolSpec, schema: Schema) -> Schema:
        asked.append((tool.name, schema))
        return {"type": "object"}

    lark = hermes(fit=fit)
    assert {name for name, _ in asked} == {"add", "say"}
    assert allows(lark, WRONG)


# ---- what is written by the letter


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("name", SPELLING)
def test_everything_that_a_family_writes_by_the_letter_is_known(name: str) -> None:
    markup = dialect(name).markup
    known = literals(markup)
    block = blocks(dialect(name), SAY)[0]
    assert block.opener in known
    assert all(tag in known for pair in dialect(name).thoughts for tag in pair)
    assert all(side in known for side in markup.answer)


def test_blocks_that_are_written_out_come_before_those_that_are_looked_for() -> None:
    (block,) = (block for block in HERMES.markup.blocks if block.spelling)
    header = Block("<|channel|>", (), block.body, where="anywhere")
    markup = replace(HERMES.markup, blocks=(header, *HERMES.markup.blocks), spelled=(replace(block, opener="<call>"),))
    assert [found.opener for found in spelled(markup, ())] == ["<call>"]
