"""Requests and their results in the FAKE: one worker thread that makes one token of every running request at a time.

    generate_async ─▶ waiting ─ room for blocks? ─▶ running ─ a token each ─▶ response queue ─▶ result object
         abort ───────────────────────────────────────▶ cancelled, at the worker's next step

As in the real package: a result is one object that changes with every step; `result(timeout)` ignores its timeout;
without an event loop in the thread that submits, only synchronous iteration works; a worker that dies or hangs leaves
every reader waiting.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .blocks import Block, BlockCache
from .model import Guide, Model, Sampler, guide_for
from .settings import Settings
from .signatures import bound

Json = dict[str, Any]


class RequestError(RuntimeError):
    """A request that failed in the worker; raised where its result is read."""


@dataclass
class Logprob:
    logprob: float
    rank: int | None = None


@dataclass
class CompletionOutput:
    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    _last_text: int = 0
    _last_tokens: int = 0

    @property
    def length(self) -> int:
        return len(self.token_ids)

    @property
    def text_diff(self) -> str:
        """Wrong after a text that shrinks, as the real one."""
        return self.text[self._last_text :]

    @property
    def token_ids_diff(self) -> list[int]:
        return self.token_ids[self._last_tokens :]


@dataclass
class Response:
    """What the worker sends for one step of one request."""

    token: int | None = None
    scores: dict[int, tuple[float, int]] | None = None
    cached: int = 0
    finish: str = ""
    """end_id, stop_words, length, cancelled; empty while the request runs."""
    error: str = ""


class RequestOutput:
    """The result of one request; the same object with every step."""

    def __init__(self, executor: Executor, id_: int, prompt: list[int], params: Any, streaming: bool) -> None:
        self.request_id = id_
        self.prompt: str | None = None
        self.prompt_token_ids = prompt
        self.outputs = [CompletionOutput(0)]
        self.cached_tokens = 0
        self.decoding_iter = 0
        self.metrics_dict: Json = {}
        self.finished = False
        self._aborted = False
        self._executor, self._params, self._streaming = executor, params, streaming
        self.queue: queue.Queue[Response] = queue.Queue()
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
            self.aqueue: asyncio.Queue[Response] | None = asyncio.Queue()
        except RuntimeError:
            self._loop = self.aqueue = None

    def put(self, response: Response) -> None:
        """The worker's thread."""
        if self._loop is not None and self.aqueue is not None:
            self._loop.call_soon_threadsafe(self.aqueue.put_nowait, response)
        else:
            self.queue.put(response)

    @bound("GenerationResult.abort")
    def abort(self) -> None:
        self._executor.abort_request(self.request_id)
        self._aborted = True

    @bound("GenerationResult.aborted")
    def aborted(self) -> bool:
        return self._aborted

    @bound("GenerationResult.result")
    def result(self, timeout: float | None = None) -> RequestOutput:
        """Ignores `timeout`, as the real one does."""
        while not self.finished:
            self._handle(self.queue.get())
        return self

    @bound("GenerationResult.aresult")
    async def aresult(self) -> RequestOutput:
        while not self.finished:
            await self.__anext__()
        return self

    def __await__(self) -> Generator[Any, None, RequestOutput]:
        waiter: Generator[Any, None, RequestOutput] = self.aresult().__await__()
        return waiter

    def __iter__(self) -> Iterator[RequestOutput]:
        return self

    def __next__(self) -> RequestOutput:
        if self.finished:
            raise StopIteration
        self._handle(self.queue.get())
        return self

    def __aiter__(self) -> AsyncIterator[RequestOutput]:
        return self

    async def __anext__(self) -> RequestOutput:
        if self.finished:
            raise StopAsyncIteration
        assert self.aqueue is not None, (
            "The asyncio event loop was not present during initialization, so async operations are not available."
        )
        self._handle(await self.aqueue.get())
        return self

    def _handle(self, response: Response) -> None:
        if response.error:
            self.finished = True
            raise RequestError(response.error)
        out, params = self.outputs[0], self._params
        self.finished = bool(response.finish)
        self.cached_tokens = response.cached
        self.decoding_iter += 1
        out._last_tokens, out._last_text = len(out.token_ids), len(out.text)
        if response.token is not None:
            out.token_ids.append(response.token)
            if response.scores is not None:
                out.logprobs.append({token: Logprob(*score) for token, score in response.scores.items()})
        if response.finish == "cancelled":
            out.finish_reason = "cancelled"
        elif response.finish == "length":
            out.finish_reason = "length"
        elif response.finish:
            out.finish_reason = "stop"
        if response.finish == "stop_words":
            for reason, ids in params._get_stop_reasons_and_words():
                if out.token_ids[-len(ids) :] == ids:
                    out.stop_reason = reason
                    if not params.include_stop_str_in_output:
                        out.token_ids = out.token_ids[: -len(ids)]
                    break
        if params.detokenize and self._executor.model.tokenizer is not None:
            out.text = self._executor.model.tokenizer.decode(
                out.token_ids, skip_special_tokens=params.skip_special_tokens
            )
            for reason, _ in () if response.finish == "cancelled" else params._get_stop_reasons_and_words():
                if isinstance(reason, str) and (at := out.text.find(reason)) >= 0:
                    # The text shrinks: earlier steps may have shown its first characters. The tokens do not.
                    out.text = out.text[: at + len(reason) * params.include_stop_str_in_output]
                    out.finish_reason, out.stop_reason = "stop", reason
                    self.abort()
                    self.finished = True
                    break


