"""Small answers written by hand from the facts (`tests/data/providers`), cut at every byte: they run everywhere."""

from __future__ import annotations

import importlib
import json
from typing import Any, cast

import pytest
from tests.providers_replay import OWN
from tests.unit.backends.cloud.test_recordings import ENDPOINTS
from tests.unit.wire.recordings import decoded, differences, load, records, replayed, stream_text

from shepherd.backends.cloud.provider import PROTOCOLS
from shepherd.core import Message, Request, Text, ToolResult, fold
from shepherd.wire.client import ClientCodec, Endpoint

STREAMS = [each for each in load(OWN, *ENDPOINTS) if stream_text(each) and "error" not in each["expect"]]
ENDPOINT = Endpoint("m", "up:m", thinks_by="effort", efforts=("low", "high"))


def codec_of(recording: dict[str, Any]) -> ClientCodec:
    return cast(ClientCodec, importlib.import_module(PROTOCOLS[ENDPOINTS[recording["endpoint"]]].codec))


def test_there_is_one_of_every_protocol() -> None:
    assert {ENDPOINTS[each["endpoint"]] for each in STREAMS} == set(PROTOCOLS)


@pytest.mark.parametrize("recording", STREAMS, ids=lambda each: each["id"])
def test_every_cut_gives_the_same_answer(recording: dict[str, Any]) -> None:
    """A decoder gets nothing but records, so each list of them is decoded once."""
    half, data = codec_of(recording), (stream_text(recording) or "").encode()
    is_ndjson = "ndjson_text" in recording["response"]
    cuts = {at: tuple(records(data, [at], is_ndjson=is_ndjson)) for at in range(len(data) + 1)}
    found = {
        each: differences(fold(decoded(half.decoder(Request("m"), ENDPOINT), each)), recording["expect"])
        for each in set(cuts.values())
    }
    assert {at: wrong for at, each in cuts.items() if (wrong := found[each])} == {}


@pytest.mark.parametrize(
    "recording", [each for each in STREAMS if "opaque" in each["expect"]], ids=lambda each: each["id"]
)
def test_what_only_the_provider_understands_goes_back_to_it(recording: dict[str, Any]) -> None:
    half, data = codec_of(recording), (stream_text(recording) or "").encode()
    answer = fold(replayed(half.decoder(Request("m"), ENDPOINT), data)).message
    results = Message("tool", tuple(ToolResult(call.id, (Text("5"),), call.name) for call in answer.calls))
    body = json.dumps(half.encode_request(Request("m", (Message.user("hi"), answer, results)), ENDPOINT))
    assert [each for each in recording["expect"]["opaque"] if each not in body] == []
    other = Endpoint("n", "up:n", thinks_by="effort", efforts=("low", "high"))
    body = json.dumps(half.encode_request(Request("n", (Message.user("hi"), answer, results)), other))
    assert [each for each in recording["expect"]["opaque"] if each in body] == []
