"""Cohere: actions, answers in tags, citations."""

from __future__ import annotations

import pytest
from tests.unit.dialects.outline import Outline, outlined

from shepherd.core import ToolCall
from shepherd.dialects import detect, parse
from shepherd.dialects.families.cohere import COHERE, COHERE_2

ITEM = '{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Oslo"}}'
CALL = f"<|START_ACTION|>[\n    {ITEM}\n]<|END_ACTION|>"
CALLED: Outline = [("calls", "get_weather", '{"city": "Oslo"}')]
THOUGHT = "<|START_THINKING|>Hm.<|END_THINKING|>"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (f"{THOUGHT}{CALL}", [("thinks", "Hm."), *CALLED]),
        (f"{THOUGHT}<|START_RESPONSE|>Yes.<|END_RESPONSE|>", [("thinks", "Hm."), ("says", "Yes.")]),
        (f"{THOUGHT}<|START_TEXT|>Yes.<|END_TEXT|>", [("thinks", "Hm."), ("says", "Yes.")]),
        (f"{THOUGHT}Yes.<|END_OF_TURN_TOKEN|>", [("thinks", "Hm."), ("says", "Yes.")]),
        ("Yes.", [("says", "Yes.")]),
        ("<|START_THINKING|>Hm.<|START_RESPONSE|>Yes.", [("thinks", "Hm."), ("says", "Yes.")]),
        (f"<|START_THINKING|>Hm.{CALL}", [("thinks", "Hm."), *CALLED]),
        (f"<|START_THINKING|>Hm.\n{CALL}", [("thinks", "Hm."), *CALLED]),
        (f"<|START_RESPONSE|>I look.<|END_RESPONSE|>{CALL}", [("says", "I look."), *CALLED]),
        (f"{CALL}Done.", [*CALLED, ("says", "Done.")]),
        (CALL.removesuffix("<|END_ACTION|>"), CALLED),
        (f"<|START_ACTION|>{ITEM}<|END_ACTION|>", CALLED),
        (f"<|START_ACTION|>\n```json\n[{ITEM}]\n```\n<|END_ACTION|>", CALLED),
        (f"<|START_ACTION|>[{ITEM}, {ITEM}]<|END_ACTION|>", CALLED * 2),
        (f"{CALL}{CALL}", CALLED * 2),
        ('<|START_ACTION|>[{"name": "get_weather", "arguments": {"city": "Oslo"}}]<|END_ACTION|>', CALLED),
        (
            "<|START_ACTION|>[{'tool_name': 'now', 'parameters': {'x': None}}]<|END_ACTION|>",
            [("calls", "now", '{"x": null}')],
        ),
        ('<|START_ACTION|>[{"tool_name": "now", "parameters": {}}]<|END_ACTION|>', [("calls", "now", "{}")]),
        ('<|START_ACTION|>[{"tool_name": "now", "parameters": [1]}]<|END_ACTION|>', [("fails", "now")]),
        ("<|START_ACTION|>now()<|END_ACTION|>", [("fails", "")]),
        (
            "Use <|START_ACTION|> and <|END_ACTION|> there.",
            [("says", "Use <|START_ACTION|> and <|END_ACTION|> there.")],
        ),
    ],
)
def test_models_write_it_in_many_ways(raw: str, expected: Outline) -> None:
    assert outlined(raw, COHERE) == expected


def test_the_models_own_ids_are_kept() -> None:
    (call,) = parse(CALL, dialect=COHERE).parts
    assert call == ToolCall("0", "get_weather", '{"city": "Oslo"}', CALL)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("It <co>rains</co: 0:[1,2],1:[0]> a lot.", "It rains a lot."),
        ("<co>It rains</co: 0:[1]>, and <co>snows</co: 1:[0]>.", "It rains, and snows."),
        ("It <co: 0>rains</co: 0> a lot.", "It rains a lot."),
        ("It <co: 0,1>rains</co: 0,1>", "It rains"),
        ("It <co>rains</co> a lot.", "It rains a lot."),
        ("**<co>Oslo</co: 0:[0]>**\n\n- <co>one</co: 0:[1]>\n- two", "**Oslo**\n\n- one\n- two"),
        ("<col> and <co2> and </cold> stay", "<col> and <co2> and </cold> stay"),
        ("code: <co:\nno>", "code: <co:\nno>"),
    ],
)
def test_of_a_citation_the_text_stays(text: str, seen: str) -> None:
    assert outlined(f"<|START_RESPONSE|>{text}", COHERE) == [("says", seen)]
    assert outlined(f"<|START_THINKING|>{text}<|END_THINKING|>", COHERE) == [("thinks", seen)]


def test_a_citation_that_breaks_off_shows_no_tag() -> None:
    assert outlined("It <co>rains</co: 0:[1", COHERE) == [("says", "It rains")]
    assert outlined("It <co", COHERE, truncated=True) == [("says", "It ")]


def test_an_open_thought_of_the_prompt_goes_on() -> None:
    assert outlined("Hm.<|END_THINKING|><|START_TEXT|>Yes.", COHERE_2, opened="<|START_THINKING|>") == [
        ("thinks", "Hm."),
        ("says", "Yes."),
    ]
    assert outlined(CALL, COHERE_2, opened="<|START_THINKING|>") == CALLED


def test_templates_differ_by_the_tags_around_an_answer() -> None:
    assert detect("<|START_ACTION|> <|START_RESPONSE|>").name == "cohere"
    assert detect("<|START_ACTION|> <|START_TEXT|>").name == "cohere-2"
    assert detect("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>").name == "plain"
