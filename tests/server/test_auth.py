"""Who may ask: keys, hosts, origins."""

from typing import Any

import httpx2
import pytest

from shepherd.server.app import Service, create_app
from shepherd.server.fake import ScriptedService, saying

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "gpt-4", "messages": [{"role": "user", "content": "Hello"}]}


def client_of(service: Service, **options: Any) -> httpx2.AsyncClient:
    """A client of an application in process."""
    transport = httpx2.ASGITransport(create_app(service, **options))
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer sk-one"}, 200),
        ({"authorization": "bearer  sk-two"}, 200),
        ({"x-api-key": "sk-two"}, 200),
        ({"authorization": "Basic abc", "x-api-key": "sk-two"}, 200),
        ({"authorization": "sk-one"}, 401),
        ({"x-api-key": "sk-on"}, 401),
        ({"x-api-key": b"\xff\xfe"}, 401),
    ],
)
async def test_a_key_comes_as_a_bearer_token_or_in_x_api_key(headers: Any, status: int) -> None:
    async with client_of(ScriptedService(saying("Hi")), api_keys=("sk-one", "sk-two")) as client:
        answer = await client.post(CHAT, json=BODY, headers=headers)
        assert answer.status_code == status
        assert status == 200 or answer.json()["error"]["type"] == "authentication_error"
        assert status == 200 or answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/", CHAT, "/v1/models", "/docs", "/openapi.json", "/nope", "/health/", "//health"])
async def test_with_keys_every_path_but_health_is_closed(path: str) -> None:
    async with client_of(ScriptedService(saying("Hi")), api_keys=("sk",)) as client:
        assert (await client.get(f"http://localhost{path}")).status_code == 401
        assert (await client.get("/health")).status_code == 200


async def test_an_empty_list_of_keys_refuses_everybody() -> None:
    async with client_of(ScriptedService(saying("Hi")), api_keys=()) as client:
        for headers in ({}, {"authorization": "Bearer "}, {"x-api-key": ""}, {"x-api-key": "any"}):
            answer = await client.post(CHAT, json=BODY, headers=headers)
            assert answer.status_code == 401
            assert "empty list" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:8000", 200),
        ("127.8.9.1", 200),
        ("[::1]:8000", 200),
        ("192.168.1.5:8000", 200),
        ("workstation:8000", 200),
        ("host.docker.internal:8000", 200),
        ("api.localhost", 200),
        ("evil.example:8000", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("evil.example@localhost", 403),
        ("evil.example.", 403),
    ],
)
async def test_an_open_loopback_server_answers_to_local_names_only(host: str, status: int) -> None:
    async with client_of(ScriptedService(saying("Hi"))) as client:
        answer = await client.post(CHAT, json=BODY, headers={"host": host})
        assert answer.status_code == status
        assert status == 200 or "rebinding" in answer.json()["error"]["message"]


@pytest.mark.parametrize("options", [{"host": "0.0.0.0"}, {"api_keys": ("sk",)}])
async def test_other_servers_answer_to_any_name(options: Any) -> None:
    async with client_of(ScriptedService(saying("Hi")), **options) as client:
        headers = {"host": "llm.example", "x-api-key": "sk"}
        assert (await client.post(CHAT, json=BODY, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("https://127.0.0.1", 200),
        ("http://[::1]:5173", 200),
        ("tauri://localhost", 200),
        ("vscode-webview://abc", 200),
        ("chrome-extension://abcdef", 200),
        ("https://app.example", 200),
        ("https://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
    ],
)
async def test_pages_from_the_web_cannot_use_an_open_server(origin: str, status: int) -> None:
    async with client_of(ScriptedService(saying("Hi")), origins=("https://app.example",)) as client:
        answer = await client.post(CHAT, json=BODY, headers={"origin": origin})
        assert answer.status_code == status
        assert answer.headers.get("access-control-allow-origin") == (origin if status == 200 else None)


async def test_our_own_docs_may_use_the_server_under_any_address() -> None:
    async with client_of(ScriptedService(saying("Hi")), host="0.0.0.0") as client:
        headers = {"host": "192.168.1.5:8000", "origin": "http://192.168.1.5:8000"}
        assert (await client.post(CHAT, json=BODY, headers=headers)).status_code == 200


async def test_a_preflight_needs_no_key_and_allows_the_headers_of_the_sdks() -> None:
    async with client_of(ScriptedService(saying("Hi")), api_keys=("sk",)) as client:
        headers = {
            "origin": "http://localhost:3000",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type,openai-beta,x-api-key,anthropic-version,"
            "x-stainless-retry-count,x-stainless-timeout,anthropic-dangerous-direct-browser-access",
        }
        answer = await client.options(CHAT, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
        refused = await client.options(CHAT, headers={**headers, "origin": "https://evil.example"})
        assert refused.status_code == 400
