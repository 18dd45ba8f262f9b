"""The chat in a real terminal with providers behind it: stopped, switched, unreachable, without key, money or room."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.in_time import becomes_true
from tests.process.cli.test_terminal import Person
from tests.providers_scripted import Heard, Said, ScriptedProvider
from tests.providers_thread import apart

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Home

KEY = "sk-SECRET-0123456789abcdef"


def script(heard: Heard) -> Said:
    if heard.last == "Count.":
        return Said("One two three four.", hangs_behind="three")
    return Said(f"You said {heard.last[-60:]}", "Hm.")


@pytest.fixture
def providers() -> Iterator[dict[str, ScriptedProvider]]:
    made = {
        "first": ScriptedProvider("anthropic", script, name="a"),
        "second": ScriptedProvider("openai.chat", script, name="b"),
        "small": ScriptedProvider("openai.responses", script, n_ctx=600, name="c"),
    }
    with ExitStack() as stack:
        yield {name: stack.enter_context(apart(each)) for name, each in made.items()}


TYPES = {"anthropic": "anthropic", "openai.chat": "vllm", "openai.responses": "openai"}


def configured(home: Home, providers: dict[str, ScriptedProvider]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    rows = [(name, TYPES[each.protocol], each.url, f'api_key = "{KEY}"\n') for name, each in providers.items()]
    rows += [("poor", "vllm", providers["second"].url, "budget_tokens = 10\n")]
    rows += [("down", "vllm", f"http://127.0.0.1:{port}", "")]
    text = "".join(
        f'[providers.{name}]\ntype = "{kind}"\nbase_url = "{url}"\nmodel = "m"\n{more}'
        + ("n_ctx = 600\n" if name == "small" else "")
        for name, kind, url, more in rows
    )
    (home.folder / "shepherd.toml").write_text(text)
    for name in ("OPENROUTER_API_KEY",):
        home.env.pop(name, None)


@pytest.mark.timeout(300)
def test_a_visit_to_every_kind_of_provider(home: Home, providers: dict[str, ScriptedProvider]) -> None:
    configured(home, providers)
    first, second, small = providers.values()
    person = Person(home, "--notools")

    def says(text: str, answer: str) -> str:
        person.waits_for("> ")
        person.types(f"{text}\r")
        return person.waits_for(answer)

    try:
        says("Hello", r"You said\s+Hello")
        # Ctrl-C in the middle of an answer closes the connection, and keeps what came.
        says("Count.", "three")
        person.types("\x03")
        person.waits_for(r"\[stopped\]")
        assert becomes_true(first.requests[-1].has_left.is_set)
        says("Go on", r"You said\s+Go on")
        assert "One two three" in " ".join(" ".join(first.heard[-1].texts("assistant")).split())
        # Another provider, another model.
        assert "Loading provider: second" in says("/provider next", "The conversation continues with m of second")
        says("Hello second", r"You said\s+Hello second")
        assert second.heard[-1].texts("user") == ["Hello", "Count.", "Go on", "Hello second"]
        says("/model first/other", "The conversation continues with other of first")
        says("Hello other", r"You said\s+Hello other")
        assert first.heard[-1].model == "other"
        # Nothing answers; Ctrl-C ends the waiting.
        says("/provider down", "The conversation continues with m of down")
        says("Is there anything?", "down: .*127.0.0.1")
        says("And now?", "And now")
        person.types("\x03")
        person.waits_for(r"\[stopped\]|down: ")
        # No key: the conversation stays where it is.
        says("/provider openrouter/qwen/qwen3", "shepherd keys set openrouter")
        # The budget.
        says("/provider poor", "The conversation continues with m of poor")
        says("Hello poor", r"You said\s+Hello poor")
        says("Again", r"of 10 tokens")
        says("/stats", "poor")
        # The window.
        says("/provider small", "The conversation continues with m of small")
        for n in range(6):
            says(f"Turn {n}: " + "word " * 50, r"You said[\w\s]+word")
        assert small.heard[-1].texts("user")[0].startswith("Hello"), "the first message stays"
        assert len(small.heard[-1].texts("user")) < 8
        says("long " * 800, r"too long|600")
        says("/provider first", "The conversation continues with other of first")
        says("Still there?", r"You said\s+Still there")
        assert len(first.heard[-1].texts("user")) > 10, "a larger window gets everything"
        person.waits_for("> ")
        person.types("\x04")
        assert person.waits_for_the_end() == 0
        assert person.echoes_and_lines()
    finally:
        person.leaves()
    assert [each.faults for each in providers.values()] == [[], [], []]
    assert KEY not in person.raw
    assert "Traceback" not in person.raw
    assert not re.search(r"Loading provider: (\w+)\s+Loading provider: \1", person.raw)
