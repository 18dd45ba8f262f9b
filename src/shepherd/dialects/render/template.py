"""A model's chat template: the Jinja program that turns a whole conversation into the text the model was trained on.

The whole conversation is rendered at once, never message by message, for templates look at neighbours (T1). The
capabilities of a template are probed once (`probe`). A template that fails raises an error; there is no other template
to fall back to (T12).

Some templates print the date. A caller that renders a conversation again passes the date of the first time (`now`):
otherwise the prompt changes at midnight and nothing of it is in the cache any more (K8).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

import jinja2
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.meta import find_undeclared_variables

from shepherd.core import ConfigError, EngineError, InvalidRequest, Message, ReasoningLevel, ToolSpec
from shepherd.dialects.base import TOOLS, Piece
from shepherd.dialects.render.conversation import (
    Capabilities,
    Turn,
    media_by_name,
    shaped,
    simplified,
    systems_late,
    tool_turns,
)
from shepherd.dialects.render.environment import PromptEnvironment, TemplateRefusal, to_json
from shepherd.dialects.render.frame import Frame, framed
from shepherd.dialects.render.probe import EFFORTS, FAILURES, LEVELS, OFF, ON, probed
from shepherd.dialects.render.provenance import origins, pieces, whole, with_origin

NOTHING: Mapping[str, Any] = MappingProxyType({})
RESERVED = frozenset(
    {"messages", "tools", "functions", "add_generation_prompt", "bos_token", "eos_token", "strftime_now"}
)


@functools.lru_cache(maxsize=32)
def _compiled(source: str) -> tuple[jinja2.Template, frozenset[str]]:
    """The program, and the variables that it asks for. Kept: a model is loaded again and again, and each of its caches
    has a template. Raises: `ConfigError`."""
    environment = PromptEnvironment()
    try:
        parsed = environment.parse(source)
        return environment.from_string(parsed), frozenset(find_undeclared_variables(parsed))
    except TemplateSyntaxError as error:
        raise ConfigError(
            f"the model's chat template is not valid jinja (line {error.lineno}: {error.message}); "
            "give another one in the configuration",
            key="chat_template",
        ) from error


class Template:
    """A compiled chat template. Immutable to its users; may be shared. Raises: `ConfigError` if it is not valid."""

    def __init__(
        self, source: str, *, bos_token: str = "", eos_token: str = "", clock: Callable[[], datetime] = datetime.now
    ) -> None:
        self.source = source
        self.bos_token = bos_token
        self.eos_token = eos_token
        self.clock = clock
        self.opened: dict[Hashable, str] = {}
        self._program, self._asks = _compiled(source)

    def with_media(self, *, images: bool, audio: bool) -> Template:
        """The same template for a model that sees images, or hears recordings."""
        made = copy.copy(self)
        made.caps = replace(self.caps, images=images, audio=audio)
        return made

    @property
    def variables(self) -> frozenset[str]:
        """The variables beyond the conversation: a request may set them (`extra`)."""
        return self._asks - self._program.environment.globals.keys() - RESERVED

    @property
    def is_dated(self) -> bool:
        """Whether it may print the date or the time."""
        return not self._asks.isdisjoint({"strftime_now", "datetime", "date_string"})

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        add_generation_prompt: bool = True,
        reasoning: ReasoningLevel | None = None,
        extra: Mapping[str, Any] = NOTHING,
        now: datetime | None = None,
        preface: str = "",
    ) -> tuple[Piece, ...]:
        """The conversation as text, in pieces of one origin each.

        `now` is the date that the template prints. `preface` is a text for the system message that stands in no message
        of the request.

        Raises: `InvalidRequest` when the template refuses the conversation; `EngineError` when it fails on it.
        """
        variables = switches(reasoning, self.caps.efforts)
        variables |= {name: with_origin(value, TOOLS) for name, value in extra.items() if name in self.variables}
        run = functools.partial(
            self._run,
            no_tools=self.caps.tools,
            add_generation_prompt=add_generation_prompt,
            switched=variables,
            now=now,
        )

        def shown(tools: Sequence[ToolSpec]) -> tuple[Piece, ...]:
            turns = tool_turns(tools, described=self.caps.described)
            shaping = functools.partial(shaped, messages, self.caps, preface)
            made = pieces(self._with_systems(functools.partial(run, tools=turns), shaping))
            return checked(made, messages, self.caps) if self.caps.images or self.caps.audio else made

        try:
            try:
                return shown(tools)
            except (TemplateRefusal, SecurityError):
                raise
            except FAILURES:
                if not tools:
                    raise
                # Templates that walk through schemas know simple ones only.
                return shown([replace(tool, parameters=simplified(tool.parameters)) for tool in tools])
        except TemplateRefusal as error:
            raise InvalidRequest(f"the model's chat template refuses this conversation: {error.message}") from error
        except SecurityError as error:
            raise EngineError(f"the model's chat template tried something that is not allowed: {error}") from error
        except FAILURES as error:
            raise EngineError(f"the model's chat template fails on this conversation: {error}") from error

    @functools.cached_property
    def caps(self) -> Capabilities:
        """What the template takes; the first use probes it with some tiny conversations."""
        return probed(self._run)

    @functools.cached_property
    def frame(self) -> Frame:
        """What the template writes around messages; the first use probes it with tiny conversations."""
        return framed(lambda messages, tools: self.render(messages, tools=tools, add_generation_prompt=False))

    def _with_systems(self, run: Callable[[Sequence[Turn]], str], shape: Callable[[], Sequence[Turn]]) -> str:
        """The conversation rendered so that its system messages show, in the last user message if need be.

        Mistral Nemo's template shows none while a tool works; a few refuse a conversation of nothing else.
        """
        turns = shape()
        systems = {origin for turn in turns if turn["role"] == "system" for origin in origins(turn["content"])}
        is_alone = all(turn["role"] == "system" for turn in turns)
        try:
            text = run(turns)
        except FAILURES:
            if not systems or not is_alone:
                raise
            return run(systems_late(shape()))
        return text if systems <= origins(text) else run(systems_late(shape()))

    def _run(
        self,
        turns: Sequence[Turn],
        *,
        tools: Sequence[Turn] = (),
        no_tools: str = "none",
        add_generation_prompt: bool = True,
        switched: Mapping[str, Any] = NOTHING,
        now: datetime | None = None,
    ) -> str:
        today = now or self.clock()
        given: dict[str, Any] = {
            # As llama-server has them where a request does not choose.
            "enable_thinking": True,
            "date_string": today.strftime("%d %b %Y"),
            **switched,
            "messages": list(turns),
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            "add_generation_prompt": add_generation_prompt,
            "strftime_now": lambda form: whole(today.strftime(form), form),
        }
        if tools:
            given["tools"] = list(tools)
        elif no_tools != "undefined":
            given["tools"] = [] if no_tools == "empty" else None
        if "functions" in self._asks and "tools" not in self._asks:  # names from before there was a convention
            given["functions"] = to_json(list(tools), indent=4) if tools else ""
            given["datetime"] = today.strftime("%b %d %Y %H:%M:%S GMT")
        # Not Template.render: it rewrites the traceback of every error, and probing lives on errors.
        return self._program.environment.concat(self._program.root_render_func(self._program.new_context(given)))


def checked(made: tuple[Piece, ...], messages: Sequence[Message], caps: Capabilities) -> tuple[Piece, ...]:
    """The pieces, if no image and no recording has become text. Raises: `EngineError`."""
    shown = {piece.text for piece in made if piece.is_media}
    text = "".join(piece.text for piece in made if not piece.is_media)
    is_suspect = "[image " in text or "[sound " in text
    if is_suspect and any(name in text and name not in shown for name in media_by_name(messages, caps)):
        raise EngineError("the model's chat template makes text of the place of an image or a recording")
    return made


def switches(reasoning: ReasoningLevel | None, efforts: Sequence[str]) -> dict[str, Any]:
    """The template variables that switch thinking and its effort; none when the request does not set them."""
    if reasoning is None:
        return {}
    if reasoning == "off":
        return dict(OFF)
    if reasoning == "on":
        return dict(ON)
    wanted = LEVELS.index("high" if reasoning == "max" else reasoning)
    nearest = sorted(efforts, key=lambda level: (abs(LEVELS.index(level) - wanted), -LEVELS.index(level)))
    return ON | dict.fromkeys(EFFORTS, nearest[0]) if nearest else dict(ON)
