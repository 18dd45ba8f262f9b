"""The line editor of the chat: prompt_toolkit with keys, history and completion. Import it late: it is heavy.

Enter sends, unless the text is unfinished: it ends with a backslash, or a ``` fence is open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import CompletionState
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, get_common_complete_suffix
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from shepherd.cli.terminal.reader import PROMPT, Suggest
from shepherd.cli.text import clean

PLACEHOLDER = "Type a message; /help shows the commands"
_FENCE = re.compile(r"^\s*(```|~~~)", re.MULTILINE)


class TerminalReader:
    is_person = True
    has_editor = True

    def __init__(self, unfold: Callable[[], None] = lambda: None) -> None:
        """`unfold`: what Ctrl-O does."""
        self._session: PromptSession[str] = PromptSession(
            [("ansigreen", PROMPT)],  # coloured, because prompt_toolkit draws no space that has no style
            history=_history(),
            multiline=True,
            key_bindings=_keys(unfold),
            complete_while_typing=True,
            complete_in_thread=True,  # completion reads folders and saved conversations
            prompt_continuation=lambda width, line_number, is_soft_wrap: " " * width,
            reserve_space_for_menu=4,
        )
        self._placeholder: HTML | str = HTML(f"<style fg='ansibrightblack'>{PLACEHOLDER}</style>")

    async def read(self, suggest: Suggest) -> str | None:
        try:
            text = await self._session.prompt_async(
                placeholder=self._placeholder, completer=_Completer(suggest), handle_sigint=False
            )
        except EOFError:
            return None
        self._placeholder = ""
        return text


def is_unfinished(text: str) -> bool:
    """Whether Enter starts a new line."""
    return text.endswith("\\") or len(_FENCE.findall(text)) % 2 == 1


def _keys(unfold: Callable[[], None] = lambda: None) -> KeyBindings:
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

    @keys.add("tab")
    def _complete(event: KeyPressEvent) -> None:
        """Take the only completion, or the common beginning of all, then each in turn; at once, for fast typists."""
        buffer = event.current_buffer
        state = buffer.complete_state
        if state is not None and state.complete_index is not None:
            buffer.complete_next()
            return
        pressed = CompleteEvent(completion_requested=True)
        found = list(buffer.completer.get_completions(buffer.document, pressed)) or (state.completions if state else [])
        if len(found) == 1:
            buffer.apply_completion(found[0])
        elif found and (common := get_common_complete_suffix(buffer.document, found)):
            buffer.insert_text(common)
        elif found:
            buffer.complete_state = CompletionState(buffer.document, found)
            buffer.go_to_completion(0)

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-o")
    def _unfold(event: KeyPressEvent) -> None:
        run_in_terminal(unfold)

    @keys.add("c-c")
    def _discard(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.text:
            buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys


class _Completer(Completer):
    def __init__(self, suggest: Suggest) -> None:
        self._suggest = suggest

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        has_blank = document.current_char == " "
        for found in self._suggest(document.text_before_cursor):
            text = found.text.rstrip(" ") if has_blank else found.text
            yield Completion(text, -found.n_replaced, display=clean(found.text), display_meta=clean(found.note))


def _history() -> History:
    """The typed lines, in a file that only its owner can read; in memory where no file can be written."""
    import platformdirs

    file = Path(platformdirs.user_data_dir("shepherd")) / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        file.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))
