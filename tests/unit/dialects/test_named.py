"""Calls that name their tool before their arguments: Mistral, Kimi K2, DeepSeek R1 to V3.1."""

from __future__ import annotations

import pytest
from tests.unit.dialects.laws import TOOLS, Write, assert_alike, assert_linear, calls_of, text_of
from tests.unit.dialects.streams import dialect, events_of, message_of
from tests.unit.dialects.writers import (
    ARGUMENTS,
    BEGIN,
    END,
    NAMED,
    SECTION,
    SECTION_END,
    WIDE,
    WIDE_BEGIN,
    WIDE_CALL_END,
    WIDE_END,
    WIDE_SEP,
    deepseek_r1,
    deepseek_v31,
    kimi,
)

from shepherd.core import CallEnded, Reasoning, ToolCall
from shepherd.dialects import get, parse

SIX = '{"sides": 6}'


@pytest.mark.parametrize(("name", "write"), [(name, write) for name, (write, _) in NAMED.items()])
def test_what_the_calls_were_written_as_spells_the_whole_block(name: str, write: Write) -> None:
    raw = write([("roll", SIX), ("now", "{}")])
    assert "".join(call.raw or "" for call in message_of(raw, dialect(name)).calls) == raw


@pytest.mark.parametrize(
    ("raw", "calls"),
    [
        ('[TOOL_CALLS]roll{"sides": 6}', ["roll"]),
        ('[TOOL_CALLS] [{"name": "roll", "arguments": {"sides": 6}}]', ["roll"]),
        (
            '[TOOL_CALLS]{"name": "roll", "arguments": {"sides": 6}}\n{"name": "roll", "arguments": {"sides": 6}}',
            ["roll"] * 2,
        ),
        ("[TOOL_CALLS]\nroll\n[ARGS]\n" + SIX, ["roll"]),
        (f"[TOOL_CALLS]roll[ARGS]{SIX}roll[ARGS]{SIX}", ["roll"] * 2),
        (f"[TOOL_CALLS]roll[ARGS]{SIX}, roll[ARGS]{SIX}", ["roll"] * 2),
        (f"[TOOL_CALLS]roll[ARGS]{SIX}[TOOL_CALLS]roll{SIX}", ["roll"] * 2),
        (f"[TOOL_CALLS][TOOL_CALLS]roll[ARGS]{SIX}", ["roll"]),
        (f"[TOOL_CALLS]roll[CALL_ID]x[ARGS]{SIX}", ["roll"]),
        (f"[TOOL_CALLS]roll[CALL_ID][ARGS]{SIX}", ["roll"]),
        (f"roll[ARGS]{SIX}", ["roll"]),
        (f"roll[CALL_ID]abc[ARGS]{SIX}", ["roll"]),
        ("[TOOL_CALLS]roll[ARGS]{'sides': 6}", ["roll"]),
        ('[TOOL_CALLS]roll[ARGS]"{\\"sides\\": 6}"', ["roll"]),
        ('[TOOL_CALLS]roll[ARGS]{"sides": 6}}', ["roll"]),
        ("[TOOL_CALLS]roll(sides=6)", ["roll"]),
        (f"[TOOL_CALLS]roll ```json\n{SIX}\n```", ["roll"]),
        (f"[TOOL_CALLS]a.b-c/d[ARGS]{SIX}", ["a.b-c/d"]),
        ('{"name": "roll", "arguments": {"sides": 6}}', ["roll"]),
        ('[{"name": "roll", "arguments": {"sides": 6}}]', ["roll"]),
        ('<tool_call>{"name": "roll", "arguments": {"sides": 6}}</tool_call>', ["roll"]),
    ],
)
def test_mistral_is_read_however_it_is_written(raw: str, calls: list[str]) -> None:
    found = calls_of(raw, dialect("mistral"))
    assert [name for name, _ in found] == calls
    assert {text for _, text in found} <= {SIX, '{"sides": 6}'}
    assert text_of(raw, dialect("mistral")) == ""


