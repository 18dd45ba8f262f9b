"""A request becomes the tokens of its prompt, and the spans that say which tokens are which message.

    Prepared ─ template ─▶ Prompt ─ splice ─▶ Prompt ─ Encoder ─▶ tokens ─ turns ─▶ spans      ═ Compiled
    completion ──────────── tokenize ─────────────────────────▶ tokens                        ═ Compiled, bare

What is kept of earlier requests comes in as values (`Prepared`), so the same input gives the same tokens. The encoder
keeps chunks of text, and a warning is logged once; nothing else here has a state. Any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import chain

from shepherd.backends.local.completion import BarePrompt, encode
from shepherd.backends.local.kinds import kinds_in, with_kinds
from shepherd.backends.local.leaving import Leaving, Mark, divided, leaving
from shepherd.backends.local.prompt import Encoded, Encoder
from shepherd.backends.local.splice import Earlier, spliced
from shepherd.backends.local.turns import cuts, spans
from shepherd.core import InvalidRequest, ReasoningLevel, Request, ToolSpec
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.core.edits import LeavingPolicy, Place
from shepherd.dialects import Prompt, TagDialect, Template, render
from shepherd.dialects.render.conversation import media_by_name
from shepherd.dialects.render.prompt import end_of_answer
from shepherd.dialects.render.replay import WrittenAnswer
from shepherd.engine.base import MediaReader, Span, Vocabulary
from shepherd.engine.kv.ledger import SINK

logger = logging.getLogger(__name__)

RESERVED_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
"""What a client's `chat_template_kwargs` may not set."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, with what is kept of the conversation that it continues."""

    request: Request
    answers: Mapping[int, WrittenAnswer] = field(default_factory=dict)
    """By index of the message: how the model wrote this answer."""
    day: datetime | None = None
    """When the conversation began, for templates that print the date."""
    earlier: Earlier | None = None
    """The longest earlier prompt that this one continues."""
    n_earlier: int = 0
    """How many of the messages are in it."""
    n_quoted: int = 0
    """Tokens of quotes in the messages (`quotes.py`)."""
    unquoted: Request | None = None
    """The request without them; None for a bare prompt."""
    key: bytes | None = None
    """Names this prompt, so that a later one can continue it."""
    n_changed: int = 0
    """Lines of the client's system prompt that are not those of the prompt: a reminder behind the messages has them."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A request as the engine takes it."""

    request: Request
    prompt: Prompt
    encoded: Encoded
    spans: tuple[Span, ...] = ()
    bare: BarePrompt | None = None
    """For a completion: no template was rendered."""
    text: str = ""
    """Of all tokens, if the request wants a report."""
    n_changed: int = 0
    """As that of `Prepared`."""
    n_quoted: int = 0
    """Tokens of quotes in the prompt."""
    unquoted: Request | None = None
    """As that of `Prepared`."""
    marks: tuple[Mark, ...] = ()
    """What holds for each of the spans."""
    cleared: Mapping[Place, int] = field(default_factory=dict)
    """The tokens of what is no part of the prompt any more, as far as it can leave by itself."""

    @property
    def n_tokens(self) -> int:
        """Tokens of the prompt, without what is cleared."""
        return len(self.encoded.tokens) - sum(self.cleared.values())

    def cut(self, spans: tuple[Span, ...]) -> Compiled:
        """The same, up to the end of the last of these spans."""
        stop = spans[-1].stop
        media = {at: each for at, each in self.encoded.media.items() if at < stop}
        return replace(self, encoded=Encoded(self.encoded.tokens[:stop], (), "", media=media), spans=spans)


