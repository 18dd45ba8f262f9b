"""What a grammar costs for each token: our masks against llama.cpp's grammar sampler, on the same texts and schema.

    uv run python -m bench.engine.grammar [--rounds 5] [--model embedded] [--quick]

A text is replayed token by token, so both sides stand at the same places; no model computes anything. Two questions are
timed at every token: may this one token come (`one`), and which of all may (`all`, applied to a row of logits). Both
servers ask the first one for every token that is drawn and the second one only when that must not come. Taking note of
the token is counted on both sides. `free` is text before, between and behind tool calls, with a trigger that is
waited for; `schema` is JSON outside of strings, `string` is inside of them.

Every round compiles the grammars again, and the first side changes. Ratios above 1 mean that ours is faster.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.rig import llama_tools, machine
from bench.rig.machine import EMBEDDED
from bench.rig.random_gguf import random_model
from rich.console import Console
from rich.table import Table

from shepherd.core import EngineError
from shepherd.engine.grammar import mask as constraint
from shepherd.engine.grammar.mask import Constrainer, GrammarMask
from shepherd.engine.llamacpp.library import C, start_library
from shepherd.engine.llamacpp.weights import Weights

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "colour": {"enum": ["red", "green", "blue"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "number": {"type": "integer"}, "flat": {"type": "boolean"}},
            "required": ["street", "number", "flat"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "age", "colour", "tags", "address"],
    "additionalProperties": False,
}
PROSE = (
    "Sheep are kept for wool, milk and meat. A flock of 40 knows its shepherd by voice; strangers are looked at, and "
    "if a < b then they wait.\n\n1. Count them in the evening.\n2. Close the gate (twice, if it is windy).\n"
)
CALL = json.dumps(
    {
        "name": "Ada Lovelace, of London \u2014 and elsewhere",
        "age": 36,
        "colour": "green",
        "tags": ["analytical engines", "notes on <everything> else", "poetry, too"],
        "address": {"street": "St James's Square, behind the trees on the left", "number": 12, "flat": False},
    },
    ensure_ascii=False,
)
TRIGGER, CLOSER = "<tool_call>", "</tool_call>"
STATES = ("free", "schema", "string")
QUESTIONS = ("one", "all")


def lark() -> str:
    """Free text, and calls that satisfy the schema."""
    return (
        f'start: (free call)* TEXT\nfree[lazy]: TEXT "{TRIGGER}"\ncall: arguments "{CLOSER}"\n'
        f"arguments: %json {json.dumps(SCHEMA)}\nTEXT: /(?s:.*)/\n"
    )


def gbnf() -> str:
    """What llama.cpp makes of it: its lazy grammar begins with the trigger and ends with the call."""
    converter = importlib.import_module("llama_cpp.llama_grammar")
    rules: str = converter.json_schema_to_gbnf(json.dumps(SCHEMA))
    return f'root ::= "{TRIGGER}" arguments "{CLOSER}"\n' + rules.replace("root ::=", "arguments ::=")


def open_vocabulary(path: Path) -> Weights:
    """A model's vocabulary without its weights."""
    start_library()
    params = C.llama_model_default_params()
    params.vocab_only = True
    handle = C.llama_model_load_from_file(os.fsencode(path), params)
    if not handle:
        raise EngineError(f"{path} cannot be read")
    return Weights(handle, path)


def vocabularies() -> dict[str, Callable[[], Path]]:
    """By name; `qwen2` is a real one from llama.cpp's own tests, of 152,000 tokens, the made-up one has as many."""
    return {
        "embedded": lambda: EMBEDDED,
        "random 152k": random_model,
        "qwen2 152k": lambda: llama_tools.source() / "models" / "ggml-vocab-qwen2.gguf",
    }


@dataclass(slots=True)
class Times:
    """Microseconds per token, by state and question, and milliseconds per grammar."""

    tokens: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    compile_ms: list[float] = field(default_factory=list)

    def add(self, state: str, question: str, seconds: float) -> None:
        self.tokens.setdefault((state, question), []).append(seconds * 1e6)


def script(weights: Weights, n_calls: int) -> list[tuple[str, int]]:
    """The text as tokens, each with the state that it comes in."""
    found: list[tuple[str, int]] = []
    for text, is_call in [(PROSE, False), *[(TRIGGER, False), (CALL, True), (CLOSER, False), (PROSE, False)] * n_calls]:
        in_string = False
        for token in weights.tokenize(text):
            piece = weights.piece(token)
            found.append(("string" if in_string else "schema" if is_call else "free", token))
            in_string ^= is_call and piece.count(b'"') % 2 == 1
    return found


def ours(constrainer: Constrainer, steps: list[tuple[str, int]], question: str, times: Times) -> None:
    """One pass through the text with our masks."""
    tokenizer = constrainer._build()[0]
    begun = time.perf_counter()
    matcher = constraint.compiled(tokenizer, lark())
    times.compile_ms.append((time.perf_counter() - begun) * 1e3)
    mask = GrammarMask(matcher, constrainer._encoder)
    clean = array("f", bytes(4 * constrainer._vocabulary.n_vocab))
    for state, token in steps:
        row = memoryview(clean[:]) if question == "all" else None
        begun = time.perf_counter()
        if row is not None:
            mask.allow(row)
        else:
            assert mask.allows(token)
        mask.accept(token)
        times.add(state, question, time.perf_counter() - begun)
        assert row is None or row[token] == 0, "the text is not in the grammar"


