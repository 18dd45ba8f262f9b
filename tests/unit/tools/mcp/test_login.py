"""Logins at servers over HTTP, against a real authorization server on the loopback address."""

import asyncio
import json
import logging
import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.unit.tools.mcp.authorization import World, browse, options_of, person, world
from tests.unit.tools.mcp.scene import Stage, call_tool

from shepherd.tools.base import ToolError
from shepherd.tools.mcp.login import check_address
from shepherd.tools.mcp.login_store import LoginFile
from shepherd.tools.mcp.redirect_page import open_page
from shepherd.tools.mcp.values import LoginOptions, ServerOptions, ServerStatus
from shepherd.tools.tool import ToolContext

NEEDED = "needs a login; 'shepherd mcp login web' logs in"
CONTEXT = ToolContext()


async def start(options: ServerOptions, login: LoginOptions) -> ServerStatus:
    """Start the server and end it."""
    async with Stage(options, login=login) as servers:
        return servers.statuses()[0]


async def logged_in(made: World, folder: Path, **changes: Any) -> LoginOptions:
    """What later starts have, after a person has logged in."""
    status = await start(options_of(made, **changes), person(folder))
    assert status.state == "ready", status.detail
    return LoginOptions(folder)


def change(options: ServerOptions, folder: Path, **values: Any) -> None:
    file = LoginFile.of(options, folder)
    file.write(replace(file.read(), **values))


async def failing_call(options: ServerOptions, login: LoginOptions) -> str:
    async with Stage(options, login=login) as servers:
        with pytest.raises(ToolError) as caught:
            await call_tool(servers, "web", "t", {}, CONTEXT)
        return caught.value.message


async def called(made: World, login: LoginOptions) -> str:
    async with Stage(options_of(made), login=login) as servers:
        return (await call_tool(servers, "web", "t", {}, CONTEXT)).content


async def test_without_a_login_no_page_opens_and_one_sentence_names_the_command(tmp_path: Path) -> None:
    async with world() as made:
        stage = Stage(options_of(made), login=LoginOptions(tmp_path))
        async with stage as servers:
            assert servers.statuses()[0].detail == NEEDED
    assert stage.warnings == [f"the MCP server web {NEEDED}"]
    assert {line.split()[1] for line in made.seen} == {"/mcp"}, "nothing is registered or looked up"


async def test_a_login_is_kept_privately_for_later_starts(tmp_path: Path) -> None:
    async with world() as made:
        login = await logged_in(made, tmp_path)
        assert await called(made, login) == "done"
    assert made.seen.count("GET /authorize") == 1
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert LoginFile.of(options_of(made), tmp_path).read().state == "logged in"


@pytest.mark.parametrize("knows_expiry", [True, False])
async def test_an_old_token_is_renewed_without_a_person(tmp_path: Path, *, knows_expiry: bool) -> None:
    async with world() as made:
        login = await logged_in(made, tmp_path)
        made.tokens.clear()
        if knows_expiry:
            change(options_of(made), tmp_path, expires_at=time.time() - 1)
        for _ in range(2):  # the second start has the new refresh token
            assert await called(made, login) == "done"
            made.tokens.clear()
    assert made.seen.count("grant refresh_token") == 2
    assert made.seen.count("GET /authorize") == 1


async def test_calls_of_one_session_survive_the_end_of_their_token(tmp_path: Path) -> None:
    async with world() as made:
        login = await logged_in(made, tmp_path)
        async with Stage(options_of(made), login=login) as servers:
            made.tokens.clear()
            answers = await asyncio.gather(*(call_tool(servers, "web", "t", {}, CONTEXT) for _ in range(5)))
    assert [each.content for each in answers] == ["done"] * 5
    assert made.seen.count("grant refresh_token") == 1, "a refresh token counts once"


async def test_a_refused_renewal_marks_each_call_and_a_new_login_needs_no_restart(tmp_path: Path) -> None:
    async with world() as made:
        login = await logged_in(made, tmp_path)
        async with Stage(options_of(made), login=login) as servers:
            made.tokens.clear()
            made.refuses_refresh = True
            for _ in range(2):
                with pytest.raises(ToolError) as caught:
                    await call_tool(servers, "web", "t", {}, CONTEXT)
                assert caught.value.message == f"the MCP server web {NEEDED}"
            assert servers.statuses()[0].detail == NEEDED
            await logged_in(made, tmp_path)
            assert (await call_tool(servers, "web", "t", {}, CONTEXT)).content == "done"


