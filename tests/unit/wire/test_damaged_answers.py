"""Every field of a recorded answer replaced by every kind of JSON, or left out: it is read, or is a broken answer.

The recordings are those of `tests/data/providers` and, where it is there, of `../shared/conformance/providers`. A
place is damaged once per kind of record, however many recordings have it. Then answers that are garbage altogether.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import amount, examples
from tests.damage import KINDS, LEFT_OUT, damaged, garbage, places
from tests.places import CONFORMANCE
from tests.providers_replay import OWN
from tests.unit.backends.cloud.test_recordings import ENDPOINTS
from tests.unit.wire.recordings import load, stream_text
from tests.unit.wire.test_own_recordings import ENDPOINT, codec_of

from shepherd.backends.cloud.provider import PROTOCOLS
from shepherd.core import Assembler, Event, Request
from shepherd.wire.client import ClientCodec, Failure
from shepherd.wire.sse import EventReader, NdjsonReader
from shepherd.wire.values import BrokenAnswer

RECORDED = CONFORMANCE / "providers"


def kind_of(record: Any, event: str) -> str:
    """What tells records of one stream apart; a stream without such a word has one kind per set of fields."""
    if not isinstance(record, dict):
        return event
    block = record.get("content_block") or record.get("delta") or record.get("item") or {}
    return f"{record.get('type', event)}:{block.get('type', '') if isinstance(block, dict) else ''}:{sorted(record)}"


def records_of(recording: dict[str, Any]) -> list[tuple[str, Any]]:
    reader = NdjsonReader() if "ndjson_text" in recording["response"] else EventReader()
    data = (stream_text(recording) or "").encode()
    found: list[tuple[str, Any]] = []
    for name, record in (*reader.feed(data), *reader.close()):
        with contextlib.suppress(ValueError):
            found.append((name, json.loads(record)))
    return found


def recordings(endpoint: str) -> list[dict[str, Any]]:
    folders = [OWN, *(sorted(RECORDED.iterdir()) if RECORDED.is_dir() else ())]
    there = (each for each in folders if each.is_dir() and each.name != "sessions")
    return [each for folder in there for each in load(folder, endpoint)]


class Judge:
    """Decodes damaged answers of one protocol, each kind of damage once, and collects what goes wrong."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.seen: set[tuple[Any, ...]] = set()
        self.wrong: dict[str, str] = {}

    def damages(self, kind: str, value: Any) -> Iterator[tuple[str, Any]]:
        for at in places(value):
            for number, by in enumerate(KINDS):
                key = (kind, tuple("*" if isinstance(each, int) else each for each in at), number)
                if key not in self.seen and (at or by is not LEFT_OUT):
                    self.seen.add(key)
                    yield f"{kind} {at} = {by!r}", damaged(value, at, by)

    def read(self, where: str, events: Iterator[Event]) -> None:
        try:
            with contextlib.suppress(BrokenAnswer, Failure):
                assembler, encoder = Assembler(), encoder_of(self.protocol)
                for event in events:
                    assembler.feed(event)
                    if encoder is not None:
                        encoder.encode(event)
                if encoder is not None:
                    encoder_of(self.protocol).encode_replies([assembler.reply()])
        except Exception as error:
            self.wrong[where] = f"{type(error).__name__}: {error}"


def encoder_of(protocol: str) -> Any:
    """Writes the answer for a client of the protocol; None where our server does not speak it."""
    if protocol not in SURFACES:
        return None
    surface = importlib.import_module(SURFACES[protocol])
    messages = [{"role": "user", "content": "Hi"}]
    asked = {"model": "m", "input" if protocol == "openai.responses" else "messages": messages, "max_tokens": 9}
    return surface.encoder(surface.decode_request(asked).options, id="a-1", created=1, model="m")


SURFACES = {
    "openai.chat": "shepherd.wire.openai.chat",
    "openai.responses": "shepherd.wire.openai.responses.codec",
    "anthropic": "shepherd.wire.anthropic.codec",
    "ollama": "shepherd.wire.ollama.chat",
}


def whole(half: ClientCodec, body: Any) -> Iterator[Event]:
    yield from half.decoder(Request("m"), ENDPOINT).whole(body)


