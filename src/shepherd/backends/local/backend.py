"""Our own engine as a back end: messages become a prompt, the prompt becomes tokens, tokens become events.

    Request ─ prepare ─▶ Prepared ─ compile ─▶ Compiled ─ constrain ─▶ Job ─ submit ─▶ Ticket ─ answer ─▶ events
              kept_prefix              compile            constrain          engine             answer

A count ends after *compile*; a look at the window and an eviction begin with the same two steps. Small requests run on
the event loop, large ones in threads, a step at a time, so that a disconnected client is noticed between two steps
(`offload.py`). The engine thread sees token ids only. Text may be held back, tokens never: a token that ends inside a
character is in the cache like any other (H1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from shepherd.backends.local.answer import Answer
from shepherd.backends.local.cache_warnings import CacheWatch
from shepherd.backends.local.compile import Compiled, Compiler
from shepherd.backends.local.completion import Echo, PlainTextParser, check_tokens
from shepherd.backends.local.constrain import Constraint, Constraints
from shepherd.backends.local.kept_prefix import KeptPrefix
from shepherd.backends.local.offload import offload, weight_of
from shepherd.backends.local.token_budget import budget_for
from shepherd.backends.local.turns import placements, protected
from shepherd.backends.local.window import Window, window_rows, with_next_question
from shepherd.core import Event, Evicted, InvalidRequest, OnFull, Request, Sampling
from shepherd.core.request import SharedPrefix, parts_of_owner
from shepherd.dialects import Dialect, Template
from shepherd.engine.base import Job, Vocabulary, Whose
from shepherd.engine.engine import Engine
from shepherd.engine.kv.plan import kept_tokens

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How one cache answers. `None` = the built-in default."""

    sampling: Sampling = Sampling()
    """For what a request leaves open."""
    reserve: int | None = None
    """Tokens kept free for the answer; default: a sixteenth of the context, at most 256 (`token_budget.py`)."""
    max_tokens: int | None = None
    """Longest answer of a request that names no length; default: the room left in the context (C35)."""
    strict_max_tokens: bool = False
    """Refuse a request whose `max_tokens` does not fit, instead of shortening it (C9)."""
    thinking: bool | None = None
    """Whether models that can reason do so, for requests that leave it open; None: as their templates have it."""
    on_full: OnFull = "error"
    """What happens when the context is full, for requests that leave it open."""
    constrain_calls: bool = True
    """Hold the arguments of calls to their schema even where the model is free to call or not."""
    shared_prefix: SharedPrefix = "none"


