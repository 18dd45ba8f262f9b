"""Our own engine as a back end: messages to a prompt, the prompt to tokens, tokens to events.

    Request ─ dialect.render ─▶ Prompt ─ Encoder ─▶ tokens ─ Engine ─▶ steps
    steps ─ bytes ─ incremental UTF-8 ─ role stops ─ parser ─ client stops ─▶ events

Everything here runs on the event loop; the engine thread sees token ids only. Text is held back, tokens never: a token
that ends inside a character is in the cache like any other (H1).
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass

from shepherd.backends.answer import Answer
from shepherd.backends.prompt import Encoder
from shepherd.core import ContextFull, Event, InvalidRequest, Progress, Request, Sampling, Started
from shepherd.dialects import Dialect, Prompt, Template, render
from shepherd.engine.base import Admitted, Done, Job, Prefill, Step, Vocabulary
from shepherd.engine.engine import Engine

logger = logging.getLogger(__name__)

_OWN_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
"""What a client's `chat_template_kwargs` may not set."""

LARGE_CHARS = 100_000
"""Prompts above this are rendered and tokenised off the event loop."""


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
    ) -> None:
        self.engine = engine
        self.model = model
        self.dialect = dialect
        self._vocabulary = vocabulary
        self._template = template
        self._options = options or LocalOptions()
        self._encoder = Encoder(vocabulary, template.source)
        self._knows_tools = "tools" in template.source or "functions" in template.source

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """The events of one answer; see `Backend.stream`."""
        if request.schema is not None:
            raise InvalidRequest("constrained output is not available for local models yet", field="response_format")
        if request.tool_choice not in ("auto", "none"):
            raise InvalidRequest(
                "a forced tool call is not available for local models yet; use 'auto' or 'none'", field="tool_choice"
            )
        prompt, tokens = await self._prompt(request)
        ticket = self.engine.submit(self._job(request, tokens))
        parser = self.dialect.parser(tools=request.tools, opened=prompt.opened)
        answer = Answer(parser, self._vocabulary, stops=request.stop, role_stops=prompt.stops, n_prompt=len(tokens))
        try:
            async with aclosing(ticket.batches()) as batches:
                async for batch in batches:
                    for event in self._events(answer, batch):
                        yield event
                    if answer.ended:
                        return
        finally:
            self.engine.cancel(ticket)
            self._encoder.remember(self._encoder.tail(prompt.pieces), answer.tokens)

    async def count(self, request: Request) -> int:
        """How many tokens the prompt of `request` has; exact."""
        _, tokens = await self._prompt(request)
        return len(tokens)

    def _events(self, answer: Answer, batch: list[Step]) -> Iterator[Event]:
        for step in batch:
            match step:
                case int():
                    yield from answer.take(step)
                case Admitted(n_cached):
                    answer.n_cached = n_cached
                    yield Started(self.model, f"local:{self.model}", answer.usage)
                case Prefill(done, total):
                    yield Progress(done, total)
                case Done():
                    yield from answer.end(step)
            if answer.ended:
                return

    async def _prompt(self, request: Request) -> tuple[Prompt, array[int]]:
        if sum(len(message.text) for message in request.messages) < LARGE_CHARS:
            return self._make_prompt(request)
        return await asyncio.to_thread(self._make_prompt, request)

    def _make_prompt(self, request: Request) -> tuple[Prompt, array[int]]:
        reasoning = request.reasoning
        if reasoning is None and self._options.thinking is False:
            reasoning = "off"
        tools = () if request.tool_choice == "none" else request.tools
        if tools and not self._knows_tools:
            self._knows_tools = True  # said once
            logger.warning(
                "the chat template of %s knows no tools: the model does not see those of requests", self.model
            )
        extra = request.extra.get("chat_template_kwargs", {})
        for name in _OWN_VARIABLES & extra.keys():
            raise InvalidRequest(f"{name} is set by the server", field=f"chat_template_kwargs.{name}")
        prompt = render(self._template, self.dialect, request.messages, tools=tools, reasoning=reasoning, extra=extra)
        tokens = self._encoder.encode(prompt.pieces)
        if not tokens:
            raise InvalidRequest("the conversation renders to an empty prompt", field="messages")
        return prompt, tokens

    def _job(self, request: Request, tokens: array[int]) -> Job:
        """The job for a prompt that fits. Raises: `ContextFull`, with what would be needed and what there is."""
        options, n_ctx = self._options, self.engine.n_ctx
        asked = request.max_tokens
        if options.max_tokens is not None:
            asked = min(asked or options.max_tokens, options.max_tokens)
        reserve = options.reserve if options.reserve is not None else min(256, n_ctx // 16)
        least = asked or reserve if options.strict_max_tokens else min(asked or reserve, reserve)
        room = n_ctx - len(tokens)
        if room < max(least, 1):
            raise ContextFull(needed=len(tokens) + max(least, 1), limit=n_ctx, cache=self.engine.name)
        sampling = request.sampling.over(self._options.sampling)
        for token, _ in sampling.logit_bias or ():
            self._check_token(token)
        return Job(tokens, min(asked or room, room), sampling)

    def _check_token(self, token: int) -> None:
        if not 0 <= token < self._vocabulary.n_vocab:
            raise InvalidRequest(
                f"token {token} is outside this model's vocabulary (0 to {self._vocabulary.n_vocab - 1})",
                field="logit_bias",
            )
