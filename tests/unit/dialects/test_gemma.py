"""Gemma 4: channels, and calls in a notation of its own, as they should be and as they are. FunctionGemma, Gemma 2."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects import outline
from tests.unit.dialects.grammars import allows
from tests.unit.dialects.streams import events_of

from shepherd.core import CallEnded, TextDelta, ToolCall, ToolSpec
from shepherd.dialects import detect
from shepherd.dialects.base import Keep
from shepherd.dialects.families.gemma import FUNCTION_GEMMA, GEMMA, GEMMA4
from shepherd.dialects.grammar import grammar
from shepherd.dialects.parse.bodies.gemma_body import QUOTE, read_gemma_calls
from shepherd.dialects.parse.call import Fault, Found
from shepherd.dialects.parse.spelling import Closer, Json, OneOf, Until
from shepherd.dialects.parse.tags import TagDialect

TEXT = {"type": "string"}
RUN = ToolSpec(
    "run",
    "",
    {
        "type": "object",
        "properties": {
            "code": TEXT,
            "note": TEXT,
            "days": {"type": "integer"},
            "place": {"type": "object", "properties": {"zip": TEXT}},
            "refs": {"type": "array", "items": TEXT},
        },
    },
)
TOOLS = (
    ToolSpec(
        "weather",
        "",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "place": {"type": "object", "properties": {"zip": {"type": "string"}, "floor": {"type": "integer"}}},
                "mode": {"enum": ["a", "b"]},
            },
            "required": ["city"],
        },
    ),
    ToolSpec("now"),
)


def spelt(text: str) -> str:
    """The text with Gemma's quote for every @."""
    return text.replace("@", QUOTE)


def told(raw: str, dialect: TagDialect = GEMMA4, *, reasoning: Keep = "split", opened: str = "") -> list[Any]:
    return outline.told(spelt(raw), dialect, TOOLS, reasoning=reasoning, opened=opened)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("call:f{}", "{}"),
        ("call:f", "{}"),
        (
            "call:f{a:1,b:2.50,c:-3,d:12345678901234567890123}",
            '{"a": 1, "b": 2.50, "c": -3, "d": 12345678901234567890123}',
        ),
        ("call:f{a:true,b:null,c:False,d:None}", '{"a": true, "b": null, "c": false, "d": null}'),
        ("call:f{a:@x@}", '{"a": "x"}'),
        ("call:f{a:@@,b:@ @}", '{"a": "", "b": " "}'),
        (
            "call:f{a:@He said \"hi\", {b:1}, 'q', [1], \\n `x`@}",
            '{"a": "He said \\"hi\\", {b:1}, \'q\', [1], \\\\n `x`"}',
        ),
        ("call:f{a:@line 1\n  line 2\n@}", '{"a": "line 1\\n  line 2\\n"}'),
        ("call:f{a:@<tool_call|>@,b:@Łódź 🎉@}", '{"a": "<tool_call|>", "b": "Łódź 🎉"}'),
        ("call:f{a:[1,@x@,[],{}],b:{c:{d:@y@}}}", '{"a": [1, "x", [], {}], "b": {"c": {"d": "y"}}}'),
        ("call:f{ a : 1 ,\n b: [ @x@ , 2 ] }", '{"a": 1, "b": ["x", 2]}'),
        ("call:f{@a b@:1,@c@:{@d@:@e@}}", '{"a b": 1, "c": {"d": "e"}}'),
        ("f{a:1}", '{"a": 1}'),
        ("call:mcp:tools:weather{city:@Rome@}", '{"city": "Rome"}'),
        ("call:weather{city:123,days:2}", '{"city": "123", "days": 2}'),
        ('call:f{"a":"x\\n","b":[true]}', '{"a": "x\\n", "b": [true]}'),
        ("call:f{a:'it, is',b:\"so\"}", '{"a": "it, is", "b": "so"}'),
        ("call:f{a='x',b=\"y\",c=1}", '{"a": "x", "b": "y", "c": 1}'),
        ("call:f(a=@x@, b=[1])", '{"a": "x", "b": [1]}'),
        ("call:f{a:Rome, Italy,b:2024-01-01,c:it's so}", '{"a": "Rome, Italy", "b": "2024-01-01", "c": "it\'s so"}'),
        ("call:f{a:[big red,blue]}", '{"a": ["big red", "blue"]}'),
        ("call:f{a:Rome, Italy@,b:1}", '{"a": "Rome, Italy", "b": 1}'),
        ("call:f{a:1,b:Rome@}", '{"a": 1, "b": "Rome"}'),
        ("call:f{a:@Rome}", '{"a": "Rome"}'),
        ("call:f{a:@Rome,b:@x@}", '{"a": "Rome", "b": "x"}'),
        ("call:f{a:{b:@x}}", '{"a": {"b": "x"}}'),
        ("call:f{a:@# T\n**Label:@** more, {x:1}@}", '{"a": "# T\\n**Label:\\"** more, {x:1}"}'),
        ("call:f{a:1}}", '{"a": 1}'),
        ("call:f{a:1,}", '{"a": 1}'),
        ('{"name": "f", "arguments": {"a": 1}}', '{"a": 1}'),
    ],
)
def test_a_call_says_the_same_however_its_strings_are_quoted(text: str, arguments: str) -> None:
    (call,) = read_gemma_calls(spelt(text), TOOLS)
    assert isinstance(call, Found)
    assert call.name == ("weather" if "weather" in text else "f")
    assert call.arguments == arguments


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("call:f{a:}", "f"),
        ("call:f{a}", "f"),
        ("call:f{:1}", "f"),
        ("call:f{a:1", "f"),
        ("call:f{a:[1}", "f"),
        ("call:run:\nBEGIN_ARG:\nls\nEND_ARG", "run"),
        ("call:f{a:" + "[" * 100_000, "f"),
        ("", ""),
        ("call:", ""),
    ],
)
def test_what_cannot_be_read_is_a_fault_that_says_how(text: str, name: str) -> None:
    (fault,) = read_gemma_calls(spelt(text))
    assert isinstance(fault, Fault)
    assert fault.name == name
    assert "write call:NAME{" in fault.error


