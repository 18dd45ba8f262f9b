"""A model's chat template: the jinja program that turns a whole conversation into the text the model was trained on.

The whole conversation is rendered at once, never message by message: templates look at neighbours (T1). What a
template takes is found out once by asking it (`Caps`), because templates do not say. A template that fails says so;
there is no other template to fall back to (T12). Not here: how origins survive (`provenance`, `environment`), how
messages are shaped (`conversation`), what the result opens (`prompt`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import product
from types import MappingProxyType
from typing import Any

from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.meta import find_undeclared_variables

from shepherd.core import ConfigError, EngineError, InvalidRequest, Message, ReasoningLevel, ToolSpec
from shepherd.dialects.base import TOOLS, Piece
from shepherd.dialects.conversation import Caps, Turn, shaped, tool_turns
from shepherd.dialects.environment import PromptEnvironment, TemplateRefusal, to_json
from shepherd.dialects.frame import Frame, framed
from shepherd.dialects.provenance import Arguments, Sourced, pieces, sourced

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Template:
    """A compiled chat template. Immutable to its users; may be shared.

    Raises: `ConfigError` when the source is not valid jinja.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.source = source
        self.bos_token = bos_token
        self.eos_token = eos_token
        self._clock = clock
        try:
            environment = PromptEnvironment(clock)
            self._program = environment.from_string(source)
            self._asks = find_undeclared_variables(environment.parse(source))
        except TemplateSyntaxError as error:
            raise ConfigError(
                f"the model's chat template is not valid jinja (line {error.lineno}: {error.message}); "
                "give another one in the configuration",
                key="chat_template",
            ) from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        add_generation_prompt: bool = True,
        reasoning: ReasoningLevel | None = None,
        extra: Mapping[str, Any] = NOTHING,
    ) -> tuple[Piece, ...]:
        """The conversation as text, in pieces of one origin each.

        Raises: `InvalidRequest` when the template refuses the conversation or it holds images; `EngineError` when the
        template fails on it.
        """
        turns = shaped(messages, self.caps)
        told = switches(reasoning, self.caps.efforts)
        told |= {name: sourced(value, TOOLS) for name, value in extra.items()}
        try:
            return pieces(self._run(turns, tool_turns(tools), self.caps.tools, add_generation_prompt, told))
        except TemplateRefusal as error:
            raise InvalidRequest(f"the model's chat template refuses this conversation: {error.message}") from error
        except SecurityError as error:
            raise EngineError(f"the model's chat template tried something that is not allowed: {error}") from error
        except FAILURES as error:
            raise EngineError(f"the model's chat template fails on this conversation: {error}") from error

    @functools.cached_property
    def caps(self) -> Caps:
        """What the template takes; found out at the first use by rendering about ten tiny conversations."""
        return probed(self._run)

    @functools.cached_property
    def frame(self) -> Frame:
        """What the template writes around messages; found out at the first use by rendering tiny conversations."""
        return framed(lambda messages, tools: self.render(messages, tools=tools, add_generation_prompt=False))

    def _run(
        self,
        turns: Sequence[Turn],
        tools: Sequence[Turn] = (),
        no_tools: str = "none",
        add_generation_prompt: bool = True,
        told: Mapping[str, Any] = NOTHING,
    ) -> str:
        given: dict[str, Any] = {
            **told,
            "messages": list(turns),
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            "add_generation_prompt": add_generation_prompt,
        }
        if tools:
            given["tools"] = list(tools)
        elif no_tools != "undefined":
            given["tools"] = [] if no_tools == "empty" else None
        if "functions" in self._asks and "tools" not in self._asks:  # the names before there was a custom
            given["functions"] = to_json(list(tools), indent=4) if tools else ""
            given["datetime"] = self._clock().strftime("%b %d %Y %H:%M:%S GMT")
        # Not Template.render: it rewrites the traceback of every error, and probing lives on errors.
        return self._program.environment.concat(self._program.root_render_func(self._program.new_context(given)))


FAILURES = (TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)
"""What a template program can raise on its own."""


def switches(reasoning: ReasoningLevel | None, efforts: Sequence[str]) -> dict[str, Any]:
    """The arguments by which templates are told to think or not; nothing when it was not said."""
    if reasoning is None:
        return {}
    thinks = reasoning != "off"
    effort = {"reasoning_effort": reasoning} if reasoning in efforts else {}
    return {"enable_thinking": thinks, "thinking": thinks, **effort}


USER: Turn = {"role": "user", "content": "probeuser"}
ANSWER: Turn = {"role": "assistant", "content": "probeanswer"}
SYSTEM: Turn = {"role": "system", "content": "probesystem"}
LATER: Turn = {"role": "system", "content": "probelater"}
TOOL = ToolSpec("probetool", "probes", {"type": "object", "properties": {"probekey": {"type": "string"}}})


def probed(run: Callable[..., str]) -> Caps:
    """What a template takes, asked with tiny conversations whose words must come out again."""

    def asked(*turns: Turn, **given: Any) -> str | None:
        try:
            return run(turns, **given)
        except FAILURES:
            return None

    def takes(word: str, *turns: Turn, **given: Any) -> bool:
        return word in (asked(*turns, **given) or "")

    tells = ("none", "undefined", "empty")
    no_tools = next((tell for tell in tells if asked(USER, no_tools=tell) is not None), "none")
    run = functools.partial(run, no_tools=no_tools)
    takes_tools = functools.partial(takes, tools=tool_turns([TOOL]))
    as_parts = asked(in_parts(USER)) or ""
    parts = not takes("probeuser", USER) and "probeuser" in as_parts and "'probeuser'" not in as_parts  # a list's repr
    user, answer, system, later = map(in_parts if parts else dict[str, Any], (USER, ANSWER, SYSTEM, LATER))
    levels = ("low", "medium", "high")
    efforts = tuple(level for level in levels if asked(user, told={"reasoning_effort": level}) is not None)

    caps = {
        "tools": no_tools,
        "parts": parts,
        "system": takes("probesystem", system, user),
        "later_systems": takes("probelater", system, user, answer, later, user)
        and takes("probelater", system, later, user),
        "repeats": asked(user, user) is not None and asked(user, answer, answer, user) is not None,
        "efforts": efforts,
        "switch": asked(user, told=switches("off", ())) != asked(user, told=switches("medium", ())),
        "calls": False,
        "tool_role": False,
    }
    for short, blank, form in product((False, True), ("", None), ("object", "text")):
        call, result = call_and_result(short, blank, form)
        with_result = takes_tools("probevalue", user, call, result)
        if with_result or takes_tools("probevalue", user, call):
            caps |= {"calls": True, "short_ids": short, "blank": blank, "arguments": form}
            caps["tool_role"] = with_result and takes_tools("proberesult", user, call, result)
            break
    return Caps(**caps)  # type: ignore[arg-type]  # the loops above range over the literals themselves


def in_parts(turn: Turn) -> Turn:
    """The turn with its content as a list of parts."""
    return {**turn, "content": [{"type": "text", "text": turn["content"]}]}


def call_and_result(short: bool, blank: str | None, form: str) -> tuple[Turn, Turn]:
    """A call and its result, in one of the ways in which templates want them."""
    call_id = "probe1234" if short else "call_probe_1234"
    text = Sourced('{"probekey": "probevalue"}')
    arguments = Arguments({"probekey": "probevalue"}, text) if form == "object" else text
    function = {"name": "probetool", "arguments": arguments}
    return (
        {
            "role": "assistant",
            "content": blank,
            "tool_calls": [{"type": "function", "id": call_id, "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "name": "probetool", "content": "proberesult"},
    )
