"""The four files of a request: always four, at any end of it, and never a secret in them."""

import asyncio
import json
import logging
import stat
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import in_process
from tests.scripted_service import Script, ScriptedService, playing

from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    ContextFull,
    EngineError,
    Event,
    Finished,
    Request,
    Started,
    TextDelta,
    ToolCall,
    Traced,
    Usage,
)
from shepherd.server.app import Limits
from shepherd.server.observe.debug_files import FILES, DebugFolder

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0.5}
SECRET = "sk-secret-that-opens"

ANSWER: tuple[Event, ...] = (
    Started("qwen", "local:qwen", Usage(3), cache="main"),
    Traced("prompt", "<|user|>Hello<|assistant|>"),
    Traced("output", "<think>hm</think>"),
    Traced("output", "Hi ☃"),
    TextDelta("Hi ☃"),
    Finished("end", Usage(3, 0, 0, 5)),
)


def client_of(script: Script, folder: Path, **options: Any) -> tuple[httpx2.AsyncClient, DebugFolder]:
    folders = DebugFolder(folder, keep=options.pop("keep", 100))
    return in_process.client_of(ScriptedService(script), observe=(folders.observe,), **options), folders


async def traced(
    script: Script, folder: Path, body: dict[str, Any] | bytes, *, path: str = CHAT, **options: Any
) -> tuple[str, list[bytes]]:
    """The name of the one folder that a request leaves, and the contents of its files."""
    client, folders = client_of(script, folder, **options)
    headers = {"authorization": f"Bearer {SECRET}"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with client:
        await client.post(path, content=content, headers=headers)
    folders.close()
    return read_one(folder)


def read_one(folder: Path) -> tuple[str, list[bytes]]:
    (found,) = folder.iterdir()
    assert sorted(each.name for each in found.iterdir()) == sorted(FILES)
    for each in (found, *found.iterdir()):
        assert stat.S_IMODE(each.stat().st_mode) == (0o700 if each == found else 0o600)
    contents = [(found / name).read_bytes() for name in FILES]
    assert not any(SECRET.encode() in content for content in contents)
    for content in (contents[1], contents[3]):
        json.loads(content)
    return found.name, contents


async def test_a_whole_answer_leaves_what_came_what_the_model_saw_and_wrote_and_what_went_back(tmp_path: Path) -> None:
    begun = datetime.now()
    name, (came, model, wrote, went) = await traced(playing(*ANSWER), tmp_path / "logs", BODY)
    moment, cache = datetime.strptime(name[:22], "%Y%m%d_%H%M%S_%f"), name[23:]
    assert begun <= moment <= datetime.now()
    assert cache == "main"
    assert came == json.dumps(BODY).encode()
    asked = json.loads(model)
    assert asked == {
        "endpoint": CHAT,
        "model": "m",
        "messages": [{"role": "user", "parts": [{"type": "text", "text": "Hello"}]}],
        "sampling": {"temperature": 0.5},
        "stream": False,
        "prompt": "<|user|>Hello<|assistant|>",
    }
    assert wrote.decode() == "<think>hm</think>Hi ☃"
    assert json.loads(went)["choices"][0]["message"]["content"] == "Hi ☃"


async def test_of_a_recording_its_type_and_size_are_kept(tmp_path: Path) -> None:
    part = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    body = {**BODY, "messages": [{"role": "user", "content": [part]}]}
    _, (_, model, _, _) = await traced(playing(*ANSWER), tmp_path / "logs", body)
    kept = {"type": "audio", "media_type": "audio/wav", "n_bytes": 4}
    assert json.loads(model)["messages"] == [{"role": "user", "parts": [kept]}]


@pytest.mark.parametrize(
    ("path", "body", "first", "last"),
    [
        (CHAT, BODY, "chat.completion.chunk", "[DONE]"),
        ("/v1/messages", {**BODY, "max_tokens": 9}, "message_start", "message_stop"),
        ("/v1/responses", {"model": "m", "input": "Hello"}, "response.created", "response.completed"),
        ("/api/chat", BODY, "Hi ☃", True),
    ],
)
async def test_of_a_stream_every_event_is_kept_in_order(
    tmp_path: Path, path: str, body: dict[str, Any], first: str, last: Any
) -> None:
    _, (_, model, wrote, went) = await traced(playing(*ANSWER), tmp_path, {**body, "stream": True}, path=path)
    events = json.loads(went)
    assert json.loads(model)["prompt"] == "<|user|>Hello<|assistant|>"
    assert wrote.decode() == "<think>hm</think>Hi ☃"
    told = [event if isinstance(event, str) else event.get("type", event.get("object")) for event in events]
    if path == "/api/chat":
        assert events[0]["message"]["content"] == first
        assert events[-1]["done"] is last
    else:
        assert (told[0], told[-1]) == (first, last)
    assert "Hi ☃" in json.dumps(events, ensure_ascii=False)


CALL = ToolCall("call_1", "list", '{"path": "/tmp"}')


async def test_tools_and_their_calls_are_in_it(tmp_path: Path) -> None:
    events = (Started("m"), CallStarted("call_1", "list"), CallDelta(CALL.arguments), CallEnded(CALL), Finished("end"))
    tools = [{"type": "function", "function": {"name": "list", "parameters": {"type": "object"}}}]
    _, (_, model, _, went) = await traced(playing(*events), tmp_path, {**BODY, "tools": tools})
    assert json.loads(model)["tools"] == [{"name": "list", "parameters": {"type": "object"}}]
    assert json.loads(went)["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "list"


FAILURES: dict[str, tuple[Script, dict[str, Any] | bytes]] = {
    "no JSON": (playing(*ANSWER), b'{"messages": \xff'),
    "nothing": (playing(*ANSWER), b""),
    "wrong field": (playing(*ANSWER), {**BODY, "temperature": "hot"}),
    "too long": (playing(ContextFull(needed=9, limit=5, cache="main")), BODY),
    "broken": (playing(RuntimeError("bug")), BODY),
    "broken later": (playing(*ANSWER[:4], EngineError("broke")), BODY),
    "broken in a stream": (playing(*ANSWER[:5], EngineError("broke")), {**BODY, "stream": True}),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_failure_leaves_four_files_too_and_says_why_there_is_nothing(tmp_path: Path, case: str) -> None:
    script, body = FAILURES[case]
    name, (came, model, wrote, went) = await traced(script, tmp_path, body)
    assert came == (body if isinstance(body, bytes) else json.dumps(body).encode())
    assert "error" in json.dumps(json.loads(went))
    understood = case not in ("no JSON", "nothing", "wrong field")
    assert ("messages" in json.loads(model)) == understood
    if case.startswith("broken "):
        assert wrote.decode() == "<think>hm</think>Hi ☃"
        assert name.endswith("_main")
    else:
        assert wrote.startswith(b"[nothing: ")
        assert name.endswith("_main" if case == "too long" else "_none")


async def test_a_body_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    body = {**BODY, "user": "x" * 1000}
    _, (came, model, _, went) = await traced(playing(*ANSWER), tmp_path, body, limits=Limits(max_body_bytes=500))
    assert json.loads(came)["status"] == 413
    assert json.loads(model)["status"] == 413
    assert "500 bytes" in json.loads(went)["error"]["message"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_leaves_what_there_was(tmp_path: Path, stream: bool) -> None:
    written = asyncio.Event()

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        for event in ANSWER[:5]:
            yield event
        written.set()
        await asyncio.Event().wait()

    client, folders = client_of(script, tmp_path)
    async with client:
        asking = asyncio.create_task(client.post(CHAT, json={**BODY, "stream": stream}))
        await written.wait()
        asking.cancel()
        await asyncio.wait((asking,))
    folders.close()
    _, (came, _, wrote, went) = read_one(tmp_path)
    assert json.loads(came) == {**BODY, "stream": stream}
    assert wrote.decode() == "<think>hm</think>Hi ☃"
    assert isinstance(json.loads(went), list) == stream


async def test_several_choices_share_the_four_files(tmp_path: Path) -> None:
    _, (_, model, wrote, went) = await traced(playing(*ANSWER), tmp_path, {**BODY, "n": 2})
    told = json.loads(model)
    assert told["prompt"] == "<|user|>Hello<|assistant|>"
    assert [other["prompt"] for other in told["other_choices"]] == ["<|user|>Hello<|assistant|>"]
    assert wrote.decode() == ("=== choice 0 ===\n<think>hm</think>Hi ☃\n=== choice 1 ===\n<think>hm</think>Hi ☃\n")
    assert len(json.loads(went)["choices"]) == 2


async def test_a_back_end_that_does_not_tell_what_its_model_wrote_is_named(tmp_path: Path) -> None:
    name, (_, model, wrote, _) = await traced(
        playing(Started("gpt", "openai:gpt"), TextDelta("Hi"), Finished("end")), tmp_path, BODY
    )
    assert json.loads(model)["prompt"] is None
    assert b"does not report" in wrote
    assert name.endswith("_openai_gpt")


async def test_a_question_without_an_answer_of_a_model_leaves_four_files(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    _, (came, model, _, went) = await traced(playing(), tmp_path, body, path="/v1/messages/count_tokens")
    assert json.loads(came) == body
    assert json.loads(model)["nothing"] == "this question is answered without generating"
    assert json.loads(went) == {"input_tokens": 5}


async def test_a_refused_request_leaves_nothing(tmp_path: Path) -> None:
    client, folders = client_of(playing(*ANSWER), tmp_path / "logs", api_keys=(SECRET,))
    async with client:
        assert (await client.post(CHAT, json=BODY)).status_code == 401
    folders.close()
    assert not (tmp_path / "logs").exists()


async def test_no_secret_is_written_wherever_it_stands(tmp_path: Path) -> None:
    body = {
        **BODY,
        "messages": [{"role": "user", "content": f"My key is {SECRET}, and \"api_key\": \"mine\"."}],
        "mcp_servers": [{"url": "http://x", "authorization_token": 'tok"en\\'}],
        "tools": [{"type": "mcp", "server_url": "http://x", "headers": {"Authorization": "Bearer other"}}],
        "API_KEY" : "third",
    }  # fmt: skip
    events = (*ANSWER[:4], TextDelta(f"It is {SECRET}."), ANSWER[-1])
    _, contents = await traced(playing(*events), tmp_path, body, path="/v1/messages", api_keys=(SECRET,))
    came = json.loads(contents[0])
    assert came["mcp_servers"][0]["authorization_token"] == "[not written]"
    assert came["tools"][0]["headers"]["Authorization"] == "[not written]"
    assert came["API_KEY"] == "[not written]"
    assert came["messages"][0]["content"] == 'My key is [not written], and "api_key": "mine".'
    assert b"It is [not written]." in contents[3]


async def test_where_the_request_went_is_in_it_without_keys_in_the_query(tmp_path: Path) -> None:
    path = "/v1/messages?beta=true&api_key=abc&key=def&access_token=x&monkey=ape"
    _, (_, model, _, _) = await traced(playing(*ANSWER), tmp_path, {**BODY, "max_tokens": 9}, path=path)
    blotted = "api_key=[not written]&key=[not written]&access_token=[not written]"
    assert json.loads(model)["endpoint"] == f"/v1/messages?beta=true&{blotted}&monkey=ape"


async def test_a_placeholder_for_a_key_is_an_ordinary_word(tmp_path: Path) -> None:
    client, folders = client_of(playing(*ANSWER), tmp_path)
    async with client:
        content = "anything goes, or none"
        body = {"model": "m", "messages": [{"role": "user", "content": content}]}
        for key in ("none", "anything"):
            await client.post(CHAT, json=body, headers={"authorization": f"Bearer {key}"})
    folders.close()
    for folder in tmp_path.iterdir():
        assert json.loads((folder / FILES[0]).read_bytes())["messages"][0]["content"] == content


# ---- the folders


def put(folders: DebugFolder, *sizes: int, at: datetime = datetime(2026, 1, 2, 3, 4, 5)) -> None:
    for number, size in enumerate(sizes):
        contents = (b"x" * size, b"", b"", b"")
        folders.write(at + timedelta(seconds=number), "main", size, lambda contents=contents: contents)  # type: ignore[misc]
    folders.close()


@pytest.mark.parametrize(
    ("keep", "max_bytes", "kept"), [(2, 100, [30, 40]), (10, 75, [30, 40]), (10, 35, [40]), (1, 1, [40]), (0, 0, [40])]
)
def test_the_oldest_go_when_there_are_too_many_or_they_are_too_large(
    tmp_path: Path, keep: int, max_bytes: int, kept: list[int]
) -> None:
    put(DebugFolder(tmp_path, keep=keep, max_bytes=max_bytes), 10, 20, 30, 40)
    assert [(folder / FILES[0]).stat().st_size for folder in sorted(tmp_path.iterdir())] == kept


def test_what_earlier_runs_left_counts_and_goes_first(tmp_path: Path) -> None:
    put(DebugFolder(tmp_path), 1, 2, 3)
    put(DebugFolder(tmp_path, keep=3), 4, at=datetime(2026, 2, 2))
    assert [(folder / FILES[0]).stat().st_size for folder in sorted(tmp_path.iterdir())] == [2, 3, 4]


def test_only_what_is_ours_is_ever_removed(tmp_path: Path) -> None:
    others = ["notes", "20260102_030405_000000", "20260102_030405_main", "x20260102_030405_000000_main"]
    for name in others:
        (tmp_path / name).mkdir()
        (tmp_path / name / FILES[0]).write_text("mine")
    (tmp_path / "20260101_030405_000000_main").write_text("a file of that name")
    elsewhere = tmp_path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / FILES[0]).write_text("mine")
    (tmp_path / "20260101_030405_000001_link").symlink_to(elsewhere)
    kept = tmp_path / "20260101_030405_000002_main"
    kept.mkdir()
    (kept / FILES[0]).write_text("ours")
    (kept / "notes.txt").write_text("mine")
    put(DebugFolder(tmp_path, keep=1), 1)
    assert all((tmp_path / name / FILES[0]).read_text() == "mine" for name in others)
    assert (elsewhere / FILES[0]).read_text() == "mine"
    assert [each.name for each in kept.iterdir()] == ["notes.txt"]


def test_two_requests_in_the_same_microsecond_have_folders_of_their_own(tmp_path: Path) -> None:
    folders = DebugFolder(tmp_path)
    for _ in range(3):
        folders.write(datetime(2026, 1, 1), "main", 1, lambda: (b"", b"", b"", b""))
    folders.close()
    assert len(list(tmp_path.iterdir())) == 3


@given(st.text(max_size=100))
def test_every_name_of_a_cache_makes_a_valid_name_of_a_folder(name: str) -> None:
    from shepherd.server.observe.debug_files import _OURS, _plain_name

    assert _OURS.fullmatch(f"20260101_000000_000000_{_plain_name(name)}")
    assert ".." not in _plain_name(name)[:2]


async def test_a_disk_that_cannot_be_written_costs_files_and_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").write_text("no folder")
    client, folders = client_of(playing(*ANSWER), tmp_path / "logs")
    async with client:
        for _ in range(3):
            assert (await client.post(CHAT, json=BODY)).status_code == 200
    folders.close()
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == [
        f"debug files cannot be written in {tmp_path / 'logs'}: File exists"
    ]


def test_what_comes_after_the_end_is_left_out(tmp_path: Path) -> None:
    folders = DebugFolder(tmp_path)
    put(folders, 1)
    put(folders, 2)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_disk_that_is_too_slow_costs_files_and_no_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folders = DebugFolder(tmp_path, max_waiting_bytes=100)
    put(folders, 60, 60_000)
    assert len(list(tmp_path.iterdir())) == 1
    assert "is too slow" in caplog.text
