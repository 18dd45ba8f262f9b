"""Dialects derived from templates that no family knows: what is derived, what it reads, and what it refuses."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest
from tests.unit.dialects.conformance import Json, cases, grid, own_templates, shared_templates
from tests.unit.dialects.grammars import TOOLS as AWKWARD
from tests.unit.dialects.grammars import sampled
from tests.unit.dialects.outputs import chopped
from tests.unit.dialects.streams import events_of
from tests.unit.dialects.test_conformance import FENCED, shown, tools_of, wanted

from shepherd.core import BadCall, ToolCall, ToolSpec
from shepherd.dialects import derive, detect, parse
from shepherd.dialects.base import Keep
from shepherd.dialects.grammar import grammar
from shepherd.dialects.parse.tags import TagDialect

CALLS = {
    "json": """{% for c in m.tool_calls %}<|call|>{{ c.function | tojson }}<|/call|>{% endfor %}""",
    "json in a string": """{% for c in m.tool_calls %}<fn>{"fn": "{{ c.function.name }}", "input":
 {{ c.function.arguments | tojson | tojson }}}</fn>{% endfor %}""",
    "list": """<calls>[{% for c in m.tool_calls %}{"tool": "{{ c.function.name }}", "with":
 {{ c.function.arguments | tojson }}}{{ ", " if not loop.last }}{% endfor %}]</calls>""",
    "word": """ functools[{% for c in m.tool_calls %}{"name": "{{ c.function.name }}", "arguments":
 {{ c.function.arguments | tojson }}}{{ ", " if not loop.last }}{% endfor %}]""",
    "tags in tags": """<acts>\n{% for c in m.tool_calls %}<act>{{ c.function | tojson }}</act>\n{% endfor %}</acts>""",
    "name first": """{% for c in m.tool_calls %}<|do|>{{ c.function.name }}<|with|>{{ c.function.arguments | tojson }}\
