"""Who may ask: keys, hosts, origins."""

import asyncio
import hashlib
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Message
from tests.in_process import client_of
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, saying

from shepherd.server.app import create_app
from shepherd.server.http.auth import Key, generate_key, keys_for
from shepherd.server.http.caller import is_loopback
from shepherd.tools.offer import Offer

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "gpt-4", "messages": [{"role": "user", "content": "Hello"}]}


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
        ({"authorization": "Bearer wrong", "x-api-key": "sk-two"}, 200),
        ({"authorization": "Bearer sk-one", "x-api-key": "wrong"}, 200),
        ({"authorization": "Bearer sk-one", "x-api-key": ""}, 200),
        ({"authorization": "Bearer wrong", "x-api-key": "wrong"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Bearer sk-one sk-two"}, 401),
        ({"cookie": "x-api-key=sk-one"}, 401),
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


SECRET = "sk-secret-that-opens"


def routes_of(routes: list[BaseRoute], before: str = "") -> Iterator[tuple[str, str]]:
    """Every method and path, with something in the place of parameters; of a mounted application, its root."""
    for route in routes:
        if isinstance(route, Mount):
            yield from routes_of(list(route.routes or ()), before + route.path)
            yield "GET", f"{before}{route.path}/anything"
        else:
            assert isinstance(route, Route), f"{route} is reached without a check that this test knows"
            path = before + route.path.replace(":path}", "}")
            for method in sorted(route.methods or ()):
                yield method, path.replace("{", "").replace("}", "")


def spellings(path: str) -> Iterator[bytes]:
    """The same path, or nearly, as an attacker may write it."""
    raw = path.encode()
    yield raw
    yield raw + b"/"
    yield b"/" + raw
    yield b"/%2e" + raw
    yield b"/v1/.." + raw
    yield b"/health/.." + raw
    yield b"/health/%2e%2e" + raw
    yield b"/health" + raw
    yield b"/v1" + raw
    yield raw.replace(b"/", b"%2f", 1) if raw.count(b"/") > 1 else raw
    yield raw.replace(b"/", b"\\")
    yield raw + b"?/health"
    yield raw + b"%23/health"
    yield raw + b";/health"
    yield raw.upper()


async def status_of(app: Any, method: str, raw: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """What an application answers to exactly this request line, decoded as the server decodes it."""
    raw_path, _, query = raw.partition(b"?")
    path = unquote(raw_path.decode("ascii"))
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": raw_path, "query_string": query, "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
    }  # fmt: skip
    answers: list[Message] = []
    bodies: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    is_answered = asyncio.Event()

    async def receive() -> Message:
        if not bodies:
            await is_answered.wait()
            return {"type": "http.disconnect"}  # a stream of events has no end of its own
        return bodies.pop()

    async def send(message: Message) -> None:
        answers.append(message)
        is_answered.set()

    await app(scope, receive, send)
    assert isinstance(answers[0]["status"], int)
    return answers[0]["status"]


async def no_tools(_user: str | None) -> Offer:
    raise AssertionError("a stranger came as far as the tools")


async def test_no_route_but_the_health_check_and_the_files_of_the_page_answers_without_a_key() -> None:
    app = create_app(ScriptedService(saying("Hi")), api_keys=(SECRET,), tools=no_tools)
    routes = set(routes_of(app.routes))
    assert {("POST", CHAT), ("GET", "/metrics"), ("GET", "/docs"), ("GET", "/openapi.json"), ("POST", "/mcp")} <= routes
    paths = {path for _, path in routes}
    methods = {method for method, _ in routes} | {"OPTIONS", "TRACE", "PATCH", "get", "SHEPHERD"}
    # A name with a health check in it is no health check: not in the Host, not in a header that some proxies believe.
    strangers: list[list[tuple[bytes, bytes]]] = [
        [(b"host", b"localhost")],
        [(b"host", b"localhost/health?"), (b"x-original-url", b"/health"), (b"x-forwarded-prefix", b"/health")],
    ]
    for headers in strangers:
        for method in methods:
            for path in paths:
                for raw in spellings(path):
                    status = await status_of(app, method, raw, headers)
                    seen = unquote(raw.partition(b"?")[0].decode())
                    public = seen in ("/health", "/v1/health") or (method, seen) == ("HEAD", "/")
                    public = public or (method in ("GET", "HEAD") and seen.startswith("/web/") and status in (200, 404))
                    if status != 401:
                        assert public, (method, raw, status)


async def test_with_the_key_every_route_is_reached() -> None:
    app = create_app(ScriptedService(saying("Hi")), api_keys=(SECRET,))
    headers = [(b"host", b"localhost"), (b"x-api-key", SECRET.encode())]
    for method, path in sorted(set(routes_of(app.routes))):
        assert await status_of(app, method, path.encode(), headers) not in (401, 403)


async def test_the_probe_of_claude_code_needs_no_key_and_reveals_nothing() -> None:
    async with client_of(ScriptedService(saying("Hi")), api_keys=(SECRET,)) as client:
        probe = await client.head("/")
        assert (probe.status_code, probe.content) == (200, b"")
        assert (await client.get("/")).status_code == 401


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        (CHAT, {"error": {"message": "M", "type": "authentication_error", "param": None, "code": "401"}}),
        (
            "/nope",
            {"error": {"message": "M", "type": "authentication_error", "param": None, "code": "401"}},
        ),
        ("/v1/messages", {"type": "error", "error": {"type": "authentication_error", "message": "M"}}),
        ("/v1/messages/count_tokens", {"type": "error", "error": {"type": "authentication_error", "message": "M"}}),
        ("/api/chat", {"error": "M"}),
        ("/api/tags", {"error": "M"}),
    ],
)
async def test_a_refusal_has_the_shape_of_the_paths_protocol(path: str, shape: dict[str, Any]) -> None:
    async with client_of(ScriptedService(saying("Hi")), api_keys=(SECRET,)) as client:
        answer = await client.post(path, json={})
    told = answer.json()
    told.pop("request_id", None)
    message = 'an API key is needed; send it as "Authorization: Bearer KEY" or "x-api-key: KEY"'
    assert told == _with(shape, message)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def _with(shape: Any, message: str) -> Any:
    if isinstance(shape, dict):
        return {name: _with(value, message) for name, value in shape.items()}
    return message if shape == "M" else shape


