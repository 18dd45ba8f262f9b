"""A provider as a back end: messages become a body, the records of its answer become events.

    Request ─ KeptAnswers ─▶ whole history ─ fitted ─▶ FittedRequest ─ codec ─▶ body ─ attempt ─▶ events
                 kept            fit: what is dropped          wire/*/client.py  transport │
                                 models: the endpoint                                      └ failed: repeated or raised

An attempt is repeated only before its first content: half an answer never begins again. A provider that refuses a
prompt for its length gets it once more without its oldest turns, where the request allows it (`on_full`). Which
provider a request goes to is not decided here, nor is a fallback to another one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from shepherd.backends.cloud import fit, models
from shepherd.backends.cloud.budget import Meter
from shepherd.backends.cloud.failure import Failed, ProviderFailed, error_of
from shepherd.backends.cloud.fit import Estimate
from shepherd.backends.cloud.kept import KeptAnswers, kept_message
from shepherd.backends.cloud.models import Facts
from shepherd.backends.cloud.provider import EMPTY_MAPPING, Provider
from shepherd.backends.cloud.secret import veiled
from shepherd.backends.cloud.transport import Transport, encoded
from shepherd.backends.local.stop import StopFilter
from shepherd.backends.replicas import Look
from shepherd.core import (
    BadReply,
    CallDelta,
    CallStarted,
    ContextFull,
    Event,
    Evicted,
    Finished,
    InvalidRequest,
    Message,
    OpaqueBlock,
    ReasoningDelta,
    Request,
    Sampling,
    ShepherdError,
    Started,
    TextDelta,
    Traced,
    Usage,
)
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.core.lru import LruCache
from shepherd.core.status import Embeddings, ModelCard
from shepherd.process.pools import in_pool
from shepherd.wire.base import Json
from shepherd.wire.client import CountingCodec, Endpoint, check_messages
from shepherd.wire.signature import Protocol
from shepherd.wire.values import BrokenAnswer, count_in, index_in

if TYPE_CHECKING:
    from shepherd.dialects import TagDialect

logger = logging.getLogger(__name__)

LIST_S = 300.0
"""For so long a list of models is not asked for again, whether it came or not."""
LIST_WAIT_S = 5.0
"""An answer waits no longer for the facts of its model."""
MAX_PAGES, MAX_MODELS = 20, 10_000
"""Of a provider's list of models."""
ASKS_FROM = 4_000
"""Tokens of a prompt from which on its model's window matters, so that the provider is asked for it."""
LARGE = 50_000
"""Tokens of a prompt whose body is written off the event loop."""
OLLAMA_LEAST = 8_192
"""Ollama's window costs memory, and another one loads the model again: it begins here and only grows, by doubling."""
EMBED_AT_ONCE = 100
"""Inputs of one request for vectors; Gemini's limit."""
_DISPENSABLE = frozenset(
    {
        "temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "logit_bias", "seed",
        "stream_options", "parallel_tool_calls", "prompt_cache_key", "reasoning_effort", "reasoning.effort",
        "reasoning.summary",
    }
)  # fmt: skip
"""Fields that an answer can do without."""
_WITHOUT_STOPS = ("openai.responses",)
CONTINUE = "Your last message was cut off. Continue it from exactly where it ends; repeat nothing and add no remark."
"""Behind an answer of our own conversation that is to be continued: most providers begin another one, or refuse."""
_STOPPING = ("stopping", "draining", "terminating", "shutting_down")
"""Words for the state of a server that ends: ours, and those of others."""
_NO_PATH = (401, 403, 404, 405)
"""Statuses of a health check that say nothing: there is none, or it is not for us."""
_CONTENT = (TextDelta, ReasoningDelta, OpaqueBlock, CallStarted)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How often and how long a request is tried."""

    attempts: int = 4
    first_s: float = 0.5
    longest_s: float = 8.0
    """Between two attempts, where the provider names no time."""
    stated_s: float = 30.0
    """The longest wait that a provider may ask for; a longer one is an error at once."""
    total_s: float = 60.0

    def wait(self, attempt: int, failed: Failed, waited: float, chance: float) -> float | None:
        """Seconds until the next attempt; None = there is none. `chance`: from 0 to 1."""
        if attempt >= self.attempts or not failed.retryable:
            return None
        if failed.delay_s is not None:
            wait = failed.delay_s + 0.1 * chance * min(failed.delay_s, 1.0)
            return wait if failed.delay_s <= self.stated_s and waited + wait <= self.total_s else None
        wait = min(self.longest_s, self.first_s * 2 ** (attempt - 1)) * (0.5 + 0.5 * chance)
        return wait if waited + wait <= self.total_s else None


@dataclass(frozen=True, slots=True)
class TokenCount:
    tokens: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class FittedRequest:
    request: Request
    endpoint: Endpoint
    weight: float
    """As `fit.weight_of`."""
    dropped: tuple[int, ...] = ()
    """Indexes of the original request's messages that are not in this one."""


