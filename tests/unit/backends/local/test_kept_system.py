"""A system prompt that changes within a conversation: what is kept, what the model reads, and what is computed."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fake_engine import FakeRuntime
from tests.unit.backends.local.serving import events, making, reply, seen

from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.backends.local.kept_system import AGAIN, CHANGED, KeptSystems, Limits, find_changes, reminder
from shepherd.core import Image, Message, Request, Started, Text, ToolCall, ToolResult, ToolSpec
from shepherd.core.edits import WHOLE
from shepherd.dialects.render.conversation import REMINDER

RULES = "\n".join(f"Rule {n}: be as kind as you can be to sheep {n}." for n in range(20))
SYSTEM = f"{RULES}\n# Env\nYou are Opus (1M context).\n# Git\nStatus: clean"
OPUS = SYSTEM.replace(" (1M context)", "")
DIRTY = OPUS.replace("clean", "\n M a.py\n?? b.py")
TALK = (Message.user("Hello"), Message.assistant("Hi."), Message.user("Who?"), Message.assistant("I."))
ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
FIRST = f"""\


<system-reminder>
{CHANGED}
No longer valid, in the system prompt, behind "# Env":
> You are Opus (1M context).
Valid instead:
> You are Opus.
</system-reminder>"""
SECOND = (
    FIRST.removesuffix("</system-reminder>")
    + """\