ROME = "<|tool_call>call:weather{city:@Rome@}<tool_call|>"
CALLED = ["weather", {"city": "Rome"}]


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        ("<|channel>thought\nHm.\n<channel|>Hi.", [("Hm.",), "Hi."]),
        ("<|channel>thought\n<channel|>Hi.", ["Hi."]),
        ("<|channel><|channel>thought\nHm.<channel|>Hi.", [("Hm.",), "Hi."]),
        ("<|channel>thought\n<|channel>thought\nHm.<channel|>Hi.", [("Hm.",), "Hi."]),
        ("<|channel> thought\nHm.<channel|>Hi.", [("Hm.",), "Hi."]),
        ("<|channel>final\nHi.<channel|>", ["Hi."]),
        ("<|channel>thought\nHm.<channel|><|channel>final\nHi.<channel|>", [("Hm.",), "Hi."]),
        ("<|channel>thought\nHm.<|channel>final\nHi.", [("Hm.",), "Hi."]),
        ("thought\n<channel|>Hi.", ["Hi."]),
        ("thought\nis free", ["thought\nis free"]),
        ("Hi.<|channel>", ["Hi."]),
        ("<|channel> \n", []),
        ("<|channel>thought\nHm.", [("Hm.",)]),
        (f"One.<|channel>thought\nHm.<channel|>Two.{ROME}", ["One.", ("Hm.",), "Two.", CALLED]),
        (
            f"<|channel>thought\nHm.<channel|>{ROME}<|channel>thought\nSo.<channel|>Done.",
            [("Hm.",), CALLED, ("So.",), "Done."],
        ),
        (f"I will look.<channel|>{ROME}<|tool_response>", ["I will look.", CALLED]),
        (f"<|channel>thought\nHm.{ROME}", [("Hm.",), CALLED]),
        (f"<|channel>thought\nHm.\n{ROME}Done.", [("Hm.",), CALLED, "Done."]),
        (f"{ROME}{ROME}\n\nDone.", [CALLED, CALLED, "Done."]),
        (f"{ROME}<tool_call|>Done.", [CALLED, "Done."]),
        (f"<|tool_call>{ROME}Done.", [CALLED, "Done."]),
        ("<|tool_call>call:weather{city:@Rome@}\nDone.", [CALLED, "Done."]),
        ("<|tool_call>call:weather{city:@Rome@}<|tool_call>call:now{}<tool_call|>", [CALLED, ["now", {}]]),
        ("<|tool_call>call:weather{city:@Rome@}call:now{}<tool_call|>", [CALLED, ["now", {}]]),
        ("<|tool_call>call:now<tool_call|>Done.", [["now", {}], "Done."]),
        ("<|tool_call>weather{city:@Rome@}<tool_call|>", [CALLED]),
        ("<|tool_call>call:weather{city:Rome@}<tool_call|>Done.", [CALLED, "Done."]),
        ("<|tool_call>call:weather{city:@Rome}<tool_call|>Done.", [CALLED, "Done."]),
        (
            "<|tool_call>call:weather{city:@f{}<tool_call|> x@}<tool_call|>",
            [["weather", {"city": "f{}<tool_call|> x"}]],
        ),
        ("<|tool_call>call:weather{city:L'Aquila}<tool_call|>Ok", [["weather", {"city": "L'Aquila"}], "Ok"]),
        ('<|tool_call>{"name": "weather", "arguments": {"city": "Rome"}}<tool_call|>', [CALLED]),
        ("Ok.\ncall:weather{city:@Rome@}<tool_call|>Done.", ["Ok.", CALLED, "Done."]),
        ("call:other{city:@Rome@} is text", [spelt("call:other{city:@Rome@} is text")]),
        ("The <|tool_call> marker, `<|tool_call>`.", ["The <|tool_call> marker, `<|tool_call>`."]),
        ("<|tool_call>call:run:\nBEGIN_ARG:\nls\nEND_ARG<tool_call|>Ok", [["run", "bad"], "Ok"]),
        ("<|tool_call>call:weather{city:@Ro", [["weather", "bad"]]),
        ("<|tool_call>call:weather{city:@Rome@}", [CALLED]),
    ],
)
def test_channels_and_calls_are_told_apart_from_text(raw: str, parts: list[Any]) -> None:
    assert told(raw) == parts


