"""Fuzzes every dialect's parser with what `tests.unit.dialects.outputs` knows to be true of all of them.

    uv run python -m tests.search.fuzz.dialects --seconds 300             random outputs, mutated; no further package
    uv run python -m tests.search.fuzz.dialects --seconds 60 --dialect glm hermes
    uv run --with atheris python -m tests.search.fuzz.dialects --atheris -- -max_total_time=300      led by coverage

What fails is made as short as it goes and printed, once for each dialect and check; the exit status tells of it.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import time
from collections.abc import Sequence

from tests.unit.dialects.outputs import ALL, CHECKS, TOOLS, Check, Options, pieces, random_options, random_output


def fault(check: Check, name: str, text: str, options: Options) -> str:
    """What is wrong with the reading of a text; empty when nothing is."""
    try:
        return check(text, ALL[name], options, random.Random(1))
    except Exception as error:  # a parser must never raise: that is what is looked for
        return f"{type(error).__name__}: {error}"


def shortest(check: Check, name: str, text: str, options: Options) -> str:
    """The text without all that the fault does not need."""
    for size in (16, 8, 4, 2, 1):
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size :]
            if fault(check, name, shorter, options):
                text = shorter
            else:
                at += 1
    return text


def mutated(text: str, other: str, chance: random.Random) -> str:
    """The text with a stretch of it left out, doubled, moved, or taken from another one."""
    start, stop = sorted(chance.choices(range(len(text) + 1), k=2))
    stretch = text[start:stop]
    match chance.randrange(5):
        case 0:
            return text[:start] + text[stop:]
        case 1:
            return text[:stop] + stretch + text[stop:]
        case 2:
            return stretch + text[:start] + text[stop:]
        case 3:
            return text[:start] + other + text[stop:]
        case _:
            return text[:stop]


def report(check: Check, name: str, text: str, options: Options) -> None:
    found = shortest(check, name, text, options)
    told = {**options, "tools": bool(options["tools"])}
    print(f"{name} {check.__name__} {found!r} {told}\n    {fault(check, name, found, options)}", flush=True)


def at_random(names: Sequence[str], seconds: float, seed: int) -> bool:
    """Whether anything has failed."""
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    failed: set[tuple[str, str]] = set()
    n_outputs = 0
    while time.monotonic() < end:
        for name in names:
            text = random_output(name, chance, 16)
            for _ in range(chance.randrange(3)):
                text = mutated(text, random_output(name, chance, 3), chance)
            options = random_options(chance)
            n_outputs += 1
            for check in CHECKS:
                if (name, check.__name__) not in failed and fault(check, name, text, options):
                    failed.add((name, check.__name__))
                    report(check, name, text, options)
    print(f"{n_outputs} outputs, seed {seed}, {len(failed)} faults")
    return bool(failed)


def led_by_coverage(names: Sequence[str], arguments: Sequence[str]) -> None:
    """Hands over to atheris, which ends the process at the first fault."""
    atheris = importlib.import_module("atheris")
    atheris.instrument_all()

    def one(given: bytes) -> None:
        source = atheris.FuzzedDataProvider(given)
        name = names[source.ConsumeIntInRange(0, len(names) - 1)]
        options: Options = {
            "reasoning": "keep" if source.ConsumeBool() else "split",
            "tools": TOOLS if source.ConsumeBool() else (),
            "truncated": source.ConsumeBool(),
        }
        known = pieces(name)
        text = ""
        while source.remaining_bytes() and len(text) < 400:
            at = source.ConsumeIntInRange(0, len(known) + 20)
            text += known[at] if at < len(known) else source.ConsumeUnicodeNoSurrogates(3)
        for check in CHECKS:
            if fault(check, name, text, options):
                report(check, name, text, options)
                raise AssertionError(name)

    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--dialect", nargs="*", default=sorted(ALL), choices=sorted(ALL))
    parser.add_argument("--atheris", action="store_true")
    parser.add_argument("arguments", nargs="*", help="behind --: for atheris")
    options = parser.parse_args()
    if options.atheris:
        led_by_coverage(options.dialect, options.arguments)
    return int(at_random(options.dialect, options.seconds, options.seed))


if __name__ == "__main__":
    sys.exit(main())
