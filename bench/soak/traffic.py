"""What the clients of a soak do: seeded scenes of conversations, one after the other, over every surface.

    Client ─ picks a scene ─▶ asks, one or several ─▶ Stage.ask ─▶ checks
             from its own random numbers                (pace, hangs, shapes, what is expected)

Every client draws from numbers of its own, so what it sends depends on the seed alone, but for the answers that it
quotes. `Stage` is what all clients share.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2 as httpx
from bench.soak.checks import Colds, Findings, Said, shown
from bench.soak.server import KEPT, KEPT_EVICT, N_CTX, OWNER, PLAIN, PLAIN_EVICT, SEES, SIDE
from bench.soak.surfaces import SURFACES, TALKING, Answer, Ask, Hang, Json, Malformed, Surface, Turn, ask
from tests.unit.engine.tiny_projector import png

WORDS = """
time year people way day man thing woman life child world school state family student group country problem
hand part place case week company system program question work government number night point home water room
mother area money story fact month lot right study book eye job word business issue side kind head house
service friend father power hour game line end member law car city community name president team minute idea
body information back parent face others level office door health person art war history party result change
morning reason research girl guy moment air teacher force education sheep lamb meadow shepherd river wool
fence barn dog
""".split()  # noqa: SIM905 - a list has a line for each
SYSTEMS = ("", "", "You are a helpful assistant.", "You look after sheep and answer in few words.")
DOCUMENTS = 4
"""Texts that many conversations begin with; each is up to 120 words."""
LENGTHS = ((4, 16), (4, 16), (30, 80), (120, 200))
"""Words of a user's message, short ones more often."""
LONG = (200, 360)
PICTURES = 6
"""Images that come again and again."""
FORGETFUL = "dee"
"""The user whose memory is emptied now and then."""
USERS = (OWNER, "ann", "ann", "bob", FORGETFUL)
"""Who talks to the server; two clients share one. The first may talk much, so that his file reaches its limit."""

