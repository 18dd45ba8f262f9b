"""Our own conversations, with memory, advisors and HTTP clients, over strict providers and the local model.

What one model has sealed stays with it: it goes back when the conversation comes back, and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.in_process import client_of
from tests.providers_replay import Answer
from tests.providers_scripted import CODECS, SENTINEL, Heard, Said, Script, ScriptedProvider, scripted
from tests.unit.app.test_providers import running, say
from tests.unit.test_provider_conversations import counting

from shepherd.core import Evicted, Started, ToolCall
from shepherd.wire.signature import Protocol

PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
KINDS = {
    "openai.chat": "vllm",
    "openai.responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "ollama": "ollama",
}
MODELS = {"openai.responses": "gpt-5.4-mini", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-3-flash"}


def name_of(protocol: str) -> str:
    return "p-" + protocol.replace(".", "-")


def row(provider: ScriptedProvider, more: str = "") -> str:
    protocol, model = provider.protocol, MODELS.get(provider.protocol, "m")
    return (
        f'[providers.{name_of(protocol)}]\ntype = "{KINDS[protocol]}"\nprotocol = "{protocol}"\n'
        f'base_url = "{provider.url}"\napi_key = "sk-SECRET-{protocol}"\nmodel = "{model}"\n{more}\n'
    )


@asynccontextmanager
async def all_of_them(script: Script = counting) -> AsyncIterator[dict[Protocol, ScriptedProvider]]:
    async with AsyncExitStack() as stack:
        yield {
            protocol: await stack.enter_async_context(scripted(protocol, script, name=f"p{at}"))
            for at, protocol in enumerate(PROTOCOLS)
        }


def check(providers: dict[Protocol, ScriptedProvider]) -> None:
    assert {name: each.faults for name, each in providers.items()} == {name: [] for name in providers}


async def test_a_fallback_in_the_middle_of_a_conversation_gets_no_seals_of_the_one_that_failed(tmp_path: Path) -> None:
    busy = Answer("", b'{"error": {"message": "no money", "code": "insufficient_quota"}}', 429, {})
    for first in PROTOCOLS:
        second: Protocol = "anthropic" if first != "anthropic" else "gemini"
        async with scripted(first, counting, name="a") as one, scripted(second, counting, name="b") as two:
            text = row(one) + row(two)
            text += f'[[routes]]\nmatch = "*"\nprovider = "{name_of(first)}"\nfallback = ["{name_of(second)}"]\n'
            (folder := tmp_path / first).mkdir()
            async with running(folder, text) as app:
                session = app.conversations.session()
                assert (await say(session, "Hello."))[1].cache == name_of(first)
                one.script = lambda heard: busy
                assert (await say(session, "Again."))[1].cache == name_of(second)
                assert (await say(session, "And again."))[1].instead_of == (name_of(first),)
                assert two.heard[0].proofs == []
                assert two.heard[1].proofs == list(two.issued)[:1]
                assert (one.faults, two.faults) == ([], [])


MEMORY = """
[memory]
enable_archival = true
recall = true
"""


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_left_the_window_of_a_provider_is_recalled(protocol: Protocol, tmp_path: Path) -> None:
    def script(heard: Heard) -> Said:
        return Said("Noted.", "Hm.")

    async with (
        scripted(protocol, script, n_ctx=2_000) as provider,
        running(tmp_path, row(provider, "n_ctx = 2000") + MEMORY) as app,
    ):
        session = app.conversations.session(user="local", tools=False)
        await say(session, "Good morning!")
        await say(session, "The code of the blue door in Antwerp is 4711.")
        n_gone, notices = 0, 0
        for n in range(16):
            async with aclosing(session.chat(f"Story {n}: " + f"the sheep number {n} eats grass. " * 12)) as turn:
                n_gone += sum([event.messages async for event in turn if isinstance(event, Evicted)])
        for message in session.messages:
            if found := re.match(r"\[NOTICE: (\d+) messages evicted", message.text):
                notices += int(found[1])
        assert n_gone >= notices > 10
        assert n_gone < len(session.messages), "each is reported once"
        assert "4711" not in json.dumps(provider.heard[-1].body)
        async with aclosing(session.chat("Which code has the blue door in Antwerp?")) as turn:
            started = [event async for event in turn if isinstance(event, Started)]
        assert started[0].recalled is not None
        assert "4711" in json.dumps(provider.heard[-1].body)
        await say(session, "Thanks.")
        assert provider.faults == []
        assert json.dumps(provider.heard[-1].body).count("4711") == 1, "a quote stays where it stands"


async def test_a_model_asks_another_one_over_every_pair_of_protocols(tmp_path: Path) -> None:
    def asking(heard: Heard) -> Said:
        if any(name.startswith("ask_") for name in heard.tools) and not heard.results:
            calls = tuple((name, {"prompt": f"From {name}?"}) for name in heard.tools if name.startswith("ask_"))
            return Said("I ask.", "Others know.", calls)
        return Said(f"Heard: {heard.results or heard.last}", "Only that.")

    async with all_of_them(asking) as providers:
        text = '[tools]\nenabled = ["models"]\nallow = ["ask_*"]\n' + "".join(map(row, providers.values()))
        for protocol, provider in providers.items():
            (folder := tmp_path / protocol).mkdir()
            file = text + f'[[routes]]\nmatch = "*"\nprovider = "{name_of(protocol)}"\n'
            async with running(folder, file, tools=("models",)) as app:
                session = app.conversations.session()
                await app.conversations.switch(session, name_of(protocol))
                said, _ = await say(session, "Ask them.")
                assert len(provider.heard[-1].results) == len(PROTOCOLS)
                for other in PROTOCOLS:
                    assert f"From ask_{name_of(other).replace('-', '_')}" in said or name_of(other) in said, said
                check(providers)


async def test_another_agent_chats_with_any_provider(tmp_path: Path) -> None:
    async with (
        all_of_them(lambda heard: Said(f"{heard.texts('system')} {heard.last}")) as providers,
        running(tmp_path, "".join(map(row, providers.values())), tools=("models",)) as app,
    ):
        box = (await app.offer(None)).toolbox
        for protocol in PROTOCOLS:
            arguments = {"prompt": "Hi", "model": name_of(protocol), "system": "Be brief."}
            outcome = await box.run(ToolCall("1", "chat", json.dumps(arguments)))
            assert "['Be brief.'] Hi" in str(outcome.result.parts)
        check(providers)


TOOLS = [{"type": "function", "name": "double", "parameters": {"type": "object"}, "strict": False}]


async def test_responses_that_go_on_by_their_id_keep_the_seals_of_every_provider(tmp_path: Path) -> None:
    async with (
        all_of_them() as providers,
        running(tmp_path, "".join(map(row, providers.values()))) as app,
        client_of(app) as client,
    ):
        for at, (protocol, provider) in enumerate(providers.items()):
            model, n_issued = name_of(protocol), len(provider.issued)
            body: dict[str, Any] = {"model": model, "input": f"Double {at} 22, then 33", "tools": TOOLS}
            previous, n_rounds = None, 0
            while True:
                answer = await client.post("/v1/responses", json=body | {"previous_response_id": previous})
                assert answer.status_code == 200, answer.text
                made = answer.json()
                previous = made["id"]
                calls = [each for each in made["output"] if each["type"] == "function_call"]
                if not calls:
                    break
                n_rounds += 1
                body["input"] = [
                    {"type": "function_call_output", "call_id": call["call_id"], "output": "7"}
                    for call in reversed(calls)
                ]
            assert n_rounds == 2
            assert made["output"][-1]["content"][0]["text"] == "Done, 3 results."
            body["input"] = "Thanks."
            await client.post("/v1/responses", json=body | {"previous_response_id": previous})
            if CODECS[protocol].has_proofs:
                assert provider.heard[-1].proofs == list(provider.issued)[n_issued:-1]
            assert provider.rewritten == []
            # The same conversation goes on with another provider, and comes back.
            other: Protocol = "anthropic" if protocol != "anthropic" else "gemini"
            body |= {"input": f"Hello {at}.", "previous_response_id": previous}
            n_before = len(providers[other].issued)
            answer = await client.post("/v1/responses", json=body | {"model": name_of(other)})
            assert answer.status_code == 200, answer.text
            assert set(providers[other].heard[-1].proofs) <= {SENTINEL}
            body |= {"input": "Hello again.", "previous_response_id": answer.json()["id"]}
            assert (await client.post("/v1/responses", json=body)).status_code == 200
            proofs = provider.heard[-1].proofs
            assert len(proofs) == (3 if CODECS[protocol].has_proofs else 0)
            assert n_before < len(providers[other].issued)
        check(providers)


# -- clients of every surface ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Surface:
    """A client that sends back what it has read, as far as its protocol has a place for it."""

    path: str
    tools: Any
    key: str = "messages"

    def question(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def read(self, made: Any) -> tuple[list[Any], list[str]]:
        """What goes back, and the ids of the calls in it."""
        match self.path:
            case "/v1/chat/completions":
                message = made["choices"][0]["message"]
                calls = message.get("tool_calls") or []
                kept = [{key: each[key] for key in ("id", "type", "function")} for each in calls]  # as the SDK's types
                return [message | ({"tool_calls": kept} if kept else {})], [each["id"] for each in calls]
            case "/v1/responses":
                calls = [each["call_id"] for each in made["output"] if each["type"] == "function_call"]
                return made["output"], calls
            case "/v1/messages":
                calls = [each["id"] for each in made["content"] if each["type"] == "tool_use"]
                return [{"role": "assistant", "content": made["content"]}], calls
            case _:
                return [made["message"]], [each["function"]["name"] for each in made["message"].get("tool_calls", ())]

    def results(self, calls: list[str]) -> list[Any]:
        match self.path:
            case "/v1/chat/completions":
                return [{"role": "tool", "tool_call_id": call, "content": "7"} for call in calls]
            case "/v1/responses":
                return [{"type": "function_call_output", "call_id": call, "output": "7"} for call in calls]
            case "/v1/messages":
                blocks = [{"type": "tool_result", "tool_use_id": call, "content": "7"} for call in calls]
                return [{"role": "user", "content": blocks}]
            case _:
                return [{"role": "tool", "tool_name": call, "content": "7"} for call in calls]


_SCHEMA = {"type": "object", "properties": {}}
_FUNCTION = {"type": "function", "function": {"name": "double", "parameters": _SCHEMA}}
SURFACES = (
    Surface("/v1/chat/completions", [_FUNCTION]),
    Surface("/v1/responses", TOOLS, "input"),
    Surface("/v1/messages", [{"name": "double", "input_schema": _SCHEMA}]),
    Surface("/api/chat", [_FUNCTION]),
)


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.path)
async def test_a_tool_loop_of_a_client_keeps_the_seals_of_every_provider(surface: Surface, tmp_path: Path) -> None:
    async with (
        all_of_them() as providers,
        running(tmp_path, "".join(map(row, providers.values()))) as app,
        client_of(app) as client,
    ):
        for protocol, provider in providers.items():
            said: list[Any] = []
            for question in ("Double 1 2, then 3", "Thanks.", "Double 4"):
                said.append(surface.question(question))
                calls = ["first"]
                while calls:
                    body = {"model": name_of(protocol), surface.key: said, "tools": surface.tools, "stream": False}
                    answer = await client.post(surface.path, json=body | {"max_tokens": 99})
                    assert answer.status_code == 200, answer.text
                    read, calls = surface.read(answer.json())
                    said += read
                    said += surface.results(calls) if calls else []
            assert len(provider.heard) == 6
            for heard in provider.heard:
                if CODECS[protocol].has_proofs:
                    assert heard.proofs == list(provider.issued)[: heard.number - 1], protocol
            assert provider.rewritten == [], protocol
        check(providers)
