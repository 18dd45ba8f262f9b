"""Conversations whose engine dies under them: each request is sent until it is answered, and the answers are noted.

Talker ─ questions, some with images ─▶ Stage.answered ─▶ the server       ─▶ Acknowledged ─ check ─▶ its memory
                                          └─ again ◀─ failed, as it may (`Deaths`), or not ─▶ Findings
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import httpx2 as httpx
from bench.soak.checks import Colds, Findings, Kind, shown, stored
from bench.soak.surfaces import TALKING, Answer, Ask, Failed, Hang, Malformed, Turn, ask
from bench.soak.traffic import SYSTEMS, WORDS
from tests.unit.engine.tiny_projector import png

USERS = ("ann", "bob", "cem", "dee")
KEEPS, RECALLS = "chaos-keeps", "chaos-recalls"
"""Models by route: with a memory, and with one that quotes."""
PICTURES = 0.4
"""Share of the questions that have an image."""
DEADLY = 2
"""A request that has failed so often may be refused, since the child seems to die of it."""
MARKED = re.compile(r"\b\d+-\d+\?")
"""What a question has in it, and no other."""


@dataclass(slots=True)
class Deaths:
    """When the child was killed, and when it answered again; `time.monotonic`."""

    begun_s: list[float] = field(default_factory=list)
    recovered_s: list[float] = field(default_factory=list)
    """A number less, as long as it has not answered."""
    is_well: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        if len(self.recovered_s) < len(self.begun_s):  # it dies once more before it has answered
            self.recovered_s.append(time.monotonic())
        self.begun_s.append(time.monotonic())
        self.is_well.clear()

    def answered(self, began_s: float) -> None:
        """A request that was sent then has been answered."""
        if not self.begun_s or began_s >= self.begun_s[-1]:
            if len(self.recovered_s) < len(self.begun_s):
                self.recovered_s.append(time.monotonic())
            self.is_well.set()

    @property
    def last_s(self) -> float:
        """When it was killed last."""
        return self.begun_s[-1] if self.begun_s else 0.0

    def explain(self, began_s: float, ended_s: float) -> bool:
        """Whether a request may have failed within these moments: the child was killed, or not back yet."""
        ends = [*self.recovered_s, ended_s][: len(self.begun_s)]
        return any(death_s <= ended_s and began_s <= back_s
                   for death_s, back_s in zip(self.begun_s, ends, strict=True))  # fmt: skip

    def lasted_s(self) -> list[float]:
        return [back - begun for begun, back in zip(self.begun_s, self.recovered_s, strict=False)]


@dataclass(slots=True)
class Acknowledged:
    """What the users' memories have to hold, once each."""

    questions: dict[str, dict[str, str]] = field(default_factory=dict)
    """By user and mark: the answer."""
    n_failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Attempts that failed before the answer came; each may have left the beginning of that answer."""

    def add(self, user: str, question: str, answer: str) -> None:
        self.questions.setdefault(user, {})[mark_of(question)] = stored(answer)

    def fail(self, user: str, question: str) -> None:
        self.n_failed[user, mark_of(question)] += 1

    def check(self, user: str, found: Sequence[tuple[str, str]], findings: Findings) -> dict[str, int]:
        """Compare with what is found in the memory: roles and texts."""
        said = self.questions.get(user, {})
        asked = Counter(mark for role, text in found if role == "user" for mark in MARKED.findall(text))
        answers = Counter(text.strip() for role, text in found if role == "assistant")
        wanted = Counter(answer for answer in said.values() if answer)
        for mark in said:
            if not asked[mark]:
                findings.add("lost", f"{user}'s question {mark} is not in the memory")
            elif asked[mark] > 1:
                findings.add("doubled", f"{user}'s question {mark} is {asked[mark]} times in the memory")
        for answer, n in wanted.items():
            if answers[answer] < n:
                findings.add("lost", f"of {n} answers {answer!r} to {user} {answers[answer]} are in the memory")
            begun = sum(self.n_failed[user, mark] for mark, other in said.items() if other.startswith(answer))
            if answers[answer] > n + begun:
                findings.add("doubled", f"the answer {answer!r} to {user} was given {n} times, and is there "
                             f"{answers[answer]} times")  # fmt: skip
        return {"questions": len(said), "answers": wanted.total(), "stored": len(found)}


def mark_of(question: str) -> str:
    mark: str = MARKED.findall(question)[-1]
    return mark


class Stage:
    """What the conversations share."""

    def __init__(
        self, client: httpx.AsyncClient, colds: Colds, findings: Findings, *, seed: int, patience_s: float
    ) -> None:
        """`patience_s`: a request without progress for so long hangs, and so does a child that is not back by then."""
        self.client, self.colds, self.findings = client, colds, findings
        self.seed, self.patience_s = seed, patience_s
        self.deaths = Deaths()
        self.said = Acknowledged()
        self.counts: Counter[str] = Counter()
        self.sentences: Counter[str] = Counter()
        """How failures of a killed child are told to clients, without numbers."""
        self.latest: list[Ask] = []
        """The requests of each last conversation."""
        self.done = asyncio.Event()
        self.shows = asyncio.Event()
        """Set when a request with a new image goes out."""

    async def answered(self, asked: Ask, rnd: random.Random) -> Answer | None:
        """The answer, for which the request may be sent several times; None where there is none."""
        first_s, n_failed = time.monotonic(), 0
        while time.monotonic() < max(first_s, self.deaths.last_s) + self.patience_s:
            began_s = time.monotonic()
            if asked.turns[-1].picture:
                self.shows.set()
            try:
                answer = await ask(self.client, asked, self.patience_s)
            except Hang as error:
                self.findings.add("hang", str(error), asked=shown(asked))
                self.done.set()
                return None
            except Failed as error:
                self._failed(asked, began_s, str(error))
            except (Malformed, httpx.HTTPError) as error:
                self._failed(asked, began_s, repr(error), "broken")
            else:
                if answer.status == 200:
                    return self._note(asked, answer, began_s)
                told = f"{answer.status}: {answer.error[:400]}"
                if answer.status in {429, 503}:
                    self._failed(asked, began_s, told)
                elif n_failed >= DEADLY:
                    self.counts[f"refused as deadly: {told}"] += 1
                    return None
                else:
                    self._failed(asked, began_s, told, "refused")
                    return None
            n_failed += 1
            await asyncio.sleep(rnd.uniform(0.05, 0.3))
        self.findings.add("hang", f"no answer within {self.patience_s:g} s", asked=shown(asked))
        self.done.set()
        return None

    def _note(self, asked: Ask, answer: Answer, began_s: float) -> Answer:
        self.counts["answered"] += 1
        self.counts["answered about an image"] += any(turn.picture for turn in asked.turns)
        self.deaths.answered(began_s)
        if asked.user and asked.model in {KEEPS, RECALLS}:
            self.said.add(asked.user, asked.question, answer.text)
        self.colds.offer(asked, answer)
        return answer

    def _failed(self, asked: Ask, began_s: float, what: str, kind: Kind | None = None) -> None:
        """`kind`: what is wrong with it in any case; None = a child that dies explains it."""
        self.counts["failed"] += 1
        if asked.user:
            self.said.fail(asked.user, asked.question)
        self.sentences[re.sub(r"\d+", "N", what)[:300]] += 1
        if kind is not None:
            self.findings.add(kind, what, asked=shown(asked))
        elif not self.deaths.explain(began_s, time.monotonic()):
            self.findings.add("refused", f"though the child was well: {what}", asked=shown(asked))


class Talker:
    """Has one conversation after the other."""

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage, self._number = stage, number
        self._rnd = random.Random(f"talker {number} {stage.seed}")
        self._serial = 0
        self.latest: list[Ask] = []
        """The requests of its last conversation."""

    async def run(self) -> None:
        """Talk until the stage is done; the conversation that has begun is ended."""
        while not self.stage.done.is_set():
            await self._converse()

    async def _converse(self) -> None:
        rnd = self._rnd
        user = USERS[self._number % len(USERS)]
        base = Ask(
            rnd.choice(TALKING), rnd.choice((KEEPS, KEEPS, RECALLS)), (), system=rnd.choice(SYSTEMS),
            max_tokens=rnd.randint(4, 48), stream=rnd.random() < 0.7, user=user,
        )  # fmt: skip
        self.latest = []
        turns: tuple[Turn, ...] = ()
        for _ in range(rnd.randint(2, 5)):
            asked = replace(base, turns=(*turns, self._question()))
            answer = await self.stage.answered(asked, rnd)
            if answer is None:
                return
            self.latest.append(asked)
            if not answer.text:
                return
            turns = (*asked.turns, Turn("assistant", answer.text))
            await asyncio.sleep(rnd.choice((0.0, 0.05, 0.2)))

    def _question(self) -> Turn:
        self._serial += 1
        words = " ".join(self._rnd.choices(WORDS, k=self._rnd.randint(3, 25)))
        picture = png(self._rnd.randrange(10**6)) if self._rnd.random() < PICTURES else b""
        return Turn("user", f"{words} {self._number}-{self._serial}?", picture)
