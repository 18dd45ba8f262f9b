"""What must hold while a soak runs, and what was found: nothing hangs, nothing is wrong, nothing is lost.

    answers ─ sampled ─▶ queue ─▶ cold server ─▶ same? ─ no ─▶ how near were the two tokens? ─▶ tie | wrong
    answers ─ archived ─▶ `Said` ── at the end ──▶ the files of the memory ─▶ kept | lost

The queue is short and a full one is passed over, so that checking never slows the traffic. Answers are compared only
where both servers had the same prompt, by its tokens: recall and evictions give the warm one another.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import httpx2 as httpx
from bench.soak.server import KEPT_EVICT
from bench.soak.surfaces import Answer, Ask, Hang, Malformed, alone, ask, messages

Kind = Literal[
    "hang", "wrong", "lost", "broken", "refused",
    "doubled", "zombie", "child", "shared memory", "file", "slow health", "gap", "growth",
]  # fmt: skip
"""No progress; another answer than a cold server's; not in the archive; not the protocol's shape; a status that nothing
explains. The second line is of `bench/engine/chaos.py`: in the archive twice, left behind, slow, growing."""

NEAR = 0.05
"""Of two tokens' logarithms of probability: nearer ones may change places. Other batches sum in another order, and the
cells of the KV cache are f16; the tests of the engine (`test_matrix.py`) bound what that does to 0.02
standard deviations of the logits, which are about 2.5 in this model."""
FULL = 0.75
"""Of its limit, a memory that gives up messages is larger: it begins at nine tenths, a little at a time."""
TOP = 20
"""Alternatives that are looked at; the most that the protocol has."""
SPECIAL = re.compile(r"<[^<>]+>")
"""How the tokens that end an answer are written."""
KEPT_FINDINGS = 50
"""Of each kind, written out; further ones are counted."""


@dataclass(slots=True)
class Findings:
    """What is wrong; empty is what is hoped for."""

    counts: Counter[Kind] = field(default_factory=Counter)
    told: list[dict[str, Any]] = field(default_factory=list)

    def add(self, kind: Kind, what: str, **more: Any) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= KEPT_FINDINGS:
            self.told.append({"kind": kind, "what": what, **more})


def shown(asked: Ask) -> dict[str, Any]:
    """A request as it is written into a report; its texts are made up, and may be read by everybody."""
    return {
        "surface": asked.surface,
        "model": asked.model,
        "system": asked.system,
        "turns": [
            [turn.role, turn.text, *([f"{len(turn.picture)} bytes"] * bool(turn.picture))] for turn in asked.turns
        ],
        "max_tokens": asked.max_tokens,
        "temperature": asked.temperature,
        "stream": asked.stream,
        "user": asked.user,
        "extra": dict(asked.extra),
        "previous": asked.previous,
        "leave_after": asked.leave_after,
    }


# -- right or wrong ----------------------------------------------------------------------------------------------------

Outcome = Literal["same", "tie", "wrong", "unjudged"]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer with those that might have been there."""

    text: str
    logprob: float
    top: Mapping[str, float]


HIDDEN = Token("", math.nan, {})
"""In place of tokens that the protocol does not show: the markup of a call that was cut off."""


def compare(warm: str, cold: str, tokens: Sequence[Token], near: float = NEAR) -> tuple[Outcome, float]:
    """Whether two answers are the same, or part where two tokens were about equally likely, and how far apart those
    were, in logarithms of probability (infinite when the warm one's was not among the likeliest). Unjudged where they
    part at a token that the cold server does not show.

    `tokens`: those of the cold answer, and those that would have come had it not ended.
    """
    if warm == cold:
        return "same", 0.0
    same = next((at for at, (a, b) in enumerate(zip(warm, cold, strict=False)) if a != b), min(len(warm), len(cold)))
    gap, at = math.inf, 0
    for token in tokens:
        if at > same:
            break
        if token is HIDDEN:
            return "unjudged", gap
        # The cold one had this token here, or ended.
        chosen = token.logprob if at < len(cold) else _end(token)
        for text, logprob in ({token.text: token.logprob} | dict(token.top)).items():
            # Another token in this place that spells the warm answer, beyond what they have in common.
            explains = warm.startswith(text, at) and at + len(text) > same
            ends = at == len(warm) and SPECIAL.fullmatch(text)
            if (text != token.text or at >= len(cold)) and (explains or ends):
                gap = min(gap, abs(chosen - logprob))
        at += len(token.text)
    return ("tie" if gap <= near else "wrong"), gap


def _end(token: Token) -> float:
    return max((logprob for text, logprob in token.top.items() if SPECIAL.fullmatch(text)), default=math.inf)


