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
import contextlib
import logging
import math
from array import array
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial

from shepherd.backends.local.adapters import ModelAdapters
from shepherd.backends.local.answer import Answer
from shepherd.backends.local.cache_warnings import CacheWatch
from shepherd.backends.local.compile import Compiled, Compiler, Prepared
from shepherd.backends.local.completion import Echo, PlainTextParser, check_tokens
from shepherd.backends.local.constrain import Constraint, Constraints, is_demanded
from shepherd.backends.local.editing import candidates, check_triggers, decide
from shepherd.backends.local.kept_prefix import KeptPrefix, beginning_of, first_answer
from shepherd.backends.local.kept_system import Limits
from shepherd.backends.local.kinds import Written
from shepherd.backends.local.media import MediaLimits, has_media, marked, media_of
from shepherd.backends.local.offload import offload, weight_of
from shepherd.backends.local.quotes import find_quotes, takes_quotes
from shepherd.backends.local.token_budget import budget_for, reserve_of
from shepherd.backends.local.turns import LATER_SYSTEMS, placements, protected
from shepherd.backends.local.window import Window, window_rows, with_next_question
from shepherd.core import (
    Audio,
    ContextFull,
    ContextTooSmall,
    EngineDown,
    Event,
    Evicted,
    Finished,
    Image,
    InvalidRequest,
    Message,
    OnFull,
    ReadPrompt,
    ReasoningLevel,
    Request,
    Sampling,
    ShepherdError,
    Unsupported,
)
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.core.edits import WHOLE, Edit, Edited, LeavingPolicy
from shepherd.core.limit import MAX_BIASES, MAX_DRAFT, check_size
from shepherd.core.messages import leading_systems
from shepherd.core.request import SharedPrefix, parts_of_owner
from shepherd.dialects import TagDialect, Template
from shepherd.engine.base import Adapters, Admitted, Done, Engine, Job, MediaReader, Owner, Step, Ticket, Vocabulary
from shepherd.engine.kv.plan import kept_tokens
from shepherd.engine.sampling import settled
from shepherd.process.pools import in_pool, while_wanted

logger = logging.getLogger(__name__)

KEEP_BYTES, KEEP_PER_TOKEN = 8_000_000, 32
"""Memory for each kind of what is kept of conversations, and the least of it for each token of the window: a history
that does not fit is tokenised again with every request."""
FRESH_TOKENS = 512
"""The most tokens to compute for turns that a compaction clears and that stay for one more answer."""
QUOTE_TOKENS, QUOTE_SHARE = 512, 8
"""Limits of the quotes for one message: tokens, and one part in so many of the context."""


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
    thinking: ReasoningLevel | None = None
    """How much models that can reason do so, for requests that leave it open; None: as their templates have it."""
    on_full: OnFull = "error"
    """What happens when the context is full, for requests that leave it open."""
    constrain_calls: bool = True
    """Hold the arguments of calls to their schema even where the model is free to call or not."""
    shared_prefix: SharedPrefix = "none"
    system_changes: float = 0.25
    """Largest part of a system prompt that may change within a conversation and be said at its end; 0: none
    (`kept_system.py`)."""
    n_window: int | None = None
    """Tokens that a conversation may have, more than the cells hold; None = as many as the cells."""
    trained: int = 0
    """Tokens that the model was trained for, for a refusal; 0 = not known, or as many as there are."""
    adapters: ModelAdapters | None = None
    adapter_hashes: tuple[str, ...] = ()
    """Of each of them, as it was loaded."""
    leaving: LeavingPolicy | None = None
    """What leaves before and after whole turns; None: turns leave in their order."""
    repeatable: bool = False
    """A prompt has nothing in it that depends on earlier requests; see `ContextOptions.repeatable`."""
    media: MediaLimits = field(default_factory=MediaLimits)
    """What the model is given of images and recordings."""


