"""Recordings: in order, whole, without keys, for the owner alone; and read back as they were written."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.core import ConfigError, ContextFull, Usage
from shepherd.server.observe.record import Record
from shepherd.server.observe.recordings import Recorder, Recording, encode_recording, read

KEY = "sk-test-0123456789abcdef"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Grüße 🐑"}], "prompt_cache_key": "c"}


async def send(url: str, body: bytes, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient() as client:
        told = {"content-type": "application/json", **{name.replace("_", "-"): v for name, v in headers.items()}}
        return await client.post(f"{url}/v1/chat/completions?beta=true", content=body, headers=told)


async def test_requests_are_written_in_order_with_what_they_cost_and_without_keys(
    listening: Listening, tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path / "new" / "folder")
    service = ScriptedService(saying("Hi.", usage=Usage(input=7, cache_read=3, output=5, drafted=4, accepted=2)))
    async with listening(service, observe=(recorder.observe,), api_keys=[KEY]) as url:
        body = {**BODY, "mcp_servers": [{"authorization_token": "hush-hush"}], "user": KEY}
        await send(url, json.dumps(body).encode(), authorization=f"Bearer {KEY}", x_session_id="s")
        await send(url, b"{", x_api_key=KEY)
    recorder.close()
    first, second = read(recorder.folder)
    assert (first.n, first.method, first.path) == (1, "POST", "/v1/chat/completions?beta=true")
    assert {name: body[name] for name in BODY} == {name: first.body[name] for name in BODY}
    assert first.headers["x-session-id"] == "s"
    assert first.answer["status"] == 200
    assert first.answer["usage"] == {
        "prompt": 10,
        "input": 7,
        "cache_read": 3,
        "recalled": 0,
        "cache_write": 0,
        "output": 5,
        "reasoning": 0,
        "drafted": 4,
        "accepted": 2,
    }
    assert 0 <= first.answer["first_ms"] <= first.answer["ms"]
    assert (second.n, second.body, second.answer["status"]) == (2, "{", 400)
    assert "usage" not in second.answer
    for file in recorder.folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        content = file.read_text()
        assert KEY not in content
        assert "hush" not in content
        assert "authorization" not in content or '"[not written]"' in content
    assert stat.S_IMODE(recorder.folder.stat().st_mode) == 0o700


async def test_refused_and_unauthorised_requests(listening: Listening, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    service = ScriptedService(playing(ContextFull(needed=9, limit=8)))
    async with listening(service, observe=(recorder.observe,), api_keys=[KEY]) as url:
        assert (await send(url, json.dumps(BODY).encode())).status_code == 401
        assert (await send(url, json.dumps(BODY).encode(), x_api_key=KEY)).status_code == 400
    recorder.close()
    (only,) = read(tmp_path)
    assert only.answer["status"] == 400, "what was not let in was not read, either"


def scope(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"path": "/v1/messages", "method": "POST", "headers": headers}


@pytest.mark.parametrize(
    "name", ["Authorization", "x-api-key", "api-key", "cookie", "proxy-authorization", "x-goog-api-key", "x-auth-token"]
)
def test_no_header_that_carries_a_key_is_written(name: str) -> None:
    headers = ((name.lower().encode(), b"abcdefgh-secret"), (b"anthropic-beta", b"thinking-token-count"))
    told = json.loads(encode_recording(1, scope(*headers), b'{"said": "abcdefgh-secret"}', {}))
    assert told["headers"] == {"anthropic-beta": "thinking-token-count"}
    assert told["body"] == {"said": "[not written]"}


def test_what_only_sounds_like_a_secret_is_written() -> None:
    body = {"max_tokens": 5, "prompt_cache_key": "k", "tools": [{"properties": {"api_key": {"type": "string"}}}]}
    assert json.loads(encode_recording(1, scope(), json.dumps(body).encode(), {}))["body"] == body


def test_a_recorder_continues_where_the_last_one_stopped(tmp_path: Path) -> None:
    for _ in range(2):
        recorder = Recorder(tmp_path)
        observer = recorder.observe(Record("r", "s"))
        observer.receive(scope(), b"{}")
        observer.close(Record("r", "s"))
        recorder.close()
    assert [recording.n for recording in read(tmp_path)] == [1, 2]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["001.json", "002.json"]


def test_a_request_without_a_body_leaves_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.observe(Record("r", "s")).close(Record("r", "s"))
    recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_slow_or_gone_costs_a_file_and_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "gone"
    recorder = Recorder(folder, max_waiting_bytes=10)
    folder.rmdir()
    for body in (b"x" * 11, b"{}"):
        observer = recorder.observe(Record("r", "s"))
        observer.receive(scope(), body)
        observer.close(Record("r", "s"))
    recorder.close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "too slow" in caplog.text
    assert "No such file" in caplog.text


def test_a_place_that_cannot_be_written_to_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be recorded in .*file"):
        Recorder(tmp_path / "file" / "deeper")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"path": "/x"}', '{"path": "/x", "body": {}, "n": "x"}'])
def test_what_is_no_recording_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ConfigError, match=r"a\.json is not a recording"):
        read(tmp_path)
    with pytest.raises(ConfigError, match="there is no recording"):
        read(tmp_path / "b.json")


def test_a_recorded_client_reads_as_it_stands(conformance: Path) -> None:
    found = read(conformance / "clients" / "codex")
    assert [recording.n for recording in found] == [1, 2, 3, 4]
    assert all(isinstance(recording, Recording) and recording.path == "/v1/responses" for recording in found)