class Colds:
    """Asks a cold server what a warm one was asked, in the background."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        findings: Findings,
        *,
        share: float,
        seed: int,
        patience_s: float,
        cache: Callable[[str], str] = lambda _: "main",
    ) -> None:
        """`cache`: the one in which the cold server answers for a model."""
        self._client = client
        self._cache = cache
        self._findings = findings
        self._share = share
        self._rnd = random.Random(f"colds {seed}")
        self._patience_s = patience_s
        self._queue: asyncio.Queue[tuple[Ask, Answer]] = asyncio.Queue(16)
        self.outcomes: Counter[str] = Counter()
        self.greatest_tie = 0.0

    def offer(self, asked: Ask, answer: Answer) -> None:
        """Compare this one, perhaps."""
        if not is_comparable(asked, answer):
            return
        self.outcomes["comparable"] += 1
        if self._rnd.random() < self._share:
            try:
                self._queue.put_nowait((asked, answer))
            except asyncio.QueueFull:
                self.outcomes["passed over"] += 1

    async def run(self) -> None:
        """Compare what is offered, one after the other, until cancelled."""
        while True:
            asked, answer = await self._queue.get()
            try:
                await self.compare(asked, answer)
            except (Hang, Malformed, httpx.HTTPError) as error:
                self._findings.add("broken", f"the cold server: {error!r}", asked=shown(asked))
            finally:
                self._queue.task_done()

    async def drain(self, limit_s: float) -> None:
        """Wait until all that was taken is compared."""
        try:
            await asyncio.wait_for(self._queue.join(), limit_s)
        except TimeoutError:
            self.outcomes["passed over"] += self._queue.qsize()

    async def compare(self, asked: Ask, answer: Answer) -> None:
        """Ask the cold server now. Raises: as `ask`."""
        (await self._client.delete(f"/v1/caches/{self._cache(asked.model)}")).raise_for_status()
        cold = await ask(self._client, alone(asked), self._patience_s)
        if cold.status != 200 or cold.n_prompt != answer.n_prompt:
            self.outcomes["other prompt"] += 1
            return
        outcome: Outcome = "same"
        gap = 0.0
        if cold.said != answer.said:
            outcome, gap = compare(answer.said, cold.said, await self._tokens(asked))
            if math.isinf(gap) and (asked.extra.keys() & HIDING or answer.calls or cold.calls):
                outcome = "unjudged"
        self.outcomes[outcome] += 1
        if outcome == "tie":
            self.greatest_tie = max(self.greatest_tie, gap)
        elif outcome == "wrong":
            self._findings.add(
                "wrong", f"{answer.said!r}, and of a cold server {cold.said!r}", gap=str(gap), asked=shown(asked),
                n_prompt=answer.n_prompt, n_cached=answer.n_cached,
            )  # fmt: skip

    async def _tokens(self, asked: Ask) -> list[Token]:
        """Those of the cold answer: asked again in the protocol that tells them."""
        whole = alone(asked)
        if asked.surface in ("completions", "generate"):
            extra = {name: value for name, value in whole.extra.items() if name != "raw"} | {
                "logprobs": 5,
                "ignore_eos": True,
            }
            again = replace(whole, surface="completions", extra=extra)
            body: dict[str, Any] = {"prompt": again.question}
            if asked.surface == "generate" and not asked.extra.get("raw"):
                return await self._chat_tokens(whole)
            body |= {"max_tokens": asked.max_tokens, "temperature": 0, "model": asked.model, **extra}
            found = (await self._client.post("/v1/completions", json=body)).json()["choices"][0]["logprobs"] or {}
            columns = zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True)
            return [Token(text, logprob, top or {}) for text, logprob, top in columns]
        return await self._chat_tokens(whole)

    async def _chat_tokens(self, whole: Ask) -> list[Token]:
        shared = {name: value for name, value in whole.extra.items() if name in SHARED}
        body = {
            "model": whole.model, "messages": messages(whole), "max_tokens": whole.max_tokens, "temperature": 0,
            "logprobs": True, "top_logprobs": TOP, "ignore_eos": not shared.keys() & HIDING, **shared,
        }  # fmt: skip
        answer = (await self._client.post("/v1/chat/completions", json=body)).json()
        choices = answer.get("choices") or [{}]
        content = (choices[0].get("logprobs") or {}).get("content") or ()
        shown = [
            Token(entry["token"], entry["logprob"], {top["token"]: top["logprob"] for top in entry["top_logprobs"]})
            for entry in content
        ]
        n_generated = answer.get("usage", {}).get("completion_tokens", 0)
        return [*shown, HIDDEN] if n_generated > len(shown) else shown


HIDING = {"response_format", "tools", "frequency_penalty"}
"""With these the token that was drawn need not be a likely one, or is not reported: how near it was is not known."""
SHARED = {"stop", "response_format", "tools", "tool_choice", "seed"}
"""Fields of chat completions that other protocols do not have under this name."""


def is_comparable(asked: Ask, answer: Answer) -> bool:
    """Whether a cold server must say the same."""
    return answer.status == 200 and asked.temperature == 0 and not answer.evicted and not answer.left


# -- kept or lost ------------------------------------------------------------------------------------------------------


NOTE = re.compile(r"^\[image [0-9a-f]{8}: image/png, \d+ bytes\]")
"""What stands in the memory for an image in front of a question."""
NOTICE = "[invalid tool call"
"""What the server sends in place of a call that cannot be read; the archive has what the model wrote."""


def stored(text: str) -> str:
    """A text as the memory has it, without blanks around it."""
    return text.replace("\0", "\ufffd").strip()


@dataclass(frozen=True, slots=True)
class Message:
    """One that was acknowledged: its answer has come."""

    role: Literal["user", "assistant"]
    text: str
    may_leave: bool = False
    """Its conversation may have been evicted from: it may be given up before others are."""


class Said:
    """What users' memories have to hold, in the order in which it was acknowledged."""

    def __init__(self) -> None:
        self._by_user: defaultdict[str, list[Message]] = defaultdict(list)
        self._forgotten: defaultdict[str, list[str]] = defaultdict(list)

    def acknowledge(self, asked: Ask, answer: Answer) -> None:
        """The answer has come whole: what was asked in it, and it itself, must be kept."""
        if asked.user is None:
            return
        kept = self._by_user[asked.user]
        may_leave = asked.model == KEPT_EVICT  # not every protocol tells that something has left
        kept.append(Message("user", asked.question, may_leave))
        if answer.text and not answer.calls and NOTICE not in answer.text:
            kept.append(Message("assistant", answer.text, may_leave))

    def forget(self, user: str) -> None:
        """All messages of a user have to be gone."""
        self._forgotten[user] += [message.text for message in self._by_user.pop(user, []) if message.role == "user"]

    def users(self) -> list[str]:
        return sorted(self._by_user.keys() | self._forgotten.keys())

    def missing(self, user: str, bodies: Mapping[str, set[str]], *, is_full: bool) -> list[Message]:
        """What was acknowledged and is not there; `bodies`: what is, by role.

        A memory that has reached its limit gives up its oldest messages, and first those that have left their context.
        So of the questions that have not, as many as it holds must be the newest; their order here is not quite that of
        the archive, which has a question before its answer has come, so the newer half of them is looked at, with all
        answers from there on. (Questions, because no two are alike: an answer that was given twice and is there once
        says nothing.)
        """
        said = self._by_user.get(user, [])
        gone = [stored(message.text) not in bodies[message.role] for message in said]
        if not is_full:
            return [message for message, is_gone in zip(said, gone, strict=True) if is_gone]
        newest = {
            m.text: at for at, m in enumerate(said) if m.role == "user" and not m.may_leave
        }  # of what was sent twice
        asked = sorted(newest.values())
        n_there = sum(not gone[at] for at in asked)
        start = asked[-(n_there // 2)] if n_there > 1 else len(said)
        return [m for at, m in enumerate(said) if at >= start and gone[at] and not m.may_leave]

    def risen(self, user: str, bodies: Mapping[str, set[str]]) -> list[str]:
        """What was forgotten and is there."""
        again = {message.text for message in self._by_user.get(user, [])}
        return [text for text in self._forgotten[user] if text in bodies["user"] and text not in again]

    def counts(self) -> dict[str, int]:
        return {user: len(messages) for user, messages in self._by_user.items()}


def bodies_of(path: Path) -> dict[str, set[str]]:
    """What a memory's file holds, by role, without the notes of images. Read as a stranger does, with SQLite alone."""
    found: dict[str, set[str]] = {"user": set(), "assistant": set()}
    if not path.exists():
        return found
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        for role, body in connection.execute("SELECT role, body FROM message"):
            found.setdefault(role, set()).add(NOTE.sub("", body).strip())
    return found


def has_given_up(path: Path, limit_bytes: int) -> bool:
    """Whether a memory is at its limit: it has given up texts or messages, and no more than it must."""
    if not path.exists() or path.stat().st_size < FULL * limit_bytes:
        return False
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        ((n_pruned,),) = connection.execute("SELECT count(*) FROM message WHERE state = 2")
        ((n_gone,),) = connection.execute("SELECT value FROM about WHERE name = 'gone'")
    return bool(n_pruned or n_gone)


def check_memory(said: Said, files: Mapping[str, Path], limit_bytes: int, findings: Findings) -> dict[str, Any]:
    """Look for all that was acknowledged; what was looked at, by user. Once the server has ended."""
    looked = {}
    for user in said.users():
        path = files[user]
        bodies = bodies_of(path)
        size = path.stat().st_size if path.exists() else 0
        is_full = has_given_up(path, limit_bytes)
        for message in said.missing(user, bodies, is_full=is_full):
            findings.add("lost", f"{user}'s {message.role} message is not in the archive", text=message.text)
        for text in said.risen(user, bodies):
            findings.add("lost", f"what {user} had forgotten is there again", text=text)
        looked[user] = {
            "acknowledged": said.counts().get(user, 0),
            "in the file": sum(map(len, bodies.values())),
            "bytes": size,
            "at its limit": is_full,
        }
    return looked