@pytest.mark.parametrize(
    "raw",
    [
        f"{BEGIN}functions.roll:0{ARGUMENTS}{SIX}{END}",
        f"{BEGIN}functions.roll:0{ARGUMENTS}{SIX}",
        f"{SECTION}functions.roll:0{ARGUMENTS}{SIX}{SECTION_END}",
        f"{SECTION}\n{BEGIN}\nfunctions.roll:0\n{ARGUMENTS}\n{SIX}\n{END}\n{SECTION_END}\n",
        f"{SECTION}{BEGIN}functions.roll:0{ARGUMENTS}{SIX}{END}{SECTION_END}{SECTION_END}",
        f"{SECTION}{BEGIN}functions.roll:0{ARGUMENTS}{SIX}\n}}{END}{SECTION_END}",
        f"<|tool_call_section_begin|>{BEGIN}functions.roll:0{ARGUMENTS}{SIX}{END}<|tool_call_section_end|>",
        f"{SECTION}{SECTION}{BEGIN}functions.roll:0{ARGUMENTS}{SIX}{END}{SECTION_END}",
        f"{SECTION}{BEGIN}functions.roll:0{ARGUMENTS}```json\n{SIX}\n```{END}{SECTION_END}",
    ],
)
def test_kimi_is_read_with_markers_missing_doubled_or_blanks_between(raw: str) -> None:
    (call,) = parse(raw, dialect="kimi-k2", tools=TOOLS).parts
    assert isinstance(call, ToolCall)
    assert (call.id, call.name, call.arguments) == ("functions.roll:0", "roll", SIX)
    assert calls_of(raw, dialect("kimi-k2")) == [("roll", SIX)]


@pytest.mark.parametrize(
    ("head", "name"), [("roll:3", "roll"), ("roll", "roll"), ("functions.a.b-c:12", "a.b-c"), ("call_9fA", "call_9fA")]
)
def test_kimi_ids_are_kept_whatever_they_look_like(head: str, name: str) -> None:
    (call,) = parse(f"{BEGIN} {head} {ARGUMENTS} {SIX}", dialect="kimi-k2").parts
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == (name, SIX)
    assert call.id == head


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    "raw",
    [
        f"function{WIDE_SEP}roll\n```json\n{SIX}\n```",
        f"{WIDE_BEGIN}function{WIDE_SEP}roll\n```json\n{SIX}\n```{WIDE_CALL_END}",
        f"{WIDE}function{WIDE_SEP}roll\n```json\n{SIX}\n```\n{WIDE_END}",
        f"{WIDE}{WIDE_BEGIN}function{WIDE_SEP}roll\n{SIX}{WIDE_CALL_END}{WIDE_END}",
        f"{WIDE}{WIDE_BEGIN}function{WIDE_SEP}roll\n```json\n{SIX}{WIDE_CALL_END}{WIDE_END}",
        f"{WIDE}{WIDE_BEGIN}roll\n```json\n{SIX}\n```{WIDE_CALL_END}{WIDE_END}",
        f"roll{WIDE_SEP}{SIX}{WIDE_CALL_END}{WIDE_END}",
        f"<｜tool▁calls｜>{WIDE_BEGIN}roll{WIDE_SEP}{SIX}{WIDE_CALL_END}",
        f"{WIDE}{WIDE_BEGIN}{WIDE_BEGIN}roll{WIDE_SEP}{SIX}{WIDE_CALL_END}{WIDE_CALL_END}{WIDE_END}",
        f"{deepseek_v31([('roll', SIX)])}\n{WIDE_END}",
        *(
            deepseek_r1([("roll", SIX)]).replace("▁", joint).replace("｜", bar)
            for bar, joint in (("｜", "▁"), ("｜", "_"), ("｜", " "), ("｜", r"\_"), ("|", "▁"), ("|", "_"))
        ),
    ],
)
@pytest.mark.parametrize("name", ["deepseek-r1", "deepseek-v3.1"])
def test_deepseek_is_read_with_markers_missing_misspelt_or_doubled(name: str, raw: str) -> None:
    assert calls_of(raw, dialect(name)) == [("roll", SIX)]
    assert text_of(raw, dialect(name)).strip() == ""


@pytest.mark.parametrize("name", ["deepseek-r1", "deepseek-v3.1"])
def test_deepseek_must_not_write_the_output_of_a_tool(name: str) -> None:
    begin, end = "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>", "<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
    assert {"<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>"} <= set(get(name).stops)
    raw = f"{deepseek_v31([('roll', SIX)])}{begin}4{end}You rolled a 4."
    assert calls_of(raw, dialect(name)) == [("roll", SIX)]
    assert text_of(raw, dialect(name)) == "You rolled a 4."
    assert calls_of(f"{begin}4", dialect(name)) == [("", "bad")]
    assert text_of(f"The marker {begin[:24]} is one.", dialect(name)) == f"The marker {begin[:24]} is one."


