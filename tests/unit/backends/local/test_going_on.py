"""Every request of a conversation begins with the prompt of the one before, whatever is said and with every template.

Random conversations, in the shapes that clients send: system messages in the middle, calls and results, thoughts kept
or dropped, images. What a template writes behind the last message only may change: its generation prompt.
"""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.cases import amount
from tests.conftest import LAMB
from tests.fake_engine import FakeVocabulary
from tests.unit.dialects.conformance import ABSENT, grid, shared_templates, templates
from tests.unit.dialects.test_render import model

from shepherd.backends.local.compile import Compiler
from shepherd.backends.local.kept_prefix import KeptPrefix
from shepherd.core import (
    EngineError,
    Image,
    InvalidRequest,
    Message,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from shepherd.dialects import Prompt, TagDialect, Template, detect, render
from shepherd.dialects.render.frame import n_same
from shepherd.models import gguf

TAIL_CHARS = 90
"""The longest generation prompt, and the end of a turn that goes on."""
MOVING = {
    "Mistral-Small-3.2-24B-Instruct-2506.jinja": "writes the tools before the newest question",
    "mistralai-Mistral-Nemo-Instruct-2407.jinja": "writes the tools and the system prompt before the newest question",
    "CohereForAI-c4ai-command-r-plus-tool_use.jinja": "writes an instruction behind the newest message",
}
"""Templates that move something with every turn, and would say it twice if the older place stayed."""
TOOLS = (
    ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("list", "Lists files.", {"type": "object", "properties": {"all": {"type": "boolean"}}}),
)


@cache
def lamb() -> tuple[Template, TagDialect]:
    source = gguf.read_header(LAMB).chat_template or ""
    return Template(source), detect(source)


WORDS = st.sampled_from(["one", "Two words.", "three\n\nlines ", " <b>four</b>", "{five}", "6", "sieben: é🐑"])
THOUGHTS = st.sampled_from([(), (Reasoning("Hm."),), (Reasoning("First this,\nthen that."),)])
CALLS = st.sampled_from([("read", '{"path": "a.txt"}'), ("list", '{"all": true}'), ("list", "{}")])
IMAGES = st.sampled_from([(), (), (), (Image("image/png", b"x" * 2000),)])
NOTES = st.lists(st.sampled_from(["Be brief.", "<total_tokens>7 tokens left</total_tokens>"]), max_size=1)


@st.composite
def conversation(draw: st.DrawFn) -> tuple[Message, ...]:
    """What was said, in whole turns; ids of calls are numbered."""
    made = [Message.system(text) for text in draw(st.lists(WORDS, max_size=2))]
    n_calls = 0
    for _ in range(draw(st.integers(1, 3))):
        made.append(Message("user", (Text(draw(WORDS)), *draw(IMAGES))))
        made += map(Message.system, draw(NOTES))
        for calls in draw(st.lists(st.lists(CALLS, min_size=1, max_size=2), max_size=2)):
            asked = [ToolCall(f"callid{n_calls + n:03}", *call) for n, call in enumerate(calls)]
            n_calls += len(calls)
            made.append(Message("assistant", (*draw(THOUGHTS), *asked)))
            results = [ToolResult(call.id, (Text(draw(WORDS)), *draw(IMAGES)), call.name) for call in asked]
            as_anthropic = draw(st.booleans())
            made += (
                [Message("user", tuple(results))] if as_anthropic else [Message("tool", (each,)) for each in results]
            )
            made += map(Message.system, draw(NOTES))
        made.append(Message("assistant", (*draw(THOUGHTS), Text(draw(WORDS)))))
        made += map(Message.system, draw(NOTES))
    return (*made, Message.user("The end."))


def requests(messages: tuple[Message, ...]) -> list[Request]:
    """What a client sends: all that was said, each time when it is the model's turn."""
    turns = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return [Request("m", messages[:at], TOOLS) for at in (*turns, len(messages))]


def prompts(template: Template, dialect: TagDialect, asked: list[Request]) -> list[Prompt]:
    kept = KeptPrefix(Compiler(FakeVocabulary(), template, dialect, model="m", n_ctx=4096))
    return [kept.compile(kept.prepare(request)).prompt for request in asked]


@pytest.mark.parametrize("name", ["lamb", *grid(templates(), 0.08, name=str)])
@given(messages=conversation())
@settings(deadline=None, max_examples=amount(4, 12), suppress_health_check=list(HealthCheck))
def test_each_prompt_goes_on_with_the_one_before(name: str, messages: tuple[Message, ...]) -> None:
    if name in MOVING:
        pytest.skip(MOVING[name])
    template, dialect = lamb() if name == "lamb" else model(name)
    asked = requests(messages)
    try:
        made = prompts(template, dialect, asked)
    except (InvalidRequest, EngineError):
        assume(False)
    for request, prompt, following in zip(asked, made, made[1:], strict=False):
        said = max((segment.stop for segment in prompt.segments), default=0)
        assert said - n_same(prompt.text, following.text) <= TAIL_CHARS, len(request.messages)


@pytest.mark.skipif(not shared_templates(), reason=ABSENT)
def test_most_of_this_is_the_templates_own_doing_and_the_rest_would_be_noticed() -> None:
    """Without what is remembered, a template that forgets thoughts loses the cache at the next question."""
    template, dialect = model("Qwen-Qwen3-0.6B.jinja")
    call = ToolCall("callid000", "read", '{"path": "a.txt"}')
    result = Message("tool", (ToolResult(call.id, (Text("x" * 1000),)),))
    thinking = Message("assistant", (Reasoning("Hm."), call))
    messages = (Message.user("Read it."), thinking, result, Message.assistant("Done."), Message.user("And?"))
    first, second = (render(template, dialect, each.messages, tools=TOOLS) for each in requests(messages)[1:])
    assert len(first.text) - n_same(first.text, second.text) > 1000
