"""How fast the output parser reads: MB/s of plain text, of reasoning, and of calls in every kind of notation.

Each text is fed at once, in pieces of 64 characters and in pieces of 4, as tokens come. Then the same texts at 1 to 16
times the size: linear means the same MB/s for all of them. A profile shows where the time of plain text goes.

uv run python -m bench.dialects.scanner [--quick]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from typing import Any

from bench.rig import machine
from rich.console import Console

from shepherd import dialects

GOAL_MB_S = 50.0
PLAIN = "The quick brown fox jumps over the lazy dog, and 2 < 3 is still true. Use <b>bold</b> here.\n"
CODE = "def f(x):\n    if x < 1:\n        return [1, 2]\n"
JSON = '{"name": "write", "arguments": {"path": "a.py", "content": "@"}}'.replace("@", CODE.replace("\n", "\\n"))
CALLS = {
    "hermes": f"<tool_call>\n{JSON}\n</tool_call>\n",
    "qwen-xml": (
        "<tool_call>\n<function=write>\n<parameter=path>\na.py\n</parameter>\n"
        f"<parameter=content>\n{CODE}\n</parameter>\n</function>\n</tool_call>\n"
    ),
    "glm": (
        "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>a.py</arg_value>\n"
        f"<arg_key>content</arg_key>\n<arg_value>{CODE}</arg_value>\n</tool_call>\n"
    ),
    "lfm": f"<|tool_call_start|>[write(path='a.py', content='''{CODE}''')]<|tool_call_end|>\n",
    "gemma4": f'<|tool_call>call:write{{content:<|"|>{CODE}<|"|>,path:<|"|>a.py<|"|>}}<tool_call|>\n',
    "mistral": f'[TOOL_CALLS]write[ARGS]{{"path": "a.py", "content": "{CODE!r}"}}\n'.replace("'", ""),
    "harmony": ('<|channel|>commentary to=functions.write<|message|>{"path": "a.py"}<|call|><|start|>assistant'),
    "deepseek-v4": (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="write">\n<｜DSML｜parameter name="content" string="true">'
        f"{CODE}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>\n"
    ),
    "kimi-k2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>"
        '{"path": "a.py"}<|tool_call_end|><|tool_calls_section_end|>\n'
    ),
}
LINES = {"hermes": "y = 1\\n", "qwen-xml": "y = 1\n", "glm": "y = 1\n", "lfm": "y = 1\n", "gemma4": "y = 1\n"}
"""Code as these write it into a string."""
PIECES = {"at once": 1 << 30, "64 characters": 64, "tokens of 4": 4}
SIZES = (1, 2, 4, 8, 16)


def of_size(text: str, n_characters: int) -> str:
    """The text over and over."""
    return text * max(1, n_characters // len(text))


def long_call(dialect: str, n_lines: int) -> str:
    """A call whose content has so many lines more."""
    return CALLS[dialect].replace("def f", LINES[dialect] * n_lines + "def f")


def feed(text: str, dialect: str, size: int) -> float:
    """MB/s of one pass, in processor time, which a neighbour disturbs less."""
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    parser = dialects.get(dialect).parser()
    started = time.process_time()
    for piece in pieces:
        parser.feed(piece)
    parser.close()
    return len(text.encode()) / max(time.process_time() - started, 1e-9) / 1e6


def top(n_characters: int, size: int, n_functions: int = 10) -> list[dict[str, Any]]:
    """The functions that most of the time of plain text is spent in."""
    with cProfile.Profile() as profile:
        feed(of_size(PLAIN, n_characters), "hermes", size)
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # public, forgotten in typeshed
    found = sorted(stats.items(), key=lambda item: item[1][2], reverse=True)[:n_functions]
    return [
        {"function": f"{file.rpartition('/')[2]}:{line} {name}", "calls": calls, "own_ms": round(own * 1e3, 1)}
        for (file, line, name), (_, calls, own, _, _) in found
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="small texts, once; the numbers mean nothing")
    quick = options.parse_args().quick
    console = Console()
    rounds, n_characters = (1, 20_000) if quick else (5, 1_000_000)

    def speed(text: str, dialect: str, size: int) -> float:
        return round(statistics.median(feed(text, dialect, size) for _ in range(rounds)), 2)

    plain = of_size(PLAIN, n_characters)
    texts = {
        "plain text": ("hermes", plain),
        "reasoning": ("hermes", f"<think>\n{plain}\n</think>\n\nDone."),
        **{f"calls of {name}": (name, of_size(call, n_characters // 2)) for name, call in CALLS.items()},
        **{f"long call of {name}": (name, long_call(name, n_characters // 10)) for name in LINES},
    }
    results = []
    for name, (dialect, text) in texts.items():
        row: dict[str, Any] = {"text": name, **{cut: speed(text, dialect, size) for cut, size in PIECES.items()}}
        console.print(f"{name:>24}: " + ", ".join(f"{cut} {row[cut]:.1f}" for cut in PIECES) + " MB/s")
        results.append(row)
    growth = []
    for name in ("plain text", *LINES):
        row = {"text": name}
        for times in SIZES:
            n_lines = times * n_characters // 100
            text = PLAIN * (n_lines // 10) if name == "plain text" else long_call(name, n_lines)
            row[f"{times}x"] = speed(text, "hermes" if name == "plain text" else name, 4)
        console.print(f"{name:>24}, tokens of 4: " + ", ".join(f"{times}x {row[f'{times}x']:.1f}" for times in SIZES))
        growth.append(row)
    profile = {cut: top(n_characters // 5, size) for cut, size in PIECES.items()}
    result = {"goal_mb_s": GOAL_MB_S, "results": results, "growth": growth, "profile": profile}
    console.print(f"written to {machine.save('scanner', result, quick=quick)}")


if __name__ == "__main__":
    main()