async def test_a_renewal_that_another_shepherd_was_faster_with_costs_no_login(tmp_path: Path) -> None:
    async with world() as made:
        login = await logged_in(made, tmp_path)

        def be_faster() -> None:
            made.refuses_refresh = True
            made.tokens["theirs"] = {"read"}
            change(options_of(made), tmp_path, tokens={"access_token": "theirs"}, expires_at=None)

        made.tokens.clear()
        made.on_refresh = be_faster
        assert await called(made, login) == "done"


async def test_a_lock_that_is_never_free_ends_no_renewal(tmp_path: Path) -> None:
    file = LoginFile(tmp_path / "login.json", "http://localhost/mcp")
    began_s = time.monotonic()
    async with file.locked(), file.locked(0.1):
        assert time.monotonic() - began_s >= 0.1


async def test_an_authorization_server_that_is_gone_is_named_and_nothing_hangs(tmp_path: Path) -> None:
    async with world() as other:
        address = f"{other.origin}/token"
    async with world() as made:
        login = await logged_in(made, tmp_path)
        known = LoginFile.of(options_of(made), tmp_path).read()
        change(options_of(made), tmp_path, authorization={**known.authorization, "token_endpoint": address})
        made.tokens.clear()
        assert (await start(options_of(made), login)).detail == "needs 127.0.0.1, which did not answer the login"


async def test_configured_scopes_are_asked_for_beside_those_of_the_server(tmp_path: Path) -> None:
    async with world() as made:
        await logged_in(made, tmp_path, scopes=("extra", "read"))
    assert list(made.tokens.values()) == [{"extra", "read"}]


async def test_further_rights_are_asked_for_by_the_next_login(tmp_path: Path) -> None:
    async with world() as made:
        login = await logged_in(made, tmp_path)
        made.needed = {"read", "write"}
        problem = await failing_call(options_of(made), login)
        assert problem == (
            "the MCP server web wants a login with further rights (write); 'shepherd mcp login web' asks for them"
        )
        await logged_in(made, tmp_path)
        assert await called(made, login) == "done"
    assert {"read", "write"} in made.tokens.values()


async def test_a_server_that_only_wants_a_token_for_calls_gets_one_by_the_next_login(tmp_path: Path) -> None:
    async with world(is_open=True) as made:
        login = await logged_in(made, tmp_path)
        assert "GET /authorize" not in made.seen
        assert await failing_call(options_of(made), login) == f"the MCP server web {NEEDED}"
        await logged_in(made, tmp_path)
        assert await called(made, login) == "done"


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"refuses_person": True}, "the authorization server refused the login: access_denied (the user [31m said no)"),
    ({"wrong_state": True}, "the browser came back from another login (wrong state); log in again"),
    ({"refuses_code": True}, "127.0.0.1 answered invalid_grant (not (any more) valid)"),
    ({"metadata": {"resource": {"resource": "https://evil.example/mcp"}}}, "Protected resource https://evil.example"),
    ({"metadata": {"authorization": {"issuer": "https://evil.example"}}}, "Authorization server metadata issuer mism"),
    (
        {"metadata": {"resource": {"authorization_servers": ["http://169.254.169.254"]}}},
        "a login at http://169.254.169.254/.well-known/oauth-authorization-server needs https",
    ),
    (
        {"metadata": {"resource": {"authorization_servers": ["https://169.254.169.254"]}}},
        "the server names 169.254.169.254 for its login, which is a private address",
    ),
    (
        {"metadata": {"authorization": {"token_endpoint": "http://world.example/token"}}},
        "a login at http://world.example/token needs https",
    ),
    (
        {"metadata": {"authorization": {"authorization_endpoint": "http://world.example/authorize"}}},
        "a login at http://world.example/authorize",
    ),
]


