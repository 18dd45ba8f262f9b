"""Anthropic's own client has its context cleared and compacted on the embedded model: only new tokens are computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from tests.own_server import serving

pytestmark = pytest.mark.model

BETAS = ["context-management-2025-06-27", "compact-2026-01-12"]
TOOL: Any = {"name": "read_file", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}
CACHES = '[caches.main]\nmodel = "lamb"\nn_ctx = 4096\noverflow = "evict"\n'
NEW_TOKENS = 60
"""More than a short question has with its markup, and far fewer than a result."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[anthropic.Anthropic]:
    folder: Path = tmp_path_factory.mktemp("edits")
    with serving(folder, CACHES) as url, anthropic.Anthropic(base_url=url, api_key="x", max_retries=0) as made:
        yield made


def session(n: int, about: str) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": f"Mend the parser of {about}."}]
    for number in range(n):
        call = {"type": "tool_use", "id": f"{about}{number}", "name": "read_file", "input": {"path": f"{number}.py"}}
        lines = "\n".join(f"line {line} of {about} {number}" for line in range(25))
        result = {"type": "tool_result", "tool_use_id": f"{about}{number}", "content": lines}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return messages


def ask(client: anthropic.Anthropic, messages: list[Any], *edits: Any) -> Any:
    management: Any = {"context_management": {"edits": list(edits)}} if edits else {}
    return client.beta.messages.create(
        model="lamb", max_tokens=8, messages=messages, tools=[TOOL], betas=BETAS, **management
    )


def answered(answer: Any) -> Any:
    return {"role": "assistant", "content": [block.to_dict() for block in answer.content]}


def size(answer: Any) -> int:
    usage = answer.usage
    return int(usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens)


CLEAR: Any = {
    "type": "clear_tool_uses_20250919",
    "trigger": {"type": "tool_uses", "value": 3},
    "keep": {"type": "tool_uses", "value": 1},
}
COMPACT: Any = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 900}}


def test_results_are_cleared_in_place(client: anthropic.Anthropic) -> None:
    messages = session(4, "ann")
    whole = ask(client, messages)
    assert whole.context_management is None
    messages += [answered(whole), {"role": "user", "content": "And now?"}]
    counted = client.beta.messages.count_tokens(
        model="lamb", messages=messages, tools=[TOOL], betas=BETAS, context_management={"edits": [CLEAR]}
    )
    answer = ask(client, messages, CLEAR)
    (applied,) = answer.context_management.applied_edits
    assert applied.cleared_tool_uses == 3
    assert answer.usage.input_tokens <= NEW_TOKENS, "nothing behind the results is computed again"
    assert counted.input_tokens == size(answer)
    assert counted.context_management is not None
    assert counted.context_management.original_input_tokens == size(answer) + applied.cleared_input_tokens
    messages += [answered(answer), {"role": "user", "content": "Thanks."}]
    again = ask(client, messages, CLEAR)
    assert again.usage.input_tokens <= NEW_TOKENS


def test_a_compaction_in_a_stream_stands_for_what_it_has_taken(client: anthropic.Anthropic) -> None:
    messages = session(5, "bob")
    ask(client, messages)
    with client.beta.messages.stream(
        model="lamb",
        max_tokens=8,
        messages=messages,
        tools=[TOOL],
        betas=BETAS,
        context_management={"edits": [COMPACT]},
    ) as stream:
        answer = stream.get_final_message()
    block = answer.content[0]
    assert block.type == "compaction"
    assert block.content is not None
    assert "Mend the parser of bob" in block.content
    assert block.encrypted_content is not None
    assert block.encrypted_content.startswith("shp1.")
    assert size(answer) < 900
    # the client drops what was before the block
    following = [answered(answer), {"role": "user", "content": "And now?"}]
    shorter = ask(client, following, COMPACT)
    assert shorter.usage.input_tokens <= NEW_TOKENS
    # another keeps it all
    longer = ask(client, [*messages, *following[:1], {"role": "user", "content": "And then?"}], COMPACT)
    assert longer.usage.input_tokens <= NEW_TOKENS
    assert size(longer) < 900


def test_an_answer_pauses_behind_its_compaction(client: anthropic.Anthropic) -> None:
    answer = ask(client, session(5, "cyd"), {**COMPACT, "pause_after_compaction": True})
    assert answer.stop_reason == "compaction"
    assert [block.type for block in answer.content] == ["compaction"]
    assert answer.usage.output_tokens == 0
    goes_on = ask(client, [answered(answer), {"role": "user", "content": "Go on."}])
    assert goes_on.stop_reason in ("end_turn", "max_tokens", "tool_use")
    assert size(goes_on) < 900


def test_a_trigger_beyond_the_window_acts_where_the_window_ends(client: anthropic.Anthropic) -> None:
    """Inspect names 190,000 tokens once it has compacted by itself, and keeps no more than the text of the block."""
    late = {**COMPACT, "trigger": {"type": "input_tokens", "value": 190_000}}
    small = ask(client, session(5, "fay"), late)
    assert "compaction" not in {block.type for block in small.content}
    window = client.models.retrieve("lamb").max_input_tokens or 0
    large = ask(client, session(window // 150, "fay"), late)
    assert large.content[0].type == "compaction"
    assert size(large) < window


@pytest.mark.parametrize("word", ["shp1.forged", "shp1."])
def test_a_forged_compaction_is_refused(client: anthropic.Anthropic, word: str) -> None:
    block = {"type": "compaction", "content": "The task.", "encrypted_content": word}
    with pytest.raises(anthropic.BadRequestError, match="compaction"):
        ask(client, [{"role": "assistant", "content": [block]}, {"role": "user", "content": "Go on."}])


def test_a_compaction_whose_word_was_lost_is_read_as_its_text(client: anthropic.Anthropic) -> None:
    block = {"type": "compaction", "content": "They mend the parser of dan."}
    answer = ask(client, [{"role": "assistant", "content": [block]}, {"role": "user", "content": "Go on."}])
    assert size(answer) > 0


def test_an_unknown_edit_is_named(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="clear_images"):
        ask(client, session(1, "eve"), {"type": "clear_images_20270101"})


def test_a_head_and_a_stream_say_what_was_cleared(client: anthropic.Anthropic) -> None:
    messages = session(5, "gil")
    fields: Any = {"model": "lamb", "max_tokens": 8, "messages": messages, "tools": [TOOL], "betas": BETAS}
    plain = client.beta.messages.with_raw_response.create(**fields)
    assert "x-shepherd-cleared" not in plain.headers
    fields["context_management"] = {"edits": [COMPACT]}
    raw = client.beta.messages.with_raw_response.create(**fields)
    n = int(raw.headers["x-shepherd-cleared"])
    assert n > 0
    with client.beta.messages.with_streaming_response.create(**fields, stream=True) as stream:
        assert stream.headers["x-shepherd-cleared"] == str(n)
        comments = [line for line in stream.iter_lines() if line.startswith(": cleared")]
    (comment,) = comments
    assert comment.startswith(f": cleared {n} parts as asked, ")
