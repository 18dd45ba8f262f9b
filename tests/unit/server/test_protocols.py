"""What a client sees of a model that writes one protocol or another: scenarios 12 to 15, over a real connection.

The model is a fake that says a script, one byte a token; all of the rest is real. The scripts are our own.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from tests.fake_engine import FakeRuntime, FakeVocabulary, say
from tests.own_server import Listening
from tests.scripted_service import ScriptedService

from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.core import Message, Reasoning, ReasoningLevel, Text, ToolCall, ToolSpec
from shepherd.dialects import Template, detect, parse
from shepherd.engine.engine import InProcessEngine

TURNS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}{% if tools %}{# SIGNS #}{% endif %}"
)
"""Plain turns; the marks by which a family is known stand in a comment."""
OPENS_THOUGHT = TURNS.replace("assistant\n'", "assistant\n<think>\n'")
SWITCHES_THOUGHT = TURNS.replace(
    "assistant\n' }}",
    "assistant\n' }}{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}",
).replace("SIGNS", "<think> </think>")

WEATHER = ToolSpec(
    "get_weather",
    "Tells it",
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
)
TOOLS = [{"type": "function", "function": {"name": WEATHER.name, "parameters": WEATHER.parameters}}]
ARGUMENTS = {"city": 'Łódź "</tool_call>" {`x`}', "days": 9007199254740993}
OBJECT = json.dumps(ARGUMENTS, ensure_ascii=False)


@dataclass(frozen=True)
class Said:
    """An answer in one protocol, and its content."""

    signs: str
    raw: str
    arguments: dict[str, Any] = field(default_factory=lambda: ARGUMENTS)
    text: str = ""
    reasoning: str = ""


CITY = ARGUMENTS["city"]
SEEDS_PROTOCOLS = {
    "json": Said("no protocol of its own", f'{{"name": "get_weather", "parameters": {OBJECT}}}'),
    "json in xml": Said("<tool_call>", f'Let me see.\n<tool_call>{{"name": "get_weather", "arguments": {OBJECT}}}'
        "</tool_call>", text="Let me see."),
    "qwen xml": Said("<tool_call>\n<function=example>\n<parameter=x>", "<tool_call>\n<function=get_weather>\n"
        f"<parameter=city>\n{CITY}\n</parameter>\n<parameter=days>\n{ARGUMENTS['days']}\n</parameter>\n</function>\n"
        "</tool_call>"),
    "simple xml": Said("no protocol of its own", 'I look.\n<get_weather city="Łódź" days="3"/>',
        {"city": "Łódź", "days": 3}, text="I look."),
    "harmony": Said("<|start|> <|channel|> <|message|> <|call|>", "<|channel|>analysis<|message|>Where?<|end|><|start|>"
        "assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.get_weather <|constrain|>json<|message|>{OBJECT}<|call|>", text="I look.", reasoning="Where?"),
    "minimax": Said('<minimax:tool_call> <invoke name="', '<minimax:tool_call>\n<invoke name="get_weather">\n'
        f'<parameter name="city">{CITY}</parameter>\n<parameter name="days">{ARGUMENTS["days"]}</parameter>\n'
        "</invoke>\n</minimax:tool_call>"),
}  # fmt: skip
PLAIN = [
    "Use <b>bold</b> then continue...",
    "if a < b and c > d: pass",
    '{"x": 1}',
    'Like this:\n```json\n{"name": "get_weather", "parameters": {}}\n```\nDone.',
    '<img src="a.png" alt="x"/>\n<circle cx="1"/>',
    "The <tool_call> tag, the <think> tag and <|something|> in the middle of a sentence.",
]


def spoken_by(said: Said) -> Any:
    return detect(TURNS.replace("SIGNS", said.signs))


def opened_by(said: Said) -> str:
    return "<|start|>assistant" if "<|channel|>" in said.raw else ""


@asynccontextmanager
async def serving(
    listening: Listening, raw: str, template: str, *, thinking: ReasoningLevel | None = None
) -> AsyncIterator[tuple[httpx2.AsyncClient, FakeRuntime]]:
    """A server whose model writes `raw`, and its client."""
    vocabulary = FakeVocabulary()
    runtime = FakeRuntime(say(vocabulary, raw), frozenset({vocabulary.ids["<|im_end|>"]}))
    engine = InProcessEngine(runtime, show=vocabulary.piece)
    backend = LocalBackend(
        engine, vocabulary, template=Template(template), dialect=detect(template), model="fake",
        options=LocalOptions(thinking=thinking),
    )  # fmt: skip
    try:
        async with (
            listening(ScriptedService(backend.stream)) as url,
            httpx2.AsyncClient(base_url=url, timeout=60) as client,
        ):
            yield client, runtime
    finally:
        await asyncio.to_thread(engine.close)


async def asked(client: httpx2.AsyncClient, *, stream: bool, **fields: Any) -> tuple[dict[str, Any], str]:
    """The message that a client puts together, and why it ended."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": stream, "tools": TOOLS, **fields}
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    if not stream:
        choice = answer.json()["choices"][0]
        calls = [call["function"] for call in choice["message"].get("tool_calls") or ()]
        return {
            "text": choice["message"]["content"] or "",
            "reasoning": choice["message"].get("reasoning_content") or "",
            "calls": [(call["name"], call["arguments"]) for call in calls],
        }, choice["finish_reason"]
    told: dict[str, Any] = {"text": "", "reasoning": "", "calls": []}
    reason = ""
    for line in answer.text.splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            delta = choice["delta"]
            told["text"] += delta.get("content") or ""
            told["reasoning"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or ():
                if call["function"].get("name"):
                    told["calls"].append((call["function"]["name"], ""))
                name, arguments = told["calls"][call["index"]]
                told["calls"][call["index"]] = (name, arguments + (call["function"].get("arguments") or ""))
            reason = choice["finish_reason"] or reason
    return told, reason


# 12. Tool dialects and chunking


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", SEEDS_PROTOCOLS)
async def test_12_a_call_arrives_whole_in_every_protocol(listening: Listening, name: str, stream: bool) -> None:
    said = SEEDS_PROTOCOLS[name]
    template = TURNS.replace("SIGNS", said.signs)
    if opened_by(said):
        template = template.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<|start|>assistant")
    raw = opened_by(said) + said.raw
    async with serving(listening, raw if opened_by(said) else said.raw, template) as (client, _):
        told, reason = await asked(client, stream=stream)
    (called, arguments), *more = told["calls"]
    assert (called, json.loads(arguments), more) == ("get_weather", said.arguments, [])
    assert (told["text"].strip(), told["reasoning"]) == (said.text, said.reasoning)
    assert reason == "tool_calls"


@pytest.mark.parametrize("name", SEEDS_PROTOCOLS)
def test_12_a_message_is_the_same_for_500_random_cuttings(name: str) -> None:
    said = SEEDS_PROTOCOLS[name]
    dialect = spoken_by(said)

    def read(chunks: list[str]) -> list[object]:
        parser = dialect.parser(tools=[WEATHER], opened=opened_by(said), ids=lambda: "id")
        joined: dict[str, str] = {}
        ends: list[object] = []
        for event in (*(event for chunk in chunks for event in parser.feed(chunk)), *parser.close()):
            kind = type(event).__name__
            if kind in ("TextDelta", "ReasoningDelta"):
                joined[kind] = joined.get(kind, "") + event.text
            else:
                ends.append(event)
        return [joined, ends]

    random_ = random.Random(12)
    whole = read([said.raw])
    for _ in range(500):
        cuts = sorted(random_.sample(range(len(said.raw)), random_.randrange(1, 12)))
        assert read([said.raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(said.raw)], strict=True)]) == whole
    assert read(list(said.raw)) == whole


