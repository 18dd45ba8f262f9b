"""The tests of `tests/unit/wire/test_damaged_answers.py` that take long."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cases import amount
from tests.damage import KINDS, LEFT_OUT, damaged, places
from tests.places import CONFORMANCE
from tests.providers_replay import OWN
from tests.unit.backends.cloud.test_recordings import ENDPOINTS
from tests.unit.wire.recordings import load, stream_text
from tests.unit.wire.test_damaged_answers import streamed, whole
from tests.unit.wire.test_own_recordings import codec_of

from shepherd.backends.cloud.provider import PROTOCOLS
from shepherd.core import Assembler, Event
from shepherd.wire.client import Failure
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
