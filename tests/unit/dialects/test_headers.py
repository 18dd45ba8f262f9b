"""What the families with headers and channels have in common: nothing leaks, nothing is lost, however it is cut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.laws import arguments, hard_arguments
from tests.unit.dialects.outline import TOOLS, WEATHER, Outline, outline, outlined
from tests.unit.dialects.streams import dialect, events_of

from shepherd.core import ToolCall, ToolSpec
from shepherd.dialects import parse
from shepherd.dialects.families.harmony import ROLE as HARMONY_ROLE
from shepherd.dialects.families.muse import ROLE as MUSE_ROLE
from shepherd.dialects.parse.bodies.header import prefixes
from shepherd.dialects.parse.spelling import Json, Part, Pattern, Until

ARGUMENTS = '{"city": "Oslo"}'


@dataclass(frozen=True)
class Speaker:
    """How a family writes a whole answer: a thought, text, a call and text behind it."""

    opened: str
    """By the prompt."""
    write: Callable[[str, str, str, str, str], str]
    markers: str
    """All that must never be seen, separated by blanks."""
    thinks: bool = True


def k3_call(name: str, arguments: str) -> str:
    given = "".join(
        f'<|open|>argument key="{key}" type="{"string" if isinstance(value, str) else "object"}"<|sep|>'
        f"{value if isinstance(value, str) else json.dumps(value)}<|close|>argument<|sep|>"
        for key, value in json.loads(arguments).items()
    )
    return f'<|open|>call tool="{name}" index="1"<|sep|>{given}<|close|>call<|sep|>'


def atem_call(name: str, arguments: str) -> str:
    given = "".join(
        f'<atem:parameter name="{key}">{value if isinstance(value, str) else json.dumps(value)}</atem:parameter>\n'
        for key, value in json.loads(arguments).items()
    )
    return f'<atem:function_calls>\n<atem:invoke name="{name}">\n{given}</atem:invoke>\n</atem:function_calls>'


SPEAKERS = {
    "harmony": Speaker(
        "<|start|>assistant",
        lambda thought, before, name, arguments, after: (
            f"<|channel|>analysis<|message|>{thought}<|end|>"
            f"<|start|>assistant<|channel|>commentary<|message|>{before}<|end|>"
            f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}"
            "<|call|>"
            f"<|start|>assistant<|channel|>final<|message|>{after}<|return|>"
        ),
        "<|start|> <|channel|> <|message|> <|constrain|> <|end|> <|call|> <|return|> commentary functions.",
    ),
    "muse": Speaker(
        "<|start|>assistant",
        lambda thought, before, name, arguments, after: (
            f" to=self<|message|>{thought}<|eom|><|start|>assistant to=user<|message|>{before}<|eom|>"
            f"<|start|>assistant to={name}<|message|>{atem_call(name, arguments)}<|eom|>"
            f"<|start|>assistant to=user<|message|>{after}<|eot|>"
        ),
        "<|start|> <|message|> <|eom|> <|eot|> <atem: </atem: to=",
    ),
    "solar": Speaker(
        "<|begin|>assistant",
        lambda thought, before, name, arguments, after: (
            f"<|think|>{thought}<|end|><|begin|>assistant<|content|>{before}<|end|><|begin|>assistant<|tool_calls|>"
            f"<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>{name}<|tool_call:args|>{arguments}<|tool_call:end|><|calls|>"
            f"<|begin|>assistant<|content|>{after}<|end|>"
        ),
        "<|begin|> <|think|> <|content|> <|end|> <|tool_call <|calls|> a1b2c3d4e5",
    ),
    "kimi-k3": Speaker(
        "<|open|>think<|sep|>",
        lambda thought, before, name, arguments, after: (
            f"{thought}<|close|>think<|sep|><|open|>response<|sep|>{before}<|close|>response<|sep|><|open|>tools<|sep|>"
            f"{k3_call(name, arguments)}<|close|>tools<|sep|><|open|>response<|sep|>{after}<|close|>response<|sep|>"
            "<|close|>message<|sep|><|end_of_msg|>"
        ),
        "<|open|> <|close|> <|sep|> <|end_of_msg|>",
    ),
    "cohere": Speaker(
        "",
        lambda thought, before, name, arguments, after: (
            f"<|START_THINKING|>{thought}<|END_THINKING|><|START_RESPONSE|>{before}<|END_RESPONSE|><|START_ACTION|>[\n"
            f'    {{"tool_call_id": "0", "tool_name": "{name}", "parameters": {arguments}}}\n]<|END_ACTION|>'
            f"<|START_RESPONSE|>{after}<|END_RESPONSE|>"
        ),
        "<|START_ <|END_ tool_name",
    ),
    "cohere-2": Speaker(
        "<|START_THINKING|>",
        lambda thought, before, name, arguments, after: (
            f"{thought}<|END_THINKING|><|START_TEXT|>{before}<|END_TEXT|><|START_ACTION|>"
            f'[{{"tool_call_id": "0", "tool_name": "{name}", "parameters": {arguments}}}]<|END_ACTION|>'
            f"<|START_TEXT|>{after}<|END_TEXT|>"
        ),
        "<|START_ <|END_ tool_name",
    ),
    "functionary": Speaker(
        ">>>",
        lambda thought, before, name, arguments, after: f"all\n{before}>>>{name}\n{arguments}>>>all\n{after}",
        ">>>",
        thinks=False,
    ),
    "functionary-2.5": Speaker(
        "",
        lambda thought, before, name, arguments, after: (
            f"{before}<|reserved_special_token_249|>{name}\n{arguments}<|reserved_special_token_249|>all\n{after}"
        ),
        "<|reserved",
        thinks=False,
    ),
    "functionary-3.1": Speaker(
        "",
        lambda thought, before, name, arguments, after: f"{before}<function={name}>{arguments}</function>{after}",
        "<function </function",
        thinks=False,
    ),
    "gigachat": Speaker(
        "",
        lambda thought, before, name, arguments, after: (
            f'{before}<|message_sep|>\n\nfunction call<|role_sep|>\n{{"name": "{name}", "arguments": {arguments}}}'
            f"<|message_sep|>\n\nassistant<|role_sep|>\n{after}<|message_sep|>\n\n"
        ),
        "<|message_sep|> <|role_sep|> function",
        thinks=False,
    ),
    "gigachat-3.1": Speaker(
        "",
        lambda thought, before, name, arguments, after: (
            f'{before}<|function_call|>{{"name": "{name}", "arguments": {arguments}}}<|message_sep|>\n\n'
            f"assistant<|role_sep|>\n{after}"
        ),
        "<|message_sep|> <|role_sep|> <|function_call|>",
        thinks=False,
    ),
}
ALL = pytest.mark.parametrize("name", SPEAKERS)


def whole(name: str, arguments: str = ARGUMENTS) -> str:
    return SPEAKERS[name].write("It is cold.", "I will look.", "get_weather", arguments, "It rains.")


@ALL
def test_thoughts_text_and_calls_are_told_apart(name: str) -> None:
    speaker = SPEAKERS[name]
    expected: Outline = [("says", "I will look."), ("calls", "get_weather", ARGUMENTS), ("says", "It rains.")]
    if speaker.thinks:
        expected.insert(0, ("thinks", "It is cold."))
    assert outlined(whole(name), dialect(name), opened=speaker.opened) == expected


@ALL
def test_a_call_is_replayed_by_the_characters_it_was_written_with(name: str) -> None:
    speaker = SPEAKERS[name]
    raw = speaker.opened + whole(name)
    (call,) = parse(raw, dialect=dialect(name), tools=TOOLS).calls
    assert isinstance(call, ToolCall)
    assert call.raw
    assert call.raw in raw
    assert "Oslo" in call.raw


TAGGED = {"muse", "kimi-k3"}
"""Families that write values as they are, and so cannot write what ends them."""


def assert_goes_through(name: str, arguments: str) -> None:
    found = outlined(whole(name, arguments), dialect(name), opened=SPEAKERS[name].opened)
    assert [part for part in found if part[0] in ("calls", "fails")] == [("calls", "get_weather", arguments)]


@settings(max_examples=examples(25), deadline=None)
@given(arguments())
@pytest.mark.parametrize("name", sorted(SPEAKERS.keys() - TAGGED))
def test_any_json_object_goes_through_as_arguments(name: str, text: str) -> None:
    assert_goes_through(name, text)


@pytest.mark.parametrize("name", sorted(SPEAKERS.keys() - TAGGED))
def test_arguments_are_the_models_own_characters_even_the_familys_markers(name: str) -> None:  # S3, S5, S6
    for text in hard_arguments(SPEAKERS[name].markers, " ", whole(name)):
        assert_goes_through(name, text)


@ALL
def test_an_output_that_breaks_off_leaks_nothing_and_makes_up_nothing(name: str) -> None:  # SCN-16, SCN-24, S9
    speaker, spoken = SPEAKERS[name], dialect(name)
    raw = whole(name)
    for length in range(len(raw)):
        parts = list(outline(events_of([raw[:length]], spoken, opened=speaker.opened, tools=TOOLS, truncated=True)))
        text = "".join(part[1] for part in parts if part[0] == "says")
        assert "I will look.It rains.".startswith(text.rstrip("<>"))
        assert "It is cold.".startswith("".join(part[1] for part in parts if part[0] == "thinks").removesuffix("<"))
        assert [part[2] for part in parts if part[0] == "calls"] in ([], [ARGUMENTS])


@settings(max_examples=examples(30), deadline=None)
@example("a")
@given(st.text(alphabet=st.characters(exclude_characters="<>"), min_size=1, max_size=40))
@ALL
def test_plain_text_without_any_markup_is_the_answer(name: str, text: str) -> None:
    opened = SPEAKERS[name].opened
    if "think" in opened.lower():
        opened = ""
    parts = list(outline(events_of([text], dialect(name), opened=opened, tools=TOOLS)))
    assert "".join(part[1] for part in parts).strip() == text.strip() or unlike_text(name, text)


def unlike_text(name: str, text: str) -> bool:
    """Whether a plain text happens to begin like a header of this family."""
    is_functionary = name in ("functionary", "functionary-2.5")
    if is_functionary and re.match(r"\s*[\w.-]+\s*\{", text):
        return True  # a name and an object: a call
    if name == "functionary" and "all".startswith(text.strip()):
        return True  # behind `>>>` it is a header that breaks off
    words = ("all",) if is_functionary else ()
    return text.strip().startswith(("assistant", "user", "system", "tool", "to=", *words))


CALL: Outline = [("calls", "get_weather", ARGUMENTS)]
HELLO: Outline = [("says", "Hello there.")]
ATEM = atem_call("get_weather", ARGUMENTS)
SWALLOWED = '">\n<atem:parameter name="city'
IN_JSON = f'{{"name": "get_weather", "arguments": {ARGUMENTS}}}'
SOLAR = f"<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>{ARGUMENTS}"


@pytest.mark.grid(0.2, family="name")
@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("muse", "Hello there.", HELLO),
        ("muse", "<|message|>Hello there.<|eot|>", HELLO),
        ("muse", " to=user<|message|>Hello there.", HELLO),
        ("muse", f" to=user<|message|>Like so:\n{ATEM}", [("says", f"Like so:\n{ATEM}")]),
        ("muse", f" to=get_weather<|message|>{ATEM}<|eot|>", CALL),
        ("muse", f" to=get_weather<|message|>\n{ATEM}", CALL),
        ("muse", f" to=get_weather<|message|>{ATEM.removesuffix('</atem:function_calls>')}<|eom|>", CALL),
        ("muse", f" to=get_weather<|message|>{ATEM.removeprefix('<atem:function_calls>')}", CALL),
        ("muse", f" to=get_weather<|message|>{IN_JSON}<|eom|>", CALL),
        ("muse", f" to=self<|message|>Hm. to=get_weather<|message|>{ATEM}", [("thinks", "Hm."), *CALL]),
        ("muse", " to=self<|message|>Hm. to=user<|message|>Hello there.", [("thinks", "Hm."), *HELLO]),
        ("muse", " to=self<|message|>Hm.<|eom|> to=user<|message|>Hello there.", [("thinks", "Hm."), *HELLO]),
        (
            "muse",
            " to=self<|message|>Hm.<|start|>assistant to=user<|message|>Hello there.",
            [("thinks", "Hm."), *HELLO],
        ),
        ("muse", " to=self<|message|>Hm.<|eom|>assistant to=user<|message|>Hello there.", [("thinks", "Hm."), *HELLO]),
        ("muse", " to=user<|message|>Mail it to=me, or to=you.", [("says", "Mail it to=me, or to=you.")]),
        ("muse", " to=user<|message|>Hello there.<|eot|><|start|>user<|message|>And?", HELLO),
        ("muse", f" to=get_weather<|message|>{ATEM[:70]}", [("fails", "get_weather")]),
        ("muse", f" to=get_weather<|message|>{ARGUMENTS}<|eom|>", CALL),
        ("muse", f" to=get_weather<|message|>{ATEM.replace('get_weather', 'get_weather<|message|>')}", CALL),
        ("muse", f" to=get_weather<|message|>{ATEM.replace('get_weather', 'weather', 1)}", CALL),
        ("muse", f" to=get_weather<|message|>{ATEM.replace(SWALLOWED, '.city')}", CALL),
        ("muse", " to=now<|message|><|eom|>", [("calls", "now", "{}")]),
        ("muse", " to=get_weather<|message|><|eom|>", [("fails", "get_weather")]),
        ("muse", " to=get_weather<|message|>I look.<|eom|>", [("fails", "get_weather")]),
        (
            "muse",
            f" to=get_weather<|message|>{ATEM.replace('Oslo', '<|eom|> <|start|>user')}",
            [("calls", "get_weather", '{"city": "<|eom|> <|start|>user"}')],
        ),
        ("muse", f"Hello there.\n\n to=get_weather<|message|>{ATEM}", [*HELLO, *CALL]),
        ("harmony", f"\n\n to=functions.get_weather<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>", CALL),
        (
            "harmony",
            f"Hello there.\n\n to=functions.get_weather<|channel|>commentary json<|message|>{ARGUMENTS}",
            [*HELLO, *CALL],
        ),
        ("harmony", f"Hello there. to=functions.get_weather code<|message|>{ARGUMENTS}", [*HELLO, *CALL]),
        ("harmony", f"Hello there.<|channel|>commentary to=get_weather<|message|>{ARGUMENTS}", [*HELLO, *CALL]),
        ("harmony", "Set to=x or goto=y, then to=z.", [("says", "Set to=x or goto=y, then to=z.")]),
        ("functionary", f"Hello there.\n\nget_weather\n{ARGUMENTS}", [*HELLO, *CALL]),
        ("functionary", f"all\nHello there.\nget_weather\n{ARGUMENTS}", [*HELLO, *CALL]),
        ("functionary", "all\nUse\nget_weather\nthere.", [("says", "Use\nget_weather\nthere.")]),
        ("functionary", f"all\nUse get_weather\n{ARGUMENTS}", [("says", f"Use get_weather\n{ARGUMENTS}")]),
        ("solar", "Hello there.", HELLO),
        ("solar", f"<|tool_calls|>{SOLAR}<|tool_call:end|><|calls|>", CALL),
        ("solar", f"{SOLAR}<|tool_call:end|>", CALL),
        ("solar", f"<|tool_calls|>{SOLAR}", CALL),
        ("solar", f"<|tool_calls|><|tool_calls|>{SOLAR}<|calls|>", CALL),
        ("solar", f"<|tool_calls|>{SOLAR}<|tool_call:end|>{SOLAR}<|tool_call:end|><|calls|>", CALL * 2),
        ("solar", f"<|tool_calls|>{SOLAR.replace('a1b2c3d4e5', '')}", CALL),
        ("solar", f"<|tool_calls|>get_weather<|tool_call:args|>{ARGUMENTS}<|tool_call:end|>", CALL),
        ("solar", f"<|tool_calls|>{SOLAR.replace('<|tool_call:args|>', '')}<|tool_call:end|>", CALL),
        ("solar", f"<|tool_calls|>\n{IN_JSON}\n<|calls|>", CALL),
        ("solar", f"<|think|>Hm.{SOLAR}", [("thinks", "Hm."), *CALL]),
        ("solar", "<|think|>Hm.<|begin|>assistant<|content|>Hello there.", [("thinks", "Hm."), *HELLO]),
        ("solar", "<|think|>Hm.<|content|>Hello there.", [("thinks", "Hm."), *HELLO]),
        ("solar", f"<|tool_calls|>{SOLAR}<|tool_call:end|><|calls|>Hello there.", [*CALL, *HELLO]),
        ("solar", "A <|tool_calls|> b <|tool_call:begin|> c", [("says", "A <|tool_calls|> b <|tool_call:begin|> c")]),
        ("functionary", "all\nHello there.", HELLO),
        ("functionary", "Hello there.", HELLO),
        ("functionary", "Hello\nthere.", [("says", "Hello\nthere.")]),
        ("functionary", f"get_weather\n{ARGUMENTS}", CALL),
        ("functionary", f"get_weather{ARGUMENTS}", CALL),
        ("functionary", f"get_weather \n\n{ARGUMENTS}<|eot_id|>", CALL),
        ("functionary", f"get_weather\n{ARGUMENTS}>>>get_weather\n{ARGUMENTS}", CALL * 2),
        ("functionary", f"get_weather\n{ARGUMENTS}\n>>>all\nHello there.", [*CALL, *HELLO]),
        ("functionary", "ls\n{}", [("calls", "ls", "{}")]),
        ("functionary", "get_weather\nOslo", [("fails", "get_weather")]),
        (
            "functionary",
            "all\na>>>b\nc >>> d\n>>> print(1)\n>>>>>>> e",
            [("says", "a>>>b\nc >>> d\n>>> print(1)\n>>>>>>> e")],
        ),
        ("functionary", 'python\nprint("{")\n', [("calls", "python", '{"code": "print(\\"{\\")"}')]),
        ("functionary-3.1", f"<function=get_weather>{ARGUMENTS}", CALL),
        ("functionary-3.1", f"<function=get_weather>\n{ARGUMENTS}\n</function>\n", CALL),
        ("functionary-3.1", f'<function="get_weather">{ARGUMENTS}</function>', CALL),
        ("functionary-3.1", "<function=get_weather><parameter=city>Oslo</parameter></function>", CALL),
        ("functionary-3.1", "<function=now></function>", [("calls", "now", "{}")]),
        ("functionary-3.1", "<function=get_weather></function>", [("fails", "get_weather")]),
        (
            "functionary-3.1",
            "Write <function=name> and <function=>.",
            [("says", "Write <function=name> and <function=>.")],
        ),
        ("functionary-3.1", "<|python_tag|>print(1)<|eom_id|>", [("calls", "python", '{"code": "print(1)"}')]),
        ("functionary-3.1", '<|python_tag|>"print(1)"', [("calls", "python", '{"code": "print(1)"}')]),
        ("functionary-3.1", f"<|python_tag|>{IN_JSON}", CALL),
        ("gigachat", "Hello there.<|message_sep|>\n\n", HELLO),
        ("gigachat", f"<|message_sep|>\n\nfunction call<|role_sep|>\n{IN_JSON}<|message_sep|>\n\n", CALL),
        ("gigachat", f"<|message_sep|>function call<|role_sep|>{IN_JSON}", CALL),
        ("gigachat", f"function call<|role_sep|>\n{IN_JSON}", CALL),
        ("gigachat", f"<|function_call|>{IN_JSON}", CALL),
        ("gigachat", f"Hello there.<|message_sep|>\n\nfunction call<|role_sep|>\n{IN_JSON}", [*HELLO, *CALL]),
        ("gigachat", "Hello there.<|message_sep|>\n\nuser<|role_sep|>\nAnd you?", HELLO),
        ("gigachat", "<|message_sep|>\n\nfunction call<|role_sep|>\nnow()", [("fails", "")]),
        ("gigachat", "Hello there.<|message_sep|>\n\nfunction ca", HELLO),
        ("gigachat-3.1", f"<|function_call|>\n{IN_JSON}<|message_sep|>\n\n", CALL),
        ("gigachat-3.1", f"<|function_call|>```json\n{IN_JSON}\n```", CALL),
        ("gigachat-3.1", f"<|function_call|>{IN_JSON}<|function_call|>{IN_JSON}", CALL * 2),
        ("gigachat-3.1", "Use <|function_call|> for it.", [("says", "Use <|function_call|> for it.")]),
        ("gigachat-3.1", "<|function_call|>now()", [("fails", "")]),
    ],
)
def test_models_write_it_in_many_ways(name: str, raw: str, expected: Outline) -> None:
    assert outlined(raw, dialect(name), opened=SPEAKERS[name].opened) == expected


def test_solars_ids_are_its_own_and_travel_with_the_call() -> None:
    (call,) = parse(f"<|tool_calls|>{SOLAR}<|tool_call:end|><|calls|>", dialect="solar").calls
    assert (call.id, call.name) == ("a1b2c3d4e5", "get_weather")


def test_what_is_found_in_a_message_to_python_depends_on_the_tool() -> None:
    tool = ToolSpec("python", "", {"type": "object", "properties": {"source": {"type": "string"}}})
    raw = "<|python_tag|>print(1)"
    assert outlined(raw, dialect("functionary-3.1"), tools=(tool,)) == [("calls", "python", '{"source": "print(1)"}')]


def spelled(part: Part) -> str:
    """What a sampler could make of a piece of a call of the weather tool."""
    match part:
        case str():
            return part
        case Json():
            return ARGUMENTS
        case Until(marker):
            return f"Oslo{marker}"
        case Pattern(regex):
            samples = ("1", "a1b2c3d4e5", " to=get_weather<|message|>")
            return next(sample for sample in samples if re.fullmatch(regex, sample))
        case _:
            return ""


@ALL
def test_a_call_as_the_grammar_would_have_it_written_is_read(name: str) -> None:
    markup = dialect(name).markup
    for block in markup.spelled or markup.blocks:
        if block.spelling and block.opener != "<atem:function_calls>":  # that one needs the header before it
            parts = (block.spelling.before, *block.spelling.call(WEATHER), block.spelling.after, *block.closers[:1])
            raw = block.opener + "".join(map(spelled, parts))
            assert outlined(raw, dialect(name)) == CALL


@pytest.mark.parametrize(
    ("pattern", "headers"),
    [
        (
            HARMONY_ROLE,
            [
                "assistant",
                "assistant to=functions.look",
                "assistant to=functions.look json",
                "assistantfinal",
                "assistantassistant",
                " assistant commentary to=python code",
                "user",
                "functions.look to=assistant",
                "final",
            ],
        ),
        (MUSE_ROLE, ["assistant to=self", "assistant", " to=user", "tool look", "assistant to=a.b "]),
    ],
)
def test_a_header_may_come_in_one_character_at_a_time(pattern: Any, headers: list[str]) -> None:
    for header in headers:
        good = [length for length in range(len(header) + 1) if pattern.fullmatch(header[:length])]
        assert good == list(range(len(good))), header
    assert pattern.fullmatch("assistantHello") is None


def test_the_beginnings_of_words_are_all_but_the_empty_one() -> None:
    assert prefixes("ab", "c").split("|") == ["ab", "a", "c"]