class LocalBackend:
    """One cache of one model; satisfies `Backend`. One event loop at a time."""

    def __init__(
        self,
        engine: Engine,
        vocabulary: Vocabulary,
        *,
        template: Template,
        dialect: Dialect,
        model: str,
        options: LocalOptions | None = None,
        with_tools: Template | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        """`with_tools` is the template for requests with tools, where a model has two. `constraints` are those of the
        engine's `Constrainer`; without them no answer is held to a form."""
        self.engine = engine
        self.n_ctx = engine.n_ctx
        """Tokens that one conversation can hold."""
        self.model = model
        self.dialect = dialect
        self._vocabulary = vocabulary
        self._options = options or LocalOptions()
        self._constraints = constraints
        thinking = self._options.thinking
        self._compiler = Compiler(
            vocabulary, template, dialect, model=model, n_ctx=engine.n_ctx, with_tools=with_tools, thinking=thinking
        )
        self.encoder = self._compiler.encoder
        """Tokenises for this model. Any thread."""
        self._kept = KeptPrefix(self._compiler)
        self._watch = CacheWatch(engine.name)

    # -- a request -----------------------------------------------------------------------------------------------------

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """The events of one answer; see `Backend.stream`."""
        logger.debug("LlamaCpp generate_from_session called with %d messages", len(request.messages))
        compiled = await self.compile(request)
        job = self._job(compiled, await self._constrain(compiled))
        if compiled.bare is None:
            await offload(weight_of(compiled.request), self._watch.notice, compiled.request)
        ticket = self.engine.submit(job)
        answer = self._answer(compiled)
        try:
            async with aclosing(ticket.batches()) as batches:
                async for batch in batches:
                    for step in batch:
                        events = answer.take(step)
                        if answer.has_ended:  # before the client can send a request that contains the answer
                            self._kept.learn(compiled, answer.tokens, answer.message)
                        for event in events:
                            yield event
                        if answer.has_ended:
                            return
        finally:
            self.engine.cancel(ticket)
            if not answer.has_ended:
                self._kept.learn(compiled, answer.tokens, None)

    async def compile(self, request: Request) -> Compiled:
        """The prompt of a request in tokens, beginning like the prompts before it.

        Raises: `InvalidRequest`; as `Template.render`.
        """
        prepared = await offload(weight_of(request), self._kept.prepare, request)
        return await offload(weight_of(prepared.request), self._kept.compile, prepared)

    async def count(self, request: Request) -> int:
        """How many tokens the prompt of `request` has; exact."""
        return len((await self.compile(request)).encoded.tokens)

    async def render(self, request: Request) -> str:
        """The prompt of `request` as the template writes it, without the token that begins every prompt."""
        return (await self.compile(request)).prompt.text

    async def _constrain(self, compiled: Compiled) -> Constraint:
        request = compiled.request
        if self._constraints is None:
            if request.schema is not None or request.grammar is not None or request.tool_choice not in ("auto", "none"):
                raise InvalidRequest(f"cache {self.engine.name!r} cannot constrain what its model writes")
            return Constraint()
        if not self._constraints.has_some(request, calls=self._options.constrain_calls):
            return Constraint()
        thinks = self.dialect.thinks and self._compiler.level_of(request) != "off"
        return await asyncio.to_thread(self._constraints.find, request, compiled.prompt.opened, thinks=thinks)

    def _job(self, compiled: Compiled, constraint: Constraint) -> Job:
        """The job for a prompt that fits. Raises: `ContextFull`, with what would be needed and what there is."""
        request, options, tokens = compiled.request, self._options, compiled.encoded.tokens
        sampling = request.sampling.over(options.sampling)
        check_tokens([token for token, _ in sampling.logit_bias or ()], self._vocabulary, "logit_bias")
        wanted = options.max_tokens if request.max_tokens is None else max(1, request.max_tokens)
        on_full = request.on_full or options.on_full
        job = Job(
            tokens,
            1,
            sampling,
            compiled.spans,
            on_full,
            grammar=constraint.lark,
            written=constraint.written,
            scores=request.logprobs,
            score_prompt=request.logprobs is not None and request.completion is not None and request.completion.echo,
            background=request.background is True,
            session=request.session,
            whose=self._whose(compiled),
        )
        room = budget_for(
            n_prompt=len(tokens),
            n_kept=kept_tokens(job),
            n_ctx=self.engine.n_ctx,
            on_full=on_full,
            asked=wanted,
            reserve=options.reserve,
            strict=options.strict_max_tokens,
            cache=self.engine.name,
        )
        logger.debug(
            "Generation limits: %d max tokens (protected: system=%d + user=%d + buffer=%d)",
            room.max_tokens, *protected(request.messages, compiled.spans), room.reserve,
        )  # fmt: skip
        return replace(job, max_tokens=room.max_tokens, reserve=room.reserve)

    def _whose(self, compiled: Compiled) -> Whose:
        request, common = compiled.request, self._options.shared_prefix
        _, salt = parts_of_owner(request.owner)
        if common == "all":
            return Whose(salt)
        shares = common == "system" and not salt
        return Whose(request.owner, protected(request.messages, compiled.spans)[0] if shares else 0)

    def _answer(self, compiled: Compiled) -> Answer:
        request, compiler = compiled.request, self._compiler
        made = partial(
            Answer, vocabulary=self._vocabulary, model=self.model, cache=self.engine.name, stops=request.stop
        )
        if compiled.bare is not None:
            assert request.completion is not None
            prompt, bare = request.completion.prompt, compiled.bare
            text = prompt if isinstance(prompt, str) else compiler.spell(bare.tokens[bare.start : bare.stop])
            return made(
                PlainTextParser(),
                trace=compiler.spell(bare.tokens) if request.trace else None,
                echo=Echo(text, bare.start, bare.stop) if request.completion.echo else None,
                is_silent=request.max_tokens == 0,
            )
        reader = self._constraints.reader(request) if self._constraints else self.dialect
        role_stops, end_token = compiler.ends(compiled.prompt)
        return made(
            reader.parser(tools=request.tools, opened=compiled.prompt.opened),
            role_stops=role_stops,
            end_token=end_token,
            marks=compiler.encoder.protocol_ids,
            trace=compiled.prompt.text if request.trace else None,
            has_tools=bool(request.tools),
        )

    # -- a conversation ------------------------------------------------------------------------------------------------

    async def window(self, request: Request) -> Window:
        """What of the request's messages is in the cache now. Raises: `InvalidRequest`, `EngineDown`."""
        messages = request.messages
        request = with_next_question(request)
        compiled = await self.compile(request)
        bare = await self.compile(replace(compiled.request, tools=())) if request.tools else compiled
        evicts = (request.on_full or self._options.on_full) == "evict"
        held = await self.engine.held(compiled.encoded.tokens, compiled.spans, self._whose(compiled), holes=evicts)
        n_tools = max(0, len(compiled.encoded.tokens) - len(bare.encoded.tokens))
        own = [span for span in compiled.spans if span.message < len(messages)]
        held = held.until(max((span.stop for span in own), default=n_tools))
        return Window(self.engine.n_ctx, held.n, window_rows(messages, own, held, n_tools=n_tools), held.tier)

    async def evict(self, request: Request, n_turns: int) -> Evicted:
        """Evict the oldest turns of a conversation now, as far as they may leave; what has left.

        The conversation is computed first where it is not in the cache. Raises: `InvalidRequest`, `ContextFull`,
        `EngineError`.
        """
        if (request.on_full or self._options.on_full) != "evict":
            raise InvalidRequest(
                f'no turn leaves cache {self.engine.name!r}, which refuses what does not fit; set overflow = "evict"'
            )
        n, stay = len(request.messages), {at for at, place in enumerate(placements(request.messages)) if place.keep}
        compiled = await self.compile(with_next_question(request))
        own = tuple(
            replace(span, keep=span.keep or span.message in stay) for span in compiled.spans if span.message < n
        )
        if all(span.keep for span in own):
            return Evicted(0, 0)
        # Cut behind the last message: every next message begins there, and no end of an answer is computed for nothing.
        return await self.engine.evict(self._job(compiled.cut(own), Constraint()), n_turns)

    async def recognise(self, request: Request, began: datetime | None = None) -> None:
        """Make the prompts of a conversation that was held here what they were, so that its saved tokens are found."""
        if began is not None:
            self._kept.begin(request, began)
        first = next((at for at, message in enumerate(request.messages) if message.role == "assistant"), None)
        if first is None:
            return
        compiled = await self.compile(replace(request, messages=request.messages[:first]))
        if known := await self.engine.beginning_with(compiled.encoded.tokens, self._whose(compiled).owner):
            await asyncio.to_thread(self._kept.recognise, request, known)

    def forget(self) -> None:
        """Drop what is kept of conversations; the cache itself is the engine's (`Engine.clear`)."""
        self._kept.clear()

    # -- plain text ----------------------------------------------------------------------------------------------------

    def count_tokens(self, text: str) -> int:
        """How many tokens plain text has, in about any place of a prompt. Any thread."""
        return len(self._vocabulary.tokenize(text))