def theirs(weights: Weights, steps: list[tuple[str, int]], question: str, times: Times) -> None:
    """One pass with llama.cpp's sampler; it is lazy, and a new one for every call, as in its server."""
    n = weights.n_vocab if question == "all" else 1
    candidates = (C.llama_token_data * n)()
    clean = bytes((C.llama_token_data * n)(*(C.llama_token_data(token, 0.0, 0.0) for token in range(n))))
    patterns = (ctypes.c_char_p * 1)(f"[\\s\\S]*?({TRIGGER})[\\s\\S]*".encode())
    words = gbnf().encode()
    sampler = None
    was = ""
    for state, token in steps:
        if sampler is None or (was == "closed" and state == "free"):
            if sampler is not None:
                C.llama_sampler_free(sampler)
            begun = time.perf_counter()
            sampler = C.llama_sampler_init_grammar_lazy_patterns(weights.vocab, words, b"root", patterns, 1, None, 0)
            times.compile_ms.append((time.perf_counter() - begun) * 1e3)
            assert sampler, "llama.cpp cannot read the grammar"
            closing = b""
        ctypes.memmove(candidates, clean, len(clean))
        if question == "one":
            candidates[0].id = token
        given = C.llama_token_data_array(candidates, n, -1, False)
        begun = time.perf_counter()
        C.llama_sampler_apply(sampler, ctypes.byref(given))
        at = token if question == "all" else 0
        allowed = candidates[at].logit == 0
        C.llama_sampler_accept(sampler, token)
        times.add(state, question, time.perf_counter() - begun)
        assert allowed, "the text is not in the grammar"
        closing = closing[-64:] + weights.piece(token)
        was = "closed" if closing.endswith(CLOSER.encode()) else state
    C.llama_sampler_free(sampler)


def passes(weights: Weights, constrainer: Constrainer, rounds: int, n_calls: int) -> Iterator[tuple[Times, Times]]:
    """Both sides' times, one round after the other."""
    steps = script(weights, n_calls)
    for turn in range(rounds):
        mine, other = Times(), Times()
        for question in QUESTIONS:
            if turn % 2:
                theirs(weights, steps, question, other)
            ours(constrainer, steps, question, mine)
            if not turn % 2:
                theirs(weights, steps, question, other)
        yield mine, other


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(name: str, path: Path, rounds: int, n_calls: int, console: Console) -> list[dict[str, object]]:
    """The rows of one vocabulary."""
    weights = open_vocabulary(path)
    constrainer = Constrainer(weights, weights.end_tokens)
    begun = time.perf_counter()
    constrainer.prepare()
    prepared_s = time.perf_counter() - begun
    results: list[dict[str, object]] = []
    both = list(passes(weights, constrainer, rounds, n_calls))
    shared = {"model": name, "tokens": weights.n_vocab, "tokenizer_s": round(prepared_s, 3)}
    for state in STATES:
        for question in QUESTIONS:
            key = (state, question)
            ratios = sorted(statistics.mean(b.tokens[key]) / statistics.mean(a.tokens[key]) for a, b in both)
            mine = [value for a, _ in both for value in a.tokens[key]]
            other = [value for _, b in both for value in b.tokens[key]]
            results.append(
                {
                    **shared,
                    "state": state,
                    "question": question,
                    "shepherd_p50_us": round(percentile(mine, 0.5), 1),
                    "shepherd_p99_us": round(percentile(mine, 0.99), 1),
                    "llama_cpp_p50_us": round(percentile(other, 0.5), 1),
                    "llama_cpp_p99_us": round(percentile(other, 0.99), 1),
                    "ratio_of_means": round(statistics.median(ratios), 2),
                    "ratio_of_rounds": [round(value, 2) for value in ratios],
                }
            )
    compiling = [
        statistics.median(value for side in sides for value in side.compile_ms) for sides in zip(*both, strict=True)
    ]
    results.append(
        {
            **shared,
            "state": "compile",
            "shepherd_ms": round(compiling[0], 2),
            "llama_cpp_ms": round(compiling[1], 2),
            "ratio": round(compiling[1] / compiling[0], 2),
        }
    )
    console.print(
        f"{name}: {weights.n_vocab} tokens, vocabulary built in {prepared_s:.2f} s; "
        f"a grammar in {compiling[0]:.2f} ms (llama.cpp {compiling[1]:.2f} ms)"
    )
    weights.close()
    return results


def main() -> None:
    known = vocabularies()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds per vocabulary")
    parser.add_argument("--model", choices=known, action="append", help="only this vocabulary")
    parser.add_argument("--quick", action="store_true", help="show that everything works; the numbers mean nothing")
    options = parser.parse_args()
    console = Console()
    results: list[dict[str, object]] = []
    for name in options.model or known:
        rounds, n_calls = (1, 1) if options.quick else (options.rounds, 3)
        results += measure(name, known[name](), rounds, n_calls, console)
    table = Table("model", "state", "question", "ours p50 us", "p99", "llama.cpp p50 us", "p99", "ratio of means")
    for row in results:
        if "question" in row:
            columns = ("model", "state", "question", "shepherd_p50_us", "shepherd_p99_us", "llama_cpp_p50_us",
                       "llama_cpp_p99_us", "ratio_of_means")  # fmt: skip
            table.add_row(*(str(row[column]) for column in columns))
    console.print(table)
    console.print(f"written to {machine.save('grammar', {'results': results}, quick=options.quick)}")


if __name__ == "__main__":
    main()
