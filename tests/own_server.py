"""A server in a thread of the test's own process: the models and caches of a configuration, loaded and served for real.

It costs a tenth of a started one (`start_server`), and is enough where the process does not matter: no signal, no log
on standard error, no banner.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.server.app import Service, create_app, serve

if TYPE_CHECKING:
    from shepherd.app.app import App

Listening = Callable[..., contextlib.AbstractAsyncContextManager[str]]
"""The type of `listening`."""


@contextlib.asynccontextmanager
async def listening(service: Service, **options: Any) -> AsyncIterator[str]:
    """The address of a server of `service`, on the event loop of the test. `options`: those of `create_app`."""
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    app = create_app(service, **options)
    serving = asyncio.create_task(serve(app, host="127.0.0.1", port=0, on_ready=ready.set_result))
    try:
        await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
        yield f"http://127.0.0.1:{ready.result()}"
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


@contextlib.contextmanager
def in_thread(run: Callable[[Callable[[int], None]], Coroutine[Any, Any, None]]) -> Iterator[int]:
    """The port of the server that `run` is, in a thread of its own; it is cancelled at the end of the block.

    `run` gets what it calls with its port when it listens. Raises: what `run` raises.
    """
    ports: list[int] = []
    errors: list[BaseException] = []
    stops: list[Callable[[], object]] = []
    is_ready = threading.Event()

    def on_ready(port: int) -> None:
        ports.append(port)
        is_ready.set()

    async def stoppable() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(task.cancel))
        await run(on_ready)

    def main() -> None:
        try:
            asyncio.run(stoppable())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            errors.append(error)
        finally:
            is_ready.set()

    thread = threading.Thread(target=main)
    thread.start()
    is_ready.wait()
    try:
        if ports:
            yield ports[0]
    finally:
        if ports:
            stops[0]()
        thread.join()
        for error in errors:
            raise error


@contextlib.contextmanager
def serving(
    folder: Path, text: str = "", *, around: Callable[[App], Any] = lambda app: app, **options: Any
) -> Iterator[str]:
    """The address of a server with the configuration `text`, whose home is `folder`. `around`: the service that is
    served; `options`: those of `create_app`."""
    from tests.own_app import app_of, loaded  # loads the native library

    async def run(on_ready: Callable[[int], None]) -> None:
        async with loaded(app_of(folder, text, os.environ), lazy=True) as app:
            await serve(create_app(around(app), **options), host="127.0.0.1", port=0, on_ready=on_ready)

    with in_thread(run) as port:
        yield f"http://127.0.0.1:{port}"
