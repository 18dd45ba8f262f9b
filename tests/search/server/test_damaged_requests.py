"""A request with one damaged place, in every protocol: answered, or refused by a sentence; never an error of ours."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.damage import KINDS, damaged, places
from tests.own_server import serving
from tests.pictures import picture
from tests.sounds import wave
from tests.unit.engine.tiny_bert import write_bert

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
PIXEL = base64.b64encode(picture()).decode()
SOUND = base64.b64encode(wave(8)).decode()
HEARD = {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}}
SHOWN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "low"}}
CHAT = [
    {"role": "user", "content": [{"type": "text", "text": "Hi"}, SHOWN, HEARD]},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"},
]
FUNCTION = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}}
ITEMS = [
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "Hi"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
            HEARD,
        ],
    },
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "x"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Bye"}]},
]
SOURCE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
BLOCKS = [
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": "b"}},
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "x"}, SOURCE]}],
    },
]
SEEN = [{"role": "user", "content": "Hi", "images": [PIXEL, SOUND]}, *CHAT[1:]]
EDITS = [
    {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
    {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 50},
        "keep": {"type": "tool_uses", "value": 1},
        "clear_at_least": {"type": "input_tokens", "value": 1},
        "exclude_tools": ["other"],
        "clear_tool_inputs": True,
    },
    {
        "type": "compact_20260112",
        "trigger": {"type": "input_tokens", "value": 60_000},
        "pause_after_compaction": True,
        "instructions": "Names.",
    },
]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {
        "model": "lamb", "input": ITEMS, "instructions": "Be brief.", "max_output_tokens": 3, "store": True,
        "tools": [{"type": "function", "name": "look", "parameters": SCHEMA}], "tool_choice": "auto",
        "context_management": [{"type": "compaction", "compact_threshold": 2000}], "reasoning": {"effort": "low"},
        "text": {"format": {"type": "text"}}, "include": ["message.output_text.logprobs"],
    },
    "/v1/responses/compact": {"model": "lamb", "input": ITEMS, "instructions": "Be brief."},
    "/v1/responses/input_tokens": {"model": "lamb", "input": ITEMS, "instructions": "Be brief."},
    "/v1/messages": {
        "model": "lamb", "max_tokens": 3, "messages": BLOCKS, "thinking": {"type": "disabled"},
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "look", "description": "Look.", "input_schema": SCHEMA}], "tool_choice": {"type": "auto"},
        "context_management": {"edits": EDITS}, "stop_sequences": ["q"], "metadata": {"user_id": "u"},
    },
    "/v1/messages/count_tokens": {
        "model": "lamb", "messages": BLOCKS, "context_management": {"edits": [{"type": "compact_20260112"}]},
    },
    "/v1/chat/completions": {
        "model": "lamb", "messages": CHAT, "max_tokens": 3, "tools": [FUNCTION], "tool_choice": "auto", "n": 1,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        "logit_bias": {"5": -1}, "stop": ["q"],
    },
    "/v1/completions": {"model": "lamb", "prompt": "Once", "max_tokens": 3, "logprobs": 1},
    "/v1/embeddings": {"model": "lamb", "input": ["a", "b"], "encoding_format": "float"},
    "/completion": {"prompt": ["a", 1], "n_predict": 3, "samplers": ["top_k"], "json_schema": SCHEMA},
    "/infill": {
        "input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "f", "text": "t"}], "n_predict": 3,
    },
    "/tokenize": {"content": "abc", "add_special": True},
    "/detokenize": {"tokens": [1, 2]},
    "/apply-template": {"messages": CHAT},
    "/api/chat": {
        "model": "lamb", "messages": SEEN, "stream": False, "options": {"num_predict": 3, "stop": ["q"]},
        "tools": [FUNCTION], "format": SCHEMA, "keep_alive": "5m", "think": False,
    },
    "/api/generate": {
        "model": "lamb", "prompt": "x", "stream": False, "options": {"num_predict": 3}, "context": [1, 2],
    },
    "/api/embed": {"model": "lamb", "input": ["a"]},
    "/api/show": {"model": "lamb"},
    "/v1/rerank": {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1, "return_documents": True},
    "/rerank": {"query": "a", "texts": ["b"], "raw_scores": True, "truncate": True, "truncation_direction": "left"},
    "/v2/rerank": {"model": "rank", "query": "a", "documents": ["b"], "max_tokens_per_doc": 9},
    "/v1/score": {"text_1": "a", "text_2": ["b"], "truncate_prompt_tokens": 9},
}  # fmt: skip
REFUSED = {400, 404}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    folder = tmp_path_factory.mktemp("damaged")
    rank = write_bert(folder / "rank.gguf", pooling=4, n_labels=1)
    text = f"[models.lamb]\npath = 'embedded'\n[models.rank]\npath = '{rank.path}'\n[caches.main]\nmodel = 'lamb'\n"
    with (
        serving(folder, f"{text}n_ctx = 2048\n") as url,
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        yield client


@pytest.mark.model
@pytest.mark.parametrize("path", BODIES)
def test_a_damaged_request_is_answered_or_refused(path: str, client: httpx2.Client) -> None:
    body = BODIES[path]
    whole = client.post(path, json=body)
    assert whole.status_code == 200 or path == "/infill", whole.text  # whose tokens this model has not
    wrong = []
    for at in places(body):
        for kind in KINDS if at else ():
            answer = client.post(path, json=damaged(body, at, kind))
            is_told = answer.status_code in REFUSED and bool(answer.json().get("error") or answer.json().get("message"))
            if answer.status_code != 200 and not is_told:
                wrong.append((at, kind, answer.status_code, answer.text[:200]))
    assert wrong == []
