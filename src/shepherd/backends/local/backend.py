"""Our own engine as a back end: messages to a prompt, the prompt to tokens, tokens to events.

    Request ─ dialect.render ─▶ Prompt ─ Encoder ─▶ tokens, spans ─ Engine ─▶ steps          (bare prompts: `bare`)
    steps ─ bytes ─ incremental UTF-8 ─ role stops ─ parser ─ client stops ─▶ events

Everything here runs on the event loop, but what takes long: that runs in threads, a step at a time, so that a client
who goes away is noticed between two steps. The engine thread sees token ids only. Text is held back, tokens never: a
token that ends inside a character is in the cache like any other (H1).
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain, takewhile
from operator import ne
from typing import TypeVar

from shepherd.backends.local.answer import Answer
from shepherd.backends.local.cache_warnings import Watch
from shepherd.backends.local.completion import Bare, Echo, Verbatim, check_tokens, encode
from shepherd.backends.local.constrain import Constraint, Constraints
from shepherd.backends.local.history import Answers, Days, Prompts, Tools
from shepherd.backends.local.prompt import Encoded, Encoder
from shepherd.backends.local.token_budget import room_for
from shepherd.backends.local.turns import cuts, places, spans
from shepherd.backends.local.window import Window, rows
from shepherd.core import (
    Event,
    Evicted,
    Finished,
    Image,
    InvalidRequest,
    Message,
    OnFull,
    Part,
    Reasoning,
    Request,
    Sampling,
    Text,
    ToolCall,
    ToolResult,
)
from shepherd.dialects import Dialect, Piece, Prompt, Template, render
from shepherd.dialects.render.prompt import end_of_answer
from shepherd.dialects.render.replay import said
from shepherd.engine.base import Job, Span, Step, Vocabulary
from shepherd.engine.engine import Engine
from shepherd.engine.grammar.lark import n_values
from shepherd.engine.kv.plan import kept_tokens

logger = logging.getLogger(__name__)

T = TypeVar("T")

_OWN_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
"""What a client's `chat_template_kwargs` may not set."""

LARGE = 100_000
"""Requests of more weight are rendered and tokenised off the event loop."""
HEAVY = 2_000_000
"""Requests of more weight wait for each other: it takes seconds to render and tokenise one."""
HEAVY_AT_ONCE = 2
"""Of them in work. Others wait, and their clients may go; what is in work goes on to the end of its step."""
OF_MESSAGE = 200
OF_TOOL = 1_000
OF_VALUE = 50
"""The weight of a message, a tool, and a value in the schema of one, in characters of text that take as long."""

