"""The HTTP tools against a real server on this machine."""

import asyncio
import datetime
import gzip
import ipaddress
import json
import ssl
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.in_time import in_time

from shepherd.tools.arguments import coerce_arguments
from shepherd.tools.base import Result, ToolError
from shepherd.tools.builtin.web import http_delete, http_get, http_post, http_put, http_request
from shepherd.tools.sandbox.network import NetworkPolicy
from shepherd.tools.tool import Tool, ToolContext

KINDS = {
    "/plain": ("text/plain", b"hello"),
    "/latin": ("text/plain; charset=ISO-8859-1", "caf\xe9".encode("latin-1")),
    "/quoted": ('text/plain; charset="utf-8"', "café".encode()),
    "/unsaid": ("text/plain", "caf\xe9 “so”".encode("cp1252")),
    "/marked-32": ("text/plain", "café".encode("utf-32")),
    "/unknown": ("text/plain; charset=klingon", "café".encode()),
    "/slow-codec": ("text/plain; charset=idna", "café".encode()),
    "/meta": ("text/html", b'<meta charset="latin-1">caf\xe9'),
    "/utf16": ("text/plain", "café".encode("utf-16")),
    "/marked": ("application/json", b"\xef\xbb\xbf{}"),
    "/image": ("image/png", b"\x89PNG\r\n" + bytes(1000)),
    "/octets": ("application/octet-stream", b"ab\0" * 1000),
    "/octets-text": ("application/octet-stream", b"really text"),
    "/empty": ("text/plain", b""),
    "/deep-page": ("text/html", b"<p>deep" + b"<svg>" * 200_000 + b"</p>" * 200_000),
    "/forged": ("text/plain", b"HTTP_STATUS:500\nHTTP 500 no"),
}


@dataclass(slots=True)
class Seen:
    """A request as the server has seen it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Site:
    """A server, what it has seen, and a gate that those wait at who never answer."""

    url: str
    port: int
    seen: list[Seen] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    site: Site

    def handle_error(self, request: Any, address: Any) -> None:
        """Clients of these tests go away on purpose."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer(self) -> None:
        site = self.server.site
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        site.seen.append(Seen(self.command, self.path, headers, body))
        site.arrived.set()
        match path:
            case "/status":
                self.send(int(query), b"sorry" if query not in {"204", "304"} else b"")
            case "/to":
                status, _, location = query.partition(",")
                self.send(int(status), Location=location)
            case "/loop":
                self.send(302, Location="/loop")
            case "/bomb":
                self.send(200, bomb(), Content_Type="text/plain", Content_Encoding="gzip")
            case "/members":
                self.send(200, gzip.compress(b"one ") + gzip.compress(b"two"), Content_Encoding="gzip")
            case "/deflate":
                self.send(200, zlib.compress(b"hello"), Content_Encoding="deflate")
            case "/raw-deflate":
                self.send(200, zlib.compress(b"hello")[2:-4], Content_Encoding="deflate")
            case "/half-gzip":
                self.send(200, gzip.compress(bytes(range(65, 91)) * 9)[:-9], Content_Encoding="gzip")
            case "/no-gzip":
                self.send(200, b"this is not gzip", Content_Encoding="gzip")
            case "/brotli":
                self.send(200, b"who knows", Content_Encoding="br")
            case "/big":
                self.send(200, b"x" * 3_000_000, Content_Type="text/plain")
            case "/half" | "/stalled":
                self.send_response(200)
                self.send_header("Content-Length", "100")
                self.end_headers()
                self.wfile.write(b"the beginning")
                self.wfile.flush()
                if path == "/stalled":
                    site.gate.wait(60)
                self.close_connection = True
            case "/hang":
                site.gate.wait(60)
                self.close_connection = True
            case "/garbage":
                self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
                self.close_connection = True
            case "/page":
                self.send(200, b"<title>T</title><h1>Hi</h1><script>x()</script>", Content_Type="text/html")
            case _ if path in KINDS:
                kind, content = KINDS[path]
                self.send(200, content, Content_Type=kind)
            case _:
                self.send(200, b"ok", Content_Type="text/plain")

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = answer