def streamed(half: ClientCodec, records: Sequence[tuple[str, Any]], tail: bytes = b"") -> Iterator[Event]:
    decoder = half.decoder(Request("m"), ENDPOINT)
    for name, record in records:
        yield from decoder.feed(name, json.dumps(record).encode())
    if tail:
        yield from decoder.feed("", tail)
    yield from decoder.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_damage_to_an_answer_raises_another_error(protocol: str) -> None:
    judge = Judge(protocol)
    found = [each for endpoint, name in ENDPOINTS.items() if name == protocol for each in recordings(endpoint)]
    found.sort(key=lambda each: len(stream_text(each) or ""))  # a place is damaged in the shortest that has it
    for recording in found[: amount(60, len(found))]:
        half, body, records = codec_of(recording), recording["response"].get("body"), records_of(recording)
        for where, made in judge.damages("whole", body):
            if isinstance(made, dict):
                judge.read(where, whole(half, made))
        for index, (event, record) in enumerate(records):
            before, after = records[:index], records[index + 1 :]
            for where, made in judge.damages(kind_of(record, event), record):
                piece = (event, made)
                judge.read(where, streamed(half, [*before, piece, *after]))
                judge.read(f"twice, {where}", streamed(half, [*before, piece, piece, *after]))
                judge.read(f"without those before, {where}", streamed(half, [*before[:1], piece, *after]))
    assert judge.seen
    assert judge.wrong == {}, f"{len(judge.wrong)} of {len(judge.seen)}: {sorted(judge.wrong.items())[:3]}"


WORDS = {
    "anthropic": (
        "type index delta content_block message text usage input id name content data",
        "message_start content_block_start content_block_delta content_block_stop message_delta message_stop error "
        "text thinking tool_use redacted_thinking other text_delta thinking_delta input_json_delta signature_delta",
    ),
    "gemini": ("candidates content parts text thought functionCall name args finishReason error", "STOP"),
    "ollama": ("message content thinking tool_calls function name arguments done error id", "stop {}"),
    "openai.chat": (
        "choices delta message content index id function name arguments tool_calls custom finish_reason usage "
        "prompt_tokens completion_tokens_details logprobs token bytes top_logprobs reasoning reasoning_details text "
        "signature type extra_content refusal function_call model",
        "stop error length { {}",
    ),
    "openai.responses": (
        "type output_index item item_id id delta content summary text call_id name arguments input phase "
        "encrypted_content response output status error usage logprobs summary_index incomplete_details refusal",
        "response.output_item.added response.output_item.done response.output_text.delta response.completed "
        "response.function_call_arguments.delta response.reasoning_summary_text.delta response.incomplete message "
        "function_call reasoning custom_tool_call other refusal completed {}",
    ),
}
"""The names of fields, and of values, that the answers of a protocol have."""


@pytest.mark.parametrize("protocol", WORDS)
@given(st.data())
@settings(max_examples=examples(200))
def test_garbage_is_a_broken_answer_and_never_another_error(protocol: str, data: st.DataObject) -> None:
    half = cast(ClientCodec, importlib.import_module(PROTOCOLS[cast(Any, protocol)].codec))
    keys, words = (each.split() for each in WORDS[protocol])
    fields = st.fixed_dictionaries({}, optional=dict.fromkeys(keys, garbage(keys, words)))
    record = fields | garbage(keys, words)
    if protocol in ("anthropic", "openai.responses"):
        record |= st.builds(lambda kind, rest: {**rest, "type": kind}, st.sampled_from(words), fields)
    if protocol == "openai.chat":
        record |= fields.map(lambda delta: {"choices": [{"delta": delta}]})
    begun = [{"type": "message_start", "message": {"model": "m"}}] if protocol == "anthropic" else []
    records = [*begun, *data.draw(st.lists(record, max_size=6))]
    for key in ("content", "choices", "output", "candidates", "message"):
        with contextlib.suppress(BrokenAnswer, Failure):
            deque(map(Assembler().feed, whole(half, {key: records})))
    with contextlib.suppress(BrokenAnswer, Failure):
        deque(
            map(Assembler().feed, streamed(half, [("", each) for each in records], data.draw(st.binary(max_size=20))))
        )
