"""The shared conversations over every provider of the table, each played by a strict provider of its protocol.

    Session ─▶ CloudBackend ─ HTTP ─▶ `ScriptedProvider`: refuses what the real ones refuse, knows its signatures again

A conversation is a function of a stage; `ROWS` are the providers with each protocol that they speak.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.cases import few
from tests.providers_replay import Answer, Way
from tests.providers_scripted import SENTINEL, Heard, Said, Script, ScriptedProvider, scripted
from tests.unit.agent.scripted import Doubling

from shepherd.agent.session import Session
from shepherd.agent.storage import ConversationStore
from shepherd.agent.turn import CallReturned, TurnEvent
from shepherd.backends.cloud.backend import CloudBackend
from shepherd.backends.cloud.provider import KINDS, ProviderKind, provider_of
from shepherd.core import (
    BackendError,
    BadCall,
    Document,
    Event,
    Evicted,
    Finished,
    Image,
    Message,
    Opaque,
    Reasoning,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    fold,
)
from shepherd.wire.signature import Protocol

KEY = "sk-test-SECRET-4242424242"
MODELS = {
    "openai": "gpt-5.4-mini",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3-flash",
    "grok": "grok-4.3",
}  # fmt: skip
WINDOW = 1_500


@dataclass(frozen=True)
class Row:
    """A provider, and one of its protocols."""

    kind: ProviderKind
    protocol: Protocol

    @property
    def name(self) -> str:
        return f"{self.kind.name}, {self.protocol}"

    @property
    def model(self) -> str:
        return MODELS.get(self.kind.name, "m")


ROWS = [Row(kind, protocol) for kind in KINDS.values() for protocol in kind.protocols]
FIRST = {row.protocol: row for row in reversed(ROWS)}
SOME = [*FIRST.values(), *few([row for row in ROWS if row not in FIRST.values()], 0.2, name=lambda row: row.name)]
"""One of each protocol, and some of the others; all of them in a thorough run."""


@dataclass
class Stage:
    """A conversation with one provider."""

    row: Row
    provider: ScriptedProvider
    session: Session
    toolbox: Doubling
    folder: Path
    n_ctx: int | None
    backends: list[CloudBackend] = field(default_factory=list)
    events: list[TurnEvent] = field(default_factory=list)
    """Of the last turn."""

    @property
    def has_proofs(self) -> bool:
        return self.row.protocol in ("openai.responses", "anthropic", "gemini")

    def backend(self) -> CloudBackend:
        """A new one, which has kept nothing."""
        provider = provider_of(
            self.row.kind, base_url=self.provider.url, key=KEY, protocol=self.row.protocol, model=self.row.model,
            n_ctx=self.n_ctx,
        )  # fmt: skip

        async def sleep(_: float) -> None:
            pass

        self.backends.append(CloudBackend(provider, sleep=sleep, chance=lambda: 0.0))
        return self.backends[-1]

    async def say(self, text: str, *, until: str = "") -> str:
        """The text of the answer; the turn is stopped behind the text or the tool of `until`."""
        return await self.take(self.session.chat(text), until=until)

    async def take(self, turn: Any, *, until: str = "") -> str:
        self.events, said = [], ""
        async with aclosing(turn) as events:
            async for event in events:
                self.events.append(event)
                if isinstance(event, TextDelta):
                    said += event.text
                if until and until in said:
                    break
        return said

    def check(self) -> None:
        """What holds after every turn."""
        assert self.provider.faults == []
        open_calls: list[str] = []
        for message in self.session.messages:
            if message.role != "tool":
                assert open_calls == [], "every call has its result behind it"
            open_calls += [call.id for call in message.calls]
            for part in message.parts:
                if isinstance(part, ToolResult):
                    open_calls.remove(part.call_id)
        assert open_calls == []


@asynccontextmanager
async def staged(row: Row, script: Script, folder: Path, n_ctx: int | None = None) -> AsyncIterator[Stage]:
    """`n_ctx`: of the provider, known to us."""
    async with scripted(row.protocol, script, n_ctx=n_ctx) as provider:
        box = Doubling()
        stage = Stage(row, provider, None, box, folder, n_ctx)  # type: ignore[arg-type]  # it needs the stage's back end
        stage.session = Session(
            stage.backend(), model=row.model, n_ctx=n_ctx or 8_192, system="Be brief.", toolbox=box, on_full="evict"
        )
        try:
            yield stage
        finally:
            for backend in stage.backends:
                await backend.aclose()


@contextmanager
def named(row: Row) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"over {row.name}")
        raise


# -- the script --------------------------------------------------------------------------------------------------------


def doubles(*numbers: int) -> tuple[tuple[str, dict[str, Any]], ...]:
    return tuple(("double", {"n": n}) for n in numbers)


def counting(heard: Heard) -> Said | Answer:
    """`Double 1 2, then 3`: calls in two rounds, with thoughts; anything else is repeated."""
    text = heard.last
    if not text.startswith("Double"):
        return Said(f"You said: {text}", "Only an echo.")
    rounds = [[int(n) for n in part.split() if n.isdigit()] for part in text.removeprefix("Double ").split(", then ")]
    asked = max(at for at, each in enumerate(heard.pieces) if (each.role, each.kind) == ("user", "text"))
    n_done = len({each.text for each in heard.pieces[asked:] if each.kind == "call"})
    while rounds and n_done:
        n_done -= len(rounds.pop(0))
    if rounds:
        return Said("I count.", f"First {rounds[0]}.", doubles(*rounds[0]))
    found = [each.text.strip('"[]{} ') for each in heard.pieces[asked:] if each.kind == "result"]
    return Said(f"Done, {len(found)} results.", "That was all.")


# -- the conversations -------------------------------------------------------------------------------------------------


async def plain(stage: Stage) -> None:
    texts = (
        "Hello!",
        "Zwölf Boxkämpfer \U0001f40f\u2028 日本",
        '{"not": "json"',
        "x" * 3_000,
        "<think>no</think>",
        "...",
    )
    for text in texts:
        assert (await stage.say(text)).split() == f"You said: {text}".split()
    heard = stage.provider.heard[-1]
    assert heard.texts("system") == ["Be brief."]
    assert heard.texts("user") == list(texts)
    assert len(heard.texts("assistant")) == len(texts) - 1
    assert stage.provider.rewritten == []


async def tool_loops(stage: Stage) -> None:
    assert await stage.say("Double 1 2 3, then 4") == "I count.I count.Done, 4 results."
    returned = [each.result.parts for each in stage.events if isinstance(each, CallReturned)]
    assert returned == [(Text(text),) for text in ("2", "4", "6", "8")]
    assert stage.toolbox.most_running == 3
    await stage.say("Thanks.")
    await stage.say("Double 5, then 6, then 7")
    assert stage.provider.rewritten == []
    for heard in stage.provider.heard:
        if stage.has_proofs:  # every one so far, in its place, byte for byte
            assert heard.proofs == list(stage.provider.issued)[: heard.number - 1]
        assert heard.tools == ("double",)
    results = [each.text.strip('"[]{}') for each in stage.provider.heard[-1].pieces if each.kind == "result"]
    assert [text[-2:].strip(' "') for text in results[:6]] == ["2", "4", "6", "8", "10", "12"]


async def stopped(stage: Stage) -> None:
    script = stage.provider.script
    stage.provider.script = lambda heard: Said("One two three four.", "Hm.", hangs_behind="three")
    said = await stage.say("Count.", until="two")
    assert said.split() == ["One", "two"]
    await stage.provider.requests[-1].has_left.wait()
    stage.check()
    assert stage.session.messages[-1].text.split() == ["One", "two"]
    stage.provider.script = script
    await stage.say("Double 1")
    stage.toolbox.gate.clear()
    stage.toolbox.called.clear()
    turn = stage.session.chat("Double 2 3")
    async with aclosing(turn) as events:
        async for _ in events:
            if stage.toolbox.called.is_set():
                break
    stage.check()
    stage.toolbox.gate.set()
    assert stage.session.messages[-1].role == "tool"
    assert await stage.say("Hello again.") == "You said: Hello again."
    assert "One two" in " ".join(" ".join(stage.provider.heard[-1].texts("assistant")).split())


async def undone(stage: Stage) -> None:
    await stage.say("Hello!")
    await stage.say("Double 1 2")
    before = stage.provider.heard[-1]
    assert stage.session.undo() == "Double 1 2"
    await stage.say("Double 1 2")
    n = len(stage.provider.heard)
    again = stage.provider.heard[n - 2]
    assert again.texts("user") == before.texts("user")
    await stage.take(stage.session.edit("Double 3"))
    assert stage.provider.heard[-1].texts("user") == ["Hello!", "Double 3"]
    await stage.take(stage.session.retry())
    assert stage.provider.heard[-1].texts("user") == ["Hello!", "Double 3"]
    assert stage.session.messages[-1].text == "Done, 1 results."


async def saved(stage: Stage) -> None:
    await stage.say("Double 1 2, then 3")
    await stage.say("Thanks.")
    store = ConversationStore(stage.folder)
    name = store.save(stage.session.to_saved())
    session = Session(stage.backend(), model=stage.row.model, n_ctx=8_192, toolbox=stage.toolbox)
    session.restore(store.load(name))
    assert session.messages == stage.session.messages
    stage.session = session
    await stage.say("Double 4")
    assert stage.provider.rewritten == [], "the provider's own cache is still good"
    if stage.has_proofs:
        assert stage.provider.heard[-1].proofs == list(stage.provider.issued)[:-1]


async def long(stage: Stage) -> None:
    """The window is full again and again."""
    gone = list[int]()
    for n in range(24):
        await stage.say(f"Double {n} {n + 1}" if n % 4 == 1 else f"Turn {n}: " + "word " * 60)
        gone += [at for each in stage.events if isinstance(each, Evicted) for at in each.gone]
        stage.check()
        heard = stage.provider.heard[-1]
        assert heard.texts("system") == ["Be brief."]
        assert heard.texts("user")[0].startswith("Turn 0:"), "the first stays"
    assert len(gone) > 8
    assert len(gone) == len(set(gone)), "what has left is reported once"
    assert len(stage.session.messages) > 2 * 24, "the transcript is whole"
    notices = [m for m in stage.session.messages if "messages evicted from context" in m.text]
    assert notices
    n_rewritten = len(stage.provider.rewritten)
    assert 0 < n_rewritten <= 12, "they leave in steps of some turns"
    assert stage.provider.n_refused <= 3, "before the provider refuses"


async def broken(stage: Stage) -> None:
    """Connections break, and the provider is busy, in the middle of a conversation."""
    script, busy = stage.provider.script, {"error": {"message": "busy", "type": "overloaded_error"}}
    await stage.say("Double 1")
    failures: list[Said | Answer] = [
        Answer("", json.dumps(busy).encode(), 503, {"content-type": "application/json"}),
        Said("Never", way=Way(break_at=0)),
        Said("One two three.", "Hm.", breaks_behind="two"),
    ]
    stage.provider.script = lambda heard: failures.pop(0)
    with pytest.raises(BackendError):
        await stage.say("Go on.")
    assert failures == [], "the first two were tried again"
    assert stage.session.messages[-1].text.split() == ["One", "two"], "what has arrived stays"
    stage.check()
    stage.provider.script = script
    assert await stage.say("And now?") == "You said: And now?"
    before = stage.session.messages
    stage.provider.script = lambda heard: Said("Never", way=Way(end_at=0))
    with pytest.raises(BackendError):
        await stage.say("Nothing comes.")
    assert stage.session.messages == before, "a turn without an answer leaves no trace"


async def empty(stage: Stage) -> None:
    """An answer without a text, one of thoughts only, one that its limit has cut."""
    script = stage.provider.script
    for said in (Said(), Said(thoughts="Only this."), Said("Half an", "Hm.", is_cut=True)):
        stage.provider.script = lambda heard, said=said: said  # type: ignore[misc]  # bound at once
        await stage.say("Well?")
        finished = [each.reason for each in stage.events if isinstance(each, Finished)]
        assert finished == ["length" if said.is_cut else "end"]
        stage.provider.script = script
        assert await stage.say("Hello.") == "You said: Hello."
        stage.check()


async def continued(stage: Stage) -> None:
    """An answer that its limit has cut, or that was stopped, is continued: it grows, and nothing comes twice."""
    script = stage.provider.script

    def resuming(heard: Heard) -> Said:
        spoken = [each for each in heard.pieces if each.kind == "text"]
        begun = "".join(each.text for each in spoken if each.role == "assistant")
        assert begun.startswith("Half an")
        if spoken[-1].role == "user":  # it has to be asked for the rest
            assert "Continue" in spoken[-1].text
            assert "Well?" not in spoken[-1].text
        return Said(" answer.", "The rest.")

    stage.provider.script = lambda heard: Said("Half an", "Hm.", is_cut=True)
    await stage.say("Well?")
    stage.provider.script = resuming
    assert await stage.take(stage.session.resume()) == " answer."
    assert [message.text for message in stage.session.messages] == ["Well?", "Half an answer."]
    stage.provider.script = script
    assert await stage.say("Thanks.") == "You said: Thanks."
    assert stage.provider.heard[-1].texts("user") == ["Well?", "Thanks."]


async def foreign(stage: Stage) -> None:
    """A conversation that another model has begun: its proofs and its thoughts' seals do not go out."""
    other = "anthropic" if stage.row.protocol != "anthropic" else "gemini"
    proof = f"{other}:c2VjcmV0LXByb29m"
    begun = [
        Message.user("Double 1"),
        Message(
            "assistant",
            (Reasoning("Mine.", proof), Text("I count."), ToolCall("x" * 70, "double", '{"n": 1}', signature=proof)),
            "elsewhere:m",
        ),
        Message("tool", (ToolResult("x" * 70, (Text("2"),), "double"),)),
        Message("assistant", (Reasoning("", proof, redacted=True), Text("Two.")), "elsewhere:m"),
    ]
    saved = stage.session.to_saved()
    stage.session.restore(type(saved)(saved.id, tuple(begun), system="Be brief."))
    await stage.say("Double 3, then 4")
    await stage.say("Thanks.")
    assert all("c2VjcmV0LXByb29m" not in json.dumps(heard.body) for heard in stage.provider.heard)
    assert stage.provider.rewritten == []
    assert stage.provider.heard[0].texts("assistant") == ["I count.", "Two."]