No longer valid, in the system prompt, behind "# Git":
> Status: clean
Valid instead:
> Status:\x20
>  M a.py
> ?? b.py
</system-reminder>"""
)


def ask(system: str, *turns: Message, **fields: Any) -> Request:
    return Request("m", (Message.system(system), *turns), **{"session": "s", **fields})


def kept(**limits: Any) -> KeptSystems:
    return KeptSystems(Limits(**limits), lambda text: len(text) // 4)


def texts(request: Request) -> list[str]:
    return [message.text for message in request.messages]


def settle(systems: KeptSystems, *requests: Request, evicts: bool = False) -> list[tuple[Request, int]]:
    return [systems.settled(request, evicts=evicts) for request in requests]


# ---- what the model reads


def test_the_cached_text_stays_and_the_change_is_said_at_the_end_and_stays_there() -> None:
    first, changed, later, again, back, beyond = settle(
        kept(),
        ask(SYSTEM, *TALK[:1]),
        ask(OPUS, *TALK[:3]),
        ask(OPUS, *TALK, Message.user("Really?")),
        ask(DIRTY, *TALK, Message.user("Really?"), *TALK),
        ask(SYSTEM, *TALK, Message.user("Really?"), *TALK, Message.user("So?")),
        ask(SYSTEM, *TALK, Message.user("Really?"), *TALK, Message.user("So?"), *TALK[1:3]),
    )
    assert first == (ask(SYSTEM, *TALK[:1]), 0)
    assert (texts(changed[0]), changed[1]) == ([SYSTEM, "Hello", "Hi.", "Who?" + FIRST], 2)
    assert (texts(later[0]), later[1]) == ([SYSTEM, "Hello", "Hi.", "Who?" + FIRST, "I.", "Really?"], 2)
    assert texts(again[0])[:6] == texts(later[0])
    assert texts(again[0])[6:] == ["Hello", "Hi.", "Who?" + SECOND, "I."], "in place of the reminder before it"
    assert again[1] == 6
    assert texts(back[0])[:10] == texts(again[0])
    assert AGAIN in texts(back[0])[10]
    assert back[1] == 0
    assert texts(beyond[0])[:11] == texts(back[0])
    assert texts(beyond[0])[11:] == ["Hi.", "Who?"]


def test_the_reminder_is_in_the_result_of_a_call_where_that_is_the_newest_message() -> None:
    call = Message("assistant", (ToolCall("1", "add", "{}"),))
    result = Message("tool", (ToolResult("1", (Text("7"),)), ToolResult("2", (Text("8"), Image("image/png", b"x")))))
    asked = Message("user", (Text("See"), Image("image/png", b"x")))
    systems = kept()
    settle(systems, ask(SYSTEM, *TALK[:1]))
    ((found, _),) = settle(systems, ask(OPUS, *TALK[:1], call, result))
    last = found.messages[-1].parts[-1]
    assert found.messages[-1].parts[0] == result.parts[0]
    assert isinstance(last, ToolResult)
    assert last.parts[-1] == Text(FIRST, aside=True)
    ((found, _),) = settle(systems, ask(OPUS, *TALK[:2], asked))
    assert found.messages[-1].parts == (*asked.parts, Text(FIRST, aside=True))
    ((found, _),) = settle(systems, ask(OPUS, *TALK[:3], Message.assistant("Well,")))
    assert texts(found)[-2:] == ["Who?" + FIRST, "Well,"], "before the answer that the client has begun"


OLD_LINES, NEW_LINES = attrgetter("old"), attrgetter("new")
LINES = st.lists(st.sampled_from(["", "a", "b", "# c", "> d", " e", "ff" * 30]), max_size=12)


@given(LINES, LINES)
def test_every_removed_line_is_named_and_every_new_one_is_quoted(old: list[str], new: list[str]) -> None:
    before, now = "\n".join(old), "\n".join(new)
    changes = find_changes({"first": "long" * 9_999, "text": before}, {"first": "long" * 9_999, "text": now}, 1.0)
    assert changes is not None
    quoted = [line[2:] for line in reminder(changes).split("\n") if line.startswith("> ")]
    assert quoted == [line for change in changes for line in (*change.old, *change.new)]
    gone, new = ([line for change in changes for line in lines_of(change)] for lines_of in (OLD_LINES, NEW_LINES))
    assert Counter(before.split("\n")) - Counter(gone) + Counter(new) == Counter(now.split("\n"))
    assert bool(changes) == (before != now)


def test_a_long_text_of_a_few_lines_many_times_is_compared_quickly() -> None:
    chance = random.Random(7)
    old = chance.choices(["aaaa", "bbbb", "cccc", "d"], k=1_990)
    now = "\n".join(chance.sample(old, len(old)))
    assert find_changes({"": "\n".join(old)}, {"": now}, 1.0) is None


def test_the_changed_description_of_a_tool_is_said_too() -> None:
    other = replace(ADD, description="Adds.\nAs Opus.")
    for tools, changed in (((ADD,), True), ((ADD, replace(ADD, name="sub")), False), ((), False)):
        systems = kept()
        settle(systems, ask(SYSTEM, *TALK[:1], tools=(ADD,)))
        asked = ask(OPUS, *TALK[:3], tools=tuple(replace(tool, description=other.description) for tool in tools))
        ((found, n_lines),) = settle(systems, asked)
        assert n_lines == (3 if changed else 0)
        assert found.tools == ((ADD,) if changed else asked.tools)
        new = 'New, in the description of the tool add, behind "Adds.":\n> As Opus.\n</system-reminder>'
        assert found.messages[-1].text.endswith(new) == changed


def test_tools_are_never_those_of_another_request_but_for_their_descriptions() -> None:
    plain, twice = replace(ADD, parameters={"type": "object"}), replace(ADD, description="Adds it.")
    for first, second in (((ADD,), (plain,)), ((ADD, ADD), (twice, ADD)), ((ADD,), (replace(ADD, strict=True),))):
        systems = kept()
        settle(systems, ask(SYSTEM, *TALK[:1], tools=first), ask(OPUS, *TALK[:3], tools=first))
        for n in range(3):
            asked = ask(OPUS, *TALK, Message.user(f"{n}"), tools=second)
            ((found, _),) = settle(systems, asked)
            assert found.tools == second
            assert found.messages[0].text == OPUS


# ---- where it stays as the client sends it


@pytest.mark.parametrize(
    ("limits", "before", "now"),
    [
        ({}, {"session": None}, {"session": None}),
        ({}, {"session": "ann", "user": "ann"}, {"session": "ann", "user": "ann"}),
        ({}, {}, {"session": "t"}),
        ({}, {}, {"owner": "bob"}),
        ({}, {}, {"user": "bob"}),
        ({"share": 0.0}, {}, {}),
        ({"tokens": 20}, {}, {}),
    ],
    ids=["no session", "a user's name", "another session", "another owner", "another user", "off", "too long"],
)
def test_another_conversation_has_its_own_text(
    limits: dict[str, Any], before: dict[str, Any], now: dict[str, Any]
) -> None:
    systems = kept(**limits)
    settle(systems, ask(SYSTEM, *TALK[:1], **before))
    asked = ask(OPUS, *TALK[:3], **now)
    assert settle(systems, asked) == [(asked, 0)]


@pytest.mark.parametrize(
    "changed",
    [
        ask(RULES[: len(RULES) // 2], *TALK[:3]),
        ask("Write a title.", *TALK[:3]),
        ask(OPUS, Message.user("Hallo"), *TALK[1:3]),
        ask(OPUS, *TALK[:1]),
        ask(OPUS),
        Request("m", TALK[:3], session="s"),
        Request("m", (Message.system(OPUS), Message.system("Be brief."), *TALK[:3]), session="s"),
        Request("m", (Message("system", (Text(OPUS), Image("image/png", b"x"))), *TALK[:3]), session="s"),
    ],
    ids=["half", "another", "new chat", "first again", "no question", "no system", "two systems", "an image"],
)
def test_what_is_no_small_change_of_a_conversation_stays_as_the_client_sends_it(changed: Request) -> None:
    systems = kept()
    settle(systems, ask(SYSTEM, *TALK[:1]))
    assert settle(systems, changed) == [(changed, 0)]


def test_behind_too_many_changes_the_text_of_the_client_is_the_cached_one() -> None:
    systems, turns = kept(tokens=300), list(TALK[:1])
    settle(systems, ask(SYSTEM, *turns))
    said = []
    for n in range(8):
        turns += [TALK[1], Message.user(f"Question {n}")]
        ((found, n_lines),) = settle(systems, ask(SYSTEM.replace("clean", f"{n} files"), *turns))
        said.append(n_lines)
        assert ((found.messages[0].text == SYSTEM) == (n_lines > 0)) or n > 2
    assert 0 in said
    assert said[0] == 2
    fresh = said.index(0)
    assert said[fresh + 1] == 2, "the changes of that text are said again"


def test_a_reminder_is_repeated_where_the_one_before_may_have_left_the_context() -> None:
    for evicts in (False, True):
        systems, turns = kept(again=1_500), [*TALK[:3]]
        settle(systems, ask(SYSTEM, *TALK[:1]), ask(OPUS, *turns))
        for n in range(8):
            turns += [Message.assistant("Well, " * 40), Message.user(f"Question {n}")]
            ((found, n_lines),) = settle(systems, ask(OPUS, *turns), evicts=evicts)
            assert n_lines == 2
        at = [at for at, text in enumerate(texts(found)) if FIRST in text]
        assert at == ([3, 9, 15] if evicts else [3])


def test_a_reminder_in_a_message_that_a_client_clears_is_repeated() -> None:
    systems = kept()
    settle(systems, ask(SYSTEM, *TALK[:1]), ask(OPUS, *TALK[:3]))
    later = ask(OPUS, *TALK, Message.user("Really?"))
    kept_there, repeated = settle(systems, replace(later, cleared=frozenset({(3, 0)})), later_without(later, 3))
    assert [at for at, text in enumerate(texts(kept_there[0])) if FIRST in text] == [3]
    assert [at for at, text in enumerate(texts(repeated[0])) if FIRST in text] == [3, 5]


def later_without(request: Request, at: int) -> Request:
    return replace(request, cleared=frozenset({(at, WHOLE)}))


def test_what_is_forgotten_is_not_found() -> None:
    systems = kept()
    settle(systems, ask(SYSTEM, *TALK[:1]))
    systems.clear()
    asked = ask(OPUS, *TALK[:3])
    assert settle(systems, asked) == [(asked, 0)]


# ---- what is computed


@asynccontextmanager
async def serving(*answers: str, **options: Any) -> AsyncIterator[tuple[LocalBackend, FakeRuntime]]:
    async with making() as make:
        yield make(*answers, n_ctx=16_384, options=LocalOptions(**options))


async def test_a_changed_line_costs_its_reminder_and_later_requests_cost_what_is_new(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns: list[Message] = []
    news = []
    with caplog.at_level(logging.INFO):
        async with serving(*["Baa."] * 8) as (backend, runtime):
            for n, system in enumerate((SYSTEM, SYSTEM, OPUS, OPUS, DIRTY, DIRTY, SYSTEM, SYSTEM)):
                turns.append(Message.user(f"Question {n}"))
                answer = await reply(backend, ask(system, *turns, tools=(ADD,)))
                turns.append(answer.message)
                news.append(answer.usage.input)
            shown = seen(runtime).decode()
    ordinary, back = news[1], len("\n\n".join((*REMINDER, AGAIN)))
    assert news[2:] == [ordinary + more for more in (len(FIRST), 0, len(SECOND), 0, back, 0)]
    assert "potential cache miss" not in caplog.text
    assert "diverged" not in caplog.text
    assert "2 lines of the system prompt and the tools have changed" in caplog.text
    assert shown.count(RULES) == 1
    assert FIRST in shown
    assert SECOND in shown


async def test_it_can_be_switched_off_and_is_reported_where_it_is_on() -> None:
    for share, n_changed in ((0.25, 2), (0.0, 0)):
        async with serving("Hi.", "I.", system_changes=share) as (backend, runtime):
            await reply(backend, ask(SYSTEM, *TALK[:1]))
            first, *_ = await events(backend, ask(OPUS, *TALK[:3]))
            assert isinstance(first, Started)
            assert first.n_changed == n_changed
            assert (FIRST in seen(runtime).decode()) == (share > 0)


async def test_a_reminder_stays_where_the_result_before_it_is_cleared() -> None:
    call = Message("assistant", (ToolCall("1", "add", "{}"),))
    result = Message("tool", (ToolResult("1", (Text("7 " * 400),)),))
    asked = ask(OPUS, *TALK[:1], call, result, *TALK[1:3], tools=(ADD,))
    async with serving("Hi.", "I.") as (backend, _):
        await reply(backend, replace(asked, messages=(Message.system(SYSTEM), *TALK[:1])))
        await backend.compile(replace(asked, messages=asked.messages[:4]))
        compiled = await backend.compile(replace(asked, cleared=frozenset({(3, 0)})))
    assert compiled.cleared == {(3, 0): 799}
    left = [span for span in compiled.spans if not span.cleared]
    spelled = backend._compiler.spell
    assert FIRST.strip() in "".join(spelled(compiled.encoded.tokens[span.start : span.stop]) for span in left)


async def test_the_counted_prompt_is_the_one_that_is_computed() -> None:
    async with serving("Hi.", "I.") as (backend, _):
        await reply(backend, ask(SYSTEM, *TALK[:1]))
        n = await backend.count(ask(OPUS, *TALK[:3]))
        assert (await reply(backend, ask(OPUS, *TALK[:3]))).usage.prompt == n
