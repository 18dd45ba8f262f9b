"""What a child with a deadline would make of grammars that are refused by their text today, and what it would cost.

    uv run python -m bench.engine.grammar_guards [--deadline SECONDS]

One line of CSV for each case: what a refusal costs today, and what becomes of the grammar in a child without the guards
(`refused`, `too slow`, `killed by SIGNAL`, or `accepted`, and then the slowest token and whether an answer gets stuck).
The first lines are the price of a child for a grammar of ordinary tools, of which a server compiles one for each agent.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from shepherd.engine.grammar import mask
from shepherd.engine.grammar.gbnf import gbnf_to_lark
from shepherd.engine.grammar.lark import UnsupportedGrammar, check, regex_to_lark
from shepherd.process import child, isolated

TOOL = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(8)}, "required": ["field_0"]}
TOOLS = "start: t\nt: " + " | ".join(f"%json {json.dumps(TOOL)}" for _ in range(10))
N_STEPS = 3000


def chain(n: int) -> str:
    links = {f"d{i}": {"properties": {"x": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(n)}
    return "start: %json " + json.dumps({"$ref": "#/$defs/d0", "$defs": {**links, f"d{n}": {"type": "string"}}})


HARMFUL = {
    "chain of 5,000 rules": "start: r0\n" + "".join(f'r{i}: r{i + 1} "x"\n' for i in range(5000)) + 'r5000: "y"',
    "chain of 5,000 references": chain(5000),
    "5,000 brackets": "start: " + "(" * 5000 + '"x"' + ")" * 5000,
    "3,000 options": "start: /" + "a?" * 3000 + "/",
    "20,000 options": "start: /" + "a?" * 20_000 + "/",
    "30 joined patterns": "start: %json " + json.dumps({"allOf": [{"pattern": f"a{i}"} for i in range(30)]}),
    "300 patterns of names": "start: %json " + json.dumps({"patternProperties": {f"^p{i}$": {} for i in range(300)}}),
    "10,000 optional properties": "start: %json " + json.dumps({"properties": {f"p{i}": {} for i in range(10_000)}}),
    "multipleOf 1000003": 'start: %json {"type": "integer", "multipleOf": 1000003}',
    "circle without end": "start: c\nb: (c B)+ (B | /a/)\nc: b* A? b b /x/?\nA: B{3}\nB: /x?/",
    "nested repetitions, short": regex_to_lark("(a{1,100}){1,100}"),
    "nested repetitions": regex_to_lark("((a{1,100}){1,100}){1,100}"),
    "nested rules": gbnf_to_lark('root ::= "(" root ")" | a\na ::= ([a-z]{1,100}){1,100}'),
    "exact repetitions": regex_to_lark("(a{1000}){1000}"),
    "nested in a schema": 'start: %json {"type": "string", "pattern": "^(a{1,100}){1,100}$"}',
}


def compiled(grammar: str) -> Any:
    """In the child: compile without guards, then generate: the fault, the slowest token in ms, and tokens reached."""
    matcher = mask.compiled(mask._bytes_only(), grammar)
    if matcher.is_error():
        return {"fault": mask.explain_error(matcher.get_error())[:60]}
    slowest_s, n_tokens, dice = 0.0, 0, random.Random(1)
    while n_tokens < N_STEPS:
        began_s = time.perf_counter()
        allowed = [byte for byte, bits in enumerate(_bits(matcher.compute_bitmask())) if bits and byte < 256]
        slowest_s = max(slowest_s, time.perf_counter() - began_s)
        if matcher.is_error() or not allowed:
            break
        letters = [byte for byte in allowed if chr(byte).isalpha()] or allowed
        matcher.consume_token(dice.choice(letters))
        n_tokens += 1
    return {"fault": "", "token_ms": round(1000 * slowest_s), "n_tokens": n_tokens, "stuck": matcher.is_error()}


def _bits(raw: bytes) -> list[int]:
    return [(byte >> bit) & 1 for byte in raw for bit in range(8)]


def took_ms(work: Callable[[], object], n: int = 15) -> float:
    times = []
    for _ in range(n):
        began_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - began_s)
    return round(1000 * statistics.median(times), 2)


def refusal_of(grammar: str) -> str:
    try:
        check(grammar)
    except UnsupportedGrammar as error:
        return error.message
    return ""


def in_child(grammar: str, deadline_s: float) -> str:
    command = isolated.command("grammar_guards:compiled", memory_bytes=isolated.MOST_MEMORY_BYTES)
    command[3] = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); {command[3]}"
    began_s = time.perf_counter()
    ended = child.run(command, task=json.dumps(grammar) + "\n", timeout_s=deadline_s)
    took = f"{time.perf_counter() - began_s:.2f}"
    if not ended.answer:
        return f"{child.died(ended.status, deadline_s)},{took}"
    answer = json.loads(ended.answer)
    value = answer.get("value") or {"fault": answer.get("fault") or answer.get("error")}
    if value["fault"]:
        return f"refused: {value['fault']},{took}"
    how = "stuck after" if value["stuck"] else "ran"
    return f"accepted; token {value['token_ms']} ms; {how} {value['n_tokens']},{took}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deadline", type=float, default=10.0)
    deadline_s = parser.parse_args().deadline
    mask.compiled(mask._bytes_only(), TOOLS)
    print(f"ordinary tools: guards ms,{took_ms(lambda: check(TOOLS))}")
    print(f"ordinary tools: compile ms,{took_ms(lambda: mask.compiled(mask._bytes_only(), TOOLS))}")
    print(f"ordinary tools: in a child ms,{took_ms(lambda: in_child(TOOLS, 60.0), 5)}")
    print("case,guards ms,guards say,without guards,seconds in the child")
    for name, grammar in HARMFUL.items():
        says = refusal_of(grammar).replace(",", ";")[:60]
        guards_ms = took_ms(partial(refusal_of, grammar), 3)
        print(f"{name},{guards_ms},{says},{in_child(grammar, deadline_s)}", flush=True)


if __name__ == "__main__":
    main()