def test_kept_thoughts_stay_with_their_tags() -> None:
    raw = "<|channel>thought\nHm.\n<channel|>Hi."
    assert told(raw, reasoning="keep") == [raw]
    assert told(f"{raw}{ROME}", reasoning="keep") == [raw, CALLED]


def test_a_prompt_that_opens_the_thought_or_closes_it_is_continued() -> None:
    assert told("Hm.<channel|>Hi.", opened="<|channel>thought\n") == [("Hm.",), "Hi."]
    assert told("Hi.", opened="<|channel>thought\n<channel|>") == ["Hi."]


def test_a_call_cut_off_anywhere_leaks_nothing_and_is_never_empty() -> None:
    call = spelt('<|tool_call>call:weather{city:@Ro,me "x" {}@,days:2,tags:[@a@,{b:null}]}<tool_call|>')
    for end in range(len("<|tool_call>"), len(call)):
        events = events_of([call[:end]], GEMMA4, tools=TOOLS, truncated=True)
        assert not any(isinstance(event, TextDelta) for event in events)
        (ended,) = [event.call for event in events if isinstance(event, CallEnded)]
        assert isinstance(ended, ToolCall) == (end >= call.rindex("}") + 1)


def gemma_of(value: Any) -> str:
    """A value as the template writes it."""
    match value:
        case str():
            return f"{QUOTE}{value}{QUOTE}"
        case dict():
            return "{" + ",".join(f"{QUOTE}{key}{QUOTE}:{gemma_of(item)}" for key, item in value.items()) + "}"
        case list():
            return f"[{','.join(map(gemma_of, value))}]"
        case _:
            return json.dumps(value)


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(40), deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), values, max_size=4))
def test_every_value_survives_as_the_template_writes_it(given: dict[str, Any]) -> None:
    inside = ",".join(f"{key}:{gemma_of(value)}" for key, value in given.items())
    raw = f"Hi.<|tool_call>call:f{{{inside}}}<tool_call|>Bye."
    whole = events_of([raw], GEMMA4)
    assert events_of(list(raw), GEMMA4) == whole
    (call,) = [event.call for event in whole if isinstance(event, CallEnded)]
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments) == given
    assert (whole[0], whole[-1]) == (TextDelta("Hi."), TextDelta("Bye."))


def test_function_gemma_has_other_tags_and_another_quote() -> None:
    raw = '<start_function_call>call:weather{city:<escape>Rome, "x"<escape>,days:2}<end_function_call>'
    assert told(raw, FUNCTION_GEMMA) == [["weather", {"city": 'Rome, "x"', "days": 2}]]


def test_harmony_is_not_gemma_and_a_plain_template_is() -> None:  # T10
    assert detect("{{'<|channel>thought\\n'}} <channel|>").name == "gemma4"
    assert detect("<|start|>assistant<|channel|>final<|message|>").name != "gemma4"
    assert detect("<start_of_turn>model\n").name == "gemma"
    assert detect("<start_of_turn>model\n <start_function_call>").name == "function-gemma"
    assert told("Hello, <b>world</b>!", GEMMA) == ["Hello, <b>world</b>!"]


