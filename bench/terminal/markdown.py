"""What it costs to show an answer while it is written: processor time per 1,000 tokens, at growing lengths.

Ours (`MarkdownAnswer`: finished blocks are written once, of code only the last lines are drawn again) and rich's own
way (`Live` with the whole text as `Markdown`) take turns over the same text and the same pictures: one for every four
tokens of four characters, as at 60 tokens/s and 15 pictures/s. Measured are the pictures behind a text that stands
already, so that what grows with its length is seen. A program that needs more than 16,500 ms cannot keep up with 60
tokens/s.

uv run python -m bench.terminal.markdown [--quick]
"""

from __future__ import annotations

import argparse
import io
import time
from typing import Any

from bench.rig import machine
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown

from shepherd.cli.terminal.live import MarkdownAnswer
from shepherd.cli.terminal.screen import Screen
from shepherd.core import TextDelta

TOKEN, PER_PICTURE = 4, 4
"""Characters, tokens."""
PROSE = """\
## A heading of some words

A paragraph with **bold**, *italic*, `code` and a [link](https://example.org), long enough to be wrapped at eighty
columns, as most of what models write is.

- one thing, and what there is to say of it
- another one
  - with something below it

| name | value |
| --- | --- |
| one | 1 |
| two | 2 |

"""
FUNCTION = '''\
def function_{n}(x: int, *, name: str = "value") -> list[int]:
    """What it returns, in a line."""
    if x < {n}:
        return [x, 1, 2]  # a comment
    return [each for each in range(x) if each % 2]


'''


def prose(n_tokens: int) -> str:
    return PROSE * (n_tokens * TOKEN // len(PROSE) + 1)


def code(n_tokens: int) -> str:
    n_functions = n_tokens * TOKEN // len(FUNCTION) + 1
    return "```python\n" + "".join(FUNCTION.replace("{n}", str(n)) for n in range(n_functions))


def listed(n_tokens: int) -> str:
    """One list, which is one block."""
    item = "- a thing, and **what** there is to say of it in a line\n"
    return item * (n_tokens * TOKEN // len(item) + 1)


TEXTS = {"prose": prose, "one block of code": code, "one list": listed}


def sink() -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=100, height=40, color_system="standard", highlight=False
    )


def pieces(text: str, start: int, n_tokens: int) -> list[str]:
    """What comes between two pictures, from the token `start` on."""
    size = TOKEN * PER_PICTURE
    return [text[at : at + size] for at in range(start * TOKEN, (start + n_tokens) * TOKEN, size)]


def ours(text: str, start: int, n_tokens: int) -> float:
    """Seconds of the pictures of the tokens from `start` on."""
    answer = MarkdownAnswer(Screen(sink()), clock=lambda: 0.0)  # time stands still: pictures are drawn on ticks alone
    if start:
        answer.feed(TextDelta(text[: start * TOKEN]))
        answer.tick()
    began = time.process_time()
    for piece in pieces(text, start, n_tokens):
        answer.feed(TextDelta(piece))
        answer.tick()
    return time.process_time() - began


def richs(text: str, start: int, n_tokens: int) -> float:
    shown = text[: start * TOKEN]
    with Live(console=sink(), auto_refresh=False) as live:
        began = time.process_time()
        for piece in pieces(text, start, n_tokens):
            shown += piece
            live.update(Markdown(shown), refresh=True)
        return time.process_time() - began


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="short texts; the numbers mean little")
    quick = options.parse_args().quick
    console = Console()
    lengths = (0, 500) if quick else (0, 1_000, 4_000, 16_000)
    n_ours, n_richs = (40, 8) if quick else (400, 40)
    results: list[dict[str, Any]] = []
    for name, make in TEXTS.items():
        for start in lengths:
            text = make(start + n_ours)
            n_theirs = n_richs if start else n_ours  # behind a long text, one picture is as slow as the next
            ms = {"ours": ours(text, start, n_ours) / n_ours, "rich": richs(text, start, n_theirs) / n_theirs}
            row = {"text": name, "behind": start, **{side: round(1e6 * s, 1) for side, s in ms.items()}}
            told = f"ours {row['ours']:>7,.0f}, rich {row['rich']:>8,.0f}"
            console.print(f"{name:>17} behind {start:>6,} tokens: {told} ms per 1,000 tokens")
            results.append(row)
    console.print(f"written to {machine.save('markdown', {'results': results}, quick=quick)}")


if __name__ == "__main__":
    main()
