"""The line editor of the terminal chat: prompt_toolkit with our keys, history and completion.

Enter sends, unless the text is plainly not finished: a backslash at its end, or a ``` fence that is still open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, WordCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PLACEHOLDER = "Type a message; /help shows the commands"
_FENCE = re.compile(r"^\s*(```|~~~)", re.MULTILINE)


def make_session(prompt: str, commands: Mapping[str, str]) -> PromptSession[str]:
    """A session that asks with `prompt` and completes `commands` (name -> what it does)."""
    return PromptSession(
        [("ansigreen", prompt)],  # coloured, because prompt_toolkit draws no space that has no style
        history=_history(),
        multiline=True,
        key_bindings=_keys(),
        completer=_completer(commands),
        complete_while_typing=True,
        prompt_continuation=lambda width, line_number, is_soft_wrap: " " * width,
        reserve_space_for_menu=4,
    )


def is_unfinished(text: str) -> bool:
    """Whether Enter should go on to a new line."""
    return text.endswith("\\") or len(_FENCE.findall(text)) % 2 == 1


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # the first Enter takes what the menu offers
        elif not is_unfinished(buffer.document.text_before_cursor + buffer.document.text_after_cursor):
            buffer.validate_and_handle()
        else:
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
            buffer.insert_text("\n")

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _discard(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.text:
            buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys


class _FirstWord(WordCompleter):
    """Completes commands, and nothing in the middle of a message."""

    def get_completions(self, document: Document, complete_event: object):  # type: ignore[no-untyped-def]  # as the base
        if document.text.startswith("/") and " " not in document.text_before_cursor:
            yield from super().get_completions(document, complete_event)  # type: ignore[arg-type]  # as the base


def _completer(commands: Mapping[str, str]) -> Completer:
    return _FirstWord(list(commands), meta_dict=dict(commands), sentence=True)


def _history() -> History:
    """What was typed before, in a file that only its owner can read; in memory where there can be no file."""
    import platformdirs

    file = Path(platformdirs.user_data_dir("shepherd")) / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        file.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))
