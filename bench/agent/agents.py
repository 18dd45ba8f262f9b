"""An agent's session of many contexts: what each way of going on computes, how long it takes, what it still knows.

    uv run python -m bench.agent.agents                          # 40 contexts, embedded model; then the 0.5B one
    uv run python -m bench.agent.agents --model embedded --windows 8 --context 2048
    uv run python -m bench.agent.agents --model 0.5B --model path/to/SmolLM2-135M-Instruct.gguf

The 0.5B model is random weights with the vocabulary of Qwen2. The embedded model has a template with calls; for every
other model both servers get one, that of Qwen2.5 as llama.cpp's source has it (`--template own`: the model's).

The session is made from a seed: an agent reads, edits and tests a repository, a plan is kept, and facts that were said
or seen early are asked for later. Its answers are scripted, so every side gets the same conversation; a request
generates two tokens. The sides:

    shepherd   a window larger than the cells: what is old leaves in place (docs/window.md)
    limit      llama-server, and a client that stops where the context ends
    shift      llama-server with --context-shift and --cache-reuse; the same client
    summary    llama-server, and a client that compacts as Claude Code does: at 85 % of the context it asks for a
               summary (200 tokens are generated) and continues with it. Its words are scripted, and better than a
               model's: the task, the files, and the user's messages as far as a fifth of the context holds them
    proxy      llama-server behind a prompt rewriter, as the lossless plug-ins of 2026 do it: at 85 % the oldest
               results become a line each, down to 60 %; of them, the four that share most words with a question
               stand in front of it

*Computed / new*: prompt tokens that were computed, to those that the conversation has grown by. *Ordinary*, *behind*:
the median time to the answer for each new token, and the same of requests before which the context has lost something.
*Facts*: how many of those that were asked for stand in what the model reads, word for word, the question aside.
llama-server reports its computed tokens itself (`timings.prompt_n`). Shepherd runs in process, without HTTP (a
millisecond of a request).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.rig import machine
from bench.rig.llama_tools import source
from bench.rig.machine import EMBEDDED
from bench.rig.random_gguf import random_model
from bench.rig.sides import Server, Setup, running
from rich.console import Console
from rich.table import Table

Message = dict[str, Any]
ANSWER_TOKENS, SUMMARY_TOKENS = 2, 200
FULL, LEFT = 0.85, 0.60
"""Shares of the context: where a client compacts, and what a rewriting leaves."""
TEMPLATE = "models/templates/Qwen-Qwen2.5-7B-Instruct.jinja"
"""In llama.cpp's source."""
NEWEST = 4
"""Messages that a compaction leaves as they are."""
_ABOUT = {
    "read_file": "Reads a file.",
    "edit_file": "Changes a file.",
    "bash": "Runs a command.",
    "todo_write": "Keeps the plan.",
}
_ANY = {"type": "object", "properties": {}}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": about, "parameters": _ANY}}
    for name, about in _ABOUT.items()
]
SYSTEM = "You are a coding agent. Read before you edit, test what you change, keep the plan."
_WORDS = (
    *("parser", "token", "stream", "cache", "ledger", "window", "table", "index", "store", "queue", "route", "frame"),
    *("block", "chunk", "field", "value", "state"),
)


# -- the session ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """What the conversation grows by before a request."""

    messages: tuple[Message, ...]
    asks_for: str = ""
    """The line that the model must read to answer."""