async def hazards(stage: Stage) -> None:
    """A history with everything that no provider takes as it is."""
    search = Opaque(
        "anthropic", '{"type": "server_tool_use", "id": "s", "name": "web", "input": {}}', (Text("Sought."),)
    )
    begun = [
        Message("user", (Text("Look."), Image("image/png", b"\x89PNG\r\n\x1a\n"))),
        Message(
            "assistant", (Text("I call."), ToolCall("c1", "double", '{"n": 1}'), BadCall("<x>", "No.", "c2", "double"))
        ),
        Message("tool", (ToolResult("c2", (Text("Bad."),), "double", is_error=True),)),
        Message("tool", (ToolResult("c1", (Text("2"), Image("image/png", b"\x89PNG\r\n\x1a\n")), "double"),)),
        Message("assistant", (ToolCall("c3", "double", '{"n": 2}'), BadCall("<y>", "No name."))),
        Message.user("Without its result."),
        Message("tool", (ToolResult("lost", (Text("An orphan."),), "double"),)),
        Message("assistant", (search, Reasoning("", None), Text("Found."))),
        Message.system("A rule in the middle."),
        Message("assistant", ()),
        Message("assistant", (Text(" \n"),)),
        Message("user", (Document("a.pdf", "application/pdf", b"%PDF-1.4"),)),
        Message("assistant", (ToolCall("c1", "double", '{"n": 3}'),)),
        Message("tool", (ToolResult("c1", (), "double"),)),
        Message("assistant", (ToolCall("c1", "double", "{}"), ToolCall("c1", "double", "{}"))),
        Message("tool", (ToolResult("c1", (Text("twice"),), "double"),)),
    ]  # fmt: skip
    saved = stage.session.to_saved()
    stage.session.restore(type(saved)(saved.id, tuple(begun), system="Be brief."))
    await stage.say("Hello again.")
    await stage.say("Double 1")
    assert stage.provider.faults == []
    assert stage.provider.rewritten == []
    texts = json.dumps(stage.provider.heard[0].body)
    for word in ("I call.", "An orphan.", "Found.", "A rule in the middle.", "Hello again."):
        assert word in texts, word
    stage.session.clear()  # its history is none that a session writes