@dataclass(eq=False)
class Running:
    """One request in the worker."""

    id: int
    output: RequestOutput
    prompt: list[int]
    params: Any
    salt: str
    sampler: Sampler
    script: list[int]
    stop_words: list[list[int]]
    pinned: list[Block] = field(default_factory=list)
    cached: int = 0
    n_reserved: int = 0
    made: list[int] = field(default_factory=list)
    on_script: bool = True


class IterationResult:
    """The events in the queue shape: each call drains until silence, and then returns nothing until a request comes."""

    def __init__(self) -> None:
        self.queue: queue.Queue[str] = queue.Queue()
        self.done = False

    def get_results(self, timeout: float) -> list[Json]:
        results: list[Json] = []
        while not self.done:
            try:
                results.append(json.loads(self.queue.get(timeout=timeout)))
            except queue.Empty:
                self.done = True
        return results


class Executor:
    """The worker and its proxy."""

    def __init__(
        self, model: Model, cache: BlockCache, settings: Settings, *, n_batch: int, max_seq_len: int,
        guided: str | None, stream_interval: int = 1,
    ) -> None:  # fmt: skip
        self.model, self.cache, self.settings = model, cache, settings
        self.n_batch, self.max_seq_len, self.guided = n_batch, max_seq_len, guided
        self.most_running = 0
        """The most requests that have run side by side."""
        self.loops_seen: list[bool] = []
        """For each request, whether its submitting thread had an event loop."""
        self.params_seen: list[Any] = []
        """The sampling parameters of each request."""
        self._ids = itertools.count(1)
        self._waiting: deque[Running] = deque()
        self._running: list[Running] = []
        self._aborted: set[int] = set()
        self._changed = threading.Condition()
        self._stopping = False
        self._dead = False
        self._gone = False
        self._n_made = 0
        self.iterations: IterationResult | None = None
        self._thread = threading.Thread(target=self._work, name="fake-trtllm-worker", daemon=True)
        self._thread.start()

    # -- the proxy -----------------------------------------------------------------------------------------------------

    def is_shutdown(self) -> bool:
        return self._stopping or self._gone

    def submit(self, prompt: list[int], params: Any, streaming: bool, salt: str) -> RequestOutput:
        output = RequestOutput(self, next(self._ids), prompt, params, streaming)
        self.loops_seen.append(output.aqueue is not None)
        self.params_seen.append(params)
        try:
            guide = guide_for(params, self.guided, self.model.tokenizer, self.model.end_id)
        except ValueError as error:
            output.put(Response(error=str(error)))  # the real one fails in the worker
            return output
        request = self._request(output, prompt, params, guide, salt)
        with self._changed:
            self._waiting.append(request)
            if self.settings.events == "queue":
                self.iterations = self.iterations or IterationResult()
                self.iterations.done = False
                self._flush_events()
            self._changed.notify()
        return output

    def _request(
        self, output: RequestOutput, prompt: list[int], params: Any, guide: Guide | None, salt: str
    ) -> Running:
        sampler = Sampler(params, self.model, guide, prompt)
        return Running(
            output.request_id,
            output,
            prompt,
            params,
            salt,
            sampler,
            self.model.script(prompt),
            params._get_stop_words(),
        )

    def abort_request(self, id_: int) -> None:
        with self._changed:
            self._aborted.add(id_)
            self._changed.notify()

    def get_kv_events(self, timeout: float) -> list[Json]:
        if self.settings.events == "queue":
            assert self.iterations is not None, "KV Event IterationResult is not properly instantiated."
            return self.iterations.get_results(timeout)
        give_up = time.monotonic() + timeout
        while True:
            with self._changed:
                if self.cache.buffer or time.monotonic() > give_up or self._stopping:
                    found = [*self.cache.buffer]
                    self.cache.buffer.clear()
                    return found
            time.sleep(min(0.1, timeout))

    def _flush_events(self) -> None:
        """The queue shape: the worker sends its events on, from the first request on."""
        while self.settings.events == "queue" and self.iterations is not None and self.cache.buffer:
            self.iterations.queue.put(json.dumps(self.cache.buffer.popleft()))

    def shutdown(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if not self._dead:
            self._thread.join(10)

    # -- only the fake has these ---------------------------------------------------------------------------------------

    def die(self) -> None:
        """The worker ends without a word: readers wait, and `is_shutdown` becomes true."""
        with self._changed:
            self._dead = self._gone = True
            self._changed.notify()

    def hang(self) -> None:
        """The worker stops, and nothing shows it."""
        with self._changed:
            self._dead = True
            self._changed.notify()

    # -- the worker ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._running or self._waiting or self._stopping or self._dead):
                    self._changed.wait()
                if self._dead:
                    return
                if self._stopping:
                    for request in [*self._running, *self._waiting]:
                        request.output.put(Response(finish="cancelled", cached=request.cached))
                    return
                self._end_aborted()
                if self.settings.gate and Path(self.settings.gate).exists():
                    self._changed.wait(0.002)
                    continue
                if not self._admit():
                    return
                self.most_running = max(self.most_running, len(self._running))
                for request in list(self._running):
                    self._step(request)
                self._flush_events()
            time.sleep(self.settings.step_s)

    def _end_aborted(self) -> None:
        for request in [*self._running, *self._waiting]:
            if request.id in self._aborted:
                self._end(request, Response(finish="cancelled"))
        self._aborted.clear()

    def _admit(self) -> bool:
        """Start what there is room for; False if the worker dies of it."""
        while self._waiting and len(self._running) < self.n_batch:
            request = self._waiting[0]
            if self.settings.crash in request.prompt:
                self._dead = self._gone = True
                return False
            if self.settings.poison in request.prompt:
                self._end(request, Response(error="a planted failure"))
                continue
            n_max = min(request.params.max_tokens or self.max_seq_len, self.max_seq_len - len(request.prompt))
            got = self.cache.admit(request.prompt, n_max, request.salt)
            if got is None:
                if not self._running:
                    self._end(request, Response(error="the request does not fit into the KV cache"))
                    continue
                return True
            request.pinned, request.cached, request.n_reserved = got
            self._running.append(self._waiting.popleft())
        return True

    def _step(self, request: Running) -> None:
        params, made = request.params, request.made
        wanted = None
        if self.model.rule is not None:
            wanted = self.model.rule([*request.prompt, *made])
        elif request.on_script and len(made) < len(request.script):
            wanted = request.script[len(made)]
        token, scores = request.sampler.draw(wanted, is_first=request is self._running[0])
        request.on_script &= token == wanted
        made.append(token)
        self._n_made += 1
        finish, shown = "", True
        if token == self.model.end_id and not params.ignore_eos:
            finish, shown = "end_id", self.settings.keep_end
        elif any(made[-len(ids) :] == ids for ids in request.stop_words):
            finish = "stop_words"
        elif len(made) >= (params.max_tokens or 1 << 60) or len(request.prompt) + len(made) >= self.max_seq_len:
            finish = "length"
        response = Response(token if shown else None, scores if shown else None, request.cached, finish)
        if finish:
            self._end(request, response)
        else:
            request.output.put(response)
        settings = self.settings
        if settings.die_at and self._n_made >= settings.die_at:
            self._dead = self._gone = True
        if settings.hang_at and self._n_made >= settings.hang_at:
            self._dead = True

    def _end(self, request: Running, response: Response) -> None:
        response.cached = request.cached
        if request in self._running:
            self._running.remove(request)
            self.cache.release(request.pinned, request.n_reserved)
            # The newest token was drawn, never computed.
            self.cache.store([*request.prompt, *request.made[:-1]], request.salt, whole_only=False)
        elif request in self._waiting:
            self._waiting.remove(request)
        self._flush_events()
        request.output.put(response)

    def tokens_held(self) -> int:
        """For tests: tokens in the tree."""
        with self._changed:
            return sum(len(block.tokens) for block in self.cache.blocks.values())


def held(executor: Executor, tokens: Sequence[int], salt: str = "") -> int:
    """For tests: how many leading tokens of a prompt the cache would give."""
    with executor._changed:
        return executor.cache.match(tokens, salt)[1]