@cache
def bomb() -> bytes:
    return gzip.compress(bytes(100_000_000))


def serving(wrap: Callable[[Server], str] = lambda server: "http") -> Iterator[Site]:
    with Server(("127.0.0.1", 0), Handler) as server:
        scheme = wrap(server)
        site = server.site = Site(f"{scheme}://127.0.0.1:{server.server_port}", server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        site.gate.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    yield from serving()


HERE = NetworkPolicy(allow_private=True)


async def call(tool: Tool, reach: NetworkPolicy = HERE, **arguments: Any) -> Result:
    return await tool.run(ToolContext(reach=reach), coerce_arguments(arguments, tool))


def body_of(result: Result) -> str:
    return result.content.partition("\n\n")[2]


@pytest.mark.parametrize(
    ("tool", "method"), [(http_get, "GET"), (http_post, "POST"), (http_put, "PUT"), (http_delete, "DELETE")]
)
async def test_each_tool_sends_its_method_and_headers(site: Site, tool: Tool, method: str) -> None:
    result = await call(tool, url=f"{site.url}/a?b=c d", headers={"X-One": "1", "Accept": "text/x", "X-Two": 2})
    assert result.success
    assert result.content == "HTTP 200 OK\ncontent-type: text/plain\n\nok"
    assert result.summary == "200 OK (2 bytes)"
    (seen,) = site.seen
    assert (seen.method, seen.path) == (method, "/a?b=c%20d")
    assert seen.headers["host"] == f"127.0.0.1:{site.port}"
    assert (seen.headers["x-one"], seen.headers["x-two"], seen.headers["accept"]) == ("1", "2", "text/x")


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        ({"a": ["ü", 1]}, '{"a": ["ü", 1]}', "application/json"),
        ([1], "[1]", "application/json"),
        ('{"a": 1}', '{"a": 1}', "application/json"),
        ("a=1&b=ü", "a=1&b=ü", "text/plain; charset=utf-8"),
        ("", "", "text/plain; charset=utf-8"),
    ],
)
async def test_a_body_is_text_or_json(site: Site, body: Any, sent: str, kind: str) -> None:
    await call(http_post, url=site.url, body=body)
    assert site.seen[0].body == sent.encode()
    assert site.seen[0].headers["content-type"] == kind


async def test_the_callers_content_type_wins_and_a_password_in_the_url_becomes_a_header(site: Site) -> None:
    url = f"http://me:p%40ss@127.0.0.1:{site.port}/"
    result = await call(http_put, url=url, body={"a": 1}, headers={"content-type": "application/vnd.x+json"})
    assert site.seen[0].headers["content-type"] == "application/vnd.x+json"
    assert site.seen[0].headers["authorization"] == "Basic bWU6cEBzcw=="
    assert "p%40ss" not in result.content + result.summary


async def test_any_method_goes_through_the_general_tool(site: Site) -> None:
    assert (await call(http_request, url=site.url, method="patch", body="x")).success
    result = await call(http_request, url=f"{site.url}/plain", method="HEAD")
    assert "content-length: 5" in result.content
    assert body_of(result) == ""
    assert [seen.method for seen in site.seen] == ["PATCH", "HEAD"]
    with pytest.raises(ToolError, match=r"method must be one of GET, .* not 'CONNECT'"):
        await call(http_request, url=site.url, method="CONNECT")


@pytest.mark.parametrize(
    ("status", "phrase"),
    [(404, "404 Not Found"), (500, "500 Internal Server Error"), (304, "304 Not Modified"), (799, "799")],
)
async def test_only_200_to_299_is_success_and_the_body_is_shown_all_the_same(
    site: Site, status: int, phrase: str
) -> None:
    result = await call(http_get, url=f"{site.url}/status?{status}")
    assert not result.success
    assert result.error == phrase
    assert result.content.startswith(f"HTTP {phrase}\n")
    assert body_of(result) == ("" if status == 304 else "sorry")
    assert (await call(http_get, url=f"{site.url}/status?204")).success


