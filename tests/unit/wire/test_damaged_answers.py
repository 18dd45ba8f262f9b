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
from tests.cases import amount
from tests.damage import garbage
from tests.unit.wire.test_own_recordings import ENDPOINT

from shepherd.backends.cloud.provider import PROTOCOLS
from shepherd.core import Assembler, Event, Request
from shepherd.wire.client import ClientCodec, Failure
from shepherd.wire.values import BrokenAnswer


def whole(half: ClientCodec, body: Any) -> Iterator[Event]:
    yield from half.decoder(Request("m"), ENDPOINT).whole(body)


def streamed(half: ClientCodec, records: Sequence[tuple[str, Any]], tail: bytes = b"") -> Iterator[Event]:
    decoder = half.decoder(Request("m"), ENDPOINT)
    for name, record in records:
        yield from decoder.feed(name, json.dumps(record).encode())
    if tail:
        yield from decoder.feed("", tail)
    yield from decoder.close()


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
@settings(max_examples=amount(10, 1000))
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