LULL_S = (2.0, 6.0)
SIDE_PATIENCE = 4
"""So many times as long a side task may wait: for all others, which is until the next lull."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find_sheep",
            "description": "Find a sheep by its name",
            "parameters": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": 12}, "near": {"type": "boolean"}},
                "required": ["near"],
                "additionalProperties": False,
            },
        },
    }
]
FORM = {
    "type": "json_schema",
    "json_schema": {
        "name": "place",
        "schema": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}, "warm": {"type": "boolean"}},
            "required": ["city", "warm"],
            "additionalProperties": False,
        },
    },
}


LOOKED_AT = (
    "/v1/models", "/health", "/metrics", "/v1/caches", "/tokenize", "/v1/messages/count_tokens", "/v1/embeddings",
    "/v1/memory/search", "/v1/memory/stats", "/v1/memory/conversations", "/v1/memory/forget",
)  # fmt: skip
"""Paths that generate nothing."""


class Stop(Exception):
    """The soak ends now: something hangs or has crashed, and later results would mean nothing."""


@dataclass(slots=True)
class Minute:
    """Latencies of one minute."""

    first_s: list[float] = field(default_factory=list)
    total_s: list[float] = field(default_factory=list)


class Stage:
    """What all clients share: the server, the pace, and what is noted of every answer."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        findings: Findings,
        colds: Colds | None,
        said: Said,
        *,
        seed: int,
        patience_s: float,
        per_second: float,
        shared: bool = True,
        pictures: bool = True,
        memory: bool = True,
        surfaces: Sequence[Surface] = SURFACES,
        limit: int | None = None,
        lull_every: int = 150,
        lull_s: tuple[float, float] = LULL_S,
        at_rest: Callable[[], Awaitable[None]],
        is_there: Callable[[], bool] = lambda: True,
    ) -> None:
        """`lull_every`: requests between two lulls, in each of which `at_rest` is called; `is_there`: the server is."""
        self.client = client
        self.findings = findings
        self.said = said
        self.shared = shared
        self.pictures = pictures
        self.memory = memory
        self.surfaces = surfaces
        self._rnd = random.Random(f"stage {seed}")
        self.documents = [self._rnd.choices(WORDS, k=120) for _ in range(DOCUMENTS)]
        self.counts: Counter[str] = Counter()
        """Of answers, by what came of them; of surfaces and scenes."""
        self.minutes: dict[int, Minute] = {}
        self.n_asked = 0
        self._n_open = 0
        """Requests on their way."""
        self._quiet, self._tired = asyncio.Event(), asyncio.Event()
        """None is; it is time for a lull."""
        self._quiet.set()
        self.tokens: Counter[str] = Counter()
        self.awake = asyncio.Event()
        """Cleared for a lull, in which the server has nothing to do."""
        self.awake.set()
        self._colds = colds
        self._lull_every, self._lull_s = lull_every, lull_s
        self._at_rest = at_rest
        self._is_there = is_there
        self._patience_s = patience_s
        self._gap_s = 1 / per_second
        self._next_s = 0.0
        self._begun_s = time.monotonic()
        self._limit = limit
        self.done = asyncio.Event()

    async def lulls(self) -> None:
        """Keep all clients silent now and then, until cancelled: the server then does what it does when it is idle."""
        while True:
            await self._tired.wait()
            self.awake.clear()
            try:
                await self._quiet.wait()
                await asyncio.sleep(self._rnd.uniform(*self._lull_s))
                await self._at_rest()
            finally:
                self.counts["lulls"] += 1
                self._tired.clear()
                self.awake.set()

    async def pace(self) -> None:
        """Wait until another request may be sent. Raises: `CancelledError` after the last one."""
        await self.awake.wait()
        self.n_asked += 1
        if self.n_asked % self._lull_every == 0:
            self._tired.set()
        if self._limit is not None and self.n_asked > self._limit:
            self.done.set()
            raise asyncio.CancelledError
        now_s = time.monotonic()
        self._next_s = max(self._next_s + self._gap_s, now_s)
        await asyncio.sleep(self._next_s - now_s)

    async def ask(self, asked: Ask) -> Answer | None:
        """Send a request; `None` when it was refused as it may be. Raises: `Stop` at a hang."""
        await self.pace()
        self.counts[f"surface {asked.surface}"] += 1
        self._open(1)
        try:
            answer = await ask(self.client, asked, self._patience_s * (SIDE_PATIENCE if asked.model == SIDE else 1))
        except Hang as error:
            self.findings.add("hang", str(error), asked=shown(asked), after=self.n_asked)
            raise Stop from error
        except (Malformed, httpx.HTTPError) as error:
            self._broken(repr(error), asked=shown(asked))
            return None
        finally:
            self._open(-1)
        self._note(asked, answer)
        return answer if answer.status == 200 else None

    def _open(self, n: int) -> None:
        self._n_open += n
        if self._n_open:
            self._quiet.clear()
        else:
            self._quiet.set()

    def _broken(self, what: str, **more: Any) -> None:
        self.findings.add("broken", what, **more)
        if not self._is_there():
            raise Stop("the server has ended")

    def _note(self, asked: Ask, answer: Answer) -> None:
        minute = self.minutes.setdefault(int((time.monotonic() - self._begun_s) // 60), Minute())
        if answer.left:
            self.counts["left"] += 1
        elif answer.status == 200:
            self.counts["answered"] += 1
            self.counts["evicted"] += answer.evicted
            minute.total_s.append(answer.total_s)
            if answer.first_s is not None:
                minute.first_s.append(answer.first_s)
            if asked.surface not in ("ollama", "generate"):  # which do not say what was cached
                self.tokens["prompt"] += answer.n_prompt
                self.tokens["cached"] += answer.n_cached
            if asked.user and self.memory:
                self.said.acknowledge(asked, answer)
            if self._colds is not None:
                self._colds.offer(asked, answer)
        elif answer.is_full:
            self.counts["refused as too long"] += 1
            if may_not_be_full(asked):
                self.findings.add("refused", f"as too long: {answer.error[:300]}", asked=shown(asked))
        elif answer.status == 429:
            self.counts["refused as too many"] += 1
        else:
            self.findings.add("refused", f"{answer.status}: {answer.error[:500]}", asked=shown(asked))

    async def look(self, method: str, path: str, **options: Any) -> Any:
        """A request that generates nothing: its JSON, or its text. Raises: `Stop` at a hang."""
        await self.pace()
        self.counts[f"surface {path if path in LOOKED_AT else path.rpartition('/')[0]}"] += 1
        try:
            response = await asyncio.wait_for(self.client.request(method, path, **options), self._patience_s)
        except TimeoutError as error:
            self.findings.add("hang", f"{method} {path}", after=self.n_asked)
            raise Stop from error
        except httpx.HTTPError as error:
            self._broken(f"{method} {path}: {error!r}")
            return None
        if response.status_code != 200:
            self.findings.add("refused", f"{method} {path}: {response.status_code} {response.text[:300]}")
            return None
        return response.json() if "json" in response.headers.get("content-type", "") else response.text


def may_not_be_full(asked: Ask) -> bool:
    """Whether a refusal as too long must be wrong: these words cannot fill the context, or old turns may leave.

    The newest turn alone must fit in any case. A word of ours has three tokens at most; questions about images, whose
    model has a token for each letter, are short.
    """
    turns = asked.turns[-1:] if asked.model in (PLAIN_EVICT, KEPT_EVICT) and asked.surface in TALKING else asked.turns
    n_words = len(asked.system.split()) + sum(len(turn.text.split()) + 8 for turn in turns)
    return 3 * n_words + 400 < N_CTX


class Client:
    """One of those that talk to the server."""

    def __init__(self, stage: Stage, number: int, seed: int) -> None:
        self.rnd = random.Random(f"{seed}-{number}")
        self.stage = stage
        self.number = number
        self.user = USERS[number % len(USERS)] if stage.memory else None
        self._serial = 0
        self._scenes: list[tuple[int, str, Callable[[], Awaitable[None]]]] = [
            (6, "talk", self.talk),
            (4 if stage.shared else 0, "template", self.template),
            (4, "overflow", self.overflow),
            (2, "burst", self.burst),
            (2, "side", self.side),
            (3 if stage.pictures else 0, "pictures", self.pictures),
            (3, "forms", self.forms),
            (2, "continue", self.go_on),
            (2, "look", self.look),
            (1 if self.user == FORGETFUL else 0, "forget", self.forget),
        ]

    async def run(self) -> None:
        """Play scenes until cancelled."""
        weights = [weight for weight, _, _ in self._scenes]
        while True:
            _, name, scene = self.rnd.choices(self._scenes, weights)[0]
            self.stage.counts[f"scene {name}"] += 1
            await scene()
            await asyncio.sleep(self.rnd.choice((0.0, 0.1, 0.5, 2.0)))

    # messages

    def words(self, least: int, most: int) -> str:
        """So many of them, at random."""
        return " ".join(self.rnd.choices(WORDS, k=self.rnd.randint(least, most)))

    def marked(self, text: str) -> str:
        """The text, ending in what no other message ends in."""
        self._serial += 1
        return f"{text} {self.number}-{self._serial}?"

    def message(self) -> Turn:
        return Turn("user", self.marked(self.words(*self.rnd.choice(LENGTHS))))

    def talking(self) -> Surface:
        """One of the surfaces that take conversations."""
        chosen: list[Surface] = [each for each in TALKING if each in self.stage.surfaces]
        return self.rnd.choice(chosen or ["chat"])

    def opening(self, model: str, surface: Surface | None = None) -> Ask:
        """A conversation's first request, but for its message."""
        chosen = surface or self.talking()
        user = self.user if model in (KEPT, KEPT_EVICT, SEES) else None
        return Ask(
            chosen, model, (), system=self.rnd.choice(SYSTEMS), max_tokens=self.rnd.randint(4, 32),
            stream=self.rnd.random() < 0.6, user=user, temperature=0.0 if self.rnd.random() < 0.85 else 0.8,
        )  # fmt: skip

    # scenes

    async def talk(self) -> None:
        """A conversation of some turns, with edits, retries and answers that are not waited for."""
        base = self.opening(self.rnd.choice((PLAIN, PLAIN_EVICT, KEPT, KEPT, KEPT_EVICT)))
        await self.converse(base, [self.message() for _ in range(self.rnd.randint(2, 6))], lively=True)

    async def template(self) -> None:
        """Conversations that begin with the same text, whole or in part, in a context that overflows."""
        base = replace(
            self.opening(self.rnd.choice((PLAIN_EVICT, KEPT_EVICT))), system="", max_tokens=4, temperature=0.0
        )
        text = self.rnd.choice(self.stage.documents)

        def first(n_shared: int, n_more: int) -> Turn:
            return Turn("user", self.marked(" ".join([*text[:n_shared], *self.rnd.choices(WORDS, k=n_more)])))

        await self.converse(base, [first(120, 200), Turn("user", self.marked(self.words(340, 360)))])
        await self.converse(base, [first(50, 320)])
        await self.converse(base, [first(120, 40)])
        if self.rnd.random() < 0.5:
            await self.converse(base, [first(self.rnd.randint(20, 120), self.rnd.randint(5, 60)), self.message()])

    async def overflow(self) -> None:
        """Turns until the context is full more than once: the old ones leave, or it is refused."""
        base = self.opening(self.rnd.choice((PLAIN, PLAIN_EVICT, KEPT, KEPT_EVICT)))
        if base.surface in ("responses", "ollama") and self.rnd.random() < 0.3:
            field_ = {"truncation": "auto"} if base.surface == "responses" else {"truncate": True}
            base = replace(base, model=PLAIN_EVICT if base.user is None else KEPT_EVICT, extra=field_)
        turns = [Turn("user", self.marked(self.words(*LONG))) for _ in range(self.rnd.randint(3, 5))]
        await self.converse(base, turns)

    async def burst(self) -> None:
        """More requests at once than the cache has sequences."""
        base = self.opening(PLAIN)
        asks = [replace(base, turns=(self.message(),)) for _ in range(self.rnd.randint(6, 10))]
        async with asyncio.TaskGroup() as tasks:
            for one in asks:
                tasks.create_task(self.stage.ask(one))

    async def pictures(self) -> None:
        """A conversation about images: some are new, some have been sent before, also by others."""
        base = replace(self.opening(SEES), system="")
        turns = []
        for _ in range(self.rnd.randint(1, 4)):
            picture = png(self.rnd.choice((self.rnd.randrange(PICTURES), self.rnd.randrange(10**6))))
            words = self.marked(self.words(*LENGTHS[0]))
            turns.append(Turn("user", words, picture if self.rnd.random() < 0.7 else b""))
        await self.converse(base, turns, lively=True)

    async def side(self) -> None:
        """A title, on the route of side tasks."""
        text = f"### Task:\nGive a title.\n### Output:\nA title.\n### Chat History:\n{self.words(20, 120)}"
        await self.stage.ask(
            replace(self.opening(SIDE, "chat"), turns=(Turn("user", self.marked(text)),), max_tokens=8)
        )

    async def forms(self) -> None:
        """What only one protocol has: tools, a form, several choices, stop strings, scores."""
        extra: Json = self.rnd.choice(
            (
                {"tools": TOOLS, "tool_choice": "required"},
                {"tools": TOOLS},
                {"response_format": FORM},
                {"n": 3},
                {"stop": ["sheep", "."]},
                {"logprobs": True, "top_logprobs": 3},
                {"seed": 7},
                {"frequency_penalty": 0.5},
            )
        )
        base = self.opening(self.rnd.choice((PLAIN, KEPT)), "chat")
        turn = Turn("user", self.marked(self.words(5, 40)))
        await self.stage.ask(replace(base, turns=(turn,), extra=extra, max_tokens=32))

    async def go_on(self) -> None:
        """A text without a conversation."""
        surfaces: list[Surface] = [each for each in SURFACES if each not in TALKING and each in self.stage.surfaces]
        if surfaces:
            base = self.opening(PLAIN, self.rnd.choice(surfaces))
            extra = self.rnd.choice(({}, {}, {"raw": True})) if base.surface == "generate" else {}
            await self.stage.ask(
                replace(base, system="", turns=(Turn("user", self.marked(self.words(5, 80))),), extra=extra)
            )

    async def look(self) -> None:
        """What generates nothing."""
        text = self.words(5, 60)
        headers = {"x-shepherd-user": self.user} if self.user else {}
        paths: list[tuple[str, str, Json]] = [
            ("GET", "/v1/models", {}),
            ("GET", "/health", {}),
            ("GET", "/metrics", {}),
            ("GET", "/v1/caches", {}),
            ("POST", "/tokenize", {"json": {"content": text}}),
            ("POST", "/v1/messages/count_tokens", {
                "json": {"model": PLAIN, "messages": [{"role": "user", "content": text}]}
            }),
            ("POST", "/v1/embeddings", {"json": {"model": "lamb", "input": [text, "A lamb."], "dimensions": 16}}),
        ]  # fmt: skip
        if self.user:
            paths += [
                ("GET", "/v1/memory/search", {"params": {"q": self.words(2, 4), "limit": 3}, "headers": headers}),
                ("GET", "/v1/memory/stats", {"headers": headers}),
                ("GET", "/v1/memory/conversations", {"params": {"limit": 5}, "headers": headers}),
            ]
        for method, path, options in self.rnd.sample(paths, 3):
            await self.stage.look(method, path, **options)

    async def forget(self) -> None:
        """The user has everything forgotten so far; no other client uses this name."""
        assert self.user is not None
        told = await self.stage.look(
            "POST", "/v1/memory/forget", json={"matching": f"{self.number}-"}, headers={"x-shepherd-user": self.user}
        )
        if told is not None:
            self.stage.counts["forgotten messages"] += told["messages"]
            self.stage.said.forget(self.user)

    async def converse(self, base: Ask, questions: Sequence[Turn], *, lively: bool = False) -> None:
        """Ask one after the other; `lively` clients edit, try again and go away in the middle."""
        turns: tuple[Turn, ...] = ()
        kept: list[str] = []
        for question in questions:
            asked = replace(base, turns=(*turns, question), previous=kept[-1] if kept else None)
            mood = self.rnd.random() if lively else 1.0
            if mood < 0.12:
                await self.stage.ask(replace(asked, stream=True, leave_after=self.rnd.randint(0, 3)))
                if self.rnd.random() < 0.5:
                    continue  # it was not worth an answer
            elif mood < 0.2:
                await self.stage.ask(asked)  # and once more, below
            elif mood < 0.3 and turns and not kept:
                at = 2 * self.rnd.randrange(len(turns) // 2)
                edited = replace(turns[at], text=self.marked(turns[at].text.rpartition(" ")[0]))
                turns = (*turns[:at], edited)
                answer = await self.stage.ask(replace(base, turns=turns))
                if answer is None or not answer.text:
                    break
                turns = (*turns, Turn("assistant", answer.text))
                asked = replace(base, turns=(*turns, question))
            answer = await self.stage.ask(asked)
            if answer is None:
                break
            if not answer.text:
                continue
            turns = (*asked.turns, Turn("assistant", answer.text))
            if base.surface == "responses":
                kept.append(answer.id)
            await asyncio.sleep(self.rnd.choice((0.0, 0.0, 0.3, 1.0)))
        for id_ in kept:
            await self.stage.look("DELETE", f"/v1/responses/{id_}")