class Compiler:
    """Turns requests into tokens for one cache of one model. Any thread."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        template: Template,
        dialect: TagDialect,
        *,
        model: str,
        n_ctx: int,
        with_tools: Template | None = None,
        thinking: ReasoningLevel | None = None,
        policy: LeavingPolicy | None = None,
        reader: MediaReader | None = None,
        keep_bytes: int = 8_000_000,
        shows_kinds: Callable[[], bool] = lambda: False,
    ) -> None:
        """`with_tools`: the template for requests with tools, where a model has two. `thinking`: for
        requests that do not choose; None: as the templates have it. `policy`: what leaves before and after turns; None:
        turns leave in their order. `reader`: of a model that sees or hears. `keep_bytes`: as that of `Encoder`.
        `shows_kinds`: whether a display wants to know what the tokens within each message are; any thread."""
        self.vocabulary = vocabulary
        self.dialect = dialect
        if reader is not None:
            template = template.with_media(images=reader.takes_images, audio=reader.takes_audio)
            with_tools = with_tools and with_tools.with_media(images=reader.takes_images, audio=reader.takes_audio)
        self._template = template
        self._with_tools = with_tools or template
        self._model = model
        self._n_ctx = n_ctx
        self._thinking = thinking
        self._policy = policy
        self._has_warned = False
        self._shows_kinds = shows_kinds
        sources = template.source + (with_tools.source if with_tools else "")
        markup = " ".join((sources, *dialect.markup.openers, *chain(*dialect.thoughts)))
        self.encoder = Encoder(vocabulary, markup, reader=reader, keep_bytes=keep_bytes)

    def level_of(self, request: Request) -> ReasoningLevel | None:
        """How much the model thinks about this request; None: as its template has it."""
        return request.reasoning or self._thinking

    def template_for(self, request: Request) -> Template:
        return self._with_tools if _offered(request) else self._template

    def compile(self, prepared: Prepared) -> Compiled:
        """The prompt of a request in tokens. Raises: `InvalidRequest`; as `Template.render`."""
        request = prepared.request
        if request.completion is not None:
            bare = encode(request.completion, self.encoder, self.vocabulary, model=self._model)
            encoded = Encoded(bare.tokens, (), "")
            return Compiled(request, Prompt((), ""), encoded, bare=bare, text=self._reported(request, encoded))
        prompt = self._render(prepared)
        going = leaving(request.messages, self._policy) if self._policy is not None else Leaving()
        segments, marks = divided(prompt, request.messages, going, request.cleared)
        has_media = any(piece.is_media for piece in prompt.pieces)
        files = media_by_name(request.messages, self.template_for(request).caps) if has_media else {}
        found_kinds = kinds_in(prompt, request.messages) if self._shows_kinds() else []
        wanted = cuts(segments)
        every = sorted({*wanted, *(stop for stop, _ in found_kinds)}) if found_kinds else wanted
        encoded = self.encoder.encode(prompt.pieces, every, request.owner, files)
        where = dict(zip(every, encoded.edges, strict=True))
        if not encoded.tokens:
            raise InvalidRequest("the conversation renders to an empty prompt", field="messages")
        found = spans(request.messages, segments, [where[cut] for cut in wanted], n_ctx=self._n_ctx, marks=marks)
        found = clear_of_start(found, encoded)
        cleared = {
            mark.place: span.stop - span.start
            for mark, span in zip(marks, found, strict=True)
            if mark.cleared and mark.place is not None
        }
        if found_kinds or encoded.media or any(mark.place for mark in marks):
            kinds = [(where[stop], kind) for stop, kind in found_kinds]
            found = with_kinds(found, request.messages, marks, encoded.media, kinds)
        return Compiled(
            request, prompt, encoded, found, text=self._reported(request, encoded), n_quoted=prepared.n_quoted,
            unquoted=prepared.unquoted, n_changed=prepared.n_changed, marks=tuple(marks), cleared=cleared,
        )  # fmt: skip

    def _reported(self, request: Request, encoded: Encoded) -> str:
        return self.spell(encoded.tokens) if request.report else ""

    def ends(self, prompt: Prompt) -> tuple[tuple[str, ...], int | None]:
        """What ends an answer besides the engine's end tokens: the texts, and the token that the template has there.
        Not every file names that token as an end. Where the vocabulary has no such token, its text ends the answer."""
        end = end_of_answer(self._template, self.dialect)
        token = self.encoder.find_token(end)
        return (*prompt.stops, *([end] if end and token is None else ())), token

    def spell(self, tokens: Sequence[int]) -> str:
        """The text of tokens; images and recordings have none."""
        return b"".join(self.vocabulary.piece(token) for token in tokens if token >= 0).decode("utf-8", "replace")

    def _render(self, prepared: Prepared) -> Prompt:
        request, template = prepared.request, self.template_for(prepared.request)
        extra = request.extra.get("chat_template_kwargs", {})
        for name in RESERVED_VARIABLES & extra.keys():
            raise InvalidRequest(
                f"chat_template_kwargs.{name} is set by the server; leave it out", field=f"chat_template_kwargs.{name}"
            )
        tools = _offered(request)
        if tools and not self._has_warned and not template.caps.shows_tools:
            self._has_warned = True
            logger.warning(
                "the chat template of %s knows no tools; they are described to the model in the system message, and it "
                "may call them badly",
                self._model,
            )
        prompt = render(
            template,
            self.dialect,
            request.messages,
            tools=tools,
            reasoning=self.level_of(request),
            extra=extra,
            now=prepared.day or template.clock(),
            answers=prepared.answers,
            start=request.start,
        )
        if prepared.earlier is None or not prompt.segments:
            return prompt
        return spliced(prepared.earlier, prompt, prepared.n_earlier) or prompt


def clear_of_start(spans: Sequence[Span], encoded: Encoded) -> tuple[Span, ...]:
    """The spans, none of which can leave within an image or a recording that reaches into the first tokens: those
    always stay."""
    first = next((at + each.n_tokens for at, each in encoded.media.items() if at < SINK < at + each.n_tokens), 0)
    return tuple(
        replace(span, start=min(first, span.stop), keep=span.keep or span.stop <= first) if span.start < first else span
        for span in spans
    )


def _offered(request: Request) -> tuple[ToolSpec, ...]:
    return request.tools if request.shows_tools else ()