class Session:
    """An endless session of one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._n = 0
        self._facts: list[tuple[str, str]] = []
        """What each is asked by, and its line."""
        self._files: dict[str, str] = {}

    def steps(self) -> Iterator[Step]:
        yield Step(
            (
                _system(),
                {"role": "user", "content": "Mend the parser: nested frames lose their last token. Keep a plan."},
            )
        )
        while True:
            kind = self._n % 12
            if kind == 0:
                yield Step(self._call("todo_write", {"items": [f"{self._word()} {n}" for n in range(4)]}, "kept"))
            elif kind in (3, 7):
                command = f"pytest tests/test_{self._word()}.py"
                yield Step(self._call("bash", {"command": command}, self._tested()))
            elif kind == 5:
                path, old, new = self._path(), self._code(3), self._code(3)
                self._files[path] = f"{self._files.get(path, '')}\n{new}".strip()
                yield Step(self._call("edit_file", {"path": path, "old": old, "new": new}, f"{path} was changed"))
            elif kind == 9 and len(self._facts) > 3:
                name, line = self._facts[self._random.randrange(max(1, len(self._facts) // 2))]
                done = {"role": "assistant", "content": f"Done with {self._word()}."}
                yield Step((done, {"role": "user", "content": f"What was {name}? Then go on."}), line)
            else:
                path = self._path()
                if path not in self._files:
                    self._files[path] = self._code(self._random.randrange(12, 40))
                yield Step(self._call("read_file", {"path": path}, self._files[path]))
            self._n += 1

    def _call(self, name: str, arguments: dict[str, Any], result: str) -> tuple[Message, ...]:
        id = f"call_{self._n}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        return (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": id, "content": result},
        )

    def _word(self) -> str:
        return self._random.choice(_WORDS)

    def _path(self) -> str:
        return f"src/{self._word()}/{self._word()}.py"

    def _fact(self) -> tuple[str, str]:
        name = f"{self._word()}_{self._word()}_{self._random.randrange(10**4)}".upper()
        line = f"{name} = '{self._random.randrange(10**6)}'"
        self._facts.append((name, line))
        return name, line

    def _code(self, n: int) -> str:
        lines = [f"    {self._word()}_{k} = {self._word()}({self._random.randrange(1000)})" for k in range(n)]
        if n > 8 and self._random.random() < 0.5:
            lines.insert(self._random.randrange(len(lines)), self._fact()[1])
        return "\n".join(lines)

    def _tested(self) -> str:
        lines = [f"tests/test_{self._word()}.py::test_{k} PASSED" for k in range(self._random.randrange(5, 20))]
        if self._random.random() < 0.5:
            lines.append(f"E   AssertionError: {self._fact()[1]}")
        return "\n".join(lines)


def _system() -> Message:
    return {"role": "system", "content": SYSTEM}


# -- what is measured -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Figures:
    """One side of one session."""

    n_requests: int = 0
    n_refused: int = 0
    n_computed: int = 0
    wall_s: float = 0.0
    answers: list[tuple[int, float, bool]] = field(default_factory=list)
    """For each: its step, the seconds to the answer, whether the context had lost something before."""
    n_asked: int = 0
    n_present: int = 0
    summaries: int = 0

    def add(self, step: int, seconds: float, n_computed: int, *, has_lost: bool) -> None:
        self.n_requests += 1
        self.n_computed += n_computed
        self.wall_s += seconds
        self.answers.append((step, seconds, has_lost))

    def per_token(self, new: list[int], *, has_lost: bool) -> float:
        """The median time to an answer, for each token by which the conversation had grown; 0 = none."""
        times = [seconds / max(1, new[step]) for step, seconds, lost in self.answers if lost is has_lost]
        return statistics.median(times or [0.0])


class Shepherd:
    """Our own back end, in process."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.new: list[int] = []
        """Tokens by which each request has grown."""

    async def ask(self, messages: list[Message], step: Step, figures: Figures) -> bool:
        """Whether it was answered."""
        from shepherd.core import Evicted, Finished
        from shepherd.core.errors import ContextFull
        from shepherd.wire.openai import chat

        body = {"model": "bench", "messages": messages, "tools": TOOLS, "max_tokens": ANSWER_TOKENS, "temperature": 0}
        request = chat.decode_request(body).request
        begun, first, has_lost, usage = time.perf_counter(), 0.0, False, None
        try:
            async with aclosing(self._backend.stream(request)) as events:
                async for event in events:
                    has_lost |= isinstance(event, Evicted)
                    if isinstance(event, Finished):
                        first, usage = time.perf_counter() - begun, event.usage
        except ContextFull:
            figures.n_refused += 1
            return False
        assert usage is not None
        self.new.append(usage.prompt - sum(self.new))
        figures.add(len(self.new) - 1, first, usage.input, has_lost=has_lost)
        if step.asks_for:
            figures.n_asked += 1
            figures.n_present += step.asks_for in await self._held(request)
        return True

    async def _held(self, request: Any) -> str:
        """What the cells hold of the prompt, as text."""
        backend = self._backend
        compiled = await backend.compile(request)
        tokens = compiled.encoded.tokens
        held = await backend.engine.held(tokens, compiled.spans, backend._whose(compiled), holes=True)
        return "".join(backend._compiler.spell(tokens[start:stop]) for start, stop in held.ranges)