_heavy = ThreadPoolExecutor(HEAVY_AT_ONCE, "heavy-prompts")


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How one cache answers. `None` = the built-in default."""

    sampling: Sampling = Sampling()
    """For what a request does not say."""
    reserve: int | None = None
    """Tokens kept free for the answer; a prompt that leaves fewer is refused. Default: a sixteenth of the context, at
    most 256."""
    max_tokens: int | None = None
    """Cap on every answer; default: the room left in the context (C35)."""
    strict_max_tokens: bool = False
    """Refuse a request whose `max_tokens` does not fit, rather than shorten it (C9)."""
    thinking: bool | None = None
    """Whether models that can think do so, for requests that do not say."""
    on_full: OnFull = "error"
    """What happens when the context is full, for requests that do not say."""
    constrain_calls: bool = True
    """Hold the arguments of calls to their schema even where calls are free to come or not."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the engine sees it."""

    prompt: Prompt
    encoded: Encoded
    spans: tuple[Span, ...]
    bare: Bare | None = None
    """For a completion: nothing was rendered."""


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
        kind: str = "LlamaCpp",
    ) -> None:
        """`with_tools` is the template for requests with tools, where a model has two. `constraints` are those of the
        engine's `Constrainer`; without any, no answer is held to a form. `kind` is what log lines call the runtime."""
        self.engine = engine
        self.model = model
        self.dialect = dialect
        self._kind = kind
        self._vocabulary = vocabulary
        self._template = template
        self._with_tools = with_tools or template
        self._options = options or LocalOptions()
        self._constraints = constraints
        sources = template.source + (with_tools.source if with_tools else "")
        self._encoder = Encoder(vocabulary, " ".join((sources, *dialect.openers, *chain(*dialect.thoughts))))
        self._answers = Answers()
        self._prompts = Prompts()
        self._tools = Tools()
        self._days = Days()
        self._warned = False
        self._watch = Watch(engine.name)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """The events of one answer; see `Backend.stream`."""
        logger.debug("%s generate_from_session called with %d messages", self._kind, len(request.messages))
        weight = weight_of(request)
        request = await made(weight, self._tools.settled, request)
        asked = await made(weight, self._encode, request)
        constraint = await self._constraint(request, asked.prompt.opened)
        job = replace(self._job(request, asked), grammar=constraint.lark, written=constraint.written)
        if asked.bare is None:
            await made(weight, self._watch.notice, request)
        ticket = self.engine.submit(job)
        answer = self._answer(request, asked)
        try:
            async with aclosing(ticket.batches()) as batches:
                async for batch in batches:
                    for event in self._events(answer, batch):
                        if isinstance(event, Finished):  # before anybody can come back with the answer
                            self._remember(request, asked, answer)
                        yield event
                    if answer.ended:
                        return
        finally:
            self.engine.cancel(ticket)
            if not answer.ended:
                self._remember(request, asked, answer)

    def _answer(self, request: Request, asked: Asked) -> Answer:
        if asked.bare is not None:
            return self._bare_answer(request, asked.bare)
        reader = self._constraints.reader(request) if self._constraints else self.dialect
        role_stops, end_token = self._ends(asked.prompt)
        return Answer(
            reader.parser(tools=request.tools, opened=asked.prompt.opened),
            self._vocabulary,
            model=self.model,
            cache=self.engine.name,
            stops=request.stop,
            role_stops=role_stops,
            end_token=end_token,
            marks=self._encoder.protocol_ids,
            trace=asked.prompt.text if request.trace else None,
        )

    def _bare_answer(self, request: Request, bare: Bare) -> Answer:
        assert request.completion is not None
        said, echo = request.completion.prompt, None
        if request.completion.echo:
            own = said if isinstance(said, str) else self._spell(bare.tokens[bare.start : bare.stop])
            echo = Echo(own, bare.start, bare.stop)
        return Answer(
            Verbatim(),
            self._vocabulary,
            model=self.model,
            cache=self.engine.name,
            stops=request.stop,
            trace=self._spell(bare.tokens) if request.trace else None,
            echo=echo,
            is_silent=request.max_tokens == 0,
        )

    @property
    def n_ctx(self) -> int:
        """Tokens that one conversation can hold."""
        return self.engine.n_ctx

    def count_tokens(self, text: str) -> int:
        """How many tokens plain text has, in about any place of a prompt. Any thread."""
        return len(self._vocabulary.tokenize(text))

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """The tokens of a text by itself. `special`: control tokens are recognised in it; `bos`: begun as a prompt is.

        Any thread.
        """
        first = self._vocabulary.bos
        head = [] if first is None else [first]
        if not special:
            return [*(head if bos else []), *self._vocabulary.tokenize(text)]
        tokens = list(self._encoder.encode((Piece(text, None),)).tokens)
        has_own = text.startswith(self._spell(head)) if head else False
        return tokens if bos or has_own else tokens[len(head) :]

    def detokenize(self, tokens: Sequence[int]) -> list[bytes]:
        """The bytes of each token. Raises: `InvalidRequest`. Any thread."""
        check_tokens(tokens, self._vocabulary, "tokens")
        return [self._vocabulary.piece(token) for token in tokens]

    def forget(self) -> None:
        """Drop what is remembered of conversations; the cache is the engine's (`Engine.clear`)."""
        self._answers.clear()
        self._prompts.clear()

    async def window(self, request: Request) -> Window:
        """What of the request's messages is in the cache now. Raises: `InvalidRequest`, `EngineDown`."""
        messages = request.messages
        request = self._to_be_gone_on_with(await made(weight_of(request), self._tools.settled, request))
        asked = await self._ask(request)
        bare = await self._ask(replace(request, tools=())) if request.tools else asked
        evicts = (request.on_full or self._options.on_full) == "evict"
        held = await self.engine.held(asked.encoded.tokens, asked.spans, holes=evicts)
        n_tools = max(0, len(asked.encoded.tokens) - len(bare.encoded.tokens))
        own = [span for span in asked.spans if span.message < len(messages)]
        held = held.until(max((span.stop for span in own), default=n_tools))
        return Window(self.engine.n_ctx, held.n, rows(messages, own, held, n_tools=n_tools), held.tier)

    async def evict(self, request: Request, n_turns: int) -> Evicted:
        """Let the oldest turns of a conversation leave the cache now, as far as they may; what has left.

        It is computed first where it is not there. Raises: `InvalidRequest`, `ContextFull`, `EngineError`.
        """
        if (request.on_full or self._options.on_full) != "evict":
            raise InvalidRequest(
                f'no turn leaves cache {self.engine.name!r}, which refuses what does not fit; set overflow = "evict"'
            )
        stay = {at for at, place in enumerate(places(request.messages)) if place.keep}
        n = len(request.messages)
        request = self._to_be_gone_on_with(await made(weight_of(request), self._tools.settled, request))
        asked = await self._ask(request)
        own = tuple(replace(span, keep=span.keep or span.message in stay) for span in asked.spans if span.message < n)
        if all(span.keep for span in own):
            return Evicted(0, 0)
        # What any next message will begin with, and nothing of one: no end of an answer that nobody wanted, either.
        asked = Asked(asked.prompt, Encoded(asked.encoded.tokens[: own[-1].stop], (), ""), own)
        return await self.engine.evict(self._job(request, asked), n_turns)

    def _to_be_gone_on_with(self, request: Request) -> Request:
        """The request as it will be with the next message: its last answer has an end then."""
        messages = request.messages
        if messages and messages[-1].role == "user":
            return request
        return replace(request, messages=(*messages, Message.user("?")))

    async def recognise(self, request: Request, began: datetime | None = None) -> None:
        """Take the messages for a conversation that was had here: its prompts are then what they were, and what is
        saved of it fits them.

        What is remembered of a conversation is not in its messages, and another process has not seen how the model
        wrote its answers. It stands in the saved tokens: they are read again, and checked against what was said.
        """
        request = await made(weight_of(request), self._tools.settled, request)
        if began is not None:
            self._days.begin(request, began)
        answers = [at for at, message in enumerate(request.messages) if message.role == "assistant"]
        if answers:
            first = await self._ask(replace(request, messages=request.messages[: answers[0]]))
            known = await self.engine.beginning_with(first.encoded.tokens)
            if known:
                await asyncio.to_thread(self._recognise, request, answers, known)

    def _recognise(self, request: Request, answers: Sequence[int], known: Sequence[array[int]]) -> None:
        for at in answers:
            earlier = replace(request, messages=request.messages[:at])
            asked = self._encode(earlier)
            prompt, (_, end) = asked.encoded.tokens, self._ends(asked.prompt)
            followed = (tokens[len(prompt) :] for tokens in known if tokens[: len(prompt)] == prompt)
            for rest in followed:
                written = list(takewhile(partial(ne, end), rest))
                if self._learn(earlier, asked, written, request.messages[at]):
                    break

    async def count(self, request: Request) -> int:
        """How many tokens the prompt of `request` has; exact."""
        request = await made(weight_of(request), self._tools.settled, request)
        return len((await self._ask(request)).encoded.tokens)

    def _events(self, answer: Answer, batch: list[Step]) -> Iterator[Event]:
        for step in batch:
            yield from answer.take(step)
            if answer.ended:
                return

    def _ends(self, prompt: Prompt) -> tuple[tuple[str, ...], int | None]:
        """What ends an answer besides the engine's end tokens: the texts, and the token that the template has there.

        Not every file names that one as an end; where it is no token at all, its text ends the answer.
        """
        end = end_of_answer(self._template, self.dialect)
        token = self._encoder.find_token(end)
        return (*prompt.stops, *([end] if end and token is None else ())), token

    def _remember(self, request: Request, asked: Asked, answer: Answer) -> None:
        """Keep what was written, so that the history it comes back in is the tokens that are in the cache (K7)."""
        if asked.bare is not None:
            return  # what goes on from it is tokenised as a whole
        self._learn(request, asked, answer.tokens, answer.message)

    def _learn(self, request: Request, asked: Asked, tokens: Sequence[int], message: Message | None) -> bool:
        """Remember how an answer was written; whether that says what its message does."""
        self._encoder.remember(asked.encoded.tail, tokens)
        written = self._encoder.spell(tokens)
        if written is None or message is None:
            return False
        told = said(asked.prompt, written, message, self.dialect, request.tools)
        if told is not None:
            self._answers.remember(request, told)
        return told is not None

    async def _constraint(self, request: Request, opened: str) -> Constraint:
        """What the answer is held to. Raises: `InvalidRequest`."""
        if self._constraints is None:
            if request.schema is not None or request.grammar is not None or request.tool_choice not in ("auto", "none"):
                raise InvalidRequest(f"cache {self.engine.name!r} cannot constrain what its model says")
            return Constraint()
        if not self._constraints.has_some(request, calls=self._options.constrain_calls):
            return Constraint()
        thinks = self.dialect.thinks and request.reasoning != "off" and self._options.thinking is not False
        return await asyncio.to_thread(self._constraints.find, request, opened, thinks=thinks)

    async def _ask(self, request: Request) -> Asked:
        return await made(weight_of(request), self._encode, request)

    def _encode(self, request: Request) -> Asked:
        if request.completion is not None:
            bare = encode(request.completion, self._vocabulary, model=self.model)
            return Asked(Prompt((), ""), Encoded(bare.tokens, (), ""), (), bare)
        prompt = self._render(request)
        encoded = self._encoder.encode(prompt.pieces, cuts(prompt.stretches))
        if not encoded.tokens:
            raise InvalidRequest("the conversation renders to an empty prompt", field="messages")
        found = spans(request.messages, prompt.stretches, encoded.edges, n_ctx=self.engine.n_ctx)
        return Asked(prompt, encoded, found)

    def _spell(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self._vocabulary.piece, tokens)).decode("utf-8", "replace")

    def _render(self, request: Request) -> Prompt:
        reasoning = request.reasoning
        if reasoning is None and self._options.thinking is False:
            reasoning = "off"
        tools = () if request.tool_choice == "none" else request.tools
        extra = request.extra.get("chat_template_kwargs", {})
        for name in _OWN_VARIABLES & extra.keys():
            raise InvalidRequest(f"{name} is set by the server", field=f"chat_template_kwargs.{name}")
        template = self._with_tools if tools else self._template
        if tools and not self._warned and not template.caps.shows_tools:
            self._warned = True
            logger.warning(
                "the chat template of %s knows no tools: the system message describes those of requests", self.model
            )
        today = template.clock()
        day = self._days.day_of(request, today) if template.is_dated else None
        prompt = render(
            template,
            self.dialect,
            request.messages,
            tools=tools,
            reasoning=reasoning,
            extra=extra,
            now=day or today,
            answers=self._answers.find(request.messages),
        )
        return self._prompts.going_on(request, prompt, day)

    def _job(self, request: Request, asked: Asked) -> Job:
        """The job for a prompt that fits. Raises: `ContextFull`, with what would be needed and what there is."""
        options, tokens = self._options, asked.encoded.tokens
        sampling = request.sampling.over(options.sampling)
        check_tokens([token for token, _ in sampling.logit_bias or ()], self._vocabulary, "logit_bias")
        wanted = request.max_tokens if request.max_tokens != 0 else 1
        if options.max_tokens is not None:
            wanted = min(wanted or options.max_tokens, options.max_tokens)
        on_full = request.on_full or options.on_full
        job = Job(
            tokens,
            1,
            sampling,
            asked.spans,
            on_full,
            scores=request.logprobs,
            score_prompt=request.logprobs is not None and request.completion is not None and request.completion.echo,
            background=request.background is True,
            session=request.session,
        )
        room = room_for(
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
            room.max_tokens, *protected(request.messages, asked.spans), room.reserve,
        )  # fmt: skip
        return replace(job, max_tokens=room.max_tokens, reserve=room.reserve)


