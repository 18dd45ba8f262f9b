"""Whether the same request gets the same answer, and what that costs: `repeatable = true`, the default, llama-server.

    uv run python -m bench.engine.repeatable [--model PATH] [--requests N] [--rounds N]

Over HTTP, at temperature 0, one thread. Each request is asked of a new server first, and then again: at once, after the
other requests, beside 1 and 3 conversations that are being answered, after a next turn and a branch of its own, and
after prompts that have filled the cells. An answer differs if its text does; *scores* also counts those whose texts are
equal and whose log-probabilities are not. The price is processor time of the server's threads, request by request in
turn, so that neighbours of the machine disturb all alike; only the time of four at once is by the clock.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.rig import machine
from bench.rig.machine import EMBEDDED, ROOT
from bench.rig.sides import Server, Setup, Side, running
from rich.console import Console
from rich.table import Table

N_CTX, N_ANSWER, N_WORDS = 2048, 32, 90
SEQUENCES = 4
ARMS: dict[str, tuple[Side, bool]] = {
    "repeatable": ("shepherd", True),
    "as usual": ("shepherd", False),
    "llama-server": ("llama-server", False),
}
Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    scores: tuple[float, ...]
    """The log-probability of each token."""


@dataclass(slots=True)
class Count:
    """How many answers differ from the first ones."""

    asked: int = 0
    texts: int = 0
    scores: int = 0
    largest: float = 0.0
    """Difference of a log-probability, up to the first token that differs."""

    def add(self, first: Answer, other: Answer) -> None:
        self.asked += 1
        self.texts += first.text != other.text
        self.scores += first != other
        same = 0
        while same < min(len(first.text), len(other.text)) and first.text[same] == other.text[same]:
            same += 1
        n = len(first.scores) if first.text == other.text else same * len(first.scores) // max(1, len(first.text)) // 2
        pairs = zip(first.scores[:n], other.scores[:n], strict=False)
        self.largest = max([self.largest, *(abs(one - two) for one, two in pairs)])


def ask(server: Server, messages: Messages, n: int = N_ANSWER) -> Answer:
    body = {"messages": messages, "max_tokens": n, "temperature": 0, "seed": 1, "ignore_eos": True, "logprobs": True}
    choice = server.post("/v1/chat/completions", body)["choices"][0]
    scores = (choice.get("logprobs") or {}).get("content") or ()
    return Answer(choice["message"].get("content") or "", tuple(each["logprob"] for each in scores))


def texts() -> Iterator[str]:
    """Passages of this repository's own pages, one after another."""
    words = " ".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))).split()
    for at in range(0, len(words) - N_WORDS, N_WORDS):
        yield " ".join(words[at : at + N_WORDS])


def said(text: str) -> Messages:
    return [{"role": "user", "content": f"Say in other words: {text}"}]


@contextlib.contextmanager
def beside(server: Server, n: int, passages: Iterator[str]) -> Iterator[None]:
    """`n` conversations that are being answered during the block."""
    others = [said(next(passages)) for _ in range(n)]
    with ThreadPoolExecutor(max_workers=n or 1) as pool:
        running_ = [pool.submit(ask, server, each, 3 * N_ANSWER) for each in others]
        yield
        for each in running_:
            each.result()


def counts(server: Server, n_requests: int) -> dict[str, Count]:
    """How many answers differ, by circumstance."""
    passages = texts()
    requests = [said(next(passages)) for _ in range(n_requests)]
    firsts: list[Answer] = []
    found: dict[str, Count] = {}

    def compare(circumstance: str, before: Callable[[int], object], n_beside: int = 0) -> None:
        count = found.setdefault(circumstance, Count())
        for at, request in enumerate(requests):
            before(at)
            with beside(server, n_beside, passages):
                count.add(firsts[at], ask(server, request))

    for request in requests:
        firsts.append(ask(server, request))
        found.setdefault("at once again", Count()).add(firsts[-1], ask(server, request))

    def next_turn(at: int) -> None:
        turn = [*requests[at], {"role": "assistant", "content": firsts[at].text}]
        ask(server, [*turn, {"role": "user", "content": "Go on."}])
        ask(server, said(requests[at][0]["content"][20:300] + " And what else?"))

    def fill(at: int) -> None:
        for _ in range(2):
            ask(server, said(" ".join(next(passages) for _ in range(4))), 1)

    compare("after the others", lambda at: None)
    compare("beside 1", lambda at: None, 1)
    compare("beside 3", lambda at: None, 3)
    compare("after its branches", next_turn)
    compare("after evictions", fill)
    return found


