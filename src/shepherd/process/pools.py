"""The threads beside the event loop: a few for each kind of work, so that no kind waits for another.

    await in_pool("media", reader.read, file)         one of the threads for files of images and recordings
    await while_wanted("media", read)                 the same; `read` is told when its caller has gone away
    await asyncio.to_thread(...)                      for what takes no time that a client chooses: the start, the end,
                                                      the folders of models, the names of hosts

A client can fill one pool, with slow pictures for example; then pictures wait for each other, and texts, searches and
vectors do not. A kind is what clients can make slow by itself, so a new kind of slow work is a new row.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Kind = Literal[
    "bodies",
    "prompts",
    "heavy prompts",
    "texts",
    "grammars",
    "media",
    "memory",
    "files",
    "embeddings",
    "reranking",
    "tools",
    "pulls",
]
THREADS: Mapping[Kind, int] = {
    "bodies": 4,
    "prompts": 4,
    "heavy prompts": 2,
    "texts": 2,
    "grammars": 2,
    "media": 2,
    "memory": 4,
    "files": 4,
    "embeddings": 4,
    "reranking": 4,
    "tools": 4,
    "pulls": 4,
}
"""What each kind of work may take at once. More wait for their turn; a request that goes away leaves the line.

bodies: JSON of clients, and of long answers. prompts, heavy prompts: a conversation becomes tokens. texts: `/tokenize`
and `/detokenize`. grammars: a schema becomes a grammar. media: images and recordings are checked and decoded. memory:
the archive. files: of the page, of saved conversations, of what was used. embeddings, reranking: each waits for its
model. tools: their results are brought to size (a call has a thread of its own). pulls: files of models are written.
"""
_POOLS = {kind: ThreadPoolExecutor(n, kind.replace(" ", "-")) for kind, n in THREADS.items()}


async def in_pool(kind: Kind, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What `work` returns, run in a thread of its kind, with the context of this task."""
    run = partial(contextvars.copy_context().run, work, *arguments, **named)
    return await asyncio.get_running_loop().run_in_executor(_POOLS[kind], run)


async def while_wanted(kind: Kind, work: Callable[[Callable[[], bool]], T]) -> T:
    """The result of `work`, in a thread of its kind. `work` gets a function that says whether it is still wanted; when
    it is not, the thread is waited for, since it may use what its caller holds. One that waits for a thread does not
    begin."""
    left = threading.Event()
    future = _POOLS[kind].submit(contextvars.copy_context().run, work, lambda: not left.is_set())
    working = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        left.set()
        future.cancel()
        await asyncio.wait({working})
        if not working.cancelled():
            working.exception()  # so that it is not reported
        raise
