"""Calls as tags, in every family that writes them: as their templates print them, and as models do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.streams import dialect, events_of
from tests.unit.dialects.tagged import CLOCK, DSML, EDIT, PRINTED, READ, TOOLS, Outcome, told
from tests.unit.dialects.tagged_slips import OTHERS, QWEN, A

from shepherd.core import BadCall, TextDelta, ToolCall, ToolSpec
from shepherd.dialects import parse


def one_call(raw: str, name: str, tools: tuple[ToolSpec, ...] = TOOLS) -> tuple[str, Any]:
    """The only thing that an output says: a call, its arguments read."""
    (call,) = parse(raw, dialect=dialect(name), tools=tools).parts
    assert isinstance(call, ToolCall), call
    return call.name, json.loads(call.arguments)


# ---- as it should be


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "a b.py"},
        {"path": "12", "lines": 12345678901234567890},
        {"path": "", "text": "\n  two\n\nlines \n", "force": False},
        {"text": "if a < b and c > d:\n\tx = {'k': [1, `2`]}  # \\n \"q\"", "marks": [1, -2], "style": {"color": "é"}},
        {"text": '{"a": null}', "style": {}, "marks": []},
        {"text": "<think>\n</think> <b>&amp;</b> <|im_end|>", "force": True},
        {"extra": "x", "path": "p"},
    ],
)
def test_a_call_comes_back_as_its_template_prints_it(name: str, arguments: dict[str, Any]) -> None:
    tool = "read" if "lines" in arguments else "edit"
    raw = PRINTED[name](tool, arguments)
    assert one_call(raw, name) == (tool, arguments)
    (call,) = parse(raw, dialect=dialect(name), tools=TOOLS).calls
    assert call.raw == raw
    assert [type(outcome) for outcome in told(raw, name)] == [tuple]


@pytest.mark.parametrize("name", PRINTED)
def test_a_call_without_arguments_has_none(name: str) -> None:
    assert told(PRINTED[name]("clock", {}), name) == [("clock", "{}")]


@pytest.mark.parametrize("name", PRINTED)
def test_text_stands_around_calls_and_shows_nothing_of_them(name: str) -> None:
    call = PRINTED[name]("read", {"path": "a"})
    found: Outcome = ("read", '{"path": "a"}')
    expected = ["text: Let me see.", found, found, "text:   Done <b>."]
    assert told(f"Let me see.\n\n{call}\n{call}\n\n  Done <b>.", name) == expected


@pytest.mark.parametrize("name", PRINTED)
def test_a_tool_that_was_not_offered_is_called_all_the_same(name: str) -> None:
    raw = PRINTED[name]("other", {"n": 3, "s": "x", "o": {"k": [1]}})
    assert told(raw, name) == [("other", '{"n": 3, "s": "x", "o": {"k": [1]}}')]
    assert told(raw, name, tools=()) == told(raw, name)


@pytest.mark.parametrize("name", PRINTED)
def test_a_forgotten_end_of_a_thought_does_not_hide_a_call(name: str) -> None:
    tag = dialect(name).thoughts[0][0]
    raw = f"Hm.\n{PRINTED[name]('read', {'path': 'a'})}"
    assert told(raw, name, opened=tag) == ["thought: Hm.", ("read", '{"path": "a"}')]


PIECES = [
    *("<b>", "</b>", "x", " ", "\n", "&", "`", "{", "}", '"', "'", "\\n", "é😀", "</think>", "<think>"),
    *("<tool_call> x", "`</tool_call>` x", "'<function=f>' x", '"</function>" x', '"</parameter>" x'),
    *('"</invoke>" x', "x </param> x", "[TOOL_CALLS]", "<|im_start|>", "]]", "¤"),
]


@settings(max_examples=examples(40), deadline=None)
@given(
    st.sampled_from(sorted(PRINTED)),
    st.lists(st.sampled_from(PIECES) | st.text(max_size=5).filter(lambda text: "<" not in text), max_size=9),
)
def test_a_string_survives_whatever_stands_in_it(name: str, pieces: list[str]) -> None:
    text = "".join(pieces).replace("]]>", "").replace("<![CDATA[", "")
    if name == "minicpm" and "\n" not in text:
        text += "\n"  # so that it is in a CDATA section, as it always is if it needs one
    if name == "minimax-m3":
        text = text.replace("]<", "")
    raw = PRINTED[name]("edit", {"path": "p", "text": text, "force": True})
    assert one_call(raw, name) == ("edit", {"path": "p", "text": text, "force": True})


@settings(max_examples=examples(40), deadline=None)
@given(
    st.sampled_from(sorted(set(PRINTED) - {"seed", "minimax-m3"})),
    st.dictionaries(
        st.sampled_from(["marks", "style", "force"]),
        st.recursive(
            st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: (
                st.lists(inner | st.text(max_size=5), max_size=3)
                | st.dictionaries(st.text(max_size=3), inner | st.none() | st.text(max_size=5), max_size=3)
            ),
            max_leaves=6,
        ),
    ),
)
def test_other_values_survive_however_nested(name: str, arguments: dict[str, Any]) -> None:
    if not any("<" in json.dumps(value) for value in arguments.values()):
        assert one_call(PRINTED[name]("edit", {"path": "p", **arguments}), name) == ("edit", {"path": "p", **arguments})


# ---- where a value ends


BODY = {
    "a closer in the middle of a line": 's = "</parameter>" + "</function>" + "</tool_call>"',
    "a whole call": "So:\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\nOK.",
    "a call and nothing else": "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "the end of a call": "<function=demo>\n</function>\n</tool_call>",
    "an element of the same name": "<parameter>\n  <hello></hello>\n</parameter>",
    "elements of the same name": '<x>\n<parameter name="a">1</parameter>\n<parameter name="b">2</parameter>\n</x>',
    "functions": "<module>\n  <function>\n    f\n  </function>\n</module>",
    "functions over several lines": '<function\n  id="1">\n  f\n</function>\nmore',
    "a call in JSON": '<tool_call>\n{"name": "f"}\n</tool_call>\nmore',
    "openers in prose": "<tool_call> stands around\n<function=NAME> and\n  <tool_call>, too",
    "half a block": '<tool_call>\n{"name": "f"}\nand so on',
    "half a tag": "<parameter",
    "half a closer": "</parameter",
    "tags of another family": '</invoke>\n</minimax:tool_call>\n<invoke name="x">\n',
}


@pytest.mark.parametrize("text", BODY.values(), ids=BODY)
def test_a_value_may_speak_of_calls(text: str) -> None:
    for arguments in ({"path": "p", "text": text}, {"text": text, "force": True}):
        raw = PRINTED["qwen-xml"]("edit", arguments)
        assert told(f"{raw}\nDone.", "qwen-xml") == [("edit", json.dumps(arguments)), "text: Done."]


def test_an_opener_that_is_never_closed_does_not_lose_the_call() -> None:
    arguments = {"path": "p", "text": "<tool_call>\n<function=x>\nno more"}
    assert one_call(PRINTED["qwen-xml"]("edit", arguments), "qwen-xml") == ("edit", arguments)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("minimax-m2", "<parameter>\n  <hello></hello>\n</parameter>"),
        ("minimax-m2", "Montréal </minimax:tool_call> café"),
        ("minimax-m2", '<c>\n<parameter name="x">1</parameter>\n<parameter name="y">2</parameter>\n</c>\n'),
        ("minimax-m2", 'Write\n<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>\nto call f.'),
        ("seed", "<function=f>\n<parameter=a>1</parameter>\n</function>"),
        ("deepseek-v4", "</parameter>\n</invoke>\n</tool_calls>"),
        ("deepseek-v4", f"a </{DSML}parameter> b"),
        ("deepseek-v3.2", f'<{DSML}invoke name="f">\n</{DSML}invoke>\n'),
        ("minicpm", '<a href="/x">hi</a> </param></function> ]]> x'),
        ("minicpm", "<![CDATA[x]]> y"),
    ],
)
def test_a_value_may_speak_of_calls_in_other_families(name: str, text: str) -> None:
    assert one_call(PRINTED[name]("edit", {"path": "p", "text": text}), name) == ("edit", {"path": "p", "text": text})


# ---- as models write it


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("case", QWEN)
def test_qwen_is_read_however_it_writes(case: str) -> None:
    raw, expected = QWEN[case]
    assert told(raw, "qwen-xml") == expected


# Text is no call's, and the second closer of "wrapper twice" is nobody's.
CALLS = [case for case, (_, found) in QWEN.items() if "twice" not in case and not any("text" in said for said in found)]


@pytest.mark.parametrize("case", CALLS)
def test_the_texts_of_the_calls_are_the_whole_output_but_for_blanks(case: str) -> None:
    raw = QWEN[case][0]
    message = parse(raw, dialect="qwen-xml", tools=TOOLS)
    written = [part.raw or "" for part in message.parts if isinstance(part, ToolCall | BadCall)]
    thought = f"<think>{message.reasoning}" if message.reasoning else ""
    assert "".join((thought + "".join(written)).split()) == "".join(raw.split())
    assert all(text.startswith("<") for text in written)


@pytest.mark.parametrize("case", OTHERS)
def test_other_families_are_read_however_they_write(case: str) -> None:
    name, raw, expected = OTHERS[case]
    assert told(raw, name) == expected


# ---- cut off


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.parametrize("truncated", [True, False])
def test_a_call_that_is_cut_off_anywhere_is_whole_or_bad_and_never_text(name: str, truncated: bool) -> None:  # S9
    arguments = {"path": "a<b", "lines": 3}
    raw = f"Hi.\n\n{PRINTED[name]('read', arguments)}"
    opener = min(at for block in dialect(name).markup.openers if (at := raw.find(block)) >= 0)
    for stop in range(4, len(raw)):
        events = events_of([raw[:stop]], dialect(name), tools=TOOLS, truncated=truncated)
        parser_parts = parse(raw[:stop], dialect=dialect(name), tools=TOOLS).parts
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert text.rstrip() == "Hi." or stop - opener < (2 if truncated else 24), (raw[:stop], events)
        for part in parser_parts:
            match part:
                case ToolCall():
                    assert json.loads(part.arguments) == arguments
                case BadCall():
                    assert "ended inside" in part.error


@pytest.mark.parametrize("name", PRINTED)
def test_a_call_without_arguments_is_none_before_it_is_closed(name: str) -> None:
    raw = PRINTED[name]("clock", {})
    closed = max(raw.find("function>"), raw.find("invoke>"))
    for stop in range(1, closed):
        assert parse(raw[:stop], dialect=dialect(name), tools=TOOLS).calls == ()
    assert parse(raw[: closed + 9], dialect=dialect(name), tools=TOOLS).calls


def test_a_cut_in_the_closers_does_not_undo_a_call() -> None:
    raw = PRINTED["qwen-xml"]("read", {"path": "a"})
    closing = raw.index("</function>")
    parts = [parse(raw[:stop], dialect="qwen-xml", tools=TOOLS).parts for stop in range(closing + 2, len(raw))]
    assert all(isinstance(call, ToolCall) for (call,) in parts)


# ---- whatever comes


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(sorted(PRINTED)), st.text(alphabet="ab .,\n\t()'\"<>&é"), st.text(alphabet="ab .,\n{}()é"))
def test_text_beside_a_call_is_text(name: str, before: str, after: str) -> None:
    call = PRINTED[name]("read", {"path": "a"})
    parts = parse(f"{before}\n{call}\n{after}", dialect=dialect(name), tools=TOOLS).parts
    assert [(part.name, part.arguments) for part in parts if isinstance(part, ToolCall)] == [A]
    said = "".join(part.text for part in parts if not isinstance(part, ToolCall | BadCall))  # type: ignore[union-attr]
    assert "".join(said.split()) == "".join((before + after).split())


# ---- whose templates these are


@pytest.mark.parametrize("tool", [READ, EDIT, CLOCK, ToolSpec("free")])
@pytest.mark.parametrize("name", PRINTED)
def test_a_spelling_begins_and_ends_like_the_template(name: str, tool: ToolSpec) -> None:
    block = next(block for block in dialect(name).markup.blocks if block.spelling)
    assert block.spelling
    parts = block.spelling.call(tool)
    printed = PRINTED[name](tool.name, {})
    assert isinstance(parts[0], str)
    assert printed.startswith(block.opener + block.spelling.before + parts[0])
    assert printed.endswith(block.spelling.after + block.closers[0])