def price(server: Server, passages: list[str]) -> dict[str, float]:
    """Processor seconds of one thing after another, and seconds of four at once."""
    spent: dict[str, float] = {}

    def measure(what: str, work: Callable[[], object]) -> None:
        before = server.processor_s
        work()
        spent[what] = server.processor_s - before

    measure("a prompt of 4 passages", lambda: ask(server, said(" ".join(passages[:4])), 1))
    measure("128 tokens", lambda: ask(server, said(passages[8]), 128))

    def chat() -> None:
        messages: Messages = []
        for passage in passages[9:15]:
            messages += said(" ".join(passage.split()[:30]))
            messages.append({"role": "assistant", "content": ask(server, messages).text})

    measure("a chat of 6 turns", chat)
    began_s = time.perf_counter()

    def four() -> None:
        with ThreadPoolExecutor(max_workers=4) as pool:
            list(pool.map(lambda passage: ask(server, said(passage), 64), passages[15:19]))

    measure("four at once", four)
    spent["four at once, by the clock"] = time.perf_counter() - began_s
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=EMBEDDED)
    parser.add_argument("--requests", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flash-attention", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, Count]] = {}
    spent: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    setups = {
        arm: Setup(
            options.model, N_CTX, sequences=SEQUENCES, flash_attn=options.flash_attention, ours={"isolate": False},
            repeatable=repeatable,
        )
        for arm, (_, repeatable) in ARMS.items()
    }  # fmt: skip
    for arm, (side, _) in ARMS.items():
        with running(side, setups[arm]) as server:
            found[arm] = counts(server, options.requests)
    with contextlib.ExitStack() as stack:
        servers = {arm: stack.enter_context(running(side, setups[arm])) for arm, (side, _) in ARMS.items()}
        passages = list(texts())
        for round_ in range(options.rounds):
            for arm in list(ARMS)[:: 1 if round_ % 2 == 0 else -1]:
                spent[arm].append(price(servers[arm], passages[20 * (round_ + 10) :][:20]))
    console = Console(width=120)
    console.print(_differing(found), _prices(spent))
    result: dict[str, Any] = {
        "model": options.model.name,
        "flash_attention": options.flash_attention,
        "differing": {arm: {name: asdict(count) for name, count in each.items()} for arm, each in found.items()},
        "price_s": spent,
    }
    kind = "-fa" if options.flash_attention else ""
    print(machine.save(f"repeatable-{'embedded' if options.model == EMBEDDED else options.model.stem}{kind}", result))


def _differing(found: dict[str, dict[str, Count]]) -> Table:
    table = Table("texts, scores that differ; largest difference", *ARMS, title="answers unlike the first")
    for circumstance in next(iter(found.values())):
        cells = (found[arm][circumstance] for arm in ARMS)
        table.add_row(circumstance, *(f"{c.texts}, {c.scores} of {c.asked}; {c.largest:.0e}" for c in cells))
    return table


def _prices(spent: dict[str, list[dict[str, float]]]) -> Table:
    table = Table("seconds", *ARMS, "repeatable / as usual", title="processor time, medians")
    for what in next(iter(spent.values()))[0]:
        medians = {arm: statistics.median(each[what] for each in rounds) for arm, rounds in spent.items()}
        ratios = [one[what] / two[what] for one, two in zip(spent["repeatable"], spent["as usual"], strict=True)]
        table.add_row(what, *(f"{medians[arm]:.3f}" for arm in ARMS), f"{statistics.median(ratios):.2f}")
    return table


if __name__ == "__main__":
    main()
