"""Damaged answers of every protocol over a connection: the grammar of events, or a typed error; never another one."""

from __future__ import annotations

import json
import random

from tests.cases import amount, seed
from tests.providers_replay import Answer, Way
from tests.unit.backends.cloud.providing import SPOKEN, WHOLE, staged
from tests.unit.backends.cloud.test_backend import THOUGHT, records

from shepherd.backends.cloud.backend import Timeouts
from shepherd.core import Assembler, ShepherdError
from shepherd.wire.signature import Protocol

RESPONSES = records(
    {"type": "response.created", "response": {"id": "r1", "model": "m", "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "i1", "content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "i1", "delta": "Hello"},
    {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "id": "i1",
        "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}},
    {"type": "response.completed", "response": {"id": "r1", "model": "m", "status": "completed", "output": [
        {"type": "message", "id": "i1", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}],
        "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}}},
)  # fmt: skip
CASES: tuple[tuple[str, Protocol, str, bytes], ...] = (
    ("openai", "openai.chat", "/v1/chat/completions", SPOKEN),
    ("openai", "openai.chat", "/v1/chat/completions", json.dumps(WHOLE).encode()),
    ("openai", "openai.responses", "/v1/responses", RESPONSES),
    ("anthropic", "anthropic", "/v1/messages", THOUGHT),
)
PIECES = [b"\n\n", b"data: ", b"null", b"{}", b"[]", b'"', b"}", b"-1", b"\xff", b"\x00", b'{"error":1}', b"1e999"]
NAMES = [b'"index"', b'"delta"', b'"type"', b'"usage"', b'"content"', b'"choices"', b'"response"', b'"item"']


def damaged(body: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body) + 1)
        match chance.randint(0, 3):
            case 0:
                body = body[:at] + body[at + chance.randint(1, 40) :]
            case 1:
                body = body[:at] + chance.choice(PIECES) + body[at:]
            case 2:
                body = body[:at] + body[chance.randrange(len(body) + 1) :]
            case _:
                body = body.replace(chance.choice(NAMES), chance.choice([b'"x"', b'"id"', b'"error"']), 1)
    return body or b" "


async def test_damaged_answers() -> None:
    chance = random.Random(seed())
    for kind, protocol, path, body in CASES:
        answers = [Answer(path, damaged(body, chance), way=Way(n)) for n in range(amount(40, 800))]
        async with staged(*answers, kind=kind, protocol=protocol, timeouts=Timeouts(attempts=1)) as stage:
            for answer in answers:
                error = await stage.ask()
                assert error is None or isinstance(error, ShepherdError), answer.body
                assembler = Assembler()
                for event in stage.events:
                    assembler.feed(event)
                if error is None:
                    assembler.reply()
