"""A hundred facts in a conversation of a hundred context lengths: how many can be asked for afterwards?

    uv run python -m bench.memory.endless [--n-ctx 1024] [--facts 100] [--quick]

The embedded model, sampling off. A user tells facts, one per context length, among small talk, stories and other facts,
and then asks for each. Ways to live with a context that is a hundredth of the conversation:

* memory: recall and the tools `search_memory`, `get_fact`, `set_fact`, as `shepherd` has them
* recall: the same without tools
* off: evicts, remembers nothing
* oracle: off, but each question comes with a quotation of the right message: what the tiny model could do at best
* llama-server: `--context-shift`; a prompt that does not fit is refused, then its client drops the older half

An answer is right when it holds the fact's value. What is remembered is asked for once more, each time in a
conversation of its own (*anew*): then nothing is in the context but what was recalled, and the tiny model cannot mix it
up with the hundred other names that it has just been asked for. *Found* counts the questions for which the memory has
the message among its first five hits, however the model uses it. The names and values are new to the model. The
small talk, the stories and the other facts around them come from the generator that it was trained with: they are full
of the same everyday nouns, which is what a search must not fall for.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.rig import machine
from bench.rig.machine import EMBEDDED
from bench.rig.sides import Server, Setup, running
from bench.rig.verdict import WIDTH
from rich.console import Console
from rich.progress import track
from rich.table import Table
from training.draw import Draw
from training.fact import facts as told_facts
from training.fact import statement as told_statement
from training.small_talk import listing, remark, story

from shepherd import config as configuration
from shepherd.agent.turn import CallReturned
from shepherd.app.app import App
from shepherd.core import CallEnded, TextDelta
from shepherd.memory.recall.recall import CLOSING, OPENING
from shepherd.memory.users import LOCAL

SEED = 20_261_121
ANSWER_TOKENS = 24
WAYS = ("recall", "memory", "oracle", "off", "llama-server")
LETTERS = "ABCDEFGHJKLMNPQRST"
REMEMBERING = ("recall", "memory")
FIRST = (
    "Ber",
    "Mar",
    "Tol",
    "Vin",
    "Zel",
    "Kor",
    "Dal",
    "Fen",
    "Gar",
    "Hul",
    "Jos",
    "Lem",
    "Nor",
    "Pel",
    "Quin",
    "Ros",
)
LAST = ("tram", "nika", "sen", "ric", "ya", "do", "lis")
FACTS = (
    (
        "My {thing} is called {value}.",
        "What is my {thing} called?",
        "dog,cat,hamster,parrot,horse,goldfish,rabbit,tortoise,brother,sister,aunt,uncle,cousin,neighbour,teacher,"
        "doctor,dentist,boss,landlord,flatmate,lawyer,gardener,nephew,niece,grandmother,grandfather,hairdresser,plumber",
    ),
    (
        "My favourite {thing} is {value}.",
        "What is my favourite {thing}?",
        "colour,food,fruit,drink,animal,city,country,book,film,song,sport,season,flower,game,tree,tea,cake,bird,month",
    ),
    (
        "The code of the {thing} is {value}.",
        "What is the code of the {thing}?",
        "garage,locker,office,cabin,safe,shed,bicycle,wifi,alarm,suitcase,laptop,phone,mailbox,basement,archive,boat",
    ),
    (
        "The owner of the {thing} is {value}.",
        "Who is the owner of the {thing}?",
        "bakery,bridge,castle,cinema,farm,ferry,forest,harbour,hotel,island,kiosk,library,market,mill,museum,orchard,"
        "pharmacy,pub,quarry,restaurant,school,stadium,station,theatre,tower,tunnel,vineyard,windmill,yacht,zoo",
    ),
    (
        "My {thing} lives in {value}.",
        "Where does my {thing} live?",
        "mother,father,daughter,son,godmother,penfriend,tutor",
    ),
)
"""A statement, its question, and what they are about."""


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the user; `fact` numbers what it tells or asks."""

    text: str
    fact: int = -1


@dataclass(frozen=True, slots=True)
class Script:
    """The user's messages: first the conversation, then the questions."""

    lines: list[Line]
    questions: list[Line]
    values: list[str]


