"""What of a request becomes a grammar, what is given up and what is refused; on the embedded model's vocabulary."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.fake_engine import FakeRuntime

from shepherd.backends.local.backend import LocalBackend
from shepherd.backends.local.constrain import Constraint, Constraints, find_fault, loose
from shepherd.core import Grammar, InvalidRequest, Message, Request, TextDelta, ToolSpec
from shepherd.dialects import Template, get
from shepherd.dialects.families.hermes import HERMES
from shepherd.dialects.parse.markup import Markup
from shepherd.dialects.parse.tags import TagDialect
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.grammar.keywords import without

if TYPE_CHECKING:  # a run without the model loads no native library
    from shepherd.engine.llamacpp.weights import Weights

ADD = ToolSpec("add", "", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
SAY = ToolSpec("say", "", {"type": "object", "properties": {"text": {"type": "string"}}})
ASK = Request("m", (Message.user("Hello"),))
CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'


def ask(*tools: ToolSpec, **fields: Any) -> Request:
    return replace(ASK, tools=tools, **fields)


@pytest.fixture(scope="module")
def made(weights: Weights) -> Constraints:
    return Constraints(weights, weights.end_tokens, HERMES)


def allows(made: Constraints, found: Constraint, text: str) -> bool:
    """Whether an answer may begin like this, behind what its prompt has begun."""
    return found.lark is None or made.constrainer.accepts(found.lark, found.written + text)


# ---- what is constrained at all


@pytest.mark.model
@pytest.mark.parametrize(
    ("request_", "calls", "expected"),
    [
        (ask(), True, False),
        (ask(schema={}), False, True),
        (ask(grammar=Grammar("regex", "a")), False, True),
        (ask(ADD), True, True),
        (ask(ADD), False, False),
        (ask(ADD, tool_choice="none"), False, True),
        (ask(ADD, tool_choice="none", shows_tools=False), True, False),
        (ask(ADD, tool_choice="none", schema={}), True, True),
        (ask(ADD, tool_choice="required"), False, True),
        (ask(ADD, tool_choice=("named", "add")), False, True),
        (ask(ADD, parallel_calls=False), False, True),
        (ask(ADD, parallel_calls=True), False, False),
        (ask(replace(ADD, strict=True)), False, True),
    ],
)
def test_answers_are_held_to_what_somebody_asks_for(
    made: Constraints, request_: Request, calls: bool, expected: bool
) -> None:
    assert made.has_some(request_, calls=calls) == expected


@pytest.mark.model
def test_calls_are_held_to_their_schema_and_text_to_nothing(made: Constraints) -> None:
    found = made.find(ask(ADD, SAY), "")
    for text in ("Hello", CALL % ("add", '{"a": 1}'), "Well: " + CALL % ("say", "{}"), "{", "<think>"):
        assert allows(made, found, text)
    for text in (CALL % ("add", "{}"), CALL % ("jump", "{}"), "Hello\n" + CALL % ("add", '{"a": "1"}')):
        assert not allows(made, found, text)


@pytest.mark.model
@pytest.mark.parametrize("opened", ["", "<think>\n", "Well:\n", "<tool_call>\n{"])
def test_where_no_call_may_come_its_opener_cannot_be_generated(made: Constraints, opened: str) -> None:
    strict = replace(SAY, strict=True, parameters={"type": "object", "minProperties": "many"})
    found = made.find(ask(ADD, strict, tool_choice="none"), opened)
    for text in ("Hello", "{", "Hm</think>So", "The tool_call is <b>.", "[add(a=1)]"):
        assert allows(made, found, text)
    for text in (CALL % ("add", '{"a": 1}'), "Hm</think>\n<tool_call>", "the <tool_call> tag"):
        assert not allows(made, found, text)
    token = next(one for one in made.constrainer._vocabulary.specials if one.text == "<tool_call>")
    assert not made.constrainer.mask(found.lark or "", found.written).allows(token.id)


@pytest.mark.model
def test_control_tokens_of_a_family_are_text_and_others_are_nothing(made: Constraints) -> None:
    found = made.find(ask(ADD), "")
    assert allows(made, found, "<tool_call>")
    lamb = made.constrainer
    (user,) = lamb._vocabulary.tokenize("!")
    start = next(special.id for special in lamb._vocabulary.specials if special.text == "<|im_start|>")
    mask = lamb.mask(found.lark or "")
    assert (mask.allows(user), mask.allows(start)) == (True, False)


@pytest.mark.model
def test_an_answer_may_think_first_if_its_model_does(made: Constraints) -> None:
    for request in (ask(schema={"type": "object"}), ask(ADD, tool_choice="required")):
        assert allows(made, made.find(request, "", thinks=True), "<think>Hm")
        assert not allows(made, made.find(request, "", thinks=False), "<th")
        assert allows(made, made.find(request, "<think>\n", thinks=False), "Hm")


@pytest.mark.model
@pytest.mark.parametrize(
    ("request_", "opened", "right", "wrong"),
    [
        (ask(schema={"enum": [True, "yes"]}), "<think>\n\n</think>\n\n", ["true", '"yes"'], ["<think>", "no"]),
        (ask(schema={"enum": [True, "yes"]}), '"y', ['es"'], ["true"]),
        (ask(schema={"enum": [True, "yes"]}), "Here it is: ", ["true"], ["<think>", "no"]),
        (ask(ADD, tool_choice="required"), "<think>Hm", ["</think>\n<tool_call>", "\n<tool_call>\n{"], ["</think>So"]),
        (ask(ADD, tool_choice="required"), "Well, ", ["<tool_call>"], ["so"]),
        (ask(ADD), '<tool_call>\n{"name": "', ["add"], ["say"]),
        (ask(ADD), '<tool_call>\n{"name": "jump', ["Hello"], []),
    ],
)
def test_what_a_prompt_has_begun_is_gone_on_with(
    made: Constraints, request_: Request, opened: str, right: list[str], wrong: list[str]
) -> None:
    found = made.find(request_, opened)
    assert [text for text in right if not allows(made, found, text)] == []
    assert [text for text in wrong if allows(made, found, text)] == []


STRICT = replace(ADD, strict=True)
ENUM = {"enum": [1, "x"]}


@pytest.mark.model
@pytest.mark.parametrize(
    ("request_", "opened", "thinks", "expected"),
    [
        (ask(schema=ENUM | {"x-guidance": {}}), "", False, (False, ENUM)),
        (ask(schema=ENUM), "", True, (False, None)),
        (ask(schema=ENUM), "<think>\n\n</think>\n\n", True, (False, ENUM)),
        (ask(schema=ENUM), "<think>\n", True, (False, None)),
        (ask(ADD, schema=ENUM), "", False, (False, None)),
        (ask(ADD, schema=ENUM, tool_choice="none"), "", False, (False, ENUM)),
        (ask(grammar=Grammar("regex", "a")), "", False, (False, None)),
        (ask(ADD), "", False, (True, None)),
        (ask(STRICT), "", False, (False, None)),
        (ask(ADD, tool_choice="required"), "", False, (False, None)),
    ],
)
def test_a_grammar_says_whether_a_client_demands_it_and_which_schema_says_the_same(
    made: Constraints, request_: Request, opened: str, thinks: bool, expected: tuple[bool, Any]
) -> None:
    found = made.find(request_, opened, thinks=thinks)
    assert found.lark is not None
    assert (found.is_lenient, found.schema and json.loads(found.schema)) == expected
    assert bool(found.written) == (opened == "<think>\n")


FINAL = "<|channel|>final<|message|>"
ANALYSIS = "<|channel|>analysis<|message|>"
GO_ON = "<|end|><|start|>assistant"
HM = f"{ANALYSIS}Hm.{GO_ON}"
SEP = "<|sep|>"


@pytest.mark.model
@pytest.mark.parametrize(
    ("name", "opened", "right", "wrong"),
    [
        ("harmony", "<|start|>assistant", [FINAL + "{}", HM + FINAL + "{}"], ["{}", "<|start|>"]),
        ("harmony", FINAL + "Here: ", ["{}"], [FINAL, HM]),
        ("harmony", FINAL + "{", ["}"], ["{}", FINAL, HM]),
        ("harmony", ANALYSIS + "H", [f"m.{GO_ON}{FINAL}{{}}"], [f"m.{GO_ON}{FINAL}Hm", f"m.{GO_ON}{{}}"]),
        ("harmony", "<|start|>assistant" + HM + FINAL, ["{}"], ["Hm", FINAL]),
        ("muse", "<|start|>assistant", [" to=user<|message|>{}", " to=self<|message|>Hm"], ["{}"]),
        ("muse", " to=self<|message|>H", ["m.<|eom|><|start|>assistant to=user<|message|>{}"], []),
        ("muse", " to=user<|message|>{", ["}"], ["{}", " to=user"]),
        ("gemma4", "<|channel>thought\nH", ["m.<channel|>{}"], ["m.<channel|>Hm"]),
        ("kimi-k3", f'<|open|>message role="assistant"{SEP}<|open|>think{SEP}', [f"Hm<|close|>think{SEP}<|open|>"], []),
        ("functionary", ">>>", ["all\n{}"], ["{}", ">>>"]),
        ("functionary", ">>>all\nHere: ", ["{}"], [">>>"]),
        ("glm", "<think></think>\n", ["{}"], ["<think>"]),
    ],
)
def test_what_a_prompt_has_begun_with_headers_is_gone_on_with(
    weights: Weights, name: str, opened: str, right: list[str], wrong: list[str]
) -> None:
    made = Constraints(weights, weights.end_tokens, get(name))
    found = made.find(ask(schema={"type": "object"}), opened)
    assert [text for text in right if not allows(made, found, text)] == []
    assert [text for text in wrong if allows(made, found, text)] == []


@pytest.mark.model
def test_the_same_question_is_answered_once(made: Constraints) -> None:
    first = made.find(ask(ADD, tool_choice="required"), "")
    assert made.find(ask(replace(ADD), tool_choice="required"), "").lark is first.lark
    others = [
        ask(ADD),
        ask(SAY, tool_choice="required"),
        ask(ADD, tool_choice="required", parallel_calls=False),
        ask(replace(ADD, parameters={**ADD.parameters, "maxProperties": 1}), tool_choice="required"),
    ]
    assert len({first.lark, *(made.find(other, "").lark for other in others)}) == 5


# ---- what is given up


@pytest.mark.model
def test_what_is_not_known_of_a_schema_is_given_up_and_the_rest_is_kept_to(made: Constraints) -> None:
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "integer", "not": {"const": 3}}, "b": {"type": "array", "uniqueItems": True}},
        "required": ["a"],
        "propertyNames": {"type": "string"},
    }
    found = made.find(ask(replace(ADD, parameters=parameters)), "")
    assert allows(made, found, CALL % ("add", '{"a": 3, "b": [1, 1]}'))
    assert not allows(made, found, CALL % ("add", '{"a": "3"}'))


@pytest.mark.model
def test_what_is_wrong_with_a_schema_is_given_up_too_and_told(
    made: Constraints, caplog: pytest.LogCaptureFixture
) -> None:
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "(?=x)"}, "b": {"type": "integer"}, "c": {"type": "strung"}},
        "required": ["a"],
    }
    with caplog.at_level(logging.WARNING):
        found = made.find(ask(ToolSpec("odd", "", parameters), ADD), "")
    assert "'odd' is not kept to at properties.a.pattern" in caplog.text
    assert allows(made, found, CALL % ("odd", '{"a": "y", "b": 1, "c": []}'))
    assert not allows(made, found, CALL % ("odd", '{"a": 1}'))
    assert not allows(made, found, CALL % ("odd", '{"a": "y", "b": "1"}'))
    assert not allows(made, found, CALL % ("add", '{"a": "1"}'))


def test_a_schema_of_which_nothing_is_left_allows_any_value_of_its_kind() -> None:
    broken = {"type": "object", "properties": {f"p{n}": {"type": "strung"} for n in range(50)}}
    assert loose(ADD, broken) == {"type": "object"}
    assert loose(ADD, {"$ref": "#/no", **{f"x{n}": n for n in range(9)}}) != {"type": "object"}
    assert loose(replace(ADD, strict=True), broken) == broken


@pytest.mark.parametrize(
    ("schema", "path", "left"),
    [
        ({"type": "object"}, None, None),
        ({"a": 1, "type": "strung"}, ("type",), {"a": 1}),
        ({"items": {"pattern": "("}}, ("items", "pattern"), {"items": {}}),
        ({"$defs": {"type": {"pattern": "("}}, "$ref": "#/$defs/type"}, ("$defs", "type", "pattern"), None),
        ({"properties": {"type": {"$ref": "#/no"}}}, ("properties", "type", "$ref"), {"properties": {"type": {}}}),
        ({"properties": {"a": 5}}, ("properties", "a"), {"properties": {"a": True}}),
    ],
)
def test_the_smallest_part_that_is_wrong_is_left_out(
    schema: dict[str, Any], path: tuple[str, ...] | None, left: dict[str, Any] | None
) -> None:
    assert find_fault(schema) == path
    if left is not None and path is not None:
        assert without(schema, path) == left


KEYWORDS = st.sampled_from(
    ["type", "properties", "required", "items", "enum", "const", "$ref", "$defs", "anyOf", "oneOf", "allOf", "pattern",
     "format", "minimum", "maxLength", "additionalProperties", "a", "b", "description", "not", "x-guidance"]
)  # fmt: skip
VALUES = st.sampled_from(
    ["object", "string", "integer", "array", "#", "#/$defs/a", "(", "a", True, False, None, 3, -1.5]
)
SCHEMAS = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.model
@settings(deadline=None, max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schema=st.dictionaries(KEYWORDS, SCHEMAS, max_size=5))
def test_no_tool_is_so_odd_that_a_free_answer_fails_for_it(made: Constraints, schema: dict[str, Any]) -> None:
    found = made.find(ask(ToolSpec("odd", "", schema), ADD), "")
    assert allows(made, found, "Hello")


@pytest.mark.model
@settings(deadline=None, max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schema=st.dictionaries(KEYWORDS, SCHEMAS, max_size=5))
def test_an_odd_schema_is_kept_to_or_refused_by_its_path(made: Constraints, schema: dict[str, Any]) -> None:
    for request, field in (
        (ask(schema=schema, extra={"constrained_by": "guided_json"}), "guided_json"),
        (ask(ToolSpec("odd", "", schema, strict=True)), "tools"),
    ):
        refused: InvalidRequest | None = None
        try:
            assert made.find(request, "").lark is not None
        except InvalidRequest as error:
            refused = error
        assert refused is None or str(refused.field).startswith(field)


# ---- what is refused


@pytest.mark.model
@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (ask(schema={"type": "strung"}), "response_format.type"),
        (ask(schema={"type": "strung"}, extra={"constrained_by": "guided_json"}), "guided_json.type"),
        (ask(grammar=Grammar("gbnf", "root ::= x")), "grammar"),
        (ask(grammar=Grammar("regex", "("), extra={"constrained_by": "guided_regex"}), "guided_regex"),
        (ask(grammar=Grammar("lark", "no")), "grammar"),
        (
            ask(ADD, replace(SAY, strict=True, parameters={"items": {"type": 5}})),
            "tools[1].function.parameters.items.type",
        ),
        (ask(ADD, schema={"not": {}}), "response_format.not"),
    ],
)
def test_what_a_client_insists_on_and_cannot_have_is_refused(made: Constraints, request_: Request, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        made.find(request_, "")
    assert caught.value.field == field
    assert caught.value.message.startswith(field)


@pytest.mark.model
def test_a_part_of_a_form_that_cannot_be_kept_to_is_left_out_and_named(
    made: Constraints, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": "color", "maxLength": 2}}}
    asked = ask(schema=schema, extra={"constrained_by": "guided_json"})
    path = "guided_json.properties.a.format"
    for _ in range(2):
        with caplog.at_level(logging.WARNING):
            found = made.find(asked, "")
        assert found.left_out == (path,)
        assert caplog.text.count(path) == 1, "the log names it once for a schema"
    assert allows(made, found, '{"a": "no"}')
    assert not allows(made, found, '{"a": "too long"}')
    with pytest.raises(InvalidRequest) as caught:
        made.find(replace(asked, strict_schema=True), "")
    assert (caught.value.field, "'color'" in caught.value.message) == (path, True)


@pytest.mark.model
def test_calls_cannot_be_asked_for_where_nobody_knows_how_they_are_written(weights: Weights) -> None:
    mute = Constraints(weights, weights.end_tokens, TagDialect("mute", Markup()))
    assert mute.find(ask(ADD), "") == Constraint()
    assert mute.find(ask(schema={}), "").lark is not None
    with pytest.raises(InvalidRequest) as caught:
        mute.find(ask(ADD, tool_choice="required"), "")
    assert caught.value.field == "tool_choice"


@pytest.mark.model
def test_a_vocabulary_without_an_end_is_not_in_the_way_of_free_answers(
    weights: Weights, caplog: pytest.LogCaptureFixture
) -> None:
    endless = Constraints(weights, frozenset(), HERMES)
    assert endless.find(ask(ADD), "") == Constraint()
    assert "are not held to the schemas" in caplog.text
    with pytest.raises(InvalidRequest):
        endless.find(ask(ADD, tool_choice="required"), "")


@pytest.mark.model
@pytest.mark.parametrize("fields", [{"schema": {}}, {"grammar": Grammar("regex", "a")}, {"tool_choice": "required"}])
async def test_a_cache_without_constraints_refuses_what_needs_them(weights: Weights, fields: dict[str, Any]) -> None:
    engine = InProcessEngine(FakeRuntime(lambda tokens: 0, n_ctx=64))
    try:
        backend = LocalBackend(
            engine, weights, template=Template("{{ messages[0].content }}"), dialect=HERMES, model="m"
        )
        with pytest.raises(InvalidRequest, match="cannot constrain"):
            await anext(backend.stream(ask(ADD, **fields)))
    finally:
        engine.close()


# ---- how the answer is read

MARKUP = "a</think> <tool_call>{} </tool_call>"


@pytest.mark.model
@pytest.mark.parametrize(
    ("request_", "is_whole"),
    [
        (ask(), False),
        (ask(schema={}), True),
        (ask(grammar=Grammar("regex", "a")), True),
        (ask(ADD, schema={}), False),
        (ask(ADD, schema={}, tool_choice="none"), True),
    ],
)
def test_an_answer_with_a_form_holds_no_calls_where_there_are_no_tools(
    made: Constraints, request_: Request, is_whole: bool
) -> None:
    parser = made.reader(request_, thinks=True).parser(tools=request_.tools)
    events = [*parser.feed(MARKUP), *parser.close()]
    assert ("".join(getattr(event, "text", "") for event in events) == MARKUP) == is_whole


@pytest.mark.model
@pytest.mark.parametrize("form", ["</think>", "<think>", "<think>a</think>b"])
def test_a_form_that_begins_like_a_thought_is_text_where_the_model_cannot_think(made: Constraints, form: str) -> None:
    request_ = ask(grammar=Grammar("regex", re.escape(form)))
    parser = made.reader(request_, thinks=False).parser(tools=())
    events = [*parser.feed(form), *parser.close()]
    assert "".join(getattr(event, "text", "") for event in events if isinstance(event, TextDelta)) == form


@pytest.mark.model
@pytest.mark.parametrize("name", ["harmony", "muse"])
def test_headers_are_read_in_an_answer_with_a_form_too(weights: Weights, name: str) -> None:
    dialect: TagDialect = get(name)
    assert Constraints(weights, weights.end_tokens, dialect).reader(ask(schema={}), thinks=False) is dialect
