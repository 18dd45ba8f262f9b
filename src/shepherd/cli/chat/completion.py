"""Completions for the Tab key: commands, their arguments, files behind an `@`.

Not here: the keys and the menu (`cli/terminal/editor.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.cli.terminal.reader import Suggestion

if TYPE_CHECKING:
    from shepherd.cli.chat.state import Chat, Command

MAX_SUGGESTIONS = 100
_MENTION = re.compile(r'(?<![^\s([{])@(?:"([^"\n]*)|([^\s"]*))$')


def suggestions(chat: Chat, commands: Mapping[str, Command], before: str) -> Iterator[Suggestion]:
    """Completions of the text `before` the cursor. May read folders: not on the event loop."""
    if mention := _MENTION.search(before):
        typed = mention[2] if mention[1] is None else mention[1]
        for path in islice(paths(typed), MAX_SUGGESTIONS):
            is_quoted = mention[1] is not None or " " in path
            closing = '"' if is_quoted and not path.endswith("/") else ""
            yield Suggestion(f'@"{path}{closing}' if is_quoted else f"@{path}", len(mention[0]))
        return
    word, blank, argument = before.partition(" ")
    if not before.startswith("/") or "\n" in before:
        return
    if not blank:
        yield from _fitting(word, ((name, command.help) for name, command in commands.items()))
    elif (command := commands.get(word)) is not None and command.complete is not None:
        *words, last = argument.split(" ")
        yield from islice(_fitting(last, command.complete(chat, tuple(filter(None, words)), last)), MAX_SUGGESTIONS)


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


def _fitting(typed: str, words: Iterable[tuple[str, str]]) -> Iterator[Suggestion]:
    """The words that begin with `typed`, in any case; or else those that contain it. A blank follows a whole word, so
    that the next key begins another one."""
    known = list(words)
    small = typed.casefold()
    found = [row for row in known if row[0].casefold().startswith(small)]
    if not found and len(small.strip("/")) > 1:
        found = [row for row in known if small.strip("/") in row[0].casefold()]
    for text, note in found:
        yield Suggestion(text if text.endswith(("/", "=")) else f"{text} ", len(typed), note)