def test_a_call_is_spelt_with_quotes_of_its_own_and_a_text_with_what_may_come_behind_it() -> None:
    spelling = GEMMA4.markup.blocks[0].spelling
    assert spelling is not None
    properties = {"place": {"type": "object", "properties": {"zip": {"type": "string"}}}, "days": {"type": "integer"}}
    tool = ToolSpec("f", "", {"type": "object", "properties": {**properties, "mode": {"enum": ["a"]}, "city": {}}})
    end = ("}", Closer())
    place = ("place:{", OneOf(((f"zip:{QUOTE}", Until(QUOTE, (("}}", Closer()),))), ("}}", Closer()))))
    mode = ("mode:", OneOf(((f"{QUOTE}a{QUOTE}",),)), OneOf(((f",{place[0]}", *place[1:]), end)))
    days = ("days:", Json({"type": "integer"}), OneOf(((f",{mode[0]}", *mode[1:]), (f",{place[0]}", *place[1:]), end)))
    later = tuple((f",{name}", *rest) for name, *rest in (days, mode, place))
    city = (f"city:{QUOTE}", Until(QUOTE, (*later, end)))
    assert spelling.call(tool) == ("call:f{", OneOf((city, days, mode, place, end)))
    required = ToolSpec("f", "", {**tool.parameters, "required": ["days"]})
    assert spelling.call(required) == ("call:f{", OneOf(((city[0], Until(QUOTE, (later[0],))), days)))


QUOTED = [
    ("{code:@r = sql(@@@ SELECT 1 @@@).df()@,days:2}", {"code": 'r = sql(""" SELECT 1 """).df()', "days": 2}),
    ("{note:@he said @hi@ twice@,code:@x@}", {"note": 'he said "hi" twice', "code": "x"}),
    ("{code:@print(@a@)@}", {"code": 'print("a")'}),
    ("{code:@{@a@: @b@}@}", {"code": '{"a": "b"}'}),
    ("{code:@{@a@:{@b@:@c@,@d@:1}}@,days:2}", {"code": '{"a":{"b":"c","d":1}}', "days": 2}),
    ("{code:@f(@a@, key: 1, @b@)@,note:@@@}", {"code": 'f("a", key: 1, "b")', "note": '"'}),
    ("{code:@@@@doc@@@@,days:1}", {"code": '"""doc"""', "days": 1}),
    ("{place:{zip:@a @b@ c@},days:1}", {"place": {"zip": 'a "b" c'}, "days": 1}),
    ("{place:{zip:@{@b@}@},days:1}", {"place": {"zip": '{"b"}'}, "days": 1}),
]


@pytest.mark.parametrize(("arguments", "meant"), QUOTED)
def test_a_quote_ends_a_text_only_where_the_call_continues(arguments: str, meant: dict[str, Any]) -> None:
    raw = spelt(f"<|tool_call>call:run{arguments}<tool_call|>")
    whole = events_of([raw], GEMMA4, tools=(RUN,))
    calls = [event.call for event in whole if isinstance(event, CallEnded)]
    assert [json.loads(call.arguments) for call in calls if isinstance(call, ToolCall)] == [meant]
    assert events_of(list(raw), GEMMA4, tools=(RUN,)) == whole
    lark = grammar(GEMMA4.markup, [RUN], choice="required", thinks=False)
    assert lark is not None
    assert allows(lark, spelt(f"<|tool_call>call:run{ordered(meant)}<tool_call|>"))


def test_a_quote_in_a_text_of_a_list_is_a_quotation_mark_where_no_item_follows() -> None:
    (call,) = read_gemma_calls(spelt("call:run{refs:[@say @hi@ now@,@b@,@@],note:@c @d@@}"), (RUN,))
    assert isinstance(call, Found)
    assert json.loads(call.arguments) == {"refs": ['say "hi" now', "b", ""], "note": 'c "d"'}


def test_a_parameter_that_no_tool_declares_ends_a_text_if_the_call_cannot_be_read_otherwise() -> None:
    (call,) = read_gemma_calls(spelt("call:run{note:@a @b@ c@,other:1}"), (RUN,))
    assert isinstance(call, Found)
    assert json.loads(call.arguments) == {"note": 'a "b" c', "other": 1}


def test_two_calls_with_quotation_marks_stay_two() -> None:
    calls = read_gemma_calls(spelt("call:run{note:@a @b@@}\ncall:run{code:@f(@x@)@}"), (RUN,))
    assert [json.loads(call.arguments) for call in calls if isinstance(call, Found)] == [
        {"note": 'a "b"'},
        {"code": 'f("x")'},
    ]


def test_a_tool_with_hundreds_of_parameters_has_a_grammar() -> None:
    many = ToolSpec("f", "", {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(300)}})
    assert grammar(GEMMA4.markup, [many], choice="required") is not None


def ordered(arguments: dict[str, Any]) -> str:
    """The arguments as the grammar has them: sorted, with bare keys, each quotation mark written with the quote."""
    spelled = {
        key: ordered(value)
        if isinstance(value, dict)
        else gemma_of(value.replace('"', QUOTE) if isinstance(value, str) else value)
        for key, value in sorted(arguments.items())
    }
    return "{" + ",".join(f"{key}:{value}" for key, value in spelled.items()) + "}"
