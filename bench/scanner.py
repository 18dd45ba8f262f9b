"""How fast the output parser reads: MB/s of plain text, reasoning and calls, in blocks and in token-sized pieces.

uv run python bench/scanner.py [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import statistics
import time

import machine
from rich.console import Console

from shepherd import dialects

GOAL_MB_S = 50.0
PLAIN = "The quick brown fox jumps over the lazy dog, and 2 < 3 is still true. Use <b>bold</b> here.\n" * 20_000
CALL = (
    '<tool_call>\n{"name": "write", "arguments": {"path": "a.py", "content": "x = {\\"a\\": [1, 2]}\\n"}}\n'
    "</tool_call>\n"
)
TEXTS = {
    "plain text": PLAIN,
    "reasoning": "<think>\n" + PLAIN + "\n</think>\n\nDone.",
    "calls": CALL * 10_000,
    "one long call": CALL.replace("x = ", "y = 1\\n" * 200_000),
}
PIECES = {"blocks of 4 kB": 4096, "tokens of 4": 4}


def feed(text: str, size: int) -> float:
    """MB/s of one pass."""
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    parser = dialects.get("hermes").parser()
    started = time.perf_counter()
    for piece in pieces:
        parser.feed(piece)
    parser.close()
    return len(text.encode()) / (time.perf_counter() - started) / 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--profile", action="store_true", help="show where plain text in blocks spends its time")
    arguments = options.parse_args()
    console = Console()
    if arguments.profile:
        with cProfile.Profile() as profile:
            feed(PLAIN, 4)
        profile.print_stats("tottime")
        return
    results = []
    for name, text in TEXTS.items():
        for cut, size in PIECES.items():
            speed = statistics.median(feed(text, size) for _ in range(5))
            console.print(f"{name:>14} in {cut:<14}: {speed:8.1f} MB/s ({speed / GOAL_MB_S:.2f} of the goal)")
            results.append({"text": name, "pieces": cut, "mb_s": round(speed, 1)})
    console.print(f"written to {machine.save('scanner', {'results': results})}")


if __name__ == "__main__":
    main()
