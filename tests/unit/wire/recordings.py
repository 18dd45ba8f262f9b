"""Recorded answers of providers (`../shared/conformance/providers`), replayed through a client codec at any cut."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.cases import amount, seed

from shepherd.core import Event, Reply, Request, fold
from shepherd.wire.base import Json
from shepherd.wire.client import ClientCodec, Decoder, Endpoint
from shepherd.wire.sse import EventReader, NdjsonReader


def load(folder: Path, *endpoints: str) -> Iterator[Json]:
    """The exchanges of a provider's folder, or those of these endpoints."""
    for file in sorted(folder.glob("*.json")):
        exchange = json.loads(file.read_text(encoding="utf-8"))
        if not endpoints or exchange.get("endpoint") in endpoints:
            yield exchange


def sessions(folder: Path, provider: str, endpoint: str) -> Iterator[Json]:
    """The steps of the recorded tool loops, each like an exchange."""
    for file in sorted((folder / "sessions").glob(f"{provider}-*.json")):
        session = json.loads(file.read_text(encoding="utf-8"))
        for number, step in enumerate(session["steps"]):
            if step["endpoint"] == endpoint:
                yield {"id": f"{session['id']}:{number}", **step}


def recorded(conformance: Path, provider: str, *endpoints: str) -> list[Json]:
    """The exchanges and the steps of the tool loops with these endpoints of a provider, at least one."""
    folder = conformance / "providers"
    steps = (step for endpoint in endpoints for step in sessions(folder, provider, endpoint))
    found = [*load(folder / provider, *endpoints), *steps]
    assert found
    return found


def stream_text(exchange: Json) -> str | None:
    """The body of a streamed answer; None for a whole one."""
    response = exchange["response"]
    for key in ("sse_text", "sse_text_reframed", "ndjson_text"):
        if isinstance(response.get(key), str):
            return str(response[key])
    return None


def cuts_of(data: bytes, id: str) -> list[list[int]]:
    """Ways of cutting the bytes: not at all, and a few at random, one of them into very small pieces."""
    made: list[list[int]] = [[]]
    for n in range(amount(1, 4)):
        source = random.Random(f"{id}:{n}:{seed()}")
        few = min(len(data), 12 if n else 200)
        made.append(sorted(source.sample(range(len(data) + 1), min(few, len(data)))))
    return made


def numbered(beginning: str) -> Callable[[], str]:
    """Makes the ids of calls that have none."""
    counter = itertools.count()
    return lambda: f"{beginning}{next(counter):04}"


def records(data: bytes, cuts: Iterable[int] = (), *, is_ndjson: bool = False) -> Iterator[tuple[str, bytes]]:
    """What the reader of a stream makes of these pieces."""
    reader = NdjsonReader() if is_ndjson else EventReader()
    for start, end in itertools.pairwise([0, *cuts, len(data)]):
        yield from reader.feed(data[start:end])
    yield from reader.close()


def decoded(decoder: Decoder, records: Iterable[tuple[str, bytes]]) -> Iterator[Event]:
    """The events that a decoder makes of all records of a stream."""
    for name, record in records:
        yield from decoder.feed(name, record)
    yield from decoder.close()


def replayed(decoder: Decoder, data: bytes, cuts: Iterable[int] = (), *, is_ndjson: bool = False) -> Iterator[Event]:
    """The events that a decoder makes of a stream in these pieces."""
    return decoded(decoder, records(data, cuts, is_ndjson=is_ndjson))


def replies(codec: ClientCodec, exchange: Json, request: Request, target: Endpoint) -> Iterator[Reply]:
    """What the recorded answer says, for each way of cutting it."""
    text = stream_text(exchange)
    if text is None:
        yield fold(codec.decoder(request, target).whole(exchange["response"]["body"]))
        return
    data = text.encode("utf-8")
    is_ndjson = "ndjson_text" in exchange["response"]
    for cuts in cuts_of(data, exchange["id"]):
        yield fold(replayed(codec.decoder(request, target), data, cuts, is_ndjson=is_ndjson))


_FINISH: Mapping[str, tuple[str, ...]] = {
    "stop": ("end", "stop"),
    "tool_calls": ("tool_calls",),
    "length": ("length",),
    "content_filter": ("filtered",),
    "refusal": ("filtered", "end"),
    "pause": ("end",),
    "other": ("end", "filtered"),
}


def differences(reply: Reply, expect: Json) -> list[str]:
    """How a reply differs from what its recording says it is."""
    found = []

    def compare(what: str, ours: Any, theirs: Any) -> None:
        if ours != theirs:
            found.append(f"{what}: {ours!r:.200} is not {theirs!r:.200}")

    compare("text", reply.message.text, expect["text"] or "")
    if expect["reasoning"] is not None:
        compare("reasoning", reply.message.reasoning.strip(), expect["reasoning"].strip())
    calls = [(call.name, json.loads(call.arguments)) for call in reply.message.calls]
    compare("calls", calls, [(call["name"], call["arguments"]) for call in expect["tool_calls"]])
    ids = [call["id"] for call in expect["tool_calls"]]
    if None not in ids:
        compare("ids", [call.id for call in reply.message.calls], ids)
    if expect["finish"] is not None and reply.reason not in _FINISH[expect["finish"]]:
        found.append(f"finish: {reply.reason} is not {expect['finish']}")
    if usage := expect["usage"]:
        for name, ours in (
            ("input_tokens", reply.usage.prompt),
            ("output_tokens", reply.usage.output),
            ("cached_input_tokens", reply.usage.cache_read),
            ("reasoning_tokens", reply.usage.reasoning),
        ):
            if usage.get(name) is not None:
                compare(name, ours, usage[name])
    return found


def faults(codec: ClientCodec, exchanges: Iterable[Json], request: Request, target: Endpoint) -> list[str]:
    """How the answers that have come whole differ from what their recordings say, at any cut."""
    whole = (each for each in exchanges if each["response"]["status"] == 200 and each["kind"] != "stream_error")
    return [
        f"{exchange['id']}: {each}"
        for exchange in whole
        for reply in replies(codec, exchange, request, target)
        for each in differences(reply, exchange["expect"])
    ]