def test_a_forgotten_end_of_a_thought_does_not_hide_a_call() -> None:
    for name, raw in (
        ("mistral", f"[THINK]hm [TOOL_CALLS]roll[ARGS]{SIX}"),
        ("kimi-k2", f"<think>hm{kimi([('roll', SIX)])}"),
        ("deepseek-v3.1", f"<think>hm\n{deepseek_v31([('roll', SIX)])}"),
    ):
        parts = parse(raw, dialect=name).parts
        assert [type(part) for part in parts] == [Reasoning, ToolCall]
        assert parts[0] == Reasoning("hm")


@pytest.mark.parametrize(
    "thought",
    [
        "x [TOOL_CALLS] y",
        f"I may write [TOOL_CALLS]roll[ARGS]{SIX} and more",
        f"I may write\n[TOOL_CALLS]roll[ARGS]{SIX}\nand more",
        f"I may write [TOOL_CALLS]roll[ARGS]{SIX}",
        "The marker [TOOL_CALLS]roll is next",
        f"Both [TOOL_CALLS]roll[ARGS]{SIX} and [TOOL_CALLS]roll[ARGS]{SIX}, then.",
    ],
)
def test_a_thought_that_speaks_of_a_marker_goes_on(thought: str) -> None:
    mistral = dialect("mistral")
    cases: list[tuple[str, str, list[str]]] = [("z", "z", []), (f"[TOOL_CALLS]roll[ARGS]{SIX}", "", [SIX])]
    for behind, words, calls in cases:
        text = f"[THINK]{thought}[/THINK]{behind}"
        message = parse(text, dialect="mistral")
        assert message.parts[0] == Reasoning(thought)
        assert (message.text, [call.arguments for call in message.calls]) == (words, calls)
        assert_alike(text, mistral, range(1, len(text)))


def test_a_brace_that_is_missing_before_the_end_is_put_there() -> None:
    raw = f'{SECTION}{BEGIN}functions.roll:0{ARGUMENTS}{{"sides": 6{END}{SECTION_END}Done.'
    assert calls_of(raw, dialect("kimi-k2")) == [("roll", SIX)]
    assert text_of(raw, dialect("kimi-k2")) == "Done."
    raw = '[TOOL_CALLS]roll[ARGS]{"sides": 6[TOOL_CALLS]roll[ARGS]{"sides": 6}'
    assert calls_of(raw, dialect("mistral")) == [("roll", SIX), ("roll", SIX)]


def test_a_tool_without_parameters_needs_no_arguments() -> None:
    for raw in (f"{BEGIN}functions.now:0{END}", f"{BEGIN}functions.now:0{ARGUMENTS}null{END}"):
        assert calls_of(raw, dialect("kimi-k2")) == [("now", "{}")]


@pytest.mark.parametrize("name", ["mistral", "mistral-list", "deepseek-r1"])
def test_the_cost_is_linear_in_the_length_of_a_call(name: str) -> None:  # S18
    write = NAMED[name][0]

    assert_linear(lambda text: write([("roll", f'{{"note": "{text}"}}')]), dialect(name), TOOLS)


def test_endless_blanks_within_a_call_cost_no_more_than_others() -> None:
    parser = dialect("mistral").parser()
    for chunk in ("[TOOL_CALLS]", *["\n"] * 5000, "roll[ARGS]", *["\n"] * 5000, SIX, *["\n"] * 5000):
        parser.feed(chunk)
    (end,) = [event for event in parser.close() if isinstance(event, CallEnded)]
    assert end.call.name == "roll"


def test_events_of_a_call_come_as_soon_as_something_else_does() -> None:
    parser = dialect("mistral").parser()
    assert parser.feed(f"[TOOL_CALLS]roll[ARGS]{SIX}") == []
    assert len(parser.feed("[TOOL_CALLS]")) == 3
    assert events_of(["[TOOL_CALLS"], dialect("mistral"), truncated=True) == []