CONVERSATIONS: dict[str, tuple[Callable[[Stage], Awaitable[None]], int | None]] = {
    "plain": (plain, None),
    "tool loops": (tool_loops, None),
    "stopped": (stopped, None),
    "undone": (undone, None),
    "saved": (saved, None),
    "long": (long, WINDOW),
    "broken": (broken, None),
    "empty": (empty, None),
    "continued": (continued, None),
    "foreign": (foreign, None),
    "hazards": (hazards, None),
}


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_every_conversation_over_every_provider(name: str, tmp_path: Path) -> None:
    conversation, n_ctx = CONVERSATIONS[name]
    for row in SOME:
        with named(row):
            async with staged(row, counting, tmp_path / row.name.replace(", ", "-"), n_ctx) as stage:
                await conversation(stage)
                stage.check()


@pytest.mark.parametrize("protocol", FIRST)
async def test_the_scripted_provider_refuses_what_the_real_ones_refuse(protocol: Protocol, tmp_path: Path) -> None:
    async with staged(FIRST[protocol], counting, tmp_path) as stage:
        await stage.say("Double 1 2")
        provider, body = stage.provider, stage.provider.heard[-1].body
        key = {"openai.responses": "input", "gemini": "contents"}.get(protocol, "messages")
        path = stage.provider.requests[-1].path
        assert provider._answer_to(path, body).status == 200
        parts, calls = body[key], re.compile('"(tool_calls|function_?[cC]all|tool_use)"')
        wrong: dict[str, list[Any]] = {
            "a result is lost": parts[:-1],
            "a call is lost": [each for each in parts if not calls.search(json.dumps(each))],
            "it ends with an answer": parts[:-1] if protocol != "openai.responses" else parts[:-2],
        }
        if stage.has_proofs:
            (proof,) = stage.provider.heard[-1].proofs
            wrong["a proof has changed"] = json.loads(json.dumps(parts).replace(proof, proof[:-2] + "A="))
        if protocol in ("anthropic", "openai.responses"):
            wrong["a thought has changed"] = json.loads(json.dumps(parts).replace("First", "Second"))
        if protocol in ("openai.chat", "ollama", "openai.responses"):
            wrong["a part is empty"] = [*parts, {"type": "message", "role": "user", "content": ""}]
        for what, made in wrong.items():
            provider.faults.clear()
            assert provider._answer_to(path, {**body, key: made}).status == 400, what
            assert provider.faults, what
        provider.faults.clear()


