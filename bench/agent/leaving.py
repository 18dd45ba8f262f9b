"""What leaves a full context first: a search over policies, measured by what the model still reads when it needs it.

    uv run python -m bench.agent.leaving                         # the search, then the best policies on other seeds
    uv run python -m bench.agent.leaving --try low_water=0.92 --try newest_exchanges=8,first_lines=4  # no search

The back end, the engine, the ledger, the plan and the quotes are the real ones, with the vocabulary of the embedded
model and its template, which shows thoughts here. The model is not: its cells hold tokens, and it writes nothing
(`tests/fake_engine.py`). So a session of four contexts takes a second.

A session is made from a seed and a shape (read-heavy, edit-heavy, test-heavy, long outputs, chat). Some of its steps
need a line of an earlier message or result:

    edit    the line that the next call changes, often of a file that was read lately; nothing names it before
    rule    a line of the task, and
    plan    an item of the newest plan: needed by the next call, named by nothing
    fact    a value that was in a file, a test or a message of the user: the question names it
    error   where a name is defined that the newest test has failed with
    failed  what a test has failed with: the question names the test
    old     a line that has been edited since: the question names its variable

*Found*: the share of needed lines that stand in the cells when the step's prompt has been computed; the mean of the
shapes. *No quotes*: the same without what stands in a quote. *Again*: tokens that were computed twice. Intervals are of
95 %, from a bootstrap over sessions; differences to the default are of the same sessions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from bench.rig import machine
from bench.rig.machine import EMBEDDED
from rich.console import Console
from rich.table import Table
from tests.fake_engine import FakeRuntime

from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.backends.local.leaving import QUOTED, text_of
from shepherd.backends.local.quotes import CLOSING
from shepherd.core import (
    ContextFull,
    Evicted,
    Finished,
    Message,
    Part,
    Reasoning,
    Request,
    Sampling,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from shepherd.core.edits import LeavingPolicy
from shepherd.dialects import Template, detect
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.scheduler import EngineOptions

HEAD = "{{- '<|im_start|>assistant' }}"
THOUGHTS = (
    "{%- if message.reasoning_content %}{{- '\\n<think>\\n' + message.reasoning_content + '\\n</think>' }}{%- endif %}"
)
TOOLS = tuple(
    ToolSpec(name, about, {"type": "object", "properties": {}})
    for name, about in (
        ("read_file", "Reads a file."),
        ("edit_file", "Changes a file."),
        ("bash", "Runs a command."),
        ("todo_write", "Keeps the plan."),
    )
)
SYSTEM = "You are a coding agent. Read before you edit, test what you change, keep the plan."
WORDS = (
    *("parser", "token", "stream", "cache", "ledger", "window", "table", "index", "store", "queue", "route", "frame"),
    *("block", "chunk", "field", "value", "state"),
)
KINDS = ("edit", "rule", "plan", "fact", "error", "failed", "old")


# -- sessions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """What a kind of session does how often, and how long its results are."""

    name: str
    actions: Mapping[str, int]
    code: tuple[int, int]
    """Lines of a file."""
    output: tuple[int, int]
    """Lines of a test run."""


SHAPES = (
    Shape("read", {"read": 6, "grep": 2, "test": 1, "edit": 1, "ask": 1}, (15, 45), (5, 20)),
    Shape("edit", {"read": 3, "grep": 1, "test": 2, "edit": 4, "ask": 1}, (10, 25), (5, 20)),
    Shape("test", {"read": 2, "grep": 1, "test": 5, "edit": 2, "ask": 1}, (10, 30), (12, 45)),
    Shape("long", {"read": 4, "test": 3, "edit": 1, "ask": 1}, (30, 60), (30, 60)),
    Shape("chat", {"tell": 4, "ask": 3, "read": 1}, (10, 25), (5, 20)),
)


@dataclass(frozen=True, slots=True)
class Need:
    """A line that the model must read."""

    kind: str
    line: str


@dataclass(frozen=True, slots=True)
class Step:
    """What the conversation grows by before a request, and what the model needs to answer it."""

    messages: tuple[Message, ...]
    needs: tuple[Need, ...] = ()


@dataclass(slots=True)
class Action:
    """A step, and what its call needs: the model makes the call as the answer to the request before."""

    messages: tuple[Message, ...]
    before: list[Need] = field(default_factory=list)
    behind: list[Need] = field(default_factory=list)


class Session:
    """An endless session of one seed and shape."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self._shape = shape
        self._random = random.Random(f"{shape.name} {seed}")
        self._n = 0
        self._files: dict[str, list[str]] = {}
        self._known: list[str] = []
        """Paths, the one that was read last at the end."""
        self._facts: list[tuple[str, str]] = []
        """A question and its line."""
        self._failed: list[tuple[str, str]] = []
        self._old: list[tuple[str, str]] = []
        self._plan: list[str] = []
        self._rules = [f"Rule {n}: never change {self._path()} below line {self._number(900)}." for n in range(3)]

    def steps(self) -> Iterator[Step]:
        task = "\n".join(["Mend the parser: nested frames lose their last token. Keep a plan.", *self._rules])
        now = Action((Message("system", (Text(SYSTEM),)), Message.user(task)))
        while True:
            self._n += 1
            then = self._action()
            yield Step(now.messages, (*now.behind, *then.before))
            now = then

    def _action(self) -> Action:
        shape, chance = self._shape, self._random.random
        if self._n % 11 == 1 and shape.name != "chat":
            self._plan = [f"{self._n}.{n}: {self._word()} the {self._word()} {self._number(999)}" for n in range(4)]
            return self._call("todo_write", {"items": self._plan}, "kept")
        kind = self._random.choices([*shape.actions], [*shape.actions.values()])[0]
        made: Action | None = getattr(self, f"_{kind}")()
        if made is None:
            made = self._tell() if shape.name == "chat" else self._read()
        if chance() < 0.15:
            made.before.append(Need("rule", self._random.choice(self._rules)))
        if self._plan and chance() < 0.15:
            made.before.append(Need("plan", self._random.choice(self._plan)))
        return made

    def _read(self) -> Action:
        if self._files and self._random.random() < 0.35:
            path = self._near()
        else:
            path = self._path()
            self._files.setdefault(path, self._code())
        lines = self._files[path]
        self._known = [*(each for each in self._known if each != path), path]
        if len(lines) > 20 and self._random.random() < 0.2:
            start = self._random.randrange(len(lines) - 10)
            part = lines[start : start + 10]
            return self._call("read_file", {"path": path, "offset": start, "limit": 10}, "\n".join(part))
        return self._call("read_file", {"path": path}, "\n".join(lines))

    def _grep(self) -> Action | None:
        if not self._known:
            return None
        word = self._word()
        found = [
            f"{p}:{n}: {line.strip()}" for p in self._known for n, line in enumerate(self._files[p]) if word in line
        ]
        return self._call("bash", {"command": f"grep -rn {word} src"}, "\n".join(found[:12]) or "nothing")

    def _edit(self) -> Action | None:
        if not self._known:
            return None
        path = self._near()
        lines = self._files[path]
        at = self._random.randrange(len(lines))
        old, new = lines[at], self._line()
        lines[at] = new
        self._old.append((f"What was {old.split('=')[0].strip()} in {path} before the change?", old.strip()))
        made = self._call("edit_file", {"path": path, "old": old.strip(), "new": new.strip()}, f"{path} was changed")
        made.before.append(Need("edit", old.strip()))
        return made

    def _test(self) -> Action:
        name = f"test_{self._word()}_{self._number(10**4)}"
        n = self._random.randint(*self._shape.output)
        lines = [f"tests/test_{self._word()}.py::test_{self._word()}_{k} PASSED" for k in range(n)]
        needs: list[Need] = []
        draw = self._random.random()
        if draw < 0.4 and self._known:
            path = self._near()
            line = self._random.choice(self._files[path]).strip()
            lines += [f"FAILED tests/{name}.py", f"E   NameError: {line.split('=')[0].strip()} is not defined"]
            needs.append(Need("error", line))
        elif draw < 0.7:
            why = f"E   AssertionError: {self._number(10**6)} != {self._number(10**6)} in {self._word()}"
            lines += [f"FAILED tests/{name}.py", why]
            self._failed.append((f"Why did {name} fail?", why))
        elif draw < 0.85:
            lines.append(self._fact())
        made = self._call("bash", {"command": f"pytest tests/{self._random.choice(WORDS)}"}, "\n".join(lines))
        made.behind += needs
        return made

    def _ask(self) -> Action | None:
        about = [kind for kind, known in (("fact", self._facts), ("failed", self._failed), ("old", self._old)) if known]
        if not about:
            return None
        kind = self._random.choice([*about, *(["fact"] if self._facts else [])])
        question, line = self._random.choice({"fact": self._facts, "failed": self._failed, "old": self._old}[kind])
        done = Message.assistant(f"Done with {self._word()}.")
        return Action((done, Message.user(f"{question} Then go on.")), behind=[Need(kind, line)])

    def _tell(self) -> Action:
        told = "\n".join([self._fact(), *(self._prose() for _ in range(self._random.randint(1, 3)))])
        answer = "\n".join(self._prose() for _ in range(self._random.randint(2, 8)))
        return Action((Message.assistant(answer), Message.user(told)))

    def _call(self, name: str, arguments: dict[str, Any], result: str) -> Action:
        id = f"call_{self._n}"
        parts: list[Part] = []
        if self._random.random() < 0.4:
            parts.append(Reasoning("\n".join(self._prose() for _ in range(self._random.randint(2, 12)))))
        parts.append(ToolCall(id, name, json.dumps(arguments)))
        return Action((Message("assistant", tuple(parts)), Message("tool", (ToolResult(id, (Text(result),), name),))))

    def _near(self) -> str:
        """A file that was read: three of four times a late one."""
        if self._random.random() < 0.25:
            return self._random.choice(self._known or [*self._files])
        at = 1
        while at < len(self._known) and self._random.random() < 0.6:
            at += 1
        return self._known[-at] if self._known else next(iter(self._files))

    def _word(self) -> str:
        return self._random.choice(WORDS)

    def _number(self, below: int) -> int:
        return self._random.randrange(below)

    def _path(self) -> str:
        return f"src/{self._word()}/{self._word()}{self._number(10)}.py"

    def _prose(self) -> str:
        return " ".join(self._word() for _ in range(self._random.randint(6, 14))) + "."

    def _line(self) -> str:
        return f"    {self._word()}_{self._word()}_{self._number(10**3)} = {self._word()}({self._number(10**4)})"

    def _fact(self) -> str:
        name = f"{self._word()}_{self._word()}_{self._number(10**4)}".upper()
        line = f"{name} = {self._number(10**6)}"
        self._facts.append((f"What was {name}?", line))
        return line

    def _code(self) -> list[str]:
        lines = [self._line() for _ in range(self._random.randint(*self._shape.code))]
        if self._random.random() < 0.5:
            lines.insert(self._number(len(lines)), self._fact())
        return lines


