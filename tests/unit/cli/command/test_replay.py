"""`shepherd replay`: recorded requests are sent again, and the changes are reported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.cli.command.replay import (
    ANSWER,
    BODY,
    ReplayResult,
    changes_memory,
    connect,
    listening,
    path_of,
    play,
    read_recordings,
    summary,
)
from shepherd.cli.command.replies import ReplySummary
from shepherd.cli.main import cli
from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    ConfigError,
    ContextFull,
    Event,
    Finished,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCall,
    Unreachable,
    Usage,
)
from shepherd.server.observe.debug_files import DebugFolder
from shepherd.server.observe.recordings import Recorder, Recording, read

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
TOOL: dict[str, Any] = {"name": "look", "description": "", "parameters": {"type": "object"}}
REQUESTS = {
    "chat": Recording("/v1/chat/completions", {**ASK, "tools": [{"type": "function", "function": TOOL}]}),
    "messages": Recording(
        "/v1/messages?beta=true", {**ASK, "max_tokens": 99, "tools": [{"name": "look", "input_schema": {}}]}
    ),
    "responses": Recording("/v1/responses", {"model": "m", "input": "Hello", "tools": [{"type": "function", **TOOL}]}),
    "ollama": Recording("/api/chat", {**ASK, "tools": [{"type": "function", "function": TOOL}]}),
}
USAGE = Usage(input=7, cache_read=3, output=5)
EVENTS: tuple[Event, ...] = (
    Started("m", usage=USAGE),
    ReasoningDelta("Let me look. "),
    TextDelta("I look: "),
    TextDelta("é🐑"),
    CallStarted("c1", "look"),
    CallDelta('{"at": 1}'),
    CallEnded(ToolCall("c1", "look", '{"at": 1}')),
    Finished("tool_calls", USAGE),
)


def streamed(recording: Recording, stream: bool) -> Recording:
    return replace(recording, body={**recording.body, "stream": stream})


async def played(service: ScriptedService, *recordings: Recording, **options: Any) -> list[ReplayResult]:
    async with listening(service, **options) as (url, key), connect(url, key) as client:
        return [await play(client, recording) for recording in recordings]


@pytest.mark.parametrize("name", REQUESTS)
async def test_an_answer_is_read_in_every_protocol_streamed_or_not(name: str) -> None:
    recordings = [streamed(REQUESTS[name], stream) for stream in (True, False)]
    for answer in await played(ScriptedService(playing(*EVENTS)), *recordings):
        assert (answer.status, answer.reply.failed) == (200, False)
        words = [word for word in ("Let me look.", "I look: é🐑", "look ", "at") if word in answer.reply.text]
        assert [answer.reply.text.index(word) for word in words] == sorted(
            answer.reply.text.index(word) for word in words
        )
        assert words[-3:] == ["I look: é🐑", "look ", "at"]
        assert (answer.reply.prompt, answer.reply.output) == (10, 5)
        assert answer.reply.cached == (None if name == "ollama" else 3)
        assert answer.prefilled == (10 if name == "ollama" else 7)
        assert answer.first_ms is not None
        assert not answer.is_different


@pytest.mark.grid(0.2, family="name")
@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_is_read_in_every_protocol(name: str, stream: bool) -> None:
    for script in (playing(ContextFull(needed=9, limit=8)), playing(*EVENTS[:3], ContextFull(needed=9, limit=8))):
        (answer,) = await played(ScriptedService(script), streamed(REQUESTS[name], stream))
        assert answer.reply.failed
        assert "9" in answer.reply.text
        assert answer.is_different, "nothing is known of it, and it failed"


async def test_what_is_recorded_can_be_played_and_says_whether_it_is_answered_as_it_was(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    asked = [streamed(recording, True) for recording in REQUESTS.values()]
    await played(ScriptedService(playing(*EVENTS)), *asked, observe=(recorder.observe,))
    await asyncio.to_thread(recorder.close)
    recordings = read_recordings(tmp_path)
    assert [recording.path for recording in recordings] == [recording.path for recording in asked]
    same = await played(ScriptedService(playing(*EVENTS)), *recordings)
    assert [answer.differences for answer in same] == [[], [], [], []]
    other = await played(ScriptedService(saying("Hi.", usage=Usage(input=10, output=1))), *recordings)
    assert other[0].differences == ["cached 3 → 0", "out 5 → 1"]
    assert not other[0].is_different
    refused = await played(ScriptedService(playing(ContextFull(needed=9, limit=8))), *recordings)
    assert all(answer.is_different and answer.differences == ["status 200 → 400"] for answer in refused)
    assert summary(same) == {
        "requests": 4, "failed": 0, "different": 0, "prompt": 40, "prefilled": 31, "prefill_ratio": 0.775,
    }  # fmt: skip


@pytest.mark.grid(0.2, family="name")
@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("stream", [True, False])
async def test_debug_files_can_be_played_and_their_words_are_compared(name: str, stream: bool, tmp_path: Path) -> None:
    folders = DebugFolder(tmp_path)
    asked = streamed(REQUESTS[name], stream)
    await played(ScriptedService(saying("One.\nTwo.")), asked, observe=(folders.observe,))
    await asyncio.to_thread(folders.close)
    (recording,) = read_recordings(tmp_path)
    assert recording == read_recordings(next(tmp_path.iterdir()))[0]
    assert recording.path.partition("?")[0] == asked.path.partition("?")[0]
    assert {name: recording.body[name] for name in asked.body} == asked.body
    (same,) = await played(ScriptedService(saying("One.\nTwo.")), recording)
    assert (same.diff, same.differences, same.is_different) == ("", [], False)
    (other,) = await played(ScriptedService(saying("One.\nThree.")), recording)
    assert other.differences == ["text"]
    assert other.diff.splitlines()[-3:] == [" One.", "-Two.", "+Three."]
    (failed,) = await played(ScriptedService(playing(ContextFull(needed=9, limit=8))), recording)
    assert failed.is_different


async def test_a_failed_request_is_played_from_its_debug_files(tmp_path: Path) -> None:
    folders = DebugFolder(tmp_path)
    full = ScriptedService(playing(ContextFull(needed=9, limit=8)))
    await played(full, REQUESTS["messages"], Recording("/v1/messages", "{"), observe=(folders.observe,))
    await asyncio.to_thread(folders.close)
    recordings = read_recordings(tmp_path)
    assert recordings[1].body == "{"
    assert [answer.is_different for answer in await played(full, *recordings)] == [False, False]


async def test_keys_of_a_recording_go_nowhere(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    told = {"Authorization": "Bearer old", "x-api-key": "old", "Host": "elsewhere", "Content-Length": "3", "x-a": "1"}
    (answer,) = await played(
        ScriptedService(saying("Hi.")), replace(REQUESTS["chat"], headers=told), observe=(recorder.observe,)
    )
    await asyncio.to_thread(recorder.close)
    assert answer.status == 200
    (sent,) = read(tmp_path)
    assert sent.headers["x-a"] == "1"
    assert "elsewhere" not in sent.headers["host"]


async def test_nobody_there_is_one_sentence() -> None:
    async with connect("http://127.0.0.1:9") as client:
        with pytest.raises(Unreachable, match=r"no server answers at http://127\.0\.0\.1:9"):
            await play(client, REQUESTS["chat"])


@pytest.mark.parametrize(
    ("body", "told", "path"),
    [
        (ASK, {"object": "chat.completion.chunk"}, "/v1/chat/completions"),
        (ASK, {"object": "text_completion"}, "/v1/completions"),
        (ASK, {"type": "message_start"}, "/v1/messages"),
        (ASK, {"type": "response.created"}, "/v1/responses"),
        (ASK, {"message": {}, "done": False}, "/api/chat"),
        (ASK, {"response": "x", "done": False}, "/api/generate"),
        ({**ASK, "system": "s"}, {}, "/v1/messages"),
        ({"input": "x"}, {}, "/v1/responses"),
        (ASK, {}, "/v1/chat/completions"),
        ("{", {"type": "error"}, "/v1/messages"),
    ],
)
def test_where_a_request_was_sent_shows_in_its_shape(body: Any, told: Mapping[str, Any], path: str) -> None:
    assert path_of(body, told) == path


@pytest.mark.parametrize("event", [None, "x", [], {}, {"choices": [None, {}]}, {"type": "response.x"}, {"usage": 3}])
def test_what_cannot_be_read_says_nothing(event: Any) -> None:
    heard = ReplySummary()
    heard.feed(event)
    assert (heard.text, heard.failed, heard.prompt) == ("", False, None)


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.model
def test_the_command_plays_to_the_configured_model_and_says_what_it_cost(tmp_path: Path) -> None:
    body = {**ASK, "model": "lamb", "max_tokens": 3, "temperature": 0}
    recorded = {"path": "/v1/chat/completions", "headers": {}, "body": body}
    for n in (1, 2):
        (tmp_path / f"{n}.json").write_text(json.dumps({**recorded, "n": n}))
    result = CliRunner().invoke(cli, ["replay", str(tmp_path), "--json", "--threads", "1"])
    assert result.exit_code == 0, result.output
    first, second, last = map(json.loads, result.stdout.splitlines())
    assert (first["n"], first["status"], first["cached"], first["output"]) == (1, 200, 0, 3)
    assert (second["n"], second["prompt"], second["prefilled"]) == (2, first["prompt"], 1)
    assert last["summary"]["prefilled"] == first["prompt"] + 1


@pytest.mark.parametrize(
    ("method", "path", "changes"),
    [
        ("POST", "/v1/memory/forget", True),
        ("DELETE", "/v1/memory/facts/name?x=1", True),
        ("PUT", "/v1/memory/facts/name", True),
        ("POST", "/v1/memory/search", False),
        ("GET", "/v1/memory/stats", False),
        ("POST", "/v1/chat/completions", False),
    ],
)
def test_requests_that_change_the_memory_are_told_apart(method: str, path: str, changes: bool) -> None:
    assert changes_memory(Recording(path, {}, method=method)) == changes


@pytest.mark.model
def test_the_command_never_repeats_a_request_that_changes_the_memory(tmp_path: Path) -> None:
    body = {**ASK, "model": "lamb", "max_tokens": 3, "temperature": 0}
    asked = {"path": "/v1/chat/completions", "headers": {}, "body": body, "n": 1}
    forgets = {"path": "/v1/memory/forget", "headers": {}, "body": {"matching": "Ann"}, "n": 2}
    (tmp_path / "1.json").write_text(json.dumps(asked))
    (tmp_path / "2.json").write_text(json.dumps(forgets))
    result = CliRunner().invoke(cli, ["replay", str(tmp_path), "--json", "--threads", "1"])
    assert [json.loads(line).get("n") for line in result.stdout.splitlines()] == [1, None]
    assert "1 requests that change the memory are left out" in result.stderr


@pytest.mark.model
def test_the_command_shows_a_table_and_fails_when_something_is_answered_otherwise(tmp_path: Path) -> None:
    body = {**ASK, "model": "lamb", "max_tokens": 3, "temperature": 0}
    (tmp_path / BODY).write_text(json.dumps(body))
    (tmp_path / ANSWER).write_text(json.dumps({"error": {"message": "It was full.", "type": "invalid_request_error"}}))
    result = CliRunner().invoke(cli, ["replay", str(tmp_path), "--threads", "1"])
    assert result.exit_code == 1
    assert "-It was full." in result.stdout
    assert "1 requests, 0 failed, 1 not as recorded" in result.stdout


def test_a_folder_without_recordings_is_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["replay", str(tmp_path)])
    assert result.exit_code == 1
    assert "no recording in" in result.stderr
    with pytest.raises(ConfigError):
        read_recordings(tmp_path / "nothing")