# ---- keys


async def test_a_key_may_be_configured_by_its_hash_and_has_a_name_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shepherd.server")
    hashed = f"sha256:{hashlib.sha256(b'sk-ann').hexdigest()}"
    keys = (Key.of_digest(hashed, name="ann"), Key.of("sk-bob", name="bob"), "sk-plain")
    async with client_of(ScriptedService(saying("Hi")), api_keys=keys) as client:
        for secret in ("sk-ann", "sk-bob", "sk-plain"):
            assert (await client.post(CHAT, json=BODY, headers={"x-api-key": secret})).status_code == 200
        refused = await client.post(CHAT, json=BODY, headers={"x-api-key": hashed})
        assert refused.status_code == 401
    names = [word for record in caplog.records for word in record.getMessage().split() if word.startswith("key=")]
    assert names == ["key=ann", "key=bob", "key=key-3", "key=-"]
    assert "sk-" not in caplog.text


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:12", "md5:" + "0" * 64, "0" * 64, "sha256:" + "g" * 64])
def test_a_hash_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        Key.of_digest(text, name="ann")


def test_keys_are_made_where_others_can_reach_the_server_and_there_are_none() -> None:
    keys, made = keys_for("0.0.0.0", None)
    assert made is not None
    assert keys == (Key.of(made, name="generated"),)
    for host, said in (("127.0.0.1", None), ("::1", None), ("localhost", None), ("0.0.0.0", ()), ("0.0.0.0", ("k",))):
        assert keys_for(host, said) == (said, None)