# -- one session under one policy -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Policy:
    """What leaves, and how far an eviction goes."""

    name: str
    leaving: LeavingPolicy | None = field(default_factory=LeavingPolicy)
    """None: whole turns, the oldest first."""
    low_water: float = EngineOptions().low_water

    def changed(self, name: str, value: Any) -> Policy:
        """The same, but for one field of it or of its `leaving`."""
        if name == "low_water":
            return Policy(f"{self.name}, low_water={value}", self.leaving, value)
        assert self.leaving is not None
        values = {each.name: getattr(self.leaving, each.name) for each in fields(LeavingPolicy)} | {name: value}
        return Policy(f"{self.name}, {name}={value}", LeavingPolicy(**values), self.low_water)


@dataclass(slots=True)
class Found:
    """What one session gave."""

    shape: str
    seed: int
    needed: Counter[str] = field(default_factory=Counter)
    present: Counter[str] = field(default_factory=Counter)
    unquoted: Counter[str] = field(default_factory=Counter)
    """Of those present, what stands outside of a quote."""
    n_requests: int = 0
    n_refused: int = 0
    n_evictions: int = 0
    n_recalled: int = 0
    n_prompt: int = 0
    n_again: int = 0


class Bench:
    """The embedded model's vocabulary and template."""

    def __init__(self, n_ctx: int) -> None:
        self._n_ctx = n_ctx
        self.weights = Weights.load(EMBEDDED, gpu_layers=0)
        source = (self.weights.chat_template or "").replace(HEAD, HEAD + THOUGHTS, 1)
        assert THOUGHTS in source
        self._template = Template(source, bos_token=self.weights.bos_text, eos_token=self.weights.eos_text)
        self._dialect = detect(source)

    async def play(self, shape: Shape, seed: int, policy: Policy, windows: int) -> Found:
        end = min(self.weights.end_tokens)
        runtime = FakeRuntime(
            lambda tokens: end, self.weights.end_tokens, n_ctx=self._n_ctx, n_batch=512, n_vocab=self.weights.n_vocab
        )
        engine = InProcessEngine(
            runtime, show=self.weights.piece, options=EngineOptions(sequences=1, low_water=policy.low_water)
        )
        options = LocalOptions(
            on_full="evict",
            n_window=(windows + 20) * self._n_ctx,
            leaving=policy.leaving,
            sampling=Sampling(temperature=0),
        )
        backend = LocalBackend(
            engine, self.weights, template=self._template, dialect=self._dialect, model="lamb", options=options
        )
        found = Found(shape.name, seed)
        messages: tuple[Message, ...] = ()
        try:
            for step in Session(shape, seed).steps():
                messages += step.messages
                await self._ask(backend, runtime, messages, step, found)
                if found.n_prompt >= windows * self._n_ctx:
                    return found
        finally:
            engine.close()
        raise AssertionError("a session has no end")

    async def _ask(
        self, backend: LocalBackend, runtime: FakeRuntime, messages: tuple[Message, ...], step: Step, found: Found
    ) -> None:
        request = Request("lamb", messages, tools=TOOLS, max_tokens=2)
        found.n_requests += 1
        before = found.n_prompt
        try:
            async with aclosing(backend.stream(request)) as events:
                async for event in events:
                    found.n_evictions += isinstance(event, Evicted)
                    if isinstance(event, Finished):
                        found.n_recalled = event.usage.recalled
                        found.n_prompt = event.usage.prompt
                        found.n_again += max(0, event.usage.input - (found.n_prompt - before))
        except ContextFull:
            found.n_refused += 1
            return
        # On the engine's thread: behind the answer it computes the tag that closes it.
        assert isinstance(backend.engine, InProcessEngine)
        held = self.text(await backend.engine._call(lambda: runtime.tokens(runtime.batches[-1][-1].seq)))
        own = re.sub(re.escape(QUOTED) + r".*?" + re.escape(CLOSING), "", held, flags=re.DOTALL)
        whole, own = words(held), words(own)
        said = words("\n".join(texts_of(messages)))
        for line, kind in ((words(need.line), need.kind) for need in step.needs):
            if line not in said:  # of a file that was read in part only
                continue
            found.needed[kind] += 1
            found.present[kind] += line in whole
            found.unquoted[kind] += line in own

    def text(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.weights.piece, tokens)).decode("utf-8", "replace")