async def test_a_body_cannot_forge_the_status(site: Site) -> None:
    result = await call(http_get, url=f"{site.url}/forged")
    assert result.success
    assert result.content.startswith("HTTP 200 OK\n")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/latin", "café"),
        ("/quoted", "café"),
        ("/unsaid", "café “so”"),
        ("/unknown", "café"),
        ("/slow-codec", "café"),
        ("/meta", '<meta charset="latin-1">café'),
        ("/marked-32", "café"),
        ("/utf16", "café"),
        ("/marked", "{}"),
        ("/octets-text", "really text"),
        ("/empty", ""),
        ("/members", "one two"),
        ("/deflate", "hello"),
        ("/raw-deflate", "hello"),
        ("/page", "<title>T</title><h1>Hi</h1><script>x()</script>"),
    ],
)
async def test_a_body_is_decoded_as_it_says(site: Site, path: str, text: str) -> None:
    assert body_of(await call(http_get, url=site.url + path)) == text


@pytest.mark.parametrize(
    ("path", "note"),
    [
        ("/image", "(not shown: 1,006 bytes)"),
        ("/octets", "(not shown: 3,000 bytes that are not text)"),
        ("/brotli", "(not read: it is compressed as 'br', which was not requested)"),
        ("/no-gzip", "(not complete: it is not compressed as its header says (Error -3 while decompressing data: "),
        ("/half-gzip", "(not complete: the rest of the compressed data is missing)"),
        ("/half", "(not complete: its answer is not valid HTTP (peer closed connection without sending "),
    ],
)
async def test_what_cannot_be_shown_is_a_note(site: Site, path: str, note: str) -> None:
    result = await call(http_get, url=site.url + path)
    assert note in result.content
    assert "\0" not in result.content
    if path in {"/half", "/half-gzip"}:
        assert body_of(result).startswith(("the beginning", "ABC"))


async def test_only_so_much_is_read(site: Site) -> None:
    told: list[str] = []
    context = ToolContext(reach=NetworkPolicy(allow_private=True, max_bytes=1_000_000), tell=told.append)
    result = await http_get.run(context, {"url": f"{site.url}/big"})
    assert "(cut: only the first 1,000,000 bytes of 3,000,000 were read)" in result.content
    assert body_of(result) == "x" * 1_000_000
    assert told
    assert all(line.endswith(" KiB") for line in told)


async def test_a_bomb_does_not_go_off(site: Site) -> None:
    bomb()
    tracemalloc.start()
    try:
        result = await call(http_get, NetworkPolicy(allow_private=True, max_bytes=1_000_000), url=f"{site.url}/bomb")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "only the first 1,000,000 bytes were read" in result.content
    assert peak < 30_000_000


# -- redirects --------------------------------------------------------------------------------------------------------


async def test_a_redirect_is_followed_and_told(site: Site) -> None:
    result = await call(http_get, url=f"{site.url}/to?302,/plain", headers={"Authorization": "k"})
    assert f"(redirected to {site.url}/plain)" in result.content
    assert body_of(result) == "hello"
    assert site.seen[1].headers["authorization"] == "k"


async def test_five_redirects_are_enough(site: Site) -> None:
    result = await call(http_get, url=f"{site.url}/loop")
    assert len(site.seen) == 6
    assert "(not followed: these are more than 5 redirects)" in result.content
    assert not result.success


@pytest.mark.parametrize(
    ("method", "status", "then", "body"),
    [
        ("POST", 301, "GET", b""),
        ("POST", 302, "GET", b""),
        ("POST", 303, "GET", b""),
        ("PUT", 303, "GET", b""),
        ("POST", 307, "POST", b"x"),
        ("POST", 308, "POST", b"x"),
        ("PUT", 302, "PUT", b"x"),
        ("DELETE", 301, "DELETE", b"x"),
    ],
)
async def test_a_redirect_keeps_or_changes_the_method(
    site: Site, method: str, status: int, then: str, body: bytes
) -> None:
    await call(http_request, url=f"{site.url}/to?{status},/x", method=method, body="x")
    assert (site.seen[1].method, site.seen[1].body) == (then, body)
    assert ("content-type" in site.seen[1].headers) == bool(body)


