"""Behind a reverse proxy, as docs/service.md has it: the prefix is the proxy's, the address is that of the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest
from tests.own_server import listening
from tests.scripted_service import ScriptedService, saying

PREFIX = "/shepherd"


@asynccontextmanager
async def proxied(url: str, *, sees: str) -> AsyncIterator[str]:
    """The address of a proxy that takes the prefix away, and adds the address that it `sees` its client at."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(65536):
            writer.write(content)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.removesuffix("\r\n\r\n").split("\r\n")
        lines[0] = lines[0].replace(f" {PREFIX}/", " /")
        told = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("x-forwarded-for:")]
        lines = [line for line in lines if not line.lower().startswith(("x-forwarded-for:", "connection:"))]
        lines += [f"X-Forwarded-For: {', '.join([*told, sees])}", "X-Forwarded-Proto: https", "Connection: close"]
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        up_writer.write("\r\n".join([*lines, "", ""]).encode())
        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as proxy:
        yield f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}{PREFIX}"


async def get(url: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(headers={name.replace("_", "-"): value for name, value in headers.items()}) as client:
        return await client.get(url)


async def test_a_prefix_that_the_proxy_takes_away_breaks_no_page_and_no_stream() -> None:
    service = ScriptedService(saying("Hello there"))
    async with listening(service) as own, proxied(own, sees="203.0.113.5") as url:
        page = await get(f"{url}/docs")
        assert page.status_code == 200
        links = [part.partition('"')[0] for part in page.text.split('href="')[1:]]
        assert "openapi.json" in links
        assert [link for link in links if link.startswith("/") or "127.0.0.1" in link] == []
        assert (await get(urljoin(f"{url}/docs", "openapi.json"))).status_code == 200
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
        async with httpx2.AsyncClient() as client:
            answer = await client.post(f"{url}/v1/chat/completions", json=body)
        assert "Hello there" in answer.text
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("claimed", [None, "127.0.0.1", "127.0.0.1, 127.0.0.1", "::1"])
async def test_a_client_cannot_say_that_it_is_on_this_machine(claimed: str | None) -> None:
    headers = {} if claimed is None else {"x_forwarded_for": claimed}
    async with listening(ScriptedService(saying("Hi"))) as own:
        async with proxied(own, sees="203.0.113.5") as url:
            assert (await get(f"{url}/v1/memory/facts", **headers)).status_code == 403
        async with proxied(own, sees="127.0.0.1") as url:
            assert (await get(f"{url}/v1/memory/facts")).status_code != 403


async def test_an_open_server_answers_a_proxy_for_the_names_that_it_allows() -> None:
    service = ScriptedService(saying("Hi"))
    async with listening(service) as own, proxied(own, sees="203.0.113.5") as url:
        refused = await get(f"{url}/v1/models", host="ai.example")
        assert refused.status_code == 403
        assert "server.allow_hosts" in refused.text
    async with listening(service, allow_hosts=["ai.example"]) as own, proxied(own, sees="203.0.113.5") as url:
        assert (await get(f"{url}/v1/models", host="ai.example")).status_code == 200
    async with listening(service, api_keys=["a-key"]) as own, proxied(own, sees="203.0.113.5") as url:
        assert (await get(f"{url}/v1/models", host="ai.example", x_api_key="a-key")).status_code == 200
        assert (await get(f"{url}/v1/models", host="ai.example")).status_code == 401