def test_made_keys_are_long_recognisable_and_never_the_same() -> None:
    made = {generate_key() for _ in range(50)}
    assert len(made) == 50
    assert {key.startswith("sk-shepherd-") and len(key) > 50 for key in made} == {True}


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_key_opens_if_and_only_if_it_is_the_same(one: str, other: str) -> None:
    assert (Key.of(one, name="a") == Key.of(other, name="a")) == (one == other)
    assert one not in repr(Key.of(one, name="a")) or len(one) < 6


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LOCALHOST", "127.0.0.1,::1"])
def test_loopback_addresses_are_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "192.168.1.5", "localhost.example", "127.0.0.1.example", "x", "127.0.0.1,0.0.0.0"]
)
def test_all_others_can_be_reached_by_others(host: str) -> None:
    assert not is_loopback(host)


async def test_refusals_are_one_line_in_the_log_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shepherd.server")
    async with client_of(ScriptedService(saying("Hi")), api_keys=(SECRET,)) as client:
        await client.get("/a%0a[INFO ]%20forged", headers={"x-request-id": "id-1", "x-api-key": "wrong-secret"})
        figures = (await client.get("/metrics", headers={"x-api-key": SECRET})).text
    assert caplog.messages == ["id-1 refused status=401 reason=key key=- path=/a?[INFO?]?forged"]
    assert 'shepherd_refused_total{reason="key"} 1.0' in figures


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


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"),
        (b"GET /health HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n\r\n", b"400"),
        (b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /v1/models HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /v1/models HTTP/1.1\r\n\r\n", b"400"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"api_keys": ("sk",)}])
async def test_a_request_names_its_host_once(listening: Listening, head: bytes, status: bytes, options: Any) -> None:
    async with listening(ScriptedService(saying("Hi")), **options) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        writer.write(head)
        answer = await asyncio.wait_for(reader.readline(), 60)
        assert answer.split()[1] == status
        if status == b"400":
            assert b"Host headers; HTTP/1.1 asks for exactly one" in await asyncio.wait_for(reader.read(), 60)
        writer.close()


@pytest.mark.parametrize(("host", "status"), [("llm.example:8000", 200), ("LLM.example.", 200), ("x.llm.example", 403)])
async def test_further_names_can_be_allowed(host: str, status: int) -> None:
    async with client_of(ScriptedService(saying("Hi")), allow_hosts=("llm.example",)) as client:
        assert (await client.post(CHAT, json=BODY, headers={"host": host})).status_code == status


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
            "x-stainless-retry-count,x-stainless-timeout,anthropic-dangerous-direct-browser-access,x-goog-api-key,"
            "traceparent,tracestate,baggage,openai-organization,http-referer,x-title,api-key,a-header-of-tomorrow",
        }
        answer = await client.options(CHAT, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
        assert answer.headers["access-control-allow-headers"] == headers["access-control-request-headers"]
        refused = await client.options(CHAT, headers={**headers, "origin": "https://evil.example"})
        assert refused.status_code == 400
        assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses", "/api/chat", "/v1/models", "/mcp"])
async def test_an_allowed_page_of_the_internet_may_reach_this_network_and_no_other(path: str) -> None:
    headers = {"access-control-request-method": "POST", "access-control-request-private-network": "true"}
    async with client_of(ScriptedService(saying("Hi")), origins=("https://app.example",)) as client:
        for origin in ("https://app.example", "http://localhost:3000", "app://obsidian.md"):
            answer = await client.options(path, headers={**headers, "origin": origin})
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-private-network"] == "true"
            assert answer.headers["access-control-allow-origin"] == origin
        refused = await client.options(path, headers={**headers, "origin": "https://evil.example"})
        assert refused.status_code == 400
        assert "access-control-allow-origin" not in refused.headers