@dataclass(slots=True)
class Outcome:
    """What came of one way."""

    right: int = 0
    anew: int | None = None
    """The same, each asked in a conversation of its own; None = this way remembers nothing."""
    found: int | None = None
    """None = this way has no memory to ask."""
    searched: int = 0
    """Questions for which the model called a tool."""
    seconds: float = 0.0
    wrong: list[dict[str, str]] = field(default_factory=list)


class Speaker(Protocol):
    """A side that answers."""

    async def say(self, text: str) -> tuple[str, bool]:
        """The answer, and whether a tool was called for it."""
        ...


def facts(rnd: random.Random, n: int) -> list[tuple[str, str, str]]:
    """Statements, the questions that they answer, and the values in them; each about something else."""
    names = [first + last for first in FIRST for last in LAST]
    rnd.shuffle(names)
    told = []
    for template, question, things in FACTS:
        for thing in things.split(","):
            code = f"{rnd.choice(LETTERS)}{rnd.choice(LETTERS)}-{rnd.randint(100, 999)}"
            value = code if "code" in template else names.pop()
            told.append((template.format(thing=thing, value=value), question.format(thing=thing), value))
    rnd.shuffle(told)
    return told[:n]


def write(n_facts: int, n_tokens: int, count: Callable[[str], int]) -> Script:
    """A conversation of at least `n_tokens`, as `count` counts, with the facts evenly spread over it."""
    draw = Draw(SEED)
    asked, others = facts(random.Random(SEED), n_facts), told_facts(draw, 3 * n_facts)
    lines: list[Line] = []
    said = 0
    for number, (statement, _, _) in enumerate(asked):
        lines.append(Line(statement, number))
        while said < n_tokens * (number + 1) // n_facts:
            kind = draw.random.random()
            if kind < 0.6:
                text = draw.of(story, listing)(draw)
            elif kind < 0.9 or not others:
                text = remark(draw)[0]
            else:
                text = told_statement(draw, others.pop())
            size = count(text)
            if size > n_tokens // n_facts // 4:
                continue  # a message must fit beside the tools
            lines.append(Line(text))
            said += size + 20  # the answer, and the marks around both
    questions = [Line(question, number) for number, (_, question, _) in enumerate(asked)]
    return Script(lines, questions, [value for _, _, value in asked])


class Ours:
    """A session of Shepherd."""

    def __init__(self, app: App, way: str) -> None:
        self.app = app
        self._user = LOCAL if way in REMEMBERING else None
        self._has_tools = way == "memory"
        self.begin()

    def begin(self) -> None:
        """A new conversation."""
        self.session = self.app.conversations.session(user=self._user, recall=True, tools=self._has_tools)

    async def say(self, text: str) -> tuple[str, bool]:
        answer, called = "", False
        async for event in self.session.chat(text):
            match event:
                case TextDelta(text=piece):
                    answer += piece
                case CallEnded() | CallReturned():
                    answer, called = "", True
                case _:
                    pass
        return answer, called

    def find(self, question: str, statement: str) -> bool:
        """Whether the memory has the statement among its first five hits for the question."""
        store = self.app.memory(LOCAL)
        assert store is not None
        return any(
            statement in hit.user_message
            for hit in store.search(question, 5, without=store.newest_turn(self.session.id))
        )