@pytest.mark.parametrize(("faults", "problem"), REFUSALS)
async def test_a_login_that_fails_says_why_and_asks_once(faults: dict[str, Any], problem: str, tmp_path: Path) -> None:
    opened: list[str] = []

    async def visit(address: str) -> None:
        opened.append(address)
        await browse(address)

    async with world(**faults) as made:
        status = await start(options_of(made), person(tmp_path, visit))
    assert status.state == "failed"
    assert status.detail.startswith(f"cannot log in: {problem}")
    assert len(opened) <= 1
    assert not LoginFile.of(options_of(made), tmp_path).read().tokens


async def test_a_person_who_does_not_come_back_costs_the_time_of_a_login(tmp_path: Path) -> None:
    async def leave(address: str) -> None:
        pass

    async with world() as made:
        status = await start(options_of(made), person(tmp_path, leave, timeout_s=0.05))
    assert status.detail == "cannot log in: the browser did not come back within 0.05 s; log in again"


async def test_a_failed_login_leaves_the_earlier_one(tmp_path: Path) -> None:
    async with world() as made:
        login = await logged_in(made, tmp_path)
        made.refuses_person = True
        assert (await start(options_of(made), person(tmp_path))).state == "failed"
        assert (await start(options_of(made), login)).state == "ready"


async def test_the_page_answers_one_redirect_and_closes(tmp_path: Path) -> None:
    answers: list[httpx2.Response] = []
    pages: list[str] = []

    async def visit(address: str) -> None:
        page = httpx2.URL(address).params["redirect_uri"]
        pages.append(page)
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            answers.append(await browser.get(page.replace("/callback", "/favicon.ico")))
            answers.append(await browser.get(address))
            answers.append(await browser.get(f"{page}?code=x&state=y"))

    async with world() as made:
        assert (await start(options_of(made), person(tmp_path, visit))).state == "ready"
    assert [each.status_code for each in answers] == [404, 200, 410]
    assert "close this page" in answers[1].text
    assert not any(secret in each.text for each in answers for secret in made.secrets)
    async with httpx2.AsyncClient() as browser:
        with pytest.raises(httpx2.ConnectError):
            await browser.get(pages[0])


async def test_what_is_no_request_of_a_browser_ends_no_login() -> None:
    rows = [
        (b"\x00\xff\r\n\r\n", b"400"),
        (b"POST /callback HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /callback?" + b"x" * 20_000, b"400"),
        (b"GET /callback?state=wrong HTTP/1.1\r\n\r\n", b"410"),
    ]
    async with open_page() as page:
        for sent, status in rows:
            reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(page.address).port)
            writer.write(sent)
            assert (await reader.read()).startswith(b"HTTP/1.1 " + status)
            writer.close()
        assert not page.answer.done()


async def test_a_login_belongs_to_the_address_of_its_server(tmp_path: Path) -> None:
    async with world() as made, world() as other:
        login = await logged_in(made, tmp_path)
        stolen = LoginFile.of(options_of(made), tmp_path).path.read_bytes()
        LoginFile.of(options_of(other), tmp_path).path.write_bytes(stolen)
        status = await start(options_of(other), login)  # the same name, another address
    assert status.detail == NEEDED
    assert "grant refresh_token" not in other.seen


@pytest.mark.parametrize("names_issuer", [True, False])
async def test_the_secret_of_a_registered_app_goes_to_one_authorization_server(
    tmp_path: Path, *, names_issuer: bool
) -> None:
    async with world() as made, world() as other:
        made.clients["app"] = ["http://127.0.0.1/callback"]
        own: dict[str, Any] = {"client_id": "app", "client_secret": "app-secret"}
        options = options_of(made, **own, issuer=made.origin if names_issuer else None)
        for _ in range(2):
            assert (await start(options, person(tmp_path))).state == "ready"
        assert "POST /register" not in made.seen
        made.metadata = {"resource": {"authorization_servers": [other.origin]}}
        status = await start(options, person(tmp_path))
        assert status.detail.startswith("cannot log in: the server names another authorization server than ")
        assert "POST /token" not in other.seen


