"""Every recorded exchange over a real connection, cut at random places: the text, the calls, the counts, the error."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.cases import SEED, is_chosen
from tests.providers_replay import Way, answer_of, recordings, replaying
from tests.unit.backends.cloud.providing import KEY

from shepherd.backends.cloud.backend import CloudBackend, Timeouts
from shepherd.backends.cloud.provider import KINDS, PROTOCOLS, provider_of
from shepherd.core import (
    ContextFull,
    InvalidRequest,
    Message,
    RateLimited,
    Refused,
    Request,
    ShepherdError,
    TextDelta,
    Unavailable,
    Unsupported,
    fold,
)
from shepherd.core.events import CallEnded
from shepherd.core.messages import ToolCall
from shepherd.wire.signature import Protocol

ENDPOINTS: dict[str, Protocol] = {
    "openai.chat": "openai.chat",
    "openai.responses": "openai.responses",
    "openai.responses.input_tokens": "openai.responses",
    "anthropic.messages": "anthropic",
    "anthropic.count_tokens": "anthropic",
    "gemini.generateContent": "gemini",
    "gemini.streamGenerateContent": "gemini",
    "gemini.countTokens": "gemini",
    "ollama.chat": "ollama",
}
TYPES = {"xai": "grok"}
ERRORS: dict[str, tuple[type[ShepherdError], int]] = {
    "auth": (Refused, 401),
    "permission": (Refused, 403),
    "not_found": (Refused, 404),
    "quota_exhausted": (Refused, 402),
    "request_too_large": (Refused, 413),
    "context_length": (ContextFull, 400),
    "rate_limit": (RateLimited, 429),
    "overloaded": (Unavailable, 503),
    "server_error": (Unavailable, 503),
    "invalid_request": (InvalidRequest, 400),
}
COUNTS = ("count_tokens", "input_tokens", "countTokens")


def is_there(protocol: Protocol) -> bool:
    """Whether the codec is written."""
    module = PROTOCOLS[protocol].codec
    package = module.rpartition(".")[0]
    return importlib.util.find_spec(package) is not None and importlib.util.find_spec(module) is not None


RECORDED = [
    each
    for each in recordings()
    if each["endpoint"] in ENDPOINTS
    and is_there(ENDPOINTS[each["endpoint"]])
    and not each["request"]["path"].endswith("/v1/chat")  # a server whose path is no endpoint of the protocol
]


def is_small(recording: dict[str, Any]) -> bool:
    return bool(recording["expect"].get("error")) or recording["id"].startswith("own-")


def backend_for(recording: dict[str, Any], url: str) -> CloudBackend:
    path = recording["request"]["path"]
    protocol = ENDPOINTS[recording["endpoint"]]
    model = path.partition("/models/")[2].partition(":")[0] if protocol == "gemini" else "m"
    prefix = path.removesuffix("/count_tokens").removesuffix("/input_tokens").partition("/models/")[0]
    kind = KINDS[TYPES.get(recording["provider"], recording["provider"])]
    base = f"{url}/{recording['id']}{prefix}"
    provider = provider_of(kind, name="prov", base_url=base, key=KEY, protocol=protocol, model=model)
    return CloudBackend(provider, timeouts=Timeouts(attempts=1))


async def answered(backend: CloudBackend) -> tuple[list[Any], ShepherdError | None]:
    events: list[Any] = []
    try:
        async for event in backend.stream(Request("m", (Message.user("hi"),))):
            events.append(event)
    except ShepherdError as error:
        return events, error
    finally:
        await backend.aclose()
    return events, None


def arguments(text: str) -> Any:
    return json.loads(text)


def differs(recording: dict[str, Any], events: list[Any], error: ShepherdError | None) -> str:
    """What is not as expected; empty for nothing."""
    expect = recording["expect"]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    if wanted := expect.get("error"):
        kind, status = ERRORS[wanted["kind"]]
        kind = Unsupported if isinstance(error, Unsupported) and kind is InvalidRequest else kind
        if type(error) is not kind or error.status != status:
            return f"{error!r} for {wanted['kind']}"
        if wanted["message"] not in str(error):
            return f"the words are lost: {error}"
        return "" if text == (expect.get("text") or "") else f"text {text!r}"
    if error is not None:
        return f"{error!r}"
    if text != (expect.get("text") or expect.get("refusal") or ""):
        return f"text {text[:60]!r} for {str(expect.get('text'))[:60]!r}"
    calls = [event.call for event in events if isinstance(event, CallEnded) and isinstance(event.call, ToolCall)]
    wanted_calls = expect.get("tool_calls") or []
    if [(call.name, arguments(call.arguments)) for call in calls] != [
        (c["name"], c["arguments"]) for c in wanted_calls
    ]:
        return f"calls {calls}"
    usage, counts = fold(events).usage, expect.get("usage") or {}
    if counts and (usage.prompt, usage.output) != (counts["input_tokens"], counts["output_tokens"]):
        return f"usage {usage} for {counts}"
    return ""


@pytest.mark.parametrize("provider", sorted({each["provider"] for each in RECORDED}))
async def test_every_recording(provider: str) -> None:
    wrong: dict[str, str] = {}
    seen = Counter[str]()
    every = [each for each in RECORDED if each["provider"] == provider]
    some = [each for each in every if SEED is not None or is_small(each) or is_chosen(each["id"], 0.5)]
    library = {each["id"]: [replace(answer_of(each), way=Way(seed=n))] for n, each in enumerate(some)}
    async with replaying(library=library) as server:
        for recording in some:
            backend = backend_for(recording, server.url)
            seen[recording["endpoint"]] += 1
            if recording["endpoint"].endswith(COUNTS):
                try:
                    count = await backend.count(Request("m", (Message.user("hi"),)))
                except ShepherdError as error:
                    found = differs(recording, [], error)
                else:
                    expected = recording["expect"].get("usage", recording["expect"]).get("input_tokens")
                    found = "" if count.is_exact and count.tokens == expected else f"{count} for {expected}"
                await backend.aclose()
            else:
                found = differs(recording, *await answered(backend))
            if found:
                wrong[recording["id"]] = found
        assert server.faults == []
    assert wrong == {}, seen