async def made(weight: int, work: Callable[..., T], *arguments: object) -> T:
    """What `work` on a request of this weight returns, done where that belongs: here, or in a thread."""
    if weight < LARGE:
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(_heavy if weight > HEAVY else None, work, *arguments)


def weight_of(request: Request) -> int:
    """About how long a request takes to become tokens, in characters of plain text."""
    said = request.completion
    if said is not None:
        return len(said.prompt) + len(said.suffix or "")
    parts = (part for message in request.messages for part in message.parts)
    tools = sum(OF_TOOL + OF_VALUE * n_values(tool.parameters) for tool in request.tools)
    return OF_MESSAGE * len(request.messages) + tools + sum(map(_chars, parts))


def _chars(part: Part | Image) -> int:
    match part:
        case Text() | Reasoning():
            return len(part.text)
        case ToolCall():
            return OF_MESSAGE + len(part.arguments)
        case ToolResult():
            return OF_MESSAGE + sum(map(_chars, part.parts))
        case _:
            return OF_MESSAGE


def protected(messages: Sequence[Message], spans: Sequence[Span]) -> tuple[int, int]:
    """Tokens of what stands before the conversation, system prompt and tools, and tokens of the last user message."""
    behind = [span for span in spans if span.label != "system"]
    users = [span for span in behind if messages[span.message].is_input]
    n_system = behind[0].start if behind else max((span.stop for span in spans), default=0)
    return n_system, users[-1].stop - users[-1].start if users else 0