class Llama:
    """llama-server, and what a client or a proxy does with the history before it sends it."""

    def __init__(self, server: Server, manner: str, n_ctx: int) -> None:
        self._server = server
        self._n_steps = 0
        self._manner = manner
        self._n_ctx = n_ctx
        self._sent: list[Message] = []
        self._n_read = 0
        self._n_prompt = 0
        self._gone: list[Message] = []
        """What stands in the prompt as a line only."""
        self._is_over = False

    def ask(self, messages: list[Message], step: Step, figures: Figures) -> bool:
        self._n_steps += 1
        if self._is_over:
            figures.n_refused += 1
            figures.n_asked += bool(step.asks_for)
            return False
        self._sent += messages[self._n_read :]
        self._n_read = len(messages)
        figures.n_asked += bool(step.asks_for)
        begun, newest = time.perf_counter(), NEWEST
        has_lost = self._manner in ("summary", "proxy") and self._n_prompt > FULL * self._n_ctx
        if has_lost:
            self._shorten(messages, figures, newest)
        answer = self._post(self._prompt(), ANSWER_TOKENS)
        while answer is None and self._manner in ("summary", "proxy") and newest:
            has_lost = True  # what came was larger than the room that was left
            self._shorten(messages, figures, newest)
            newest -= 2
            answer = self._post(self._prompt(), ANSWER_TOKENS)
        if answer is None:
            figures.n_refused += 1
            self._is_over = self._manner in ("limit", "shift")
            return False
        took = time.perf_counter() - begun
        figures.add(self._n_steps - 1, took, answer["timings"]["prompt_n"], has_lost=has_lost)
        self._n_prompt = answer["usage"]["prompt_tokens"]
        figures.n_present += bool(step.asks_for) and any(step.asks_for in _text(message) for message in self._prompt())
        return True

    def _prompt(self) -> list[Message]:
        return self._with_recalled() if self._manner == "proxy" else self._sent

    def _shorten(self, messages: list[Message], figures: Figures, newest: int) -> None:
        if self._manner == "proxy":
            self._rewrite(newest)
        else:
            self._summarise(messages, figures, newest)

    def _post(self, messages: list[Message], n: int) -> Any:
        body = {
            "messages": messages,
            "tools": TOOLS,
            "max_tokens": n,
            "temperature": 0,
            "cache_prompt": True,
            "ignore_eos": True,
        }
        try:
            return self._server.post("/v1/chat/completions", body)
        except RuntimeError as error:
            if "exceed" not in str(error) and "context" not in str(error):
                raise
            return None

    def _summarise(self, messages: list[Message], figures: Figures, newest: int) -> None:
        asked = {"role": "user", "content": "Summarise the conversation so far for your successor."}
        history = self._sent[:-newest]
        answer = self._post([*history, asked], SUMMARY_TOKENS)
        figures.summaries += 1
        if answer is not None:
            figures.n_computed += answer["timings"]["prompt_n"]
        users = [_text(message) for message in messages if message["role"] == "user"]
        paths = sorted(set(re.findall(r"src/[\w/]+\.py", " ".join(map(_text, self._sent)))))
        room = int(self._n_ctx / 5 * 3)  # characters
        summary = f"{users[0]}\nFiles: {', '.join(paths[:30])}\n" + "\n".join(users[1:])[-room // 2 :]
        self._sent = [_system(), {"role": "user", "content": summary[:room]}, *_whole(self._sent[-newest:])]

    def _rewrite(self, newest: int) -> None:
        """Stub the oldest exchanges until the rest is short enough."""
        size = sum(len(_text(message)) for message in self._sent)
        wanted = size * LEFT / max(FULL, self._n_prompt / self._n_ctx)
        made: list[Message] = []
        for at, message in enumerate(self._sent):
            text = _text(message)
            if message["role"] == "tool" and size > wanted and at < len(self._sent) - newest and len(text) > 120:
                self._gone.append(message)
                size -= len(text) - 60
                message = {**message, "content": f"[left out: {text[:30]!r}, {len(text)} characters]"}
            made.append(message)
        if size > wanted:  # stubs alone fill it: the oldest go
            half = len(made) // 2
            made = [*made[:2], *_whole(made[half:])]
        self._sent = made

    def _with_recalled(self) -> list[Message]:
        newest = self._sent[-1]
        words = set(re.findall(r"\w{4,}", _text(newest)))
        scored = [
            (len(words & set(re.findall(r"\w{4,}", _text(message)))), at) for at, message in enumerate(self._gone)
        ]
        best = sorted((each for each in scored if each[0]), reverse=True)[:4]
        if newest["role"] != "user" or not best:
            return self._sent
        texts = "\n".join(_text(self._gone[at])[:600] for _, at in best)
        return [*self._sent[:-1], {**newest, "content": f"Earlier:\n{texts}\n\n{newest['content']}"}]


def _whole(messages: list[Message]) -> list[Message]:
    """Without results whose call is gone."""
    called = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    return [message for message in messages if message["role"] != "tool" or message["tool_call_id"] in called]


def _text(message: Message) -> str:
    calls = " ".join(call["function"]["arguments"] for call in message.get("tool_calls") or ())
    return f"{message.get('content') or ''}{calls}"


# -- running ----------------------------------------------------------------------------------------------------------


def file_of(model: str) -> Path:
    if model == "embedded":
        return EMBEDDED
    return (random_model(words=True) if model == "0.5B" else Path(model)).resolve()


async def play(
    setup: Setup, template: Path | None, manners: list[str], windows: int, seed: int, *, minutes: float = math.inf
) -> tuple[dict[str, Figures], list[int]]:
    """The figures of all sides, and the new tokens of each step that it took to fill so many contexts. Each step is
    taken by all sides in turn, another one first each time, so that a neighbour of this machine disturbs all alike."""
    from shepherd import config as configuration
    from shepherd.app.app import App

    model, n_ctx = setup.model, setup.n_ctx
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = folder / "shepherd.toml"
        file.write_text(
            f'[models.bench]\npath = "{model}"\nn_threads = 1\nflash_attn = false\n'
            + (f'chat_template = "{template}"\n' if template else "")
            + f'[caches.bench]\nmodel = "bench"\nn_ctx = {n_ctx}\nsequences = 1\nwindow = "{windows + 20}x"\n'
        )
        app = App(configuration.load(flags={}, env={}, cwd=folder, user_dir=folder, file=file))
        theirs: dict[str, Llama] = {}
        for manner in manners:
            more = ("--chat-template-file", str(template)) if template else ()
            started = replace(setup, evict=manner == "shift", llama=more)
            theirs[manner] = Llama(stack.enter_context(running("llama-server", started)), manner, n_ctx)
        names, begun = ["shepherd", *manners], time.monotonic()
        figures, messages = {name: Figures() for name in names}, list[Message]()
        try:
            await app.load()
            own = Shepherd(app.dispatcher.backends()["bench"])
            for number, step in enumerate(Session(seed).steps()):
                messages += step.messages
                for at in range(len(names)):
                    name = names[(number + at) % len(names)]
                    if name == "shepherd":
                        await own.ask(messages, step, figures[name])
                    else:
                        theirs[name].ask(messages, step, figures[name])
                if sum(own.new) >= windows * n_ctx or time.monotonic() > begun + 60 * minutes:
                    break
            return figures, own.new
        finally:
            await app.aclose()


def main() -> None:
    """Run every side in turn, print a table, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="embedded, 0.5B or a file; both by default")
    parser.add_argument("--windows", type=int, default=40, help="contexts that the session fills")
    parser.add_argument("--minutes", type=float, default=math.inf, help="a session ends earlier behind so many")
    parser.add_argument("--context", type=int, default=2048, help="tokens of the context")
    parser.add_argument("--sides", default="limit,shift,summary,proxy")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--template", help="own, or a file; not for the embedded model")
    parser.add_argument("--quick", action="store_true", help="the figures are not kept")
    given = parser.parse_args()
    for name in given.model or ["embedded", "0.5B"]:
        template = (
            None if name == "embedded" or given.template == "own" else Path(given.template or source() / TEMPLATE)
        )
        manners = [manner for manner in given.sides.split(",") if manner]
        setup = Setup(file_of(name), given.context)
        played = play(setup, template, manners, given.windows, given.seed, minutes=given.minutes)
        sides, new = asyncio.run(played)
        show(Path(name).name, sides, new)
        label = Path(name).name.removesuffix(".gguf")
        found = {
            "model": label,
            "context": given.context,
            "windows": round(sum(new) / given.context, 1),
            "seed": given.seed,
            "new": new,
            "ms_per_token": {
                side: [1000 * each.per_token(new, has_lost=has_lost) for has_lost in (False, True)]
                for side, each in sides.items()
            },
            "sides": {side: asdict(each) for side, each in sides.items()},
        }
        print(machine.save(f"agents-{label}", found, quick=given.quick))


def show(model: str, sides: dict[str, Figures], new: list[int]) -> None:
    n_new = sum(new)
    table = Table(title=f"{model}: {n_new} new tokens")
    for column in (
        "side",
        "answered",
        "refused",
        "computed / new",
        "ordinary ms",
        "behind ms",
        "ratio",
        "wall s",
        "facts",
    ):
        table.add_column(column, justify="left" if column == "side" else "right")
    for side, each in sides.items():
        ordinary, behind = (each.per_token(new, has_lost=has_lost) for has_lost in (False, True))
        table.add_row(
            side, str(each.n_requests), str(each.n_refused), f"{each.n_computed / n_new:.2f}", f"{1000 * ordinary:.2f}",
            f"{1000 * behind:.2f}", f"{behind / ordinary:.2f}" if behind and ordinary else "-", f"{each.wall_s:.0f}",
            f"{each.n_present} of {each.n_asked}",
        )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
