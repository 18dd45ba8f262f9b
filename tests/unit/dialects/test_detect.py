"""Which dialect a template speaks, what it says about the model, and the one-call reading of an output."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.conformance import ABSENT, shared_templates
from tests.unit.dialects.writers import SECTION, WIDE

from shepherd.core import Message, Reasoning, Text
from shepherd.dialects import detect, get, names, parse
from shepherd.dialects.families import DIALECTS

SPOKEN = {
    "apertus": "Apertus-8B-Instruct",
    "apriel": "Apriel-1.6-15b-Thinker-fixed unsloth-Apriel-1.5",
    "cohere": "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "cohere-2": "Cohere2MoE",
    "command-r": "CohereForAI-c4ai-command-r-plus-tool_use",
    "deepseek-r1": (
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B deepseek-ai-DeepSeek-R1-Distill-Qwen-32B llama-cpp-deepseek-r1"
    ),
    "deepseek-v3.1": "deepseek-ai-DeepSeek-V3.1",
    "deepseek-v3.2": "deepseek-ai-DeepSeek-V3.2",
    "deepseek-v4": "deepseek-ai-DeepSeek-V4-Flash-0731 deepseek-ai-DeepSeek-V4",
    "functionary": "meetkai-functionary-medium-v3.2",
    "functionary-3.1": "meetkai-functionary-medium-v3.1",
    "gemma": "google-gemma-2-2b-it",
    "gemma4": "google-gemma-4-31B-it-interleaved google-gemma-4-31B-it",
    "gigachat": "GigaChat3-10B-A1.8B",
    "gigachat-3.1": "GigaChat3.1-10B-A1.8B",
    "glm": (
        "GLM-4.6 GLM-4.7-Flash Spark2.5 inclusionai-ling-3.0-flash poolside-Laguna-S-2.1 "
        "poolside-Laguna-XS-2.1 poolside-Laguna-XS.2"
    ),
    "granite-3": "ibm-granite-granite-3.3-2B-Instruct",
    "harmony": "openai-gpt-oss-120b",
    "hermes": (
        "Bielik-11B-v3.0-Instruct MiMo-VL NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use "
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use Qwen-QwQ-32B Qwen-Qwen2.5-7B-Instruct "
        "Qwen-Qwen3-0.6B Reka-Edge ibm-granite-granite-4.0 ibm-granite-granite-4.1"
    ),
    "hunyuan": "tencent-Hy3",
    "kimi-k2": "Kimi-K2-Instruct Kimi-K2-Thinking moonshotai-Kimi-K2",
    "kimi-k3": "Kimi-K3",
    "lfm": "LFM2-8B-A1B LFM2.5-8B-A1B LFM2.5-Instruct",
    "llama-3": ("meta-llama-Llama-3.1-8B-Instruct meta-llama-Llama-3.2-3B-Instruct meta-llama-Llama-3.3-70B-Instruct"),
    "minicpm": "openbmb-MiniCPM5-1B",
    "minimax-m1": "MiniMax-M1",
    "minimax-m2": "MiniMax-M2",
    "minimax-m3": "MiniMax-M3",
    "mistral": "mistralai-Ministral-3-14B-Reasoning-2512 unsloth-mistral-Devstral-Small-2507",
    "mistral-id": "Mistral-Small-3.2-24B-Instruct-2506",
    "mistral-list": "mistralai-Mistral-Nemo-Instruct-2407",
    "muse": "muse-glimmer",
    "nemotron-v2": "NVIDIA-Nemotron-Nano-v2",
    "plain": (
        "HuggingFaceTB-SmolLM3-3B fireworks-ai-llama-3-firefunction-v2 llama-cpp-rwkv-world "
        "microsoft-Phi-3.5-mini-instruct"
    ),
    "qwen-xml": "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 Qwen3-Coder Qwen3.5-4B StepFun3.5-Flash",
    "seed": "ByteDance-Seed-OSS",
    "solar": "upstage-Solar-Open-100B",
}
"""The real templates that each dialect claims."""


def test_every_dialect_is_known_by_its_name() -> None:
    assert {"hermes", "plain"} < set(names())
    assert [get(name).name for name in names()] == sorted(names())
    assert len(set(names())) == len(names())
    with pytest.raises(KeyError):
        get("klingon")


@pytest.mark.skipif(not shared_templates(), reason=ABSENT)
def test_every_real_template_is_spoken_as_it_should_be_and_claimed_at_most_once() -> None:  # T8
    spoken: dict[str, list[str]] = {}
    for name, source in shared_templates().items():
        spoken.setdefault(detect(source).name, []).append(name.removesuffix(".jinja"))
        assert sum(dialect.signs(source) for dialect in DIALECTS) <= 1, name
    assert {name: " ".join(found) for name, found in sorted(spoken.items())} == SPOKEN


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


@settings(max_examples=examples(150), deadline=None)
@given(st.text(max_size=80), st.sampled_from(names()), st.text(max_size=10))
def test_reading_never_raises(raw: str, name: str, prefill: str) -> None:
    assert isinstance(parse(raw, dialect=name, prefill=prefill), Message)
    assert isinstance(parse("<tool_call>" + raw, dialect=name, prefill=prefill), Message)
    assert isinstance(parse("<tool_call>{" + raw + "}</tool_call>", dialect=name), Message)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("[AVAILABLE_TOOLS] [TOOL_CALLS][", "mistral-list"),
        ("[TOOL_CALLS] [", "mistral-spaced-list"),
        ("[TOOL_CALLS] + name + [ARGS]", "mistral"),
        ("[TOOL_CALLS] name [CALL_ID] id [ARGS]", "mistral-id"),
        (SECTION, "kimi-k2"),
        (f"{WIDE} ```json", "deepseek-r1"),
        (WIDE, "deepseek-v3.1"),
        ("<|tools_prefix|>", "apertus"),
        ("<tool_calls>[ ... [BEGIN FINAL RESPONSE]", "apriel"),
        ("<tool_calls>[", "hunyuan-a13b"),
        ('<tool_calls>\\n{"name":', "minimax-m1"),
        ("<AVAILABLE_TOOLS> <TOOLCALL>[", "nemotron-v2"),
        ("respond with <|tool_call|> followed by a list", "granite-3"),
        ("<|tool|> <|/tool|>", "phi-4"),
        ("<|tool|> <|/tool|> <|tool_call|>{}<|/tool_call|>", "phi-4"),
        ("<|action_start|><|plugin|>", "internlm"),
        ("output <function_call> {", "granite-20b"),
        ("<function_calls>\\nget(a=1)\\n</function_calls>", "olmo-3"),
        ("Action:\\n```json\\n[", "command-r"),
        ("<tool_call>\n<function={{ n }}>\n<parameter={{ k }}>\n", "qwen-xml"),
        ("<seed:tool_call>\n<function={{ n }}>\n<parameter={{ k }}>", "seed"),
        ('<minimax:tool_call>\n<invoke name="{{ n }}">', "minimax-m2"),
        ("{% set ns = ']<]minimax[>[' %}<tool_call>", "minimax-m3"),
        ("{% set d = '｜DSML｜' %}<{{ d }}function_calls>", "deepseek-v3.2"),
        ("{% set d = '｜DSML｜' %}<{{ d }}tool_calls>", "deepseek-v4"),
        ('<function name="{{ n }}"><param name="{{ k }}">', "minicpm"),
    ],
)
def test_the_template_shows_which_form_is_spoken(template: str, name: str) -> None:
    assert detect(template).name == name
