"""The seeds' forms of a call, and what looks like one and is text (scenario 12)."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.laws import DICE, TOOLS, assert_alike, calls_of, text_of
from tests.unit.dialects.outputs import chopped
from tests.unit.dialects.streams import dialect, events_of

from shepherd.core import BadCall, Text, TextDelta, ToolSpec, fold
from shepherd.core.events import Finished, Started
from shepherd.dialects import detect, get, names, parse

SIX = '{"sides": 6}'
FORMS = {
    "json": '{"name": "roll", "parameters": {"sides": 6}}',
    "json in tags": '<tool_call>{"name": "roll", "arguments": {"sides": 6}}</tool_call>',
    "qwen's tags": "<tool_call>\n<function=roll>\n<parameter=sides>\n6\n</parameter>\n</function>\n</tool_call>",
    "qwen's inner tags": "<function=roll><parameter=sides>6</parameter></function>",
    "simple tag": '<roll sides="6"/>',
    "bare python": "[roll(sides=6)]",
    "pairs": "<tool_call>roll\n<arg_key>sides</arg_key>\n<arg_value>6</arg_value>\n</tool_call>",
    "python": "<tool_call>\nroll(sides=6)\n</tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="roll">\n<parameter name="sides">6</parameter>\n</invoke>\n'
    "</minimax:tool_call>",
    "mistral": '[TOOL_CALLS][{"name": "roll", "arguments": {"sides": 6}}]',
    "llama": '<|python_tag|>{"name": "roll", "parameters": {"sides": 6}}',
    "nemotron": '<TOOLCALL>[{"name": "roll", "arguments": {"sides": 6}}]</TOOLCALL>',
    "functools": ' functools[{"name": "roll", "arguments": {"sides": 6}}]',
}


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("raw", FORMS.values(), ids=FORMS.keys())
def test_a_plain_model_may_call_in_any_form_and_however_the_text_is_cut(raw: str) -> None:
    for before, after in (("", ""), ("Let me see.\n\n", ""), ("\n\n", "\n\nI will report back.")):
        whole = before + raw + after
        assert calls_of(whole, dialect("plain")) == [("roll", SIX)]
        assert text_of(whole, dialect("plain")).split() == (before + after).split()
    events = events_of([raw], dialect("plain"), tools=TOOLS)
    source = random.Random(raw)
    for _ in range(50):
        chunks = chopped(raw, source.sample(range(1, len(raw)), 4))
        assert events_of(chunks, dialect("plain"), tools=TOOLS) == events


@pytest.mark.parametrize("raw", FORMS.values(), ids=FORMS.keys())
def test_without_tools_every_form_is_text(raw: str) -> None:
    assert parse(raw, dialect="plain").text == raw


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    "text",
    [
        "Use <b>bold</b>, then go on.",
        "a < b && c > d",
        '{"x":1}',
        "```json\n{}\n```",
        f"```json\n{FORMS['json']}\n```",
        f"```xml\n{FORMS['simple tag']}\n```\nDone.",
        '<img src="a.png" alt="b">',
        '<circle cx="1" cy="2"/>',
        '<div class="x">\n<p>hi</p>\n</div>',
        '<rolling stones="5"/>',
        '<rolls="5"/>',
        "<roll the dice",
        "<roll>",
        "<roll> of the dice",
        '<roll sides="6"> of the dice',
        "<roll>\n<other>6</other>\n</roll>",
        'Write <roll sides="6"/> for that.',
        *('`<roll sides="6"/>`', "<roll =6/>", "<roll sides 6/>", "| a | <roll/> |", "Use the <tool_call> tag."),
        *("[roll(sides=6)] is a list.", "[roll(sides=n), other(2)]"),
        "```python\n[roll(sides=6)]\n```",
        "See [roll(sides=6)]",
    ],
)
@pytest.mark.parametrize("name", ["plain", "llama-3", "hermes", "mistral"])
def test_html_json_and_talk_about_tags_are_text_even_if_there_are_tools(name: str, text: str) -> None:  # S1, S4, S8
    assert assert_alike(text, dialect(name), range(1, len(text), 2)) == [TextDelta(text)]


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ('<roll sides="6"/>', SIX),
        ('<roll sides="6" />', SIX),
        ("<roll sides='6'/>", SIX),
        ("<roll sides=6/>", SIX),
        ('<roll\n  sides="6"\n/>', SIX),
        ('<roll sides="6"></roll>', SIX),
        ('<roll sides="6">\n</roll>', SIX),
        ('<roll sides="6">\nThat was it.', SIX),
        ("<roll>{" + SIX[1:] + "</roll>", SIX),
        ("<roll>\n" + SIX, SIX),
        ("<roll>\n<sides>6</sides>\n</roll>", SIX),
        ("<roll/>", "{}"),
        ('<roll note="a &amp; b &lt;c&gt; > /"/>', '{"note": "a & b <c> > /"}'),
        ('<roll note="12"/>', '{"note": "12"}'),
        ('<roll sides="12345678901234567890"/>', '{"sides": 12345678901234567890}'),
        ('<roll sides="6" note=""/>', '{"sides": 6, "note": ""}'),
        ("<roll>\n<note>\nif a < b:\n    <b>x</b>\n</note>\n<sides>6</sides>\n</roll>", None),
    ],
)
@pytest.mark.parametrize("name", ["plain", "llama-3", "hermes", "kimi-k2"])
def test_a_tag_of_a_declared_tools_own_name_is_a_call(name: str, raw: str, arguments: str | None) -> None:
    wanted = '{"note": "if a < b:\\n    <b>x</b>", "sides": 6}' if arguments is None else arguments
    assert calls_of(raw, dialect(name)) == [("roll", wanted)]


def test_the_longer_of_two_names_is_called() -> None:
    assert calls_of('<roll_all dice="[1, 2]"/>', dialect("plain")) == [("roll_all", '{"dice": [1, 2]}')]


@pytest.mark.parametrize(
    "raw",
    [
        "<roll s",
        '<roll sides="6',
        '<roll sides="6" note="a b',
        "<roll>\n<sides>6</si",
        "<roll>\n<sides>6</sides>\nx</roll>",
    ],
)
def test_a_simple_tag_that_is_cut_off_or_spoilt_is_a_bad_call(raw: str) -> None:
    (bad,) = parse(raw, dialect="plain", tools=TOOLS).parts
    assert isinstance(bad, BadCall)
    assert (bad.name, bad.raw) == ("roll", raw)


@settings(max_examples=examples(50), deadline=None)
@given(st.text(st.characters(exclude_characters="<{[`~"), max_size=60), st.integers(1, 5))
def test_text_passes_unchanged_though_there_are_tools(text: str, size: int) -> None:
    parser = dialect("plain").parser(tools=TOOLS)
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    assert "".join(event.text for event in (*events, *parser.close()) if isinstance(event, TextDelta)) == text


def test_a_tool_named_like_a_tag_of_html_is_called_by_whole_tags_at_the_start_of_a_line_only() -> None:
    image = ToolSpec("img", "", {"type": "object", "properties": {"src": {"type": "string"}}})
    assert calls_of('<img src="a.png"/>', dialect("plain"), [image]) == [("img", '{"src": "a.png"}')]
    for text in ('See <img src="a.png"/>', '<image src="a.png"/>', "<img"):
        assert text_of(text, dialect("plain"), [image]) == text


def test_a_bare_call_without_its_opening_tag_takes_the_closing_one_with_it() -> None:
    raw = '{"name": "roll", "arguments": {"sides": 6}}\n</tool_call>'
    assert calls_of(raw, dialect("hermes")) == [("roll", SIX)]
    assert text_of(raw, dialect("hermes")) == ""


def test_families_with_markers_take_bare_json_for_a_call_only_where_the_answer_begins() -> None:
    for name in ("hermes", "mistral", "kimi-k2", "apertus"):
        assert calls_of(FORMS["json"], dialect(name)) == [("roll", SIX)]
        raw = f"An example:\n\n{FORMS['json']}"
        assert calls_of(raw, dialect(name)) == []
        assert text_of(raw, dialect(name)) == raw


def test_a_template_without_tools_is_plain_and_reads_calls_all_the_same() -> None:
    chatml = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    for raw in FORMS.values():
        (call,) = parse(raw, dialect=detect(chatml), tools=[DICE]).calls
        assert (call.name, call.arguments) == ("roll", SIX)


ROLL = ToolSpec("roll", parameters={"type": "object", "properties": {"sides": {"type": "integer"}}})
CODE = [
    "print(default_api.roll(sides=6))",
    "\nroll(sides=6)\n",
    "\nresult = roll(sides = 6)\n",
    '\n{"name": "roll", "arguments": {"sides": 6}}\n',
    '[{"name": "roll", "parameters": {"sides": 6}}]',
    "<function=roll><parameter=sides>6</parameter></function>",
]


@pytest.mark.parametrize("name", names())
def test_code_in_a_tag_is_a_call_in_every_dialect(name: str) -> None:  # SCN-13
    dialect = get(name)
    for inside in CODE:
        for before, behind in (("", ""), ("Let me see.\n", "\nDone.")):
            text = f"{before}<tool_code>{inside}</tool_code>{behind}"
            whole = events_of([text], dialect, tools=[ROLL])
            message = fold([Started("test"), *whole, Finished("end")]).message
            assert [(call.name, json.loads(call.arguments)) for call in message.calls] == [("roll", {"sides": 6})], text
            assert message.text == before.strip() + behind.strip()
            assert events_of(list(text), dialect, tools=[ROLL]) == whole
            shown = parse(text, dialect=dialect)
            assert shown.calls or shown.text == text, "without tools it is text, unless the inside is a call of its own"


def test_code_in_a_tag_that_computes_is_text() -> None:
    for text in (
        "<tool_code>\nprint(2 ** 10)\n</tool_code>",
        "<tool_code>\nfor n in range(6):\n    roll(sides=n)\n</tool_code>",
        "Write the code between <tool_code> and </tool_code> tags.",
    ):
        assert parse(text, dialect="hermes", tools=[ROLL]).parts == (Text(text),)
