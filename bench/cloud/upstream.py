"""A provider on loopback that costs nothing to ask: fixed records, all at once or so many a second.

    python -m bench.cloud.upstream            # prints its port; ends with its standard input

The model's name chooses the answer: `fixed-2000-0` is 2,000 records as fast as they are taken, `fixed-200-100` is 200
of them, 100 a second. The records of each protocol are made before they are asked for, so that what is measured in
front of it is not this program. It keeps no text and reads nothing of a body but the model.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any, cast

WORDS = ("lorem ", "ipsum ", "dolor ", "sit ", "amet ", "elit ", "sed ")
"""The texts of records, in turn: LiteLLM takes the same one a hundred times for a broken model."""
PER_WRITE = 64
"""Records of one write, where all are wanted at once."""


def _record(body: dict[str, Any], event: str = "") -> bytes:
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(body)}\n\n".encode()


def chat(n: int) -> tuple[bytes, list[bytes], bytes]:
    """What comes before the text, the records of text, and what comes after them: chat completions."""
    named = {"id": "chatcmpl-fixed", "object": "chat.completion.chunk", "created": 1_763_000_000, "model": "fixed"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _record({**named, "choices": [choice]})

    usage = {"prompt_tokens": 10, "completion_tokens": n, "total_tokens": n + 10}
    end = chunk({}, "stop") + _record({**named, "choices": [], "usage": usage}) + b"data: [DONE]\n\n"
    return chunk({"role": "assistant", "content": ""}), [chunk({"content": word}) for word in WORDS], end


def messages(n: int) -> tuple[bytes, list[bytes], bytes]:
    """The same in Anthropic's protocol."""

    def event(type: str, **body: Any) -> bytes:
        return _record({"type": type, **body}, type)

    message: dict[str, Any] = {
        "id": "msg_fixed", "type": "message", "role": "assistant", "model": "fixed", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1},
    }  # fmt: skip
    before = event("message_start", message=message) + event(
        "content_block_start", index=0, content_block={"type": "text", "text": ""}
    )
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    after = event("content_block_stop", index=0) + event("message_delta", delta=ended, usage={"output_tokens": n})
    texts = [event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in WORDS]
    return before, texts, after + event("message_stop")


ANSWERS = {b"/v1/chat/completions": chat, b"/v1/messages": messages}


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._held = bytearray()
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own class

    def connection_lost(self, error: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, piece: bytes) -> None:
        self._held += piece
        head, found, body = self._held.partition(b"\r\n\r\n")
        if not found:
            return
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if len(body) < (n := int(length[1]) if length else 0):
            return
        path = bytes(head.split(b" ", 2)[1]).partition(b"?")[0]
        wanted = re.search(rb'"model": ?"[^"]*fixed-(\d+)-(\d+)"', body)
        del self._held[: len(head) + 4 + n]
        if wanted is None or path not in ANSWERS:
            listed = b'{"object":"list","data":[]}'
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                                  % (len(listed), listed))  # fmt: skip
            return
        task = asyncio.get_running_loop().create_task(self._answer(path, int(wanted[1]), int(wanted[2])))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, path: bytes, n: int, rate: int) -> None:
        loop = asyncio.get_running_loop()
        before, texts, after = ANSWERS[path](n)
        self._write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n", before)
        begun = loop.time()
        for at in range(n) if rate else range(0, n, PER_WRITE):
            if rate:
                await asyncio.sleep(max(0.0, begun + at / rate - loop.time()))
                self._write(b"", texts[at % len(texts)])
            else:
                await self._may_write.wait()
                self._write(b"", *(texts[i % len(texts)] for i in range(at, min(n, at + PER_WRITE))))
        self._write(b"", after)
        self._transport.write(b"0\r\n\r\n")

    def _write(self, head: bytes, *records: bytes) -> None:
        """Each record is a chunk, as a server that flushes would send it."""
        self._transport.write(head + b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in records))


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until the parent goes


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve())