class Theirs:
    """A client of llama-server that drops the older half of its history when it is refused."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._messages: list[dict[str, str]] = []

    async def say(self, text: str) -> tuple[str, bool]:
        self._messages.append({"role": "user", "content": text})
        while True:
            body = {"messages": self._messages, "max_tokens": ANSWER_TOKENS, "temperature": 0, "cache_prompt": True}
            try:
                reply = await asyncio.to_thread(self._server.post, "/v1/chat/completions", body)
                break
            except RuntimeError:
                if len(self._messages) < 3:
                    raise
                self._messages = self._messages[len(self._messages) // 4 * 2 :]
        answer = reply["choices"][0]["message"]["content"] or ""
        self._messages.append({"role": "assistant", "content": answer})
        return answer, False


async def play(speaker: Speaker, script: Script, console: Console, way: str) -> Outcome:
    """Tell everything, then ask."""
    outcome = Outcome()
    told: dict[int, str] = {}
    began = time.monotonic()
    for line in track(script.lines, description=f"{way}: telling", console=console, transient=True):
        await speaker.say(line.text)
        if line.fact >= 0:
            told[line.fact] = line.text
    if way in REMEMBERING:
        outcome.found = 0

    def asked(line: Line) -> str:
        if way != "oracle":
            return line.text
        return f'{OPENING}\n- 2026-11-21 user: "{told[line.fact]}"\n{CLOSING}\n\n{line.text}'

    for line in track(script.questions, description=f"{way}: asking", console=console, transient=True):
        answer, called = await speaker.say(asked(line))
        outcome.searched += called
        if isinstance(speaker, Ours) and outcome.found is not None:
            outcome.found += speaker.find(line.text, told[line.fact])
        if script.values[line.fact].casefold() in answer.casefold():
            outcome.right += 1
        else:
            outcome.wrong.append({"told": told[line.fact], "asked": line.text, "answered": answer})
    outcome.seconds = time.monotonic() - began
    if isinstance(speaker, Ours) and way != "off":
        outcome.anew = 0
        for line in track(script.questions, description=f"{way}: asking anew", console=console, transient=True):
            speaker.begin()
            answer, _ = await speaker.say(asked(line))
            outcome.anew += script.values[line.fact].casefold() in answer.casefold()
    return outcome


@asynccontextmanager
async def ours(way: str, n_ctx: int) -> AsyncIterator[Ours]:
    """A session over the embedded model, with an empty memory."""
    with tempfile.TemporaryDirectory(prefix="shepherd-bench-") as folder:
        tools = ["search_memory", "get_fact", "set_fact"] if way == "memory" else []
        said = {"model": "embedded", "threads": 1, "context_size": n_ctx, "max_tokens": 2 * ANSWER_TOKENS}
        env = {"RAG_DB_PATH": f"{folder}/memory.db"}
        place = Path(folder)
        config = configuration.load(
            flags={**said, "enable_tools": tools}, env=env, cwd=place, user_dir=place, read_files=False
        )
        app = App(config, cache_folder=None)
        await app.load()
        try:
            yield Ours(app, way)
        finally:
            await app.aclose()


async def measure(n_ctx: int, n_facts: int, console: Console, ways: list[str]) -> dict[str, Any]:
    async with ours("off", n_ctx) as speaker:
        count = speaker.app.dispatcher.backends()[speaker.app.conversations.active.cache].count_tokens
        script = write(n_facts, n_facts * n_ctx, count)
    outcomes: dict[str, Outcome] = {}
    for way in ways:
        if way == "llama-server":
            with running("llama-server", Setup(EMBEDDED, n_ctx, evict=True)) as server:
                outcomes[way] = await play(Theirs(server), script, console, way)
        else:
            async with ours(way, n_ctx) as speaker:
                outcomes[way] = await play(speaker, script, console, way)
        told = outcomes[way]
        console.print(
            f"{way}: {told.right}/{n_facts} right, anew {told.anew}, found {told.found}, {told.seconds:.0f} s"
        )
    rows = {
        way: {
            "right": round(told.right / n_facts, 4),
            "anew": None if told.anew is None else round(told.anew / n_facts, 4),
            "found": None if told.found is None else round(told.found / n_facts, 4),
            "searched": told.searched,
            "seconds": round(told.seconds, 1),
            "wrong": told.wrong,
        }
        for way, told in outcomes.items()
    }
    return {"n_ctx": n_ctx, "facts": n_facts, "messages": len(script.lines), "context_lengths": n_facts, "ways": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-ctx", type=int, default=1024)
    parser.add_argument("--facts", type=int, default=100, help="and context lengths")
    parser.add_argument("--way", choices=WAYS, action="append", help="only this one (default: all)")
    parser.add_argument("--quick", action="store_true", help="ten facts: shows that it works, no more")
    said = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    n_facts = 10 if said.quick else said.facts
    result = asyncio.run(measure(said.n_ctx, n_facts, console, said.way or list(WAYS)))
    table = Table("way", "right", "asked anew", "found in the memory", "tool called", "seconds")
    for way, row in result["ways"].items():
        anew, found = ("" if row[name] is None else f"{row[name]:.0%}" for name in ("anew", "found"))
        table.add_row(way, f"{row['right']:.0%}", anew, found, str(row["searched"]), str(row["seconds"]))
    console.print(table)
    path = machine.save(
        f"endless-{said.n_ctx}", {"bench": "endless", "model": "embedded", "threads": 1, **result}, quick=said.quick
    )
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
