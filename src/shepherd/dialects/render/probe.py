"""Probes what a chat template takes: renders tiny conversations and looks for their words in the result.

A template does not declare what it takes, and it drops most of the rest silently: a text beside a call, the second of
two calls, a system message. Not here: how the conversation is shaped for it (`conversation`).
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, get_args

from jinja2.exceptions import TemplateError

from shepherd.core import ToolCall, ToolSpec
from shepherd.dialects.render.conversation import Capabilities, ThoughtKey, Turn, call_turn, finished, tool_turns

FAILURES = (TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)

USER: Turn = {"role": "user", "content": "probeuser"}
ANSWER: Turn = {"role": "assistant", "content": "probeanswer"}
SYSTEM: Turn = {"role": "system", "content": "probesystem"}
LATER: Turn = {"role": "system", "content": "probelater"}
NEXT: Turn = {"role": "user", "content": "probenext"}
SILENT: Turn = {"role": "assistant", "content": ""}
TOOL = ToolSpec("probetool", "probes", {"type": "object", "properties": {"probekey": {"type": "string"}}})
ON: dict[str, Any] = {"enable_thinking": True, "thinking": True}
OFF: dict[str, Any] = {
    "enable_thinking": False,
    "thinking": False,
    "thinking_mode": "disabled",
    "thinking_budget": 0,
    "reasoning": False,
}
"""The variables that switch thinking off in all templates; a template ignores those of others."""
EFFORTS = ("reasoning_effort", "thinking_effort", "reasoning_strength")
LEVELS = ("low", "medium", "high")
Ask = Callable[..., str | None]
"""Renders turns; None when the template fails on them or refuses them."""
LISTED = re.compile("""['"]thinking['"]""")
THOUGHTS: tuple[ThoughtKey, ...] = get_args(ThoughtKey)


def probed(run: Callable[..., str]) -> Capabilities:
    """The capabilities of a template. `run` renders turns; its keywords are those of `Template._run`."""
    ways = ("none", "undefined", "empty")
    no_tools = next((way for way in ways if asked(run, USER, no_tools=way) is not None), "none")
    ask = functools.partial(asked, run, no_tools=no_tools)
    as_parts = ask(in_parts(USER)) or ""
    is_repr = "'probeuser'" in as_parts  # of a list
    parts = "probeuser" in as_parts and not is_repr and not shows("probeuser", ask(USER))
    turns = (USER, ANSWER, SYSTEM, LATER, SILENT, NEXT)
    user, answer, system, later, silent, following = map(in_parts, turns) if parts else turns
    described = ask(user, tools=tool_turns([TOOL])) is None
    tools = tool_turns([TOOL], described=described)
    caps: dict[str, Any] = {
        "tools": no_tools,
        "parts": parts,
        "system": shows("probesystem", ask(system, user)),
        "later_systems": shows("probesystem probeanswer probelater", ask(system, user, answer, later, user))
        and shows("probesystem probelater", ask(system, later, user))
        and begin_alike(ask(user, answer, later, user), ask(user, answer, user), up_to="probeanswer"),
        "repeats": ask(user, user) is not None and ask(user, answer, answer, user) is not None,
        "answer_first": ask(answer, user) is not None,
        "silent_answers": ask(user, silent, user) is not None,
        "efforts": tuple(each for each in LEVELS if ask(user, switched=ON | dict.fromkeys(EFFORTS, each)) is not None),
        "switch": ask(user, switched=OFF) != ask(user, switched=ON),
        "shows_tools": shows("probetool", ask(user, tools=tools)),
        "described": described and ask(user, tools=tools) is not None,
    }
    work = functools.partial(ask, user, tools=tools)
    for short, blank, form in product((False, True), ("", None), ("object", "text")):
        call, result = exchange(1, short, blank, form)
        with_result = shows("probevalue1 proberesult1", work(call, result))
        if with_result or shows("probevalue1", work(call)):
            caps |= {"calls": True, "tool_role": with_result, "short_ids": short, "blank": blank, "arguments": form}
            other, other_result = exchange(2, short, blank, form)
            both = {**call, "tool_calls": call["tool_calls"] + other["tool_calls"]}
            in_turn = shows("probevalue1 probevalue2", work(call, result, other, other_result))
            caps |= {
                "text_hides_calls": not shows("probevalue1", work({**call, "content": ANSWER["content"]}, result)),
                "parallel": shows("probevalue1 probevalue2", work(both, result, other_result)) or not in_turn,
                "user_after_result": shows("proberesult1 probenext", work(call, result, following)),
            }
            return Capabilities(**caps | thoughts_taken(ask, user, work, (call, result)))
    return Capabilities(**caps | {"calls": False, "tool_role": False} | thoughts_taken(ask, user))


def thoughts_taken(ask: Ask, user: Turn, work: Ask | None = None, one: tuple[Turn, ...] = ()) -> dict[str, Any]:
    """The place where a template takes the thoughts of a last answer, or of a call in a tool loop, if it takes any."""

    def thinking(turn: Turn, key: ThoughtKey) -> Turn:
        return finished({**turn, "reasoning_content": "probethought"}, Capabilities(thought=key))

    def takes(key: ThoughtKey) -> bool:
        texts = [
            ask(user, thinking(ANSWER, key), add_generation_prompt=False, switched=switched) for switched in ({}, ON)
        ]
        if work is not None:
            texts += [work(thinking(one[0], key), *one[1:], switched=switched) for switched in ({}, ON)]
        return any(text and "probethought" in text and not LISTED.search(text) for text in texts)

    found = next((key for key in THOUGHTS if takes(key)), None)
    if found is None or work is None:
        return {"thought": found or "reasoning_content"}
    speaking = {**one[0], "content": ANSWER["content"]}
    alone, both = work(speaking, *one[1:]), work(thinking(speaking, found), *one[1:])
    return {"thought": found, "thought_or_text": alone is not None and both is None}


def shows(words: str, text: str | None) -> bool:
    found = [(text or "").find(word) for word in words.split()]
    return -1 not in found and found == sorted(found)


def begin_alike(text: str | None, other: str | None, *, up_to: str) -> bool:
    """Whether both texts are the same up to that word: what comes later changes nothing before it."""
    head, found, _ = (text or "").partition(up_to)
    return bool(found) and (other or "").startswith(head + found)


def asked(run: Callable[..., str], *turns: Turn, tools: Sequence[Turn] = (), **given: Any) -> str | None:
    """The rendered turns; None when the template fails on them or refuses them."""
    try:
        # Some templates write into what they are given.
        return run(copy.deepcopy(list(turns)), tools=copy.deepcopy(list(tools)), **given)
    except FAILURES:
        return None


def in_parts(turn: Turn) -> Turn:
    return {**turn, "content": [{"type": "text", "text": turn["content"]}]}


def exchange(number: int, short: bool, blank: str | None, form: Any) -> tuple[Turn, Turn]:
    call_id = f"probe000{number}" if short else f"call_probe_000{number}"
    call = ToolCall(call_id, TOOL.name, f'{{"probekey": "probevalue{number}"}}')
    return (
        {"role": "assistant", "content": blank, "tool_calls": [call_turn(call, 0, Capabilities(arguments=form))]},
        {"role": "tool", "tool_call_id": call_id, "name": TOOL.name, "content": f"proberesult{number}"},
    )