async def test_no_header_of_the_caller_follows_to_another_host(site: Site) -> None:
    location = f"http://localhost:{site.port}/x"
    headers = {"Authorization": "k", "Cookie": "k", "X-Api-Key": "k", "Accept": "text/x"}
    await call(http_get, url=f"http://me:pw@127.0.0.1:{site.port}/to?302,{location}", headers=headers)
    there = site.seen[1].headers
    assert there["host"] == f"localhost:{site.port}"
    assert there["accept"] == "text/x"
    assert not {"authorization", "cookie", "x-api-key"} & set(there)


@pytest.mark.parametrize(
    ("status", "method", "body"),
    [(307, "POST", "private"), (308, "PUT", "private"), (302, "DELETE", None), (302, "GET", "private")],
)
async def test_nothing_that_is_sent_goes_to_a_host_that_nobody_has_named(
    site: Site, status: int, method: str, body: str | None
) -> None:
    url = f"{site.url}/to?{status},http://localhost:{site.port}/x"
    result = await call(http_request, url=url, method=method, body=body)
    assert len(site.seen) == 1
    assert "(not followed: it leads to another host, which would receive the data; call that URL if you want this)" in (
        result.content
    )
    assert f"location: http://localhost:{site.port}/x" in result.content


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("http://127.0.0.1:{port}/x", "127.0.0.1 is not an address of the public internet"),
        ("http://[::ffff:127.0.0.1]:{port}/x", "not an address of the public internet"),
        ("//2130706433:{port}/x", "2130706433 (127.0.0.1) is not an address of the public internet"),
        ("file:///etc/passwd", "must begin with http:// or https://"),
        ("http://:80/", "names no host"),
    ],
)
async def test_a_redirect_reaches_nothing_that_a_call_may_not(site: Site, location: str, says: str) -> None:
    reach = NetworkPolicy(allow_hosts=("localhost",))
    with pytest.raises(ToolError) as refused:
        await call(http_get, reach, url=f"http://localhost:{site.port}/to?302,{location.format(port=site.port)}")
    assert refused.value.message.startswith(f"localhost:{site.port} redirects: ")
    assert says in refused.value.message
    assert len(site.seen) == 1


# -- addresses --------------------------------------------------------------------------------------------------------


async def test_this_machine_is_not_called_unless_it_is_allowed(site: Site) -> None:
    for context in (ToolContext(), ToolContext(reach=NetworkPolicy())):
        with pytest.raises(ToolError, match=r"the operator can allow it with tools.http.allow_hosts"):
            await http_get.run(context, {"url": site.url})
    assert not site.seen


async def test_the_address_that_was_checked_is_the_one_that_is_called(site: Site) -> None:
    """A name server that says something else the second time is not asked a second time."""
    asked: list[str] = []

    async def lookup(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    result = await call(
        http_get, NetworkPolicy(allow_private=True, lookup=lookup), url=f"http://re.bind:{site.port}/plain"
    )
    assert body_of(result) == "hello"
    assert asked == ["re.bind"]
    assert site.seen[0].headers["host"] == f"re.bind:{site.port}"


async def test_the_next_address_is_tried_where_one_is_dead(site: Site) -> None:
    async def lookup(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.77", "127.0.0.1"]

    result = await call(
        http_get, NetworkPolicy(allow_private=True, lookup=lookup), url=f"http://two.example:{site.port}/plain"
    )
    assert body_of(result) == "hello"


async def test_proxies_of_the_environment_are_not_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await call(http_get, url=site.url)).success


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"X": "a\r\nHost: b"}, "'X' must be one line of ASCII text"),
        ({"X": "a\nb"}, "one line"),
        ({"X": "a\0b"}, "one line"),
        ({"X": "ü"}, "ASCII"),
        ({"X": [1, {}]}, "headers"),
        ({"X\r\nY": "a"}, "is not the name of a header"),
        ({"": "a"}, "is not the name of a header"),
        ({"Host": "other.example"}, "the tool sets 'Host' itself"),
        ({"content-length": "5"}, "headers: the tool sets "),
        ({"Transfer-Encoding": "chunked"}, "headers: the tool sets "),
        ({"Proxy-Authorization": "x"}, "headers: the tool sets "),
    ],
)
async def test_headers_that_would_break_the_request_are_refused(site: Site, headers: Any, says: str) -> None:
    with pytest.raises(ToolError) as refused:
        await http_get.run(ToolContext(reach=NetworkPolicy(allow_private=True)), {"url": site.url, "headers": headers})
    assert says in refused.value.message
    assert not site.seen


