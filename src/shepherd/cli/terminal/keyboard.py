"""Single keys and short lines from a person in the middle of a turn.

Keys typed before a question are not its answer: the next prompt gets them, like all keys typed during an answer.
prompt_toolkit reads the keys and is imported late: a chat shows the loading of its model before it needs a key. Its
typeahead store keeps them.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPress

ENTER, END = "enter", "end"
"""Keys without a character; END is Ctrl-D, or a closed terminal."""
WITHDRAWN = "  This is no longer asked for, and is not sent. Enter: continue  "
_MOST_AT_ONCE = 3
"""Characters of a fast typist that arrive together; more are pasted, and are not an answer."""
_PASTE = "<bracketed-paste>"
_ESCAPE_S = 0.2
"""After so long, an Escape is one."""
_PATIENCE_S = 1.0
"""How long Ctrl-C may take to end the turn; then it means no."""


class TerminalKeyboard:
    """The keys of a person at a terminal; from the event loop only. Ctrl-C or Escape ends the turn, as everywhere."""

    def __init__(self, source: Input | None = None) -> None:
        """`source`: None = standard input at the time of a question."""
        self._source = source
        self._input: Input | None = None
        """Set while it listens."""
        self._keys: asyncio.Queue[KeyPress | None] = asyncio.Queue()
        self._escape: asyncio.TimerHandle | None = None
        """Takes an Escape that no other key has followed."""

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Within the block, all keys come here. Not reentrant."""
        from prompt_toolkit.input import create_input
        from prompt_toolkit.input.typeahead import store_typeahead

        self._input = self._source or create_input()
        self._keys = asyncio.Queue()
        with self._input.raw_mode():
            store_typeahead(self._input, self._input.read_keys())
            with self._input.attach(self._take):
                yield
            self._forget_escape()
            left = [self._keys.get_nowait() for _ in range(self._keys.qsize())]
            # An Enter belongs to the answer before it.
            store_typeahead(self._input, [press for press in left if press is not None and _name(press) != ENTER])

    async def key(self) -> str:
        """The next key: a character, or a name."""
        press = await self._keys.get()
        if press is None:
            return END
        name = _name(press)
        if name in {"c-c", "escape"}:
            await _interrupt()
            return END
        return {"c-d": END}.get(name, name)

    async def line(self, prompt: str, default: str = "") -> str | None:
        """A line that the person edits; None after Ctrl-D, which refuses. When cancelled, it drops the line, and ends
        with it: after Enter."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead

        assert self._input is not None
        self._forget_escape()
        ahead = get_typeahead(self._input)
        session: PromptSession[str] = PromptSession(erase_when_done=True, input=self._input)
        try:
            return await session.prompt_async(prompt, default=default, handle_sigint=False)
        except asyncio.CancelledError:
            # The person types on; these letters belong to this prompt, and must not reach the next one.
            with suppress(EOFError, KeyboardInterrupt):
                await session.prompt_async(WITHDRAWN, default=session.default_buffer.text, handle_sigint=False)
            raise
        except EOFError:
            return None
        except KeyboardInterrupt:
            await _interrupt()
            return None
        finally:
            store_typeahead(self._input, ahead + get_typeahead(self._input))

    def _take(self) -> None:
        assert self._input is not None
        self._put(self._input.read_keys())
        if self._input.closed:
            self._keys.put_nowait(None)
        self._forget_escape()
        flush = self._input.flush_keys
        self._escape = asyncio.get_running_loop().call_later(_ESCAPE_S, lambda: self._put(flush()))

    def _forget_escape(self) -> None:
        if self._escape is not None:
            self._escape.cancel()

    def _put(self, presses: list[KeyPress]) -> None:
        from prompt_toolkit.input.typeahead import store_typeahead

        assert self._input is not None
        if len(presses) > 1 and _name(presses[0]) == "escape":  # Alt and another key
            return
        if len(presses) > _MOST_AT_ONCE or any(_name(press) == _PASTE for press in presses):
            store_typeahead(self._input, presses)
            return
        for press in presses:
            self._keys.put_nowait(press)


def _name(press: KeyPress) -> str:
    key = str(getattr(press.key, "value", press.key))
    return ENTER if key in {"c-m", "c-j"} else key


async def _interrupt() -> None:
    """Send SIGINT: the terminal does not send it for Ctrl-C while single keys are read."""
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(_PATIENCE_S)