def words(text: str) -> str:
    """The text as a quote writes it: with one blank between two words."""
    return " ".join(text.split())


def texts_of(messages: Sequence[Message]) -> Iterator[str]:
    """The messages and results, without thoughts."""
    for part in (part for message in messages for part in message.parts):
        match part:
            case Text(text=text) | ToolCall(arguments=text):
                yield text
            case ToolResult():
                yield text_of(part)
            case _:
                pass


# -- the search -------------------------------------------------------------------------------------------------------

DEFAULT = Policy("default")
OLDEST = Policy("oldest first", None)
CHOICES: Mapping[str, Sequence[Any]] = {
    "stale_results": (0, 1),
    "thoughts": (0, 4),
    "long_results": (0, 4),
    "first_lines": (4, 30),
    "least_chars": (200, 1200),
    "newest_exchanges": (0, 2, 8, 12),
    "task": (False,),
    "plan": (False,),
    "low_water": (0.5, 0.65, 0.85, 0.92),
}
"""What is tried in place of each value of the default. A stale result of weight 1 leaves beside long ones, the oldest
first; thoughts and long results of weight 4 leave before all else."""
N_BOOTSTRAP = 2_000
N_BEST = 3
"""Single changes that are joined in pairs, and the policies that are measured on other seeds."""


