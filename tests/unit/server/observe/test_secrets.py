"""What is secret in a request is masked by one list, in debug files and in recordings alike."""

import json
from pathlib import Path

import pytest
from tests.in_process import client_of
from tests.scripted_service import ScriptedService, saying

from shepherd.server.app import create_app
from shepherd.server.observe.debug_files import DebugFolder
from shepherd.server.observe.recordings import Recorder
from shepherd.server.observe.secrets import is_secret_name, mask_fields, mask_query

PLANTED = "planted-0123456789"
NAMES = (
    "authorization", "proxy-authorization", "x-api-key", "api-key", "api_key", "apikey", "apiKey", "x-goog-api-key",
    "x-auth-token", "access_token", "accessToken", "refresh_token", "authorization_token", "client_secret", "password",
    "cookie", "credentials", "key", "token", "cache_salt",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["header", "query", "body"])
@pytest.mark.grid(0.2)
async def test_a_planted_secret_is_in_no_file(place: str, name: str, tmp_path: Path) -> None:
    debug, recorder = DebugFolder(tmp_path / "debug"), Recorder(tmp_path / "recordings")
    app = create_app(ScriptedService(saying("Hi")), observe=(debug.observe, recorder.observe))
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    if place != "body":  # what a client sends as its key is masked wherever it stands
        body["messages"] = [{"role": "user", "content": f"my key is {PLANTED}"}]
    async with client_of(app) as client:
        answer = await client.post(
            "/v1/chat/completions",
            params={name: PLANTED} if place == "query" else None,
            headers={name: PLANTED} if place == "header" else None,
            json={**body, "servers": [{"headers": {name: PLANTED}}]} if place == "body" else body,
        )
    assert answer.status_code == 200
    debug.close()
    recorder.close()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) == 5
    assert all(PLANTED.encode() not in file.read_bytes() for file in files)
    assert any(b"[not written]" in file.read_bytes() for file in files)


@pytest.mark.parametrize("name", ["prompt_cache_key", "author", "monkey", "keyboard", "tokenizer", "x-session-id"])
def test_a_name_that_only_sounds_like_a_secret_is_none(name: str) -> None:
    assert not is_secret_name(name)
    assert mask_query(f"{name}=a&b".encode()) == f"{name}=a&b"


@pytest.mark.parametrize(
    "body",
    [
        {"a": ["b", ":"], "api_key": PLANTED},
        [["a", ":", "b"], {"token": PLANTED, "c": ":"}],
        {"api_key": f'{PLANTED}"\\', "text": ""},
        {"": "", "x": {"password": PLANTED}},
    ],
)
def test_a_secret_field_is_found_wherever_it_stands(body: object) -> None:
    masked = mask_fields(json.dumps(body).encode())
    assert PLANTED.encode() not in masked
    assert json.loads(masked.replace(b"[not written]", json.dumps(PLANTED).encode()[1:-1]))


def test_a_body_without_secrets_keeps_every_byte() -> None:
    for body in (
        b"",
        b"{",
        b'{"messages": \xff',
        b'{"said": "\\"api_key\\": \\"x\\""}',
        b'{"max_tokens" : 5, "key": 1}',
    ):
        assert mask_fields(body) == body
