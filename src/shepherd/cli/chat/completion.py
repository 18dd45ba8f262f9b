"""What the menu of the prompt offers: commands, their arguments, files behind an `@`.

What begins with the typed text comes first, then what has it inside, or its letters in order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

from shepherd.agent import fitting
from shepherd.app.commands.command import Command, words
from shepherd.cli.chat.state import Chat
from shepherd.cli.terminal.reader import Suggestion

MAX_SUGGESTIONS = 100
MOST_WALKED = 5_000
"""Files and folders that a search below the working folder looks at."""
_NOT_SEARCHED = frozenset({"node_modules", "__pycache__", "target", "build", "dist", "venv"})
_MENTION = re.compile(r'(?<![^\s([{])@(?:"([^"\n]*)|([^\s"]*))$')


def suggestions(chat: Chat, commands: Mapping[str, Command[Chat]], before: str) -> Iterator[Suggestion]:
    """Completions of the text `before` the cursor. May read folders: not on the event loop."""
    if mention := _MENTION.search(before):
        typed = mention[2] if mention[1] is None else mention[1]
        for path in islice(dict.fromkeys(chain(paths(typed), _below(typed))), MAX_SUGGESTIONS):
            is_quoted = mention[1] is not None or " " in path
            closing = '"' if is_quoted and not path.endswith("/") else ""
            yield Suggestion(f'@"{path}{closing}' if is_quoted else f"@{path}", len(mention[0]))
        return
    whole = {name for name, command in commands.items() if not command.argument}
    yield from islice(_fitting(*words(commands, chat, before), whole), MAX_SUGGESTIONS)


def paths(typed: str) -> Iterator[str]:
    """Files and folders whose path begins with `typed`; folders end with a slash. Hidden ones need a typed dot."""
    folder, name = os.path.split(typed)
    try:
        at = Path(folder).expanduser() if folder else Path()
        entries = sorted(os.scandir(at), key=lambda entry: entry.name)
    except (OSError, RuntimeError, ValueError):
        return
    for entry in entries:
        if entry.name.startswith(name) and (name.startswith(".") or not entry.name.startswith(".")):
            yield os.path.join(folder, entry.name) + ("/" if os.path.isdir(entry.path) else "")


def _below(typed: str) -> Iterator[str]:
    """Files and folders below the working folder whose name, or behind a slash whose path, fits `typed`: the best
    first, and of a large folder the upper ones."""
    if len(typed) < 2 or typed.startswith(("/", "~", ".")) or typed.endswith("/"):
        return
    found: list[tuple[str, str]] = []
    folders, n_left = [""], MOST_WALKED
    for folder in folders:  # it grows: the upper folders come first
        try:
            with os.scandir(folder or ".") as opened:
                entries = sorted(islice(opened, n_left), key=lambda entry: entry.name)
        except OSError:
            continue
        n_left -= len(entries)
        for entry in entries:
            path = os.path.join(folder, entry.name)
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name in _NOT_SEARCHED:
                    continue
                folders.append(path)
                path += "/"
            found.append((path if "/" in typed else entry.name, path))
    yield from (path for _, path in fitting.fitting(typed, found))


def _fitting(typed: str, words: Iterable[tuple[str, str]], whole: Container[str] = ()) -> Iterator[Suggestion]:
    """The words that fit, the best first. A blank follows a whole word, so that the next key begins another one.
    `whole`: those that nothing follows."""
    for text, note in fitting.fitting(typed, words):
        is_begun = (fitting.rank(typed, text) or 0) <= fitting.BEGINS
        word = text if text.endswith(("/", "=")) else f"{text} "
        yield Suggestion(word, len(typed), note, is_whole=is_begun and text in whole)