async def test_clients_with_credentials_of_their_own_need_no_person(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = tmp_path / "key.pem"
    key.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    own: dict[str, Any] = {"grant": "client_credentials", "client_id": "robot"}
    login = LoginOptions(tmp_path / "logins")
    async with world() as made:
        for credentials in ({"client_secret": "robot-secret"}, {"client_key": str(key)}):
            for _ in range(2):  # the second start has the token of the first
                status = await start(options_of(made, **own, **credentials), login)
                assert status.state == "ready", status.detail
            LoginFile.of(options_of(made, **own), login.folder).remove()
        wrong = await start(options_of(made, **own, client_secret="wrong"), login)
        empty = await start(options_of(made, **own, client_key=str(tmp_path / "none.pem")), login)
        bare = await start(options_of(made, **own), login)
    assert made.seen.count("grant client_credentials") == 3 + 1
    assert wrong.detail == "cannot log in: 127.0.0.1 answered invalid_grant (not (any more) valid)"
    assert empty.detail.startswith("is not started: client_key: ")
    assert bare.detail == (
        "is not started: with the grant client_credentials, set client_id, and client_secret or client_key"
    )


async def test_no_token_is_in_any_log_or_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    async with world() as made:
        login = await logged_in(made, tmp_path)
        made.tokens.clear()
        shown.append(await called(made, login))
        made.breaks_token = True
        shown.append((await start(options_of(made), person(tmp_path))).detail)
        made.tokens.clear()
        shown.append((await start(options_of(made), login)).detail)
        made.refuses_code = True
        shown.append((await start(options_of(made), person(tmp_path))).detail)
        shown.append(repr((LoginFile.of(options_of(made), tmp_path).read(), login, options_of(made))))
    assert shown[1] == "cannot log in: the answer cannot be used"
    written = "\n".join((caplog.text, *shown))
    assert len(made.secrets) > 8
    in_the_browser = "code-"
    assert [each for each in made.secrets if each[-8:] in written and not each.startswith(in_the_browser)] == []
    assert "hush" not in repr(ServerOptions("x", url="http://x", client_secret="hush"))


async def test_addresses_from_a_server_reach_no_private_network() -> None:
    known = {
        "mcp.example": ["93.184.216.34"], "auth.example": ["93.184.216.35"], "inside.example": ["10.0.0.7"],
        "cloud.example": ["169.254.169.254"], "two.example": ["93.184.216.34", "127.0.0.1"],
        "lan.example": ["10.0.0.2"], "127.0.0.1": ["127.0.0.1"],
    }  # fmt: skip

    async def lookup(host: str, port: int) -> list[str]:
        if host not in known:
            raise OSError(host)
        return known[host]

    rows = [
        ("https://auth.example/token", "https://mcp.example/mcp", True),
        ("https://mcp.example/token", "https://mcp.example/mcp", True),
        ("http://auth.example/token", "https://mcp.example/mcp", False),
        ("https://inside.example/", "https://mcp.example/mcp", False),
        ("https://inside.example/", "https://lan.example/mcp", True),
        ("https://cloud.example/", "https://lan.example/mcp", False),
        ("https://two.example/", "https://mcp.example/mcp", False),
        ("https://127.0.0.1/", "https://mcp.example/mcp", False),
        ("http://127.0.0.1:1/", "http://127.0.0.1:2/mcp", True),
        ("https://unknown.example/", "https://mcp.example/mcp", True),
    ]
    for url, server, is_open in rows:
        try:
            await check_address(url, server, lookup)
            found = True
        except ToolError:
            found = False
        assert found is is_open, (url, server)


async def test_a_configured_header_is_not_replaced_by_a_login(tmp_path: Path) -> None:
    async with world() as made:
        await logged_in(made, tmp_path)
        options = options_of(made, headers={"authorization": "Bearer other"})
        status = await start(options, LoginOptions(tmp_path))
    assert status.detail == "answered with HTTP status 401; check its url and headers"


def test_a_broken_file_is_no_login(tmp_path: Path) -> None:
    options = ServerOptions("web", url="https://mcp.example/mcp")
    file = LoginFile.of(options, tmp_path)
    for content in (b"", b"{", b"[]", b"{}", json.dumps({"url": options.url}).encode(), b"\xff"):
        file.path.write_bytes(content)
        assert file.read().state == "none"
    if os.name == "posix":
        assert not file.remove()