async def measured(
    bench: Bench, policies: Sequence[Policy], seeds: Sequence[int], windows: int
) -> dict[str, list[Found]]:
    """The sessions of each policy; all policies get the same ones."""
    made: dict[str, list[Found]] = defaultdict(list)
    begun = time.monotonic()
    for number, policy in enumerate(policies):
        for shape in SHAPES:
            for seed in seeds:
                made[policy.name].append(await bench.play(shape, seed, policy, windows))
        share = score(made[policy.name])
        took = time.monotonic() - begun
        print(f"{number + 1}/{len(policies)} {policy.name}: {share:.3f} ({took:.0f} s)", flush=True)
    return made


def share_of(found: Found, *, quotes: bool = True, kinds: Sequence[str] = KINDS) -> float | None:
    counted = found.present if quotes else found.unquoted
    n = sum(found.needed[kind] for kind in kinds)
    return sum(counted[kind] for kind in kinds) / n if n else None


def score(sessions: Sequence[Found], *, quotes: bool = True, kinds: Sequence[str] = KINDS) -> float:
    """The mean of the shapes' means."""
    by_shape: dict[str, list[float]] = defaultdict(list)
    for found in sessions:
        if (share := share_of(found, quotes=quotes, kinds=kinds)) is not None:
            by_shape[found.shape].append(share)
    return statistics.mean(statistics.mean(shares) for shares in by_shape.values()) if by_shape else 0.0