async def test_two_conversations_that_begin_alike_leave_each_other_what_has_left(tmp_path: Path) -> None:
    """Over HTTP, clients need not name them."""
    row = FIRST["openai.chat"]
    for names in (("a", "b"), (None, None)):
        async with staged(row, counting, tmp_path, WINDOW) as stage:
            histories: list[list[Message]] = [[], []]
            gone: list[list[int]] = [[], []]
            for n in range(14):
                for at, history in enumerate(histories):
                    history.append(Message.user("Hello." if n == 0 else f"Turn {n} of {at}: " + "word " * 60))
                    request = Request(row.model, tuple(history), session=names[at], on_full="evict")
                    events = [event async for event in stage.backends[0].stream(request)]
                    history.append(fold(events).message)
                    gone[at] += [index for each in events if isinstance(each, Evicted) for index in each.gone]
            assert stage.provider.faults == []
            assert all(len(each) > 8 for each in gone)
            assert [len(each) for each in gone] == [len(set(each)) for each in gone], names


class InTurn:
    """A back end that asks several in turn: what a fallback does at its worst."""

    def __init__(self, backends: Sequence[CloudBackend]) -> None:
        self._backends = itertools.cycle(backends)

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        return next(self._backends).stream(replace(request, reasoning="high"))


@pytest.mark.parametrize("protocol", FIRST)
async def test_two_providers_may_share_one_tool_loop(protocol: Protocol, tmp_path: Path) -> None:
    """Every answer is the other one's: each gets calls and results of both, and its own seals."""
    for other, row in FIRST.items():
        if other == protocol:
            continue
        async with (
            staged(FIRST[protocol], counting, tmp_path) as stage,
            staged(row, counting, tmp_path) as beside,
        ):
            stage.provider.name, beside.provider.name = "a", "b"
            stage.session.move(
                InTurn([stage.backends[0], beside.backends[0]]), model="m", n_ctx=8_192, toolbox=stage.toolbox
            )
            assert await stage.say("Double 1 2, then 3, then 4") == "I count.I count.I count.Done, 4 results."
            await stage.say("Thanks.")
            await stage.say("Double 5, then 6")
            stage.check()
            beside.check()
            for each in (stage, beside):
                for at, heard in enumerate(each.provider.heard):
                    own = [proof for proof in heard.proofs if proof != SENTINEL]
                    assert own == (list(each.provider.issued)[:at] if each.has_proofs else []), (protocol, other)
                assert each.provider.rewritten == []