class LocalBackend:
    """One cache of one model; satisfies `Backend`. One event loop at a time."""

    def __init__(
        self,
        engine: Engine,
        vocabulary: Vocabulary,
        *,
        template: Template,
        dialect: TagDialect,
        model: str,
        options: LocalOptions | None = None,
        with_tools: Template | None = None,
        constraints: Constraints | None = None,
        reader: MediaReader | None = None,
    ) -> None:
        """`with_tools` is the template for requests with tools, where a model has two. `constraints` are those of the
        engine's `Constrainer`; without them no answer is held to a form. `reader` reads images and recordings for the
        engine's model; without it, a note stands for each."""
        self.engine = engine
        self.n_ctx = engine.n_ctx
        """Tokens of one conversation that the cells hold."""
        self.model = model
        self.dialect = dialect
        self._vocabulary = vocabulary
        self._reader = reader
        self._options = options or LocalOptions()
        self._constraints = constraints
        thinking = self._options.thinking
        self.n_window = self._options.n_window or engine.n_ctx
        """Tokens that one conversation may have; those that the cells have no room for leave them."""
        keep_bytes = max(KEEP_BYTES, KEEP_PER_TOKEN * self.n_window)
        self._compiler = Compiler(
            vocabulary, template, dialect, model=model, n_ctx=engine.n_ctx, with_tools=with_tools, thinking=thinking,
            policy=self._options.leaving, reader=reader, keep_bytes=keep_bytes,
            shows_kinds=lambda: self.engine.is_watched,
        )  # fmt: skip
        self.encoder = self._compiler.encoder
        """Tokenises for this model. Any thread."""
        limits = Limits(self._options.system_changes, engine.n_ctx // LATER_SYSTEMS, engine.n_ctx // 2)
        self._kept = KeptPrefix(
            self._compiler, limits=limits, on_full=self._options.on_full, limit_bytes=keep_bytes,
            keeps=not self._options.repeatable,
        )  # fmt: skip
        self.written = Written()
        """What the tokens of the newest answers are, while the engine is watched."""
        self._watch = CacheWatch(
            engine.name,
            sees=reader is not None and reader.takes_images,
            hears=reader is not None and reader.takes_audio,
        )

    # -- a request -----------------------------------------------------------------------------------------------------

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        logger.debug("LlamaCpp generate_from_session called with %d messages", len(request.messages))
        compiled, constraint, job = await self._fitting(
            request, await self._quoted(request, await self.compile(request))
        )
        if request.predicted and request.speculate != 0:
            job = await offload(sum(map(len, request.predicted)), self._expecting, job, request.predicted)
        if compiled.bare is None:
            await offload(weight_of(compiled.request), self._watch.notice, compiled.request)
        ticket = self.engine.submit(job)
        answer = self._answer(compiled, job, constraint.left_out)
        is_learnt, is_shown, seq = False, self.engine.is_watched, -1
        try:
            async with aclosing(ticket.batches()) as batches:
                async for batch in batches:
                    for step in batch:
                        events = answer.take(step)
                        if is_shown:
                            if isinstance(step, Admitted):
                                seq = step.seq
                                self.written.begin(seq, len(job.tokens))
                            self.written.note(seq, len(answer.tokens), events)
                        if answer.has_ended:
                            await asyncio.sleep(0)  # the text before the end is sent meanwhile, whatever came with it
                            # Before the client can send a request that contains the answer.
                            self._kept.learn(compiled, answer.tokens, answer.message)
                            is_learnt = True
                        for event in events:
                            if isinstance(event, Finished):
                                done = step if isinstance(step, Done) else await self._end_early(ticket, batch, batches)
                                event = _with_drafts(event, done)
                            yield event
                        if answer.has_ended:
                            return
        finally:
            self.engine.cancel(ticket)
            if not is_learnt:
                self._kept.learn(compiled, answer.tokens, answer.message)

    async def _fitting(self, request: Request, compiled: Compiled) -> tuple[Compiled, Constraint, Job]:
        """The prompt and its job; without the quotes of its newest turn where it fits without them only. Raises: what
        `_explained` makes of `ContextFull`."""
        constraint = await self._constrain(compiled)
        try:
            return compiled, constraint, self._job(compiled, constraint)
        except ContextFull as full:
            weight = weight_of(request)
            if not await offload(weight, self._kept.unquote, compiled):
                raise await offload(weight, self._explained, full, compiled) from full
        return await self._fitting(request, await self.compile(request))

    async def _end_early(self, ticket: Ticket, batch: list[Step], batches: AsyncGenerator[list[Step]]) -> Done:
        """Cancel a job whose answer a stop string ends in a batch, and wait for its end: its figures are published
        then."""
        self.engine.cancel(ticket)
        with contextlib.suppress(ShepherdError):  # the answer is complete
            async for later in batches:
                batch = later
        return last if isinstance(last := batch[-1], Done) else Done("cancelled")

    def _expecting(self, job: Job, texts: Sequence[str]) -> Job:
        """The same, with drafts from these texts, which turn them on where the request leaves that open."""
        predicted = tuple(array("i", self._vocabulary.tokenize(text)) for text in texts)
        return replace(job, predicted=predicted, speculate=MAX_DRAFT if job.speculate is None else job.speculate)

    async def _quoted(self, request: Request, compiled: Compiled) -> Compiled:
        """The same, with quotes of what has left the context and its newest message names."""
        is_whole = len(compiled.encoded.tokens) <= self.n_ctx and not compiled.cleared
        is_off = self._options.n_window is None or request.recall is False
        if is_off or is_whole or not takes_quotes(request):
            return compiled
        weight = weight_of(request)
        if await offload(weight, self._kept.is_quoted, compiled):
            return compiled
        block = await self._find_quotes(compiled)
        await offload(weight, self._kept.quote, compiled, block, self.count_tokens(block) if block else 0)
        return await self.compile(request) if block else compiled

    async def search_left(self, request: Request, query: str) -> str:
        """See `SearchableBackend`; a cache without a window has nothing."""
        if self._options.n_window is None:
            return ""
        return await self._find_quotes(await self.compile(request), query)

    async def _find_quotes(self, compiled: Compiled, query: str | None = None) -> str:
        held = await self.engine.held(compiled.encoded.tokens, compiled.spans, self._owner(compiled), holes=True)
        budget = min(QUOTE_TOKENS, self.n_ctx // QUOTE_SHARE)
        reserve = reserve_of(self._options.reserve, self.n_ctx)
        find = partial(
            find_quotes, compiled, held, room=self.n_ctx - reserve - budget, n_low=self.engine.n_low,
            fits=lambda block: self.count_tokens(block) <= budget, query=query,
        )  # fmt: skip
        return await offload(weight_of(compiled.request), find)

    async def compile(self, request: Request) -> Compiled:
        """The prompt of a request in tokens, beginning like the prompts before it. Raises: `InvalidRequest`; as
        `Template.render`."""
        request = await self._looked_at(request)
        weight = weight_of(request)
        if await offload(weight, self._kept.is_new, request):
            with contextlib.suppress(EngineDown):
                await self.recognise(request)
        return await self._compiled(request, weight)

    async def _looked_at(self, request: Request) -> Request:
        """The request, with a reason in each image and recording that the model does not get. The others are decoded
        here, in threads of their own: later, the reader knows what each becomes."""
        limits = self._options.media
        if not has_media(request.messages):
            return request
        messages = await in_pool("media", marked, request.messages, limits)
        if self._reader is not None:
            takes = {Image: self._reader.takes_images, Audio: self._reader.takes_audio}
            media = (part for message in messages for part in media_of(message))
            given = dict.fromkeys(part.data for part in media if takes[type(part)] and not part.left_out)
            for data in filter(None, given):
                await while_wanted("media", partial(self._reader.read, data))
        return replace(request, messages=messages)

    async def _compiled(self, request: Request, weight: int) -> Compiled:
        prepared = await offload(weight, self._kept.prepare, request)
        return await offload(weight, self._kept.compile, prepared)

    async def count(self, request: Request) -> int:
        """How many tokens the prompt of `request` has; exact."""
        return (await self.compile(request)).n_tokens

    async def edit(self, request: Request, edits: Sequence[Edit]) -> Edited:
        check_triggers(edits, self.n_window)
        parts = candidates(request.messages, edits)
        compiled = await self.compile(replace(request, cleared=request.cleared | parts))
        edited = decide(
            edits,
            request.messages,
            compiled.spans,
            compiled.cleared,
            request.cleared,
            n_tokens=len(compiled.encoded.tokens),
            n_window=self.n_window,
        )
        return replace(edited, model=self.model, can_wait=await self._can_wait(compiled, edited))

    async def _can_wait(self, compiled: Compiled, edited: Edited) -> bool:
        """Whether the turns that a compaction clears can stay for the next answer: there is room, and the cells hold
        them, so that nothing is computed for it."""
        going = {at for at, part in edited.cleared - compiled.request.cleared if part == WHOLE}
        options, on_full = self._options, compiled.request.on_full or self._options.on_full
        answer = compiled.request.max_tokens or options.max_tokens or self.n_ctx // 4
        if not going or (on_full != "evict" and edited.n_before + answer >= self.n_ctx):
            return False
        spans = [span for span in compiled.spans if span.message in going]
        tokens, owner = compiled.encoded.tokens, self._owner(compiled)
        held = await self.engine.held(tokens, compiled.spans, owner, holes=on_full == "evict")
        is_held = spans[-1].stop - held.length <= FRESH_TOKENS
        return is_held and any(held.count(span.start, span.stop) for span in spans)

    async def render(self, request: Request) -> str:
        """The prompt of `request` as the template writes it, without the token that begins every prompt."""
        return (await self.compile(request)).prompt.text

    async def _constrain(self, compiled: Compiled) -> Constraint:
        request = compiled.request
        if self._constraints is None:
            if is_demanded(request):
                raise Unsupported(f"cache {self.engine.name!r} cannot constrain what its model writes")
            return Constraint()
        if not self._constraints.has_some(request, calls=self._options.constrain_calls):
            return Constraint()
        opened, thinks = compiled.prompt.opened, self._may_think(request)
        return await in_pool("grammars", self._constraints.find, request, opened, thinks=thinks)

    def _may_think(self, request: Request) -> bool:
        return self.dialect.thinks and self._compiler.level_of(request) != "off"

    def _job(self, compiled: Compiled, constraint: Constraint) -> Job:
        """The job for a prompt that fits. Raises: `ContextFull`, with what would be needed and what there is."""
        request, options, tokens = compiled.request, self._options, compiled.encoded.tokens
        n_prompt = compiled.n_tokens
        sampling = self._sampling(request)
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
            schema=constraint.schema,
            is_lenient=constraint.is_lenient,
            stops=self._raw_stops(compiled, is_endless=bool(sampling.ignore_eos) and constraint.lark is None),
            scores=request.logprobs,
            scores_drawn=request.scores_drawn,
            score_prompt=request.logprobs is not None and request.completion is not None and request.completion.echo,
            background=request.background is True,
            speculate=request.speculate,
            session=request.session,
            owner=self._owner(compiled),
            n_system=protected(request.messages, compiled.spans)[0],
            media=compiled.encoded.media,
        )
        if self._options.n_window and n_prompt >= self.n_window:
            raise ContextFull(
                needed=n_prompt + 1, limit=self.n_window, reserve=1, cache=self.engine.name, n_prompt=n_prompt
            )
        fits = partial(budget_for, n_prompt=n_prompt, n_ctx=self.n_ctx, cache=self.engine.name)
        if compiled.bare is not None and on_full == "evict" and not job.score_prompt:
            fits(n_kept=0, on_full="error", asked=1)  # its text leaves for the answer, never for itself
            job = replace(job, spans=compiled.bare.spans(self.n_ctx))
        room = fits(
            n_kept=kept_tokens(job),
            on_full=on_full,
            asked=wanted,
            reserve=options.reserve,
            strict=options.strict_max_tokens,
        )
        logger.debug(
            "Generation limits: %d max tokens (protected: system=%d + user=%d + buffer=%d)",
            room.max_tokens, *protected(request.messages, compiled.spans), room.reserve,
        )  # fmt: skip
        job = replace(job, max_tokens=room.max_tokens, reserve=room.reserve)
        # Cells that have lost what is cleared hold all of the prompt that is left.
        return replace(job, on_full="evict") if compiled.cleared else job

    def _explained(self, full: ContextFull, compiled: Compiled) -> ShepherdError:
        """The refusal, with what of the prompt no client can shorten by leaving out what was said before."""
        request = compiled.request
        n, at = leading_systems(request.messages), len(request.messages) - 1
        tools = request.tools if request.shows_tools else ()
        if compiled.bare is not None or n > at:
            return full

        def count(question: Message) -> int:
            alone = replace(request, messages=(*request.messages[:n], question), start=None, cleared=frozenset())
            return self._compiler.compile(Prepared(alone)).n_tokens

        n_head = count(Message.user("?"))
        n_question = count(request.messages[at]) - n_head if request.messages[at].is_input else 0
        reserve = min(full.reserve, reserve_of(self._options.reserve, self.n_ctx))
        room = self.n_ctx - reserve
        window, trained = self.n_window if self.n_window > full.limit else 0, self._options.trained
        if n_head + n_question > room and n_head > n_question and (n or tools):
            head = " and ".join(["the system prompt"] * bool(n) + ["the tools"] * bool(tools))
            n_question = n_question if n_head <= room else 0
            return ContextTooSmall(
                head, n_head, n_question, limit=self.n_ctx, reserve=reserve, window=window, trained=trained
            )
        return ContextFull(
            needed=full.needed, limit=full.limit, reserve=full.reserve, cache=full.cache, n_prompt=full.n_prompt,
            window=window, n_question=n_question if n_head + n_question > room else 0, trained=trained,
        )  # fmt: skip

    def _raw_stops(self, compiled: Compiled, *, is_endless: bool) -> tuple[str, ...]:
        """The texts that end an answer wherever it has them: the client's do so only in visible text."""
        request = compiled.request
        if compiled.bare is not None:
            return request.stop
        thinks = self.dialect.thinks and self._compiler.level_of(request) != "off"
        turn_ends = () if is_endless else self._compiler.ends(compiled.prompt)[0]
        return (*turn_ends, *(() if thinks or request.tools else request.stop))

    def _sampling(self, request: Request) -> Sampling:
        """With tokens in place of the texts in `logit_bias`. Raises: `InvalidRequest`."""
        sampling = request.sampling.over(self._options.sampling)
        found: list[tuple[int, float]] = []
        for token, bias in sampling.logit_bias or ():
            tokens = self.encoder.tokenize(token) if isinstance(token, str) else [token]
            found += [(one, bias) for one in tokens]
        if sampling.logit_bias is None:
            return sampling
        check_size("logit_bias", "tokens", len(found), MAX_BIASES)
        check_tokens([token for token, _ in found], self._vocabulary, "logit_bias")
        return replace(sampling, logit_bias=tuple(found))

    def _read_prompt(self, compiled: Compiled, sampling: Sampling) -> ReadPrompt | None:
        if not compiled.request.report:
            return None
        ends = sorted(self._vocabulary.end_tokens) if sampling.ignore_eos else ()
        biases = tuple((token, bias) for token, bias in sampling.logit_bias or () if isinstance(token, int))
        return ReadPrompt(compiled.text, (*biases, *((token, -math.inf) for token in ends)), settled(sampling))

    def _owner(self, compiled: Compiled) -> Owner:
        request, common = compiled.request, self._options.shared_prefix
        adapters = self._adapters(request)
        _, salt = parts_of_owner(request.owner)
        if common == "all":
            return Owner(salt, adapters=adapters)
        shares = common == "system" and not salt
        return Owner(request.owner, protected(request.messages, compiled.spans)[0] if shares else 0, adapters)

    def _adapters(self, request: Request) -> Adapters:
        """Those that it computes with. Raises: `InvalidRequest` where it names one that the model does not have."""
        if (known := self._options.adapters) is not None:
            return known.of(request, self._options.adapter_hashes)
        if request.lora:
            raise InvalidRequest(f"model {self.model!r} has no adapters; leave lora out", field="lora")
        return ()

    def _answer(self, compiled: Compiled, job: Job, left_out: tuple[str, ...]) -> Answer:
        request, compiler = compiled.request, self._compiler
        made = partial(
            Answer, vocabulary=self._vocabulary, model=self.model, cache=self.engine.name, stops=request.stop,
            n_prompt=compiled.n_tokens if self._options.n_window else None, n_quoted=compiled.n_quoted,
            read=self._read_prompt(compiled, job.sampling), left_out=left_out,
        )  # fmt: skip
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
        thinks = bool(compiled.prompt.opened) or self._may_think(request)
        reader = self._constraints.reader(request, thinks=thinks) if self._constraints else self.dialect
        is_endless = job.sampling.ignore_eos and job.grammar is None
        role_stops, end_token = ((), None) if is_endless else compiler.ends(compiled.prompt)
        return made(
            reader.parser(
                tools=request.tools,
                opened=compiled.prompt.opened,
                reasoning="keep" if request.keeps_thoughts else "split",
            ),
            role_stops=role_stops,
            end_token=end_token,
            marks=compiler.encoder.protocol_ids,
            trace=compiled.prompt.text if request.trace else None,
            has_tools=bool(request.tools) and not request.forbids_calls,
            n_changed=compiled.n_changed,
        )

    # -- a conversation ------------------------------------------------------------------------------------------------

    async def window(self, request: Request) -> Window:
        """What of the request's messages is in the cache now. Raises: `InvalidRequest`, `EngineDown`."""
        messages = request.messages
        request = with_next_question(request)
        compiled = await self.compile(request)
        bare = await self.compile(replace(compiled.request, tools=())) if request.tools else compiled
        evicts = (request.on_full or self._options.on_full) == "evict"
        held = await self.engine.held(compiled.encoded.tokens, compiled.spans, self._owner(compiled), holes=evicts)
        n_tools = max(0, len(compiled.encoded.tokens) - len(bare.encoded.tokens))
        own = [span for span in compiled.spans if span.message < len(messages)]
        held = held.until(max((span.stop for span in own), default=n_tools))
        return Window(self.engine.n_ctx, held.n, window_rows(messages, own, held, n_tools=n_tools), held.tier)

    async def evict(self, request: Request, n_turns: int) -> Evicted:
        """Evict the oldest turns of a conversation now, as far as they may leave; what has left. The conversation is
        computed first where it is not in the cache. Raises: `InvalidRequest`, `ContextFull`, `EngineError`."""
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
        request = await self._looked_at(request)
        if (first := first_answer(request.messages)) == len(request.messages):
            return
        compiled = await self._compiled(replace(request, messages=request.messages[:first]), weight_of(request))
        tokens, owner, n = beginning_of(compiled), self._owner(compiled), leading_systems(request.messages)
        if known := await self.engine.beginning_with(tokens, owner, compiled.spans, n):
            await in_pool("prompts", self._kept.recognise, request, known)

    def forget(self) -> None:
        """Drop what is kept of conversations; the cache itself is the engine's (`Engine.clear`)."""
        self._kept.clear()

    # -- plain text ----------------------------------------------------------------------------------------------------

    def count_tokens(self, text: str) -> int:
        """How many tokens plain text has, in about any place of a prompt. Any thread."""
        return len(self._vocabulary.tokenize(text))


def _with_drafts(finished: Finished, done: Done) -> Finished:
    usage = finished.usage
    # A stop string may cut accepted tokens off.
    return replace(finished, usage=replace(usage, drafted=done.drafted, accepted=min(done.accepted, usage.output)))
