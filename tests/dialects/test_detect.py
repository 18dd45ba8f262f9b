"""Which dialect a template speaks, what it says about the model, and the one-call reading of an output."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dialects.conformance import ABSENT, templates

from shepherd.core import Message, Reasoning, Text
from shepherd.dialects import detect, get, names, parse
from shepherd.dialects.families import DIALECTS

HERMES_TEMPLATES = {
    "Bielik-11B-v3.0-Instruct",
    "MiMo-VL",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "Qwen-QwQ-32B",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Reka-Edge",
    "ibm-granite-granite-4.0",
    "ibm-granite-granite-4.1",
}


def test_every_dialect_is_known_by_its_name() -> None:
    assert names() == ("hermes", "plain")
    assert [get(name).name for name in names()] == list(names())
    with pytest.raises(KeyError):
        get("klingon")


@pytest.mark.skipif(not templates(), reason=ABSENT)
def test_exactly_the_right_real_templates_are_hermes_and_no_template_is_claimed_twice() -> None:  # T8
    spoken = {name for name, source in templates().items() if detect(source).name == "hermes"}
    assert spoken == {f"{name}.jinja" for name in HERMES_TEMPLATES}
    assert all(sum(dialect.signs(source) for dialect in DIALECTS) <= 1 for source in templates().values())


@pytest.mark.parametrize(
    ("template", "stops"),
    [
        ("{{ '<|im_start|>' + message.role }}<|im_end|>", ("<|im_start|>",)),
        ("<|system|>\n<|user|>\n<|assistant|>\n", ("<|system|>", "<|user|>", "<|assistant|>")),
        ("<|start_header_id|>user<|end_header_id|>", ("<|start_header_id|>",)),
        ("{{ message.content }}", ()),
    ],
)
def test_turn_headers_of_the_template_stop_the_answer(template: str, stops: tuple[str, ...]) -> None:  # TPL-15
    assert detect(template).stops == stops


def test_a_model_thinks_if_its_template_knows_of_thoughts() -> None:
    assert detect("<tool_call> ... content.split('</think>')").thinks
    assert not detect("<tool_call>").thinks


@pytest.mark.parametrize(
    "header",
    [
        "",
        "<|im_start|>assistant\n",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|start_of_role|>assistant<|end_of_role|>",
        "<start_of_turn>model\n",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        "<beginning_of_sentence>ai name=assistant\n",
        "<|im_assistant|>assistant<|im_middle|>",
        "<role>ASSISTANT</role>\n",
        "<SPECIAL_11>Assistant\n",
        "<｜Assistant｜>",
        "<｜start▁of▁sentence｜><|Bot|>",
        "assistant<|role_sep|>\n",
        "]~b]ai\n",
        "assistant: ",
    ],
)
def test_the_turn_header_before_a_prefill_is_no_text(header: str) -> None:
    parts = parse(" hm</think>Yes", dialect="hermes", prefill=header + "<think>So").parts
    assert parts == (Reasoning("So hm"), Text("Yes"))
    assert parse("world", dialect="hermes", prefill=header + "Hello, ").parts == (Text("Hello, world"),)


def test_a_prefill_that_begins_with_the_name_of_a_role_is_text() -> None:
    assert parse("rock", dialect="plain", prefill="Model railways ").text == "Model railways rock"


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=80), st.sampled_from(names()), st.text(max_size=10))
def test_reading_never_raises(raw: str, name: str, prefill: str) -> None:
    assert isinstance(parse(raw, dialect=name, prefill=prefill), Message)
    assert isinstance(parse("<tool_call>" + raw, dialect=name, prefill=prefill), Message)
    assert isinstance(parse("<tool_call>{" + raw + "}</tool_call>", dialect=name), Message)
