"""A server on a real port, for the time of a test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from shepherd.server.app import Service, create_app, serve

Listening = Callable[..., AbstractAsyncContextManager[str]]


@pytest.fixture
def listening() -> Listening:
    """`async with listening(service, ...) as url:` - the options are those of `create_app`."""

    @asynccontextmanager
    async def listen(service: Service, **options: Any) -> AsyncIterator[str]:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            serve(create_app(service, **options), host="127.0.0.1", port=0, on_ready=ready.set_result)
        )
        try:
            await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
            yield f"http://127.0.0.1:{ready.result()}"
        finally:
            serving.cancel()
            await asyncio.wait((serving,))

    return listen