@pytest.mark.parametrize("text", PLAIN)
@pytest.mark.parametrize("signs", sorted({said.signs for said in SEEDS_PROTOCOLS.values()}))
@pytest.mark.grid(0.2)
async def test_12_plain_text_comes_out_unchanged_and_calls_nothing(listening: Listening, signs: str, text: str) -> None:
    async with serving(listening, text, TURNS.replace("SIGNS", signs)) as (client, _):
        told, reason = await asked(client, stream=True)
    assert (told, reason) == ({"text": text, "reasoning": "", "calls": []}, "stop")


# 13. Cut-off call


@pytest.mark.parametrize("name", SEEDS_PROTOCOLS)
def test_13_a_call_that_only_lacks_its_end_is_delivered(name: str) -> None:
    said = SEEDS_PROTOCOLS[name]
    if name in ("json", "simple xml"):
        return  # they have no end of their own
    for closer in ("</tool_call>", "<|call|>", "</minimax:tool_call>"):
        if said.raw.endswith(closer):
            message = parse(said.raw.removesuffix(closer), dialect=spoken_by(said), tools=[WEATHER])
            assert [json.loads(call.arguments) for call in message.calls] == [said.arguments]
            return
    raise AssertionError(said.raw)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", SEEDS_PROTOCOLS)
