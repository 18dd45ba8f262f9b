"""AGENTS.md in a chat of the terminal: its place in the system prompt, and the notice of a change.

Read at the start and by /clear.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from shepherd.agent.session import Session
from shepherd.cli.terminal.view import View
from shepherd.config import instructions


class FolderInstructions:
    def __init__(self, folder: Path, view: View) -> None:
        self._folder = folder
        self._view = view
        self._found = instructions.Found()
        self._has_told = False
        self.line = ""
        """What the model has got of them, such as `AGENTS.md: 412 tokens`; empty for nothing."""

    async def read(self) -> list[str]:
        """Find the files, and ask the user about those that are new or changed; a sentence about each that is left
        out. Raises: `ConfigError` where the answer cannot be stored."""
        person = self._view.person()
        confirm = None if person is None else person.confirm
        self._found, self._has_told = await instructions.read(self._folder, os.environ, confirm), False
        return [*self._found.left_out]

    def give(self, session: Session, count: Callable[[str], int]) -> list[str]:
        """Put the trusted files that fit into the system prompt; a sentence about each that does not fit. `count`:
        tokens of a text."""
        given = instructions.given(self._found.files, session.n_ctx, count)
        session.instructions, self.line = given.text, given.line
        return [*given.left_out]

    def find_change(self) -> str:
        """A sentence where a file is not any more what `read` has found; once after each `read`."""
        if self._has_told or instructions.find(self._folder)[0] == self._found.all:
            return ""
        self._has_told = True
        return "The AGENTS.md of this folder has changed; /clear, or the next start, reads it."