def interval(values: Mapping[str, Sequence[float]]) -> tuple[float, float, float]:
    """The mean over shapes of what each session gave, with an interval from a bootstrap within each shape."""
    drawn = random.Random(0)
    means = sorted(
        statistics.mean(statistics.mean(drawn.choices(own, k=len(own))) for own in values.values())
        for _ in range(N_BOOTSTRAP)
    )
    middle = statistics.mean(statistics.mean(own) for own in values.values())
    return middle, means[int(0.025 * N_BOOTSTRAP)], means[int(0.975 * N_BOOTSTRAP)]


def by_shape(sessions: Sequence[Found], against: Sequence[Found] | None = None) -> dict[str, list[float]]:
    """The share of each session, or what it is above that of the same session in `against`."""
    made: dict[str, list[float]] = defaultdict(list)
    for at, found in enumerate(sessions):
        share, other = share_of(found), share_of(against[at]) if against is not None else 0.0
        if share is not None and other is not None:
            made[found.shape].append(share - other)
    return made


def joined(best: Sequence[tuple[str, Any]]) -> list[Policy]:
    """The best single changes in pairs, and all of them together."""
    pairs = [(a, b) for at, a in enumerate(best) for b in best[at + 1 :] if a[0] != b[0]]
    made = [DEFAULT.changed(*a).changed(*b) for a, b in pairs]
    whole = DEFAULT
    for name, value in dict(reversed(best)).items():
        whole = whole.changed(name, value)
    return [*made, *([whole] if len({name for name, _ in best}) > 2 else [])]


def summary(sessions: Sequence[Found], default: Sequence[Found]) -> dict[str, Any]:
    n_prompt, n_requests = sum(each.n_prompt for each in sessions), sum(each.n_requests for each in sessions)
    return {
        "found": interval(by_shape(sessions)),
        "above_default": interval(by_shape(sessions, default)),
        "without_quotes": score(sessions, quotes=False),
        "kinds": {kind: score(sessions, kinds=(kind,)) for kind in KINDS},
        "shapes": {shape: statistics.mean(shares) for shape, shares in by_shape(sessions).items()},
        "recalled_share": sum(each.n_recalled for each in sessions) / n_prompt,
        "evictions_per_100": 100 * sum(each.n_evictions for each in sessions) / n_requests,
        "again": sum(each.n_again for each in sessions),
        "refused": sum(each.n_refused for each in sessions),
        "needed": sum(sum(each.needed.values()) for each in sessions),
    }


