"""What a request with a long history costs beside the engine's decoding, as the history grows.

    uv run python -m bench.agent.long_history [--tokens 10000,300000,1000000] [--surfaces chat,...] [--quick]

The embedded model, a context of 2,048 tokens and a window of 600 times as many, in a server in this process. An agent's
client resends its whole history: calls and results of about 900 characters. The first request of a history is *cold*;
each of the next ones has an exchange of 450 tokens more, and their median is *next*. The seconds are processor time of
the whole process without decoding; the bytes that the client sends are made before.

Another client reads a stream meanwhile: *gap* is the longest pause between two of its pieces beside three of the next
requests, *alone* the longest in five seconds without them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.rig import machine
from rich.console import Console
from rich.table import Table
from tests.own_server import serving

from shepherd.engine.llamacpp.runtime import LlamaRuntime

CACHE = '[caches.main]\nmodel = "lamb"\nn_ctx = 2048\nwindow = "600x"\n'
WORDS = ("the", "parser", "reads", "a", "line", "of", "file", "and", "returns", "what", "it", "finds", "in", "mark")
N_NEXT, N_BESIDE = 5, 3
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
COLUMNS = ("surface", "tokens", "messages", "megabytes", "cold_s", "next_s", "gap_s")

Json = dict[str, Any]


class Decoding:
    """Processor time that the model's library computes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        decode: Any = LlamaRuntime.decode

        def timed(*arguments: Any) -> Any:
            begun = time.thread_time()
            try:
                return decode(*arguments)
            finally:
                self.seconds += time.thread_time() - begun

        setattr(LlamaRuntime, "decode", timed)  # noqa: B010  # measured from outside, for every cache


def text(seed: int, n_chars: int = 900) -> str:
    """Lines that differ from those of every other seed."""
    lines: list[str] = []
    while sum(map(len, lines)) < n_chars:
        at = len(lines)
        words = (WORDS[(seed * 7 + at * 3 + k * (1 + seed % 5)) % len(WORDS)] for k in range(12))
        lines.append(f"{seed}:{at} {' '.join(words)}")
    return "\n".join(lines)


def exchange(surface: str, n: int) -> list[Json]:
    """A call and its result; at every twelfth an answer and a question."""
    name, id, found, arguments = "read_file", f"call_{n}", text(n), {"path": f"src/part{n % 40}/file{n}.py"}
    written = json.dumps(arguments)
    if surface == "chat":
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": written}}
        made: list[Json] = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": id, "content": found},
        ]
    elif surface == "messages":
        use = {"type": "tool_use", "id": id, "name": name, "input": arguments}
        result = {"type": "tool_result", "tool_use_id": id, "content": found}
        made = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    else:
        made = [
            {"type": "function_call", "call_id": id, "name": name, "arguments": written},
            {"type": "function_call_output", "call_id": id, "output": found},
        ]
    if n % 12 == 11:
        made += [
            {"role": "assistant", "content": f"Part {n} is read."},
            {"role": "user", "content": f"Go on with part {n + 1}."},
        ]
    return made


def history(surface: str, n: int) -> list[Json]:
    return [{"role": "user", "content": "Mend the parser."}, *(m for at in range(n) for m in exchange(surface, at))]


def body(surface: str, n: int) -> bytes:
    """A request with so many exchanges."""
    messages = history(surface, n)
    made: Json = {"model": "lamb", "temperature": 0}
    if surface == "chat":
        function = {"name": "read_file", "parameters": PARAMETERS}
        made |= {"messages": messages, "tools": [{"type": "function", "function": function}], "max_tokens": 2}
    elif surface == "messages":
        made |= {"messages": messages, "tools": [{"name": "read_file", "input_schema": PARAMETERS}], "max_tokens": 2}
    else:
        tool = {"type": "function", "name": "read_file", "parameters": PARAMETERS}
        made |= {"input": messages, "tools": [tool], "max_output_tokens": 2, "store": False}
    return json.dumps(made).encode()


def send(url: str, path: str, sent: bytes) -> Json:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=600)
    connection.request("POST", path, sent, {"content-type": "application/json", "x-api-key": "k"})
    answer = connection.getresponse()
    read = answer.read()
    assert answer.status == 200, read[:500]
    found: Json = json.loads(read)
    return found


def n_prompt(answer: Json) -> int:
    usage = answer["usage"]
    own = usage.get("prompt_tokens") or usage.get("input_tokens", 0)
    return int(own + usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0))


class Stream(threading.Thread):
    """A client that reads short streams, one behind the other, until it is stopped."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.longest = 0.0
        self.is_over = False

    def run(self) -> None:
        n = 0
        while not self.is_over:
            n += 1
            messages = [{"role": "user", "content": f"Tell me story {n}."}]
            asked = {"model": "lamb", "messages": messages, "max_tokens": 200, "stream": True, "ignore_eos": True}
            connection = HTTPConnection(urlsplit(self.url).netloc, timeout=600)
            connection.request("POST", PATHS["chat"], json.dumps(asked), {"content-type": "application/json"})
            answer = connection.getresponse()
            last = 0.0
            while answer.readline():
                now = time.perf_counter()
                self.longest = max(self.longest, now - last if last else 0.0)
                last = now
            connection.close()


@contextmanager
def streaming(url: str) -> Iterator[Stream]:
    stream = Stream(url)
    stream.start()
    try:
        yield stream
    finally:
        stream.is_over = True
        stream.join()


def measured(url: str, surface: str, n_tokens: int, decoding: Decoding) -> Json:
    path = PATHS[surface]
    per_exchange = n_prompt(send(url, path, body(surface, 2))) - n_prompt(send(url, path, body(surface, 1)))
    n = max(2, n_tokens // per_exchange)
    costs: list[float] = []
    for more in range(N_NEXT + 1):
        sent = body(surface, n + more)
        before, decoded = time.process_time(), decoding.seconds
        answer = send(url, path, sent)
        costs.append(time.process_time() - before - (decoding.seconds - decoded))
    bodies = [body(surface, n + N_NEXT + more) for more in range(1, N_BESIDE + 1)]
    with streaming(url) as stream:
        for each in bodies:
            send(url, path, each)
    return {
        "surface": surface,
        "tokens": n_prompt(answer),
        "messages": len(history(surface, n + N_NEXT)),
        "megabytes": round(len(sent) / 1e6, 2),
        "cold_s": round(costs[0], 3),
        "next_s": round(statistics.median(costs[1:]), 3),
        "gap_s": round(stream.longest, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", default="10000,100000,300000,500000,1000000")
    parser.add_argument("--surfaces", default="chat,messages,responses")
    parser.add_argument("--quick", action="store_true", help="write the result to a new folder")
    options = parser.parse_args()
    decoding, console, rows = Decoding(), Console(), []
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), CACHE) as url:
        send(url, PATHS["chat"], body("chat", 1))
        with streaming(url) as stream:
            time.sleep(5)
        for surface in options.surfaces.split(","):
            for n_tokens in map(int, options.tokens.split(",")):
                rows.append(measured(url, surface, n_tokens, decoding))
                console.print(rows[-1])
    table = Table(*COLUMNS)
    for row in rows:
        table.add_row(*(str(row[column]) for column in COLUMNS))
    console.print(table)
    result = {"gap_alone_s": round(stream.longest, 3), "rows": rows}
    console.print(machine.save("long-history", result, quick=options.quick))


if __name__ == "__main__":
    main()