@dataclass(slots=True)
class DroppedMessages:
    """What has left one conversation."""

    mark: int
    """Of its messages up to there."""
    dropped: tuple[int, ...]
    reported: frozenset[int] = frozenset()
    """Indexes that an answer has reported."""


@dataclass(slots=True)
class LearnedLimits:
    """What the answers of one model have shown."""

    estimate: Estimate = field(default_factory=Estimate)
    asked: float = -math.inf
    """When the provider was asked for its window."""
    shown: Facts = field(default_factory=Facts)
    limit: int | None = None
    """The window that the provider named when it refused a prompt."""
    refuses: frozenset[str] = frozenset()
    """Fields that the provider has refused; they are not sent again."""
    quirks: frozenset[str] = frozenset()
    grown: int = OLLAMA_LEAST

    def learns(self, failed: Failed) -> bool:
        """Whether the request may succeed without a field that the provider has just refused."""
        if not failed.is_unsupported:
            return False
        if failed.field == "max_tokens" and "max_completion_tokens" in failed.words:
            new, self.quirks = "max_completion_tokens" not in self.quirks, self.quirks | {"max_completion_tokens"}
            return new
        if failed.field not in _DISPENSABLE or failed.field in self.refuses:
            return False
        self.refuses |= {failed.field}
        return True