@pytest.mark.parametrize("seconds", [0, -1, 601, float("nan"), float("inf"), 10**400])
async def test_a_timeout_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ToolError, match="timeout must be more than 0 and at most 600 seconds"):
        await http_get.run(ToolContext(), {"url": "http://x.example/", "timeout": seconds})


async def test_a_server_that_never_answers_is_given_up(site: Site) -> None:
    with pytest.raises(ToolError, match=rf"127.0.0.1:{site.port} has not answered"):
        await call(http_get, url=f"{site.url}/hang", timeout=0.3)


async def test_what_had_come_when_the_time_was_up_is_shown(site: Site) -> None:
    async def attempt(timeout_s: float) -> None:
        result = await call(http_get, url=f"{site.url}/stalled", timeout=timeout_s)
        assert "(not complete: " in result.content
        assert body_of(result) == "the beginning"

    await in_time(attempt)


async def test_a_call_can_be_cancelled(site: Site) -> None:
    task = asyncio.create_task(call(http_get, url=f"{site.url}/hang"))
    await asyncio.to_thread(site.arrived.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("{site}/garbage", "its answer is not valid HTTP"),
        ("http://127.0.0.1:1/", "127.0.0.1:1: no connection"),
        ("https://127.0.0.1:{port}/", "no connection"),
        ("nonsense", "must begin with http:// or https://"),
    ],
)
async def test_no_answer_is_a_sentence(site: Site, url: str, says: str) -> None:
    with pytest.raises(ToolError) as failed:
        await call(http_get, url=url.format(site=site.url, port=site.port))
    assert says in failed.value.message
    assert "\n" not in failed.value.message


# -- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a server called secure.example, signed by nobody but itself; the key and the certificate in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "secure.example")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("secure.example"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[Site]:
    def wrap(server: Server) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        return "https"

    yield from serving(wrap)


async def local(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


async def test_a_certificate_that_nobody_vouches_for_is_refused(secure: Site) -> None:
    with pytest.raises(ToolError, match=r"its certificate is not valid .self-signed certificate"):
        await call(http_get, url=secure.url)
    assert not secure.seen


@pytest.mark.parametrize(
    ("host", "is_its_name"), [("secure.example", True), ("127.0.0.1", True), ("other.example", False)]
)
async def test_a_certificate_must_be_of_the_name_that_was_called(
    secure: Site, certificate: Path, host: str, is_its_name: bool
) -> None:
    reach = NetworkPolicy(allow_private=True, lookup=local, trust=ssl.create_default_context(cafile=str(certificate)))
    url = f"https://{host}:{secure.port}/plain"
    if is_its_name:
        assert body_of(await call(http_get, reach, url=url)) == "hello"
        return
    with pytest.raises(ToolError, match=r"its certificate is not valid .*not valid for 'other.example'"):
        await call(http_get, reach, url=url)
    assert not secure.seen


# -- how they are offered ---------------------------------------------------------------------------------------------


def test_the_tools_say_what_they_take() -> None:
    tools = (http_get, http_post, http_put, http_delete, http_request)
    assert [tool.name for tool in tools if tool.offered] == ["http_get", "http_post", "http_put", "http_delete"]
    for tool in tools:
        assert (tool.category, tool.effect, tool.subject) == ("http", "net", "url")
        assert tool.parameters["required"] == ["url"]
        assert {"url", "headers", "timeout"} <= set(tool.parameters["properties"])
        assert len(json.dumps(tool.parameters)) < 600
    for tool in tools[1:]:
        assert "body" in tool.parameters["properties"]