def show(title: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table(title=title)
    columns = (
        "policy",
        "found",
        "95 %",
        "above default",
        "95 %",
        "no quotes",
        *KINDS,
        "recalled",
        "evictions",
        "again",
    )
    for column in columns:
        table.add_column(column)
    for name, each in found.items():
        (share, *ends), (above, *about) = each["found"], each["above_default"]
        table.add_row(
            name, f"{share:.3f}", "{:.3f} to {:.3f}".format(*ends),
            f"{above:+.3f}", "{:+.3f} to {:+.3f}".format(*about),
            f"{each['without_quotes']:.3f}", *(f"{each['kinds'][kind]:.2f}" for kind in KINDS),
            f"{each['recalled_share']:.3f}", f"{each['evictions_per_100']:.0f}", str(each["again"]),
        )  # fmt: skip
    Console(width=220).print(table)


def described(policies: Sequence[Policy]) -> dict[str, Any]:
    return {p.name: {"leaving": p.leaving and asdict(p.leaving), "low_water": p.low_water} for p in policies}


async def compare(texts: Sequence[str], n_test: int, windows: int, n_ctx: int) -> dict[str, Any]:
    """These policies, beside the default and the oldest first, on the test seeds."""
    policies = [DEFAULT, OLDEST]
    for text in texts:
        policy = DEFAULT
        for each in text.split(","):
            name, value = each.split("=")
            policy = policy.changed(name, json.loads(value))
        policies.append(policy)
    test = await measured(Bench(n_ctx), policies, range(1001, 1001 + n_test), windows)
    found = {name: summary(sessions, test[DEFAULT.name]) for name, sessions in test.items()}
    show(f"test: {n_test} seeds of {len(SHAPES)} shapes", found)
    return {
        "context": n_ctx, "windows": windows, "n_test": n_test, "policies": described(policies), "test": found,
    }  # fmt: skip


async def search(n_train: int, n_test: int, windows: int, n_ctx: int, named: Sequence[str]) -> dict[str, Any]:
    bench = Bench(n_ctx)
    singles = {
        DEFAULT.changed(name, value).name: (name, value)
        for name, values in CHOICES.items()
        if not named or name in named
        for value in values
    }
    policies = [DEFAULT, OLDEST, *(DEFAULT.changed(*change) for change in singles.values())]
    train = await measured(bench, policies, range(1, n_train + 1), windows)
    default = train[DEFAULT.name]
    order = sorted(singles, key=lambda name: -score(train[name]))
    better = [singles[name] for name in order if score(train[name]) > score(default)][:N_BEST]
    pairs = joined(better)
    train |= await measured(bench, pairs, range(1, n_train + 1), windows)
    policies += pairs
    best = sorted((p for p in policies if p not in (DEFAULT, OLDEST)), key=lambda p: -score(train[p.name]))[:N_BEST]
    test = await measured(bench, [DEFAULT, OLDEST, *best], range(1001, 1001 + n_test), windows)
    found = {
        "train": {name: summary(sessions, default) for name, sessions in train.items()},
        "test": {name: summary(sessions, test[DEFAULT.name]) for name, sessions in test.items()},
    }
    show(f"train: {n_train} seeds of {len(SHAPES)} shapes", found["train"])
    show(f"test: {n_test} seeds of {len(SHAPES)} shapes", found["test"])
    return {
        "context": n_ctx, "windows": windows, "n_train": n_train, "n_test": n_test,
        "policies": described(policies), **found,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=3, help="seeds of each shape that the search sees")
    parser.add_argument("--test", type=int, default=8, help="other seeds, for the best policies only")
    parser.add_argument("--windows", type=int, default=4, help="contexts that a session fills")
    parser.add_argument("--context", type=int, default=4096, help="tokens of the context")
    parser.add_argument("--only", action="append", default=[], help="a field that is changed; all by default")
    parser.add_argument("--try", dest="tried", action="append", default=[], help="fields and values; no search")
    parser.add_argument("--quick", action="store_true", help="the result is not kept")
    given = parser.parse_args()
    if given.tried:
        result = asyncio.run(compare(given.tried, given.test, given.windows, given.context))
    else:
        result = asyncio.run(search(given.train, given.test, given.windows, given.context, given.only))
    print(machine.save("leaving-tried" if given.tried else "leaving", result, quick=given.quick))


if __name__ == "__main__":
    main()