<|done|>{% endfor %}""",
    "name in the tag": """{% for c in m.tool_calls %}<use:{{ c.function.name }}>{{ c.function.arguments | tojson
 }}</use>{% endfor %}""",
    "pairs": """<run>{% for c in m.tool_calls %}<fn is="{{ c.function.name }}">{% for k, v in
 c.function.arguments.items() %}<arg of="{{ k }}">{{ v if v is string else v | tojson }}</arg>{% endfor
 %}</fn>{% endfor %}</run>""",
    "lines": """{% for c in m.tool_calls %}<do>\n<what>{{ c.function.name }}</what>\n{% for k, v in
 c.function.arguments.items() %}<key>{{ k }}</key>\n<is>\n{{ v if v is string else v | tojson }}\n</is>\n{% endfor
 %}</do>\n{% endfor %}""",
    "python": """{% for c in m.tool_calls %}<tool_code>{{ c.function.name }}({% for k, v in
 c.function.arguments.items() %}{{ k }}={{ v | tojson | replace("true", "True") | replace("false", "False") | replace(
 "null", "None") }}{{ ", " if not loop.last }}{% endfor %})</tool_code>{% endfor %}""",
}
"""Markup that no family has, and how a template prints it."""
TEMPLATE = """{% for m in messages %}<s>{{ m.role }}
{% if m.reasoning_content %}<muse>{{ m.reasoning_content }}</muse>
{% endif %}{{ m.content or "" }}{% if m.tool_calls %}CALLS{% endif %}</s>
{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<s>assistant
{% endif %}"""
NOW = '{"name": "now", "arguments": {}}'
TOOLS = (
    ToolSpec("look", "", {"type": "object", "properties": {"at": {"type": "string"}, "n": {"type": "integer"}}}),
    ToolSpec("now"),
)


def template(calls: str) -> str:
    return TEMPLATE.replace("CALLS", calls)


@cache
def dialect(name: str) -> TagDialect:
    source = template(CALLS[name])
    assert detect(source).name == "plain"
    found = derive.derived(derive.observed(source))
    assert found is not None
    return found.fitted(source)


WRITTEN = {
    "json": '<|call|>{"name": "look", "arguments": {"at": "a \\"b\\"\\n<c>", "n": 2}}<|/call|>'
    '<|call|>{"name": "now", "arguments": {}}<|/call|>',
    "json in a string": '<fn>{"fn": "look", "input": "{\\"at\\": \\"a \\\\\\"b\\\\\\"\\\\n<c>\\", \\"n\\": 2}"}</fn>'
    '<fn>{"fn": "now", "input": "{}"}</fn>',
    "list": '<calls>[{"tool": "look", "with": {"at": "a \\"b\\"\\n<c>", "n": 2}}, {"tool": "now", "with": {}}]</calls>',
    "word": ' functools[{"name": "look", "arguments": {"at": "a \\"b\\"\\n<c>", "n": 2}}, '
    '{"name": "now", "arguments": {}}]',
    "tags in tags": '<acts>\n<act>{"name": "look", "arguments": {"at": "a \\"b\\"\\n<c>", "n": 2}}</act>\n'
    '<act>{"name": "now", "arguments": {}}</act>\n</acts>',
    "name first": '<|do|>look<|with|>{"at": "a \\"b\\"\\n<c>", "n": 2}<|done|><|do|>now<|with|>{}<|done|>',
    "name in the tag": '<use:look>{"at": "a \\"b\\"\\n<c>", "n": 2}</use><use:now>{}</use>',
    "pairs": '<run><fn is="look"><arg of="at">a "b"\n<c></arg><arg of="n">2</arg></fn><fn is="now"></fn></run>',
    "lines": '<do>\n<what>look</what>\n<key>at</key>\n<is>\na "b"\n<c>\n</is>\n<key>n</key>\n<is>\n2\n</is>\n</do>\n'
    "<do>\n<what>now</what>\n</do>\n",
    "python": '<tool_code>look(at="a \\"b\\"\\n<c>", n=2)</tool_code><tool_code>now()</tool_code>',
}
"""What a model of such a template writes, with text and a thought before it."""


@pytest.mark.parametrize("name", CALLS)
def test_a_template_of_its_own_is_derived_and_read_alike_for_every_cutting(name: str) -> None:
    raw = f"<muse>Hm.</muse>\nI look.\n{WRITTEN[name]}"
    message = parse(raw, dialect=dialect(name), tools=TOOLS)
    assert (message.reasoning, message.text) == ("Hm.", "I look.")
    assert [(call.name, json.loads(call.arguments)) for call in message.calls] == [
        ("look", {"at": 'a "b"\n<c>', "n": 2}),
        ("now", {}),
    ]
    whole = events_of([raw], dialect(name), tools=TOOLS)
    for at in range(1, len(raw)):
        assert events_of([raw[:at], raw[at:]], dialect(name), tools=TOOLS) == whole
    assert events_of(list(raw), dialect(name), tools=TOOLS) == whole


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_a_derived_dialect_that_is_cut_off_is_no_call(name: str) -> None:
    first = WRITTEN[name][: WRITTEN[name].index("now")]
    for stop in range(WRITTEN[name].index("look") + 5, WRITTEN[name].index("b")):
        events = events_of([first[:stop]], dialect(name), tools=TOOLS, truncated=True)
        assert not [event for event in events if isinstance(getattr(event, "call", None), ToolCall)], first[:stop]


@pytest.mark.parametrize("name", CALLS)
def test_text_stays_text_in_a_derived_dialect(name: str) -> None:
    text = "If a < b and [c], then {d}. Use the <b>fn</b> tag; call(x) in <code>code</code>.\n\n- look: now"
    assert parse(text, dialect=dialect(name), tools=TOOLS).text == text
    for block in dialect(name).markup.blocks:
        spoken = f"Write {block.opener} first, please."
        assert parse(spoken, dialect=dialect(name), tools=TOOLS).text == spoken


@pytest.mark.parametrize("raw", [f"functools[{NOW}]", f" functools[{NOW}", f"Hi functools[{NOW}]", NOW])
def test_slips_of_a_word_before_calls_are_read(raw: str) -> None:  # FireFunction v2, which needs no row of its own
    message = parse(raw, dialect=dialect("word"), tools=TOOLS)
    assert [(call.name, call.arguments) for call in message.calls] == [("now", "{}")]


def test_a_word_before_calls_stays_text_where_no_call_follows() -> None:
    text = "import functools\n@functools.cache\ndef f(): ..."
    assert parse(text, dialect=dialect("word"), tools=TOOLS).text == text
    (bad,) = parse(" functools[", dialect=dialect("word"), tools=TOOLS).parts
    assert isinstance(bad, BadCall)
    assert "empty" in bad.error


@pytest.mark.parametrize("name", CALLS)
def test_what_a_derived_dialect_may_write_is_read_back(name: str) -> None:
    for tool in (AWKWARD["nothing"], AWKWARD["write"], AWKWARD["nested"]):
        for parallel in (False, True):
            lark = grammar(dialect(name).markup, [tool], choice="required", parallel=parallel, thinks=False)
            assert lark is not None
            for text in sampled(lark, (), 2):
                message = parse(text, dialect=dialect(name), tools=[tool])
                assert message.calls, text
                assert [part for part in message.parts if not isinstance(part, ToolCall)] == [], text


@pytest.mark.parametrize(
    "calls",
    [
        # No notation: the values have no names, or no end.
        "{% for c in m.tool_calls %}<go>{{ c.function.name }} {{ c.function.arguments.values() | join }}{% endfor %}",
        # What is printed cannot be read back: values end in what they may hold.
        "{% for c in m.tool_calls %}<go>{{ c.function.name }}{% for k, v in c.function.arguments.items() %} "
        "{{ k }}={{ v }}{% endfor %}</go>{% endfor %}",
        # The arguments of a call are lost.
        "{% for c in m.tool_calls %}<go>{{ c.function.name }}</go>{% endfor %}",
        "{{ raise_exception('no calls') }}",
        "",
    ],
)
def test_what_does_not_prove_itself_is_not_used(calls: str) -> None:
    assert derive.derived(derive.observed(template(calls))) is None


def test_texts_that_are_no_conversation_derive_nothing() -> None:
    printed = derive.observed(template(CALLS["json"]))
    assert derive.derived(printed)
    assert derive.derived({}) is None
    assert derive.derived({**printed, "call": "x" * 100_000}) is None
    chance = random.Random(0)
    for name, text in printed.items():
        for _ in range(5):
            pieces = chopped(text, chance.sample(range(1, len(text) + 4), 3))
            derive.derived({**printed, name: "".join(chance.sample(pieces, len(pieces)))})
            derive.derived({**printed, name: pieces[0]})


# ---- known families, hidden

PARTLY = {"harmony"}


@cache
def hidden(name: str) -> TagDialect | None:
    source = (own_templates() | shared_templates())[name]
    found = derive.derived(derive.observed(source))
    return found.fitted(source) if found else None


def test_our_own_templates_are_derived_when_their_families_are_hidden() -> None:
    unread = {name for name in own_templates() if hidden(name) is None}
    assert unread == {"own-gemma4.jinja", "own-plain.jinja"}


READ = [
    case
    for case in (*cases("chat_cases"), *cases("chat_cases_roundtrip"))
    if not case["id"].endswith(FENCED) and case["expected"].get("tool_calls") and not case.get("policy")
]
MISSED = (
    "own-llama-3#2",  # a second markup for calls, which the template does not print
    "Apriel-1.6-15b-Thinker-fixed#6219.2",  # a thought without tags
    "inclusionai-ling-3.0-flash#4748.10",  # the end of the turn in the text
)
"""What a family knows and its template does not show."""


@pytest.mark.parametrize("case", grid(READ, 0.1, name=lambda case: str(case["id"]), family=lambda case: case["family"]))
def test_the_calls_of_hidden_families_are_read(case: Json) -> None:
    found = hidden(case["template"])
    known = detect((own_templates() | shared_templates())[case["template"]]).name
    if found is None or known in PARTLY or case["id"] in MISSED:
        pytest.skip("not derived, or known to be read in part only")
    kept: Keep = "keep" if case["options"]["reasoning_format"] == "none" else "split"
    opened = case["options"]["generation_prompt"]
    message = parse(case["raw"], dialect=found, tools=tools_of(case), prefill=opened, reasoning=kept)
    assert shown(message, case) == wanted(case)