async def test_13_a_call_cut_in_a_string_is_no_call_no_text_and_a_length(
    listening: Listening, name: str, stream: bool
) -> None:
    said = SEEDS_PROTOCOLS[name]
    cut = said.raw.index("ód") + 3  # a byte of the name of the city is missing
    async with serving(listening, said.raw, TURNS.replace("SIGNS", said.signs)) as (client, _):
        told, reason = await asked(client, stream=stream, max_tokens=len(said.raw[:cut].encode()) - 1)
    assert reason == "length"
    assert told["text"].strip() == said.text
    assert all(arguments.strip() != "{}" for _, arguments in told["calls"])
    assert [name for name, arguments in told["calls"] if is_json(arguments)] == []


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# 14. Thinking on, off, hidden


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("template", [SWITCHES_THOUGHT, OPENS_THOUGHT])
async def test_14_thoughts_are_reasoning_even_where_the_prompt_opens_them(
    listening: Listening, template: str, stream: bool
) -> None:
    async with serving(listening, "<think>\nHm <b>.\n</think>\n\nYes.", template) as (client, _):
        told, reason = await asked(client, stream=stream)
    assert (told, reason) == ({"text": "Yes.", "reasoning": "Hm <b>.", "calls": []}, "stop")


@pytest.mark.parametrize(
    "how", [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}, {}]
)
@pytest.mark.parametrize("template", [SWITCHES_THOUGHT, OPENS_THOUGHT])
async def test_14_without_thinking_there_is_exactly_one_empty_thought_in_the_prompt(
    listening: Listening, template: str, how: dict[str, Any]
) -> None:
    off: ReasoningLevel | None = None if how else "off"  # asked for in the request, or set for the whole cache
    async with serving(listening, "<think>\n\n</think>\n\nYes.", template, thinking=off) as (client, runtime):
        told, _ = await asked(client, stream=True, **how)
    assert told == {"text": "Yes.", "reasoning": "", "calls": []}
    prompt = prompt_of(runtime)
    assert (prompt.count("<think>"), prompt.count("</think>")) == (1, 1)
    assert prompt.split("<think>")[1].split("</think>")[0].strip() == ""


async def test_14_a_model_that_knows_no_thoughts_gets_none(listening: Listening) -> None:
    async with serving(listening, "Yes.", TURNS, thinking="off") as (client, runtime):
        told, _ = await asked(client, stream=True)
    assert "think" not in prompt_of(runtime)
    assert told["text"] == "Yes."


def test_14_thoughts_are_split_or_kept_as_asked() -> None:
    for opened in ("<think>", "<|im_start|>assistant\n<think>\n"):
        split = parse("Hm.</think>Yes.", dialect="hermes", prefill=opened)
        assert split.parts == (Reasoning("Hm."), Text("Yes."))
        kept = parse("Hm.</think>Yes.", dialect="hermes", prefill=opened, reasoning="keep")
        assert kept.text.split() == ["<think>", "Hm.</think>Yes."] or kept.text == "<think>Hm.</think>Yes."


def prompt_of(runtime: FakeRuntime) -> str:
    """What the model had read before it said yes."""
    vocabulary = FakeVocabulary()
    tokens = runtime.tokens(runtime.batches[-1][-1].seq)
    return b"".join(map(vocabulary.piece, tokens)).decode().rpartition("Yes")[0]


# 15. Role tags never leak


@pytest.mark.parametrize(
    ("signs", "tag"),
    [
        ("<|system|> <|user|> <|assistant|>", "<|user|>\nAnd you?"),
        ("<|start_header_id|>", "<|start_header_id|>user<|end_header_id|>\n\nAnd you?"),
        ("<|im_start|>", "<|im_start|>user\nAnd you?"),
    ],
)
async def test_15_a_fake_user_turn_ends_the_answer(listening: Listening, signs: str, tag: str) -> None:
    vocabulary = FakeVocabulary()
    assert vocabulary.tokenize(tag)[0] < 256  # spelled in ordinary tokens, several of them
    async with serving(listening, f"Fine, thanks.{tag}", TURNS.replace("SIGNS", signs)) as (client, _):
        told, reason = await asked(client, stream=True)
    assert (told, reason) == ({"text": "Fine, thanks.", "reasoning": "", "calls": []}, "stop")


def test_15_an_end_token_that_a_template_prints_is_never_none() -> None:
    tiny_llama = "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m['content'] + eos_token }}{% endfor %}"
    talk = [Message.user("Hi"), Message.assistant("Hello")]
    for eos_text, end in (("</s>", "</s>"), ("", "")):
        text = "".join(piece.text for piece in Template(tiny_llama, eos_token=eos_text).render(talk))
        assert text == f"<|user|>\nHi{end}<|assistant|>\nHello{end}"


def test_calls_of_these_scripts_are_calls() -> None:
    """The table itself: with a script without events every test would pass."""
    for said in SEEDS_PROTOCOLS.values():
        message = parse(said.raw, dialect=spoken_by(said), tools=[WEATHER], prefill=opened_by(said))
        assert [type(part) for part in message.parts].count(ToolCall) == 1