class CloudBackend:
    """One provider and its models; satisfies `Backend`. One event loop at a time; it has no tasks of its own."""

    def __init__(
        self,
        provider: Provider,
        *,
        transport: Transport | None = None,
        kept: KeptAnswers | None = None,
        meter: Meter | None = None,
        timeouts: Timeouts | None = None,
        sampling: Sampling = Sampling(),
        dialect: TagDialect | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`kept` is shared by all back ends of a program; `meter` counts what the answers cost; `sampling`: for
        what a request leaves open; `dialect`: how its models write what the provider leaves in the text."""
        self.provider = self._first = provider
        self._has_path = False
        """The protocol's path has answered."""
        self._transport = transport or Transport(provider)
        self._kept = kept or KeptAnswers()
        self._meter = meter
        self._timeouts = timeouts or Timeouts()
        self._sampling = sampling
        self._dialect = dialect
        self._sleep, self._chance = sleep, chance
        self._live: dict[str, Facts] = {}
        """Of the provider's list."""
        self._learned: LruCache[LearnedLimits] = LruCache(1_000)
        """By model; clients may name any."""
        self._dropped: LruCache[DroppedMessages] = LruCache(1_000)

    async def aclose(self) -> None:
        await self._transport.aclose()

    def model_of(self, request: Request) -> str:
        """The model that answers, as the provider calls it."""
        return self.provider.model or request.model

    # -- answers

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        check_messages(request)
        self._check_budget()
        model = self.model_of(request)
        origin = f"{self.provider.name}:{model}"
        if (sampling := request.sampling.over(self._sampling)) is not request.sampling:
            request = replace(request, sampling=sampling)
        whole = self._kept.restored(request, origin)
        fitted = await self._fitted(whole, model)
        has_started, was_shortened, attempt, waited = False, False, 0, 0.0
        seen: list[Event] = []
        while True:
            attempt += 1
            provider = self.provider
            unpaid: Usage | None = Usage()
            try:
                async with aclosing(self._attempt(provider, fitted, model)) as events:
                    async for event in events:
                        if isinstance(event, Started):
                            unpaid = event.usage
                            self._has_path = True
                            if not has_started:
                                has_started = True
                                yield replace(event, cache=self.provider.name)
                            if (evicted := self._newly_dropped(whole, model, fitted)) is not None:
                                yield evicted
                            continue
                        if isinstance(event, Finished):
                            unpaid = None
                            is_known = event.usage.total > 0
                            self._pay(event.usage if is_known else self._guessed(event.usage, model, fitted, seen))
                            self._learn(whole, model, fitted, event, seen)
                        seen.append(event)
                        yield event
                return  # noqa: TRY300 - not an `else`: the loop ends here
            except ProviderFailed as error:
                failed = error.failed
                if not any(isinstance(event, _CONTENT) for event in seen):
                    unpaid = None  # it has refused, and costs nothing
            finally:
                if unpaid is not None:  # cut off or cancelled: what was sent is paid for all the same
                    self._pay(self._guessed(unpaid, model, fitted, seen))
            # Outside of the handler: what is raised has no trace of the provider's own words, which may hold a key.
            if any(isinstance(event, _CONTENT) for event in seen):
                raise self._error(failed, model)
            seen.clear()
            if failed.kind == "context_length" and not was_shortened:
                was_shortened = True
                if (shorter := self._shorter(whole, model, fitted, failed)) is not None:
                    fitted, attempt = shorter, attempt - 1
                    continue
            if failed.is_route and self._takes_other_protocol(provider.protocol):
                fitted, attempt = replace(fitted, endpoint=self._endpoint(fitted.request, model)), attempt - 1
                continue
            if self._of(model).learns(failed):
                logger.info("%s: %s refuses %s; it is not sent again", provider.name, model, failed.field)
                fitted, attempt = replace(fitted, endpoint=self._endpoint(fitted.request, model)), attempt - 1
                continue
            waited += await self._waited(failed, attempt, waited, model)

    async def _waited(self, failed: Failed, attempt: int, waited: float, model: str) -> float:
        """Seconds until the next attempt, which are over. Raises: the failure, where there is no other attempt."""
        wait = self._timeouts.wait(attempt, failed, waited, self._chance())
        if wait is None:
            raise self._error(failed, model)
        logger.debug("%s: %s, attempt %d; again in %.1f s", self.provider.name, failed.kind, attempt, wait)
        await self._sleep(wait)
        return wait

    async def _attempt(self, provider: Provider, fitted: FittedRequest, model: str) -> AsyncGenerator[Event, None]:
        codec, request = provider.codec(), _asking_for_the_rest(fitted.request, fitted.endpoint, provider.protocol)
        stops = request.stop if "stop" in fitted.endpoint.refuses or provider.protocol in _WITHOUT_STOPS else ()
        if stops:
            request = replace(request, stop=())

        def made() -> bytes:
            return encoded(codec.encode_request(request, fitted.endpoint))

        body = await in_pool("prompts", made) if fitted.weight > LARGE else made()
        decoder = codec.decoder(request, fitted.endpoint)
        whole = self._transport.answer(provider, model, body, decoder, _headers(request, provider))
        answer = veiled(whole, provider.secrets) if provider.secrets else whole
        if self._dialect is not None:
            from shepherd.backends.cloud import written  # noqa: PLC0415 - loads the dialects

            answer = written.read(answer, self._dialect, request)
        n_prompt = self._of(model).estimate.tokens(fitted.weight)
        async with (
            aclosing(whole),
            aclosing(answer),
            aclosing(_cut(answer, stops, n_prompt) if stops else answer) as events,
        ):
            async for event in events:
                yield event
                if fitted.request.trace and isinstance(event, Started):
                    yield Traced("prompt", body.decode())

    def _takes_other_protocol(self, tried: Protocol) -> bool:
        """Whether another protocol of the provider is used from now on: the address is the user's, and lacks the path
        of the one that was tried. Where it has none of the paths, the first is tried again next time."""
        if self.provider.protocol != tried:  # another request has found out
            return True
        if not self.provider.can_switch or self._has_path:
            return False
        protocols = self.provider.kind.protocols
        at = protocols.index(self.provider.protocol) + 1
        if at == len(protocols):
            self.provider = self._first
            return False
        logger.info("%s has no %s; %s is used", self.provider.name, self.provider.paths.answer, protocols[at])
        self.provider = replace(self.provider, protocol=protocols[at])
        return True

    def _learn(
        self, whole: Request, model: str, fitted: FittedRequest, finished: Finished, seen: Sequence[Event]
    ) -> None:
        # Not of an answer that was cut: its counts are an estimate. What the provider's own tools found counts, too.
        if finished.reason != "stop" and not any(isinstance(event, OpaqueBlock) for event in seen):
            self._of(model).estimate.learn(fitted.weight, finished.usage.prompt)
        started = Started(model, f"{self.provider.name}:{model}")
        if (message := kept_message([started, *seen, finished])) is not None:
            self._kept.keep(whole, message)

    def _check_budget(self) -> None:
        if self._meter is not None:
            self._meter.check()

    def _pay(self, usage: Usage) -> None:
        if self._meter is not None:
            self._meter.note(usage)

    def _guessed(self, known: Usage, model: str, fitted: FittedRequest, seen: Sequence[Event]) -> Usage:
        pieces = (each.text for each in seen if isinstance(each, TextDelta | ReasoningDelta | CallDelta))
        output = max(known.output, math.ceil(sum(map(len, pieces)) / 4))
        prompt = 0 if known.prompt else self._of(model).estimate.tokens(fitted.weight)
        return replace(known, input=known.input + prompt, output=output)

    def _error(self, failed: Failed, model: str) -> ShepherdError:
        provider = self.provider
        if failed.kind == "context_length" and failed.limit:
            self._of(model).limit = failed.limit
        return error_of(
            failed,
            provider=provider.name,
            n_ctx=self._facts(model).n_ctx,
            key_hint=provider.key_hint,
            hide=provider.hide,
        )

    # -- what fits

    def window(self, model: str) -> int | None:
        """Tokens that one conversation can hold, as far as that is known without asking."""
        return self._facts(model).n_ctx

    async def n_ctx(self, model: str) -> int | None:
        return self._facts(model).n_ctx or (await self._known_facts(model)).n_ctx

    async def count(self, request: Request) -> TokenCount:
        """The tokens of a request's prompt. Raises: as `stream`."""
        check_messages(request)
        model = self.model_of(request)
        if self.provider.paths.count:
            codec = cast(CountingCodec, self.provider.codec())
            url = self.provider.url(self.provider.paths.count, model)
            body = codec.encode_count(request, self._endpoint(request, model))
            found = await self._fetched(url, body, headers=_headers(request, self.provider))
            if isinstance(found, dict):
                try:
                    return TokenCount(codec.decode_count(found), is_exact=True)
                except BrokenAnswer as error:
                    raise BadReply(f"{self.provider.name}: {error}", backend=self.provider.name) from error
            if not found.is_route:  # a server that is compatible, but does not count
                raise self._error(found, model)
        return TokenCount(self._of(model).estimate.tokens(fit.weight_of(request)), is_exact=False)

    async def _fetched(
        self,
        url: str,
        body: Json | None = None,
        wait_s: float | None = None,
        headers: Mapping[str, str] = EMPTY_MAPPING,
        most_bytes: int | None = None,
    ) -> Json | Failed:
        try:
            return await self._transport.fetch(url, body, wait_s, headers, most_bytes)
        except ProviderFailed as error:
            return error.failed

    async def _fitted(self, request: Request, model: str) -> FittedRequest:
        """The request, without what has to leave. Raises: `ContextFull`."""
        earlier = self._dropped_before(request, model)
        whole, dropped = request, earlier.dropped if earlier is not None else ()
        request = _lighter(whole, dropped)
        weight = fit.weight_of(request)
        estimate = self._of(model).estimate
        tokens = estimate.tokens(weight)
        facts = self._facts(model)
        if (facts.n_ctx is None and tokens > ASKS_FROM) or (facts.thinks_by is None and request.reasoning is not None):
            facts = await self._known_facts(model)
        endpoint = self._endpoint(request, model, tokens)
        room = _room(request, facts)
        fitted = FittedRequest(request, endpoint, weight, dropped)
        if facts.n_ctx is None or tokens <= facts.n_ctx - room:
            return fitted
        if self._evicts(request):
            if (shorter := self._shortened(whole, model, fitted, tokens - facts.n_ctx + room)) is not None:
                return shorter
        elif self.provider.protocol != "ollama" and estimate.least(weight) <= facts.n_ctx:
            return fitted  # the provider knows better
        least = await self._least(request, estimate, weight)
        if least > facts.n_ctx:
            raise ContextFull(needed=least, limit=facts.n_ctx, cache=self.provider.name)
        return fitted

    def _dropped_before(self, request: Request, model: str) -> DroppedMessages | None:
        """What has left this conversation stays out, so that its prompts begin alike."""
        if not self._evicts(request) or (earlier := self._dropped.find(_conversation(request, model))) is None:
            return None
        return earlier if earlier.mark == hash(request.messages[: earlier.dropped[-1] + 1]) else None

    def _newly_dropped(self, whole: Request, model: str, fitted: FittedRequest) -> Evicted | None:
        """What has left since the answer before; it counts as reported now."""
        earlier = self._dropped_before(whole, model)
        new = tuple(at for at in fitted.dropped if earlier is None or at not in earlier.reported)
        if earlier is not None:
            earlier.reported |= frozenset(new)
        tokens = self._of(model).estimate.tokens(sum(fit.message_weight(whole.messages[at]) for at in new))
        return Evicted(len(new), tokens, new) if new else None

    async def _least(self, request: Request, estimate: Estimate, weight: float) -> int:
        """Tokens that the prompt has at least: counted, where the provider counts."""
        if self.provider.protocol == "ollama":  # it cuts a longer prompt without a notice
            return estimate.tokens(weight)
        least = estimate.least(weight)
        if not self.provider.paths.count:
            return least
        try:
            return (await self.count(request)).tokens
        except ShepherdError:
            return least

    def _shorter(self, request: Request, model: str, fitted: FittedRequest, failed: Failed) -> FittedRequest | None:
        """What is sent after the provider has refused the prompt for its length."""
        learned = self._of(model)
        if failed.limit:
            learned.limit = failed.limit
        if failed.limit and failed.needed:
            learned.estimate.learn(fitted.weight, failed.needed)
        if not self._evicts(request):
            return None
        tokens = learned.estimate.tokens(fitted.weight)
        excess = tokens - failed.limit + _room(request, self._facts(model)) if failed.limit else failed.needed
        return self._shortened(request, model, fitted, max(excess, tokens // 4))

    def _shortened(self, whole: Request, model: str, fitted: FittedRequest, excess: int) -> FittedRequest | None:
        """The request without `excess` tokens more than have left already; None where the rest may not leave."""
        per_weight = max(self._of(model).estimate.tokens(1_000_000) / 1_000_000, 1e-6)
        step = fit.STEP * (self._facts(model).n_ctx or 4 * excess) / per_weight
        weight = fit.weight_of(whole)
        dropped = fit.dropped_indices(whole.messages, weight - fitted.weight + excess / per_weight, step)
        if not dropped:
            return None
        before = self._dropped_before(whole, model)
        reported = before.reported if before is not None else frozenset[int]()
        now = DroppedMessages(hash(whole.messages[: dropped[-1] + 1]), dropped, reported)
        self._dropped.keep(_conversation(whole, model), now)
        lighter = _lighter(whole, dropped)
        return FittedRequest(lighter, fitted.endpoint, fit.weight_of(lighter), dropped)

    def _evicts(self, request: Request) -> bool:
        return request.on_full == "evict"

    def _of(self, model: str) -> LearnedLimits:
        if (learned := self._learned.find(model)) is None:
            self._learned.keep(model, learned := LearnedLimits())
        return learned

    # -- models

    def _facts(self, model: str) -> Facts:
        learned = self._of(model)
        live = learned.shown.over(self._live.get(model, models.UNKNOWN))
        found = live.over(models.known(self.provider, model))
        if (n_ctx := self.provider.n_ctx or learned.limit) is not None:
            found = replace(found, n_ctx=n_ctx)
        return found

    async def _known_facts(self, model: str) -> Facts:
        """What is known, after the provider was asked."""
        learned = self._of(model)
        if time.monotonic() - learned.asked <= LIST_S:
            return self._facts(model)
        learned.asked = time.monotonic()
        if show := self.provider.paths.show:
            found = await self._fetched(self.provider.url(show), {"model": model}, LIST_WAIT_S)
            if isinstance(found, dict):
                learned.shown = models.decode_show(found)
        else:
            await self._list(LIST_WAIT_S)
        return self._facts(model)

    def _endpoint(self, request: Request, model: str, tokens: int = 0) -> Endpoint:
        endpoint, learned = models.endpoint(self.provider, model, self._facts(model), request), self._of(model)
        if learned.refuses or learned.quirks:
            endpoint = replace(
                endpoint, refuses=endpoint.refuses | learned.refuses, quirks=endpoint.quirks | learned.quirks
            )
        if self.provider.protocol != "ollama" or self.provider.n_ctx is not None:
            return endpoint
        while learned.grown < 1.2 * tokens + (request.max_tokens or 2_048):
            learned.grown *= 2
        return replace(endpoint, n_ctx=min(learned.grown, endpoint.n_ctx or learned.grown))

    async def models(self) -> list[ModelCard]:
        """The models that the provider lists, with what else is known of them. Raises: `ShepherdError`."""
        names = await self._list()
        if isinstance(names, Failed):
            raise self._error(names, "")
        return [self.card(name) for name in names]

    def card(self, model: str) -> ModelCard:
        return models.card(model, self._facts(model))

    async def _list(self, wait_s: float | None = None) -> list[str] | Failed:
        names: list[str] = []
        url = first = self.provider.url(self.provider.paths.models)
        for _ in range(MAX_PAGES):
            body = await self._fetched(url, None, wait_s)
            if isinstance(body, Failed):
                return body
            for name, facts in models.listed(body):
                if len(names) == MAX_MODELS:
                    return Failed("broken", f"the list of models has more than {MAX_MODELS:,}")
                names.append(name)
                self._live[name] = facts.over(self._live.get(name, Facts()))
            if not (more := models.next_page(body)):
                break
            url = f"{first}{'&' if '?' in first else '?'}{more}"
        else:
            return Failed("broken", f"the list of models has more than {MAX_PAGES} pages")
        return names

    async def look(self, wait_s: float, *, lists: bool) -> Look:
        """Whether the provider takes requests now, by its own word and within `wait_s` for each request; no prompt is
        sent. `lists`: ask for its models, too."""
        name = self.provider.name
        try:
            if url := self.provider.health_url:
                status, found, words = await self._transport.status(url, wait_s)
                if found.get("status") in _STOPPING:
                    return Look(f"{name} says that it is {found['status']}", is_answer=True)
                if status != 200 and status not in _NO_PATH:
                    return Look(f"its health check answers: {words or f'status {status}'}", is_answer=True)
                if status == 200 and not lists:
                    return Look()
        except ProviderFailed as error:
            return Look(self.provider.hide(error.failed.words))
        listed = await self._list(wait_s)
        if not isinstance(listed, Failed):
            return Look(models=frozenset(listed))
        is_down = listed.kind in ("unreachable", "timeout", "broken", "server_error", "overloaded")
        return Look(self.provider.hide(listed.words) if is_down else "", is_answer=listed.status >= 500)

    # -- vectors

    async def embed(
        self, model: str, inputs: Sequence[str], dimensions: int | None = None, *, truncate: bool = True
    ) -> Embeddings:
        """A vector of length 1 for each input; `dimensions`: the first so many numbers of it. `truncate`: a text
        that is too long is cut; only Ollama reads it, the others do as they always do.

        Raises: `InvalidRequest` where the provider has none, `BackendError`.
        """
        model = self.provider.model or model
        if not (path := self.provider.paths.embed):
            raise InvalidRequest(f"{self.provider.kind.title} has no embeddings; name another provider", field="model")
        self._check_budget()
        url = self.provider.url(path, model)
        vectors: list[list[float]] = []
        counts: list[int] = []
        for start in range(0, len(inputs), EMBED_AT_ONCE):
            some = list(inputs[start : start + EMBED_AT_ONCE])
            sent = _embed_body(self.provider.protocol, model, some, dimensions)
            if not truncate and self.provider.protocol == "ollama":
                sent["truncate"] = False
            found, n_tokens = await self._vectors(url, model, sent, len(some), dimensions)
            vectors += found
            weights = [max(1.0, len(each) / 4) for each in some]
            found_counts = [
                round(n_tokens * weight / sum(weights)) if n_tokens else math.ceil(weight) for weight in weights
            ]
            self._pay(Usage(input=sum(found_counts)))
            counts += found_counts
        return Embeddings(model, vectors, tuple(counts))

    async def _vectors(
        self, url: str, model: str, sent: Json, n_inputs: int, dimensions: int | None
    ) -> tuple[list[list[float]], int]:
        attempt, waited, most_bytes = 1, 0.0, self._transport.limits.body_bytes
        while isinstance(body := await self._fetched(url, sent, most_bytes=most_bytes), Failed):
            waited += await self._waited(body, attempt, waited, model)
            attempt += 1
        rows = body.get("data", body.get("embeddings"))
        found = [_vector(row, dimensions) for row in _in_order(rows)] if isinstance(rows, list) else []
        if len(found) != n_inputs or not all(found):
            raise BadReply(
                f"{self.provider.name}: the answer does not have a vector for each input", backend=self.provider.name
            )
        usage = body.get("usage")
        n_tokens = count_in(usage, "prompt_tokens") if isinstance(usage, dict) else count_in(body, "prompt_eval_count")
        return found, n_tokens


def _asking_for_the_rest(request: Request, endpoint: Endpoint, protocol: Protocol) -> Request:
    """A request of our own that ends with an answer. A client's goes out as it is: the client has chosen the model."""
    last = request.messages[-1] if request.messages else None
    is_open = last is not None and last.role == "assistant" and not last.calls
    if not is_open or request.native is not None or protocol == "ollama" or "continues" in endpoint.quirks:
        return request
    return replace(request, messages=(*request.messages, Message.user(CONTINUE)))


async def _cut(
    events: AsyncGenerator[Event, None], stops: Sequence[str], prompt_tokens: int
) -> AsyncGenerator[Event, None]:
    """The events up to the first of the stop strings, for a provider without a field for them (OpenAI's Responses), or
    one that refuses it (models that think). The caller closes `events`.

    `prompt_tokens`: an estimate, for the counts of an answer that is cut: the provider's come at its end.
    """
    stop = StopFilter(stops)
    usage, n_chars = Usage(prompt_tokens), 0
    async for event in events:
        match event:
            case Started(usage=Usage() as known) if known.prompt:
                usage = known
            case ReasoningDelta(text=text) | CallDelta(text=text):
                n_chars += len(text)
        if isinstance(event, TextDelta):
            n_chars += len(event.text)
            shown = stop.feed(event.text)
            if shown:
                yield replace(event, text=shown)
        elif rest := stop.close():  # the text has ended, for now
            yield TextDelta(rest)
        if stop.found is not None:
            yield Finished("stop", replace(usage, output=math.ceil(n_chars / 4)), stop=stop.found)
            return
        if not isinstance(event, TextDelta):
            yield event


def _headers(request: Request, provider: Provider) -> Mapping[str, str]:
    """What the client has sent beside its body, if it speaks the provider's protocol."""
    native = request.native
    return native.headers if native is not None and native.protocol == provider.protocol else EMPTY_MAPPING


def _conversation(request: Request, model: str) -> object:
    """What names it: clients begin many with the same words."""
    first = tuple(islice((message.own_text for message in request.messages if message.is_input), 2))
    return model, request.owner, request.session, hash(first)


def _lighter(request: Request, dropped: tuple[int, ...]) -> Request:
    if not dropped:
        return request
    out = frozenset(dropped)
    return replace(request, messages=tuple(message for at, message in enumerate(request.messages) if at not in out))


def _room(request: Request, facts: Facts) -> int:
    """Tokens that stay free for the answer."""
    wanted = request.max_tokens or min(facts.max_output or 4_096, 4_096)
    return min(wanted, (facts.n_ctx or wanted) // 4)


def _embed_body(protocol: str, model: str, inputs: list[str], dimensions: int | None) -> Json:
    wanted: Json = {} if dimensions is None else {"dimensions": dimensions}
    if protocol == "gemini":
        wanted = {"outputDimensionality": dimensions} if wanted else {}
        name = model if model.startswith("models/") else f"models/{model}"
        return {"requests": [{"model": name, "content": {"parts": [{"text": text}]}, **wanted} for text in inputs]}
    return {"model": model, "input": inputs, **wanted}


def _in_order(rows: list[Any]) -> list[Any]:
    """OpenAI's rows have an index, and need not come in its order."""
    indexes = [index_in(row, "index") if isinstance(row, dict) else None for row in rows]
    if None in indexes:
        return rows
    return [row for _, row in sorted(zip(indexes, rows, strict=True), key=lambda pair: pair[0] or 0)]


def _vector(row: Any, dimensions: int | None) -> list[float]:
    """Of length 1; empty for what is none. A server that knows no `dimensions` sends them all."""
    values = row.get("embedding", row.get("values")) if isinstance(row, dict) else row
    if not isinstance(values, list) or not values or not all(isinstance(each, int | float) for each in values):
        return []
    values = values[:dimensions]
    length = math.sqrt(sum(each * each for each in values))
    return [each / length for each in values] if length > 0 and math.isfinite(length) else []
