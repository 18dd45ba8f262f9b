"""The answers to several requests as one stream: the choices of one body.

The first answer begins alone. At its first token its prompt is in the cache, where the other answers find it: usually
they have the same prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from shepherd.core import Event, Evicted, Progress, Started, Traced

_NOTICES = (Started, Progress, Evicted, Traced)


async def merge_choices(streams: Sequence[AsyncGenerator[Event, None]]) -> AsyncGenerator[tuple[int, Event], None]:
    """Every event with the index of its stream. The first error of a stream ends all and is raised."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as events:
            async for event in events:
                yield 0, event
        return
    news: _News = asyncio.Queue()
    tasks = [asyncio.create_task(_play(0, streams[0], news))]
    n_left = len(streams)
    try:
        while n_left:
            choice, found = await news.get()
            if isinstance(found, Exception):
                raise found
            if len(tasks) == 1 and not isinstance(found, _NOTICES):
                tasks += [asyncio.create_task(_play(at, streams[at], news)) for at in range(1, len(streams))]
            if found is None:
                n_left -= 1
            else:
                yield choice, found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_News = asyncio.Queue[tuple[int, Event | Exception | None]]
"""The index of a stream, and its next event, or what it raises; None at its end."""


async def _play(choice: int, stream: AsyncGenerator[Event, None], news: _News) -> None:
    try:
        async with aclosing(stream) as events:
            async for event in events:
                news.put_nowait((choice, event))
        news.put_nowait((choice, None))
    except Exception as error:  # `merge_choices` raises it
        news.put_nowait((choice, error))
