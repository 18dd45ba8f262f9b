"""What drafts save where a token, a further token and a guess cost so much: real models, made-up times.

    uv run python -m bench.engine.drafts --model LARGE.gguf --draft SMALL.gguf [--tokens 64] [--quick]

The models really compute and draw; the time is counted, not measured: a decode of n tokens takes 1 + part x (n - 1),
one of the draft model `guess`, in the time of a token. So it says what a machine with these costs would gain, and is
the same on a busy one. What it does not say is what they are on a machine: `bench.engine.speculation` measures that.
"""

from __future__ import annotations

import argparse
import contextlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from bench.rig import machine
from bench.rig.verdict import WIDTH
from rich.console import Console
from rich.table import Table
from tests.fake_engine import SilentLoop, SteadyCost, SteadySpeed, scheduler_on

from shepherd.core import Sampling
from shepherd.engine.base import Chunk, Decoded, Done, Job, Ticket
from shepherd.engine.draft_model import DraftModel
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.speculation import Speculator

QUESTIONS = (
    "Tell me a story about a king and a fox.",
    "What is the difference between rice and wheat?",
    "Write a letter to a friend about a journey.",
    "How do bees find their way?",
    "Write a Python program that reads a CSV file.",
)
TOKEN_S = 0.01
"""Of the large model: that of `SteadyCost`."""
READ = 0.1
"""A token that the draft model reads, in the time of one that it guesses."""


class Costs(NamedTuple):
    part: float
    """Of a token's time, for each further token of a decode."""
    guess: float
    """Of a token's time, for a guess of the draft model."""


COSTS = (Costs(0.05, 0.1), Costs(0.05, 0.3), Costs(0.3, 0.15))


class Counted(LlamaRuntime):
    """Counts the time that its decodes would take."""

    took_s: float = 0.0
    first_s: float = TOKEN_S
    further_s: float = 0.0

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        n = sum(len(chunk.tokens) for chunk in batch)
        self.took_s += self.first_s + self.further_s * (n - 1)
        return super().decode(batch)


class Saved(NamedTuple):
    rate: float
    """Tokens written in the time of one without drafts."""
    drafted: int
    accepted: int


def measure(large: Weights, small: Weights | None, costs: Costs, temperature: float, n_tokens: int) -> Saved:
    """Answers to all questions, one after the other; the prompts take no time."""
    with contextlib.ExitStack() as stack:
        runtime = stack.enter_context(contextlib.closing(Counted(large, _context())))
        runtime.further_s = TOKEN_S * costs.part
        guessing: Counted | None = None
        model: DraftModel | None = None
        if small is not None:
            guess_s = TOKEN_S * costs.guess
            guessing = counted = Counted(small, _context())
            counted.first_s, counted.further_s = guess_s, guess_s * READ
            speed = SteadySpeed(guess_s, guess_s * READ)
            model = stack.enter_context(
                contextlib.closing(
                    DraftModel(counted, min(large.n_vocab, small.n_vocab), speed=speed, clock=lambda: counted.took_s)
                )
            )
        speculator = Speculator(SteadyCost(costs.part))
        scheduler = scheduler_on(runtime, speculate=True, draft_model=model, drafting={"speculator": speculator})
        took_s, n, drafted, accepted = 0.0, 0, 0, 0
        for seed, question in enumerate(QUESTIONS):
            prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            sampling = Sampling(temperature=temperature, seed=seed, ignore_eos=True)
            ticket = Ticket(Job(array("i", large.tokenize(prompt)), n_tokens, sampling), cast(Any, SilentLoop()))
            scheduler.queue.add(ticket)
            scheduler.admit()
            while scheduler.running:
                is_prompt = any(task.phase == "prefill" for task in scheduler.running)
                begun_s = 0.0 if guessing is None else guessing.took_s
                runtime.took_s = 0.0
                scheduler.step()
                took_s += 0.0 if is_prompt else runtime.took_s
                took_s += 0.0 if guessing is None else guessing.took_s - begun_s
            (done,) = [step for step in ticket._steps if isinstance(step, Done)]
            n += sum(isinstance(step, int) for step in ticket._steps) - 1  # the first one comes with the prompt
            drafted, accepted = drafted + done.drafted, accepted + done.accepted
    return Saved(n * TOKEN_S / took_s, drafted, accepted)


def _context() -> ContextOptions:
    return ContextOptions(2048, 8, n_outputs=32, n_threads=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--quick", action="store_true", help="one line: shows that it works, no more")
    options = parser.parse_args()
    console = Console(width=WIDTH)
    table = Table(
        "further token",
        "guess",
        "temperature",
        "texts alone",
        "and the draft model",
        title=f"{options.model.stem}, drafts by {options.draft.stem}",
    )
    rows = []
    with (
        contextlib.closing(Weights.load(options.model)) as large,
        contextlib.closing(Weights.load(options.draft)) as small,
    ):
        for costs in COSTS[:1] if options.quick else COSTS:
            for temperature in (0.0,) if options.quick else (0.0, 0.8):
                texts = measure(large, None, costs, temperature, options.tokens)
                both = measure(large, small, costs, temperature, options.tokens)
                shown = (f"{each.rate:.2f}, {each.accepted} of {each.drafted} held" for each in (texts, both))
                table.add_row(str(costs.part), str(costs.guess), str(temperature), *shown)
                row = {**costs._asdict(), "temperature": temperature, "texts": texts._asdict(), "both": both._asdict()}
                rows.append(row)
                console.print(row)
    console.print(table)
    result = {"bench": "drafts", "model": options.model.stem, "draft": options.draft.stem, "tokens": options.tokens}
    path = machine.save(
        f"drafts-{options.model.stem}-{options.draft.stem}", result | {"rows": rows}, quick=options.quick
    )
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
