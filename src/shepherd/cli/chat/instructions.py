"""AGENTS.md in a chat: the question whether to trust it, its place in the system prompt, and the notice of a change.

    read: find ─▶ trusted? ─▶ files        give: files that fit ─▶ Session.instructions        changed: once, a line

Read at the start and by /clear. Not here: which files there are, and how much of them fits (`config/instructions.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.config import TrustStore, instructions

if TYPE_CHECKING:
    from shepherd.agent.session import Session
    from shepherd.cli.terminal.view import View


class FolderInstructions:
    """The instructions of one folder, for one conversation after the other."""

    def __init__(self, folder: Path, view: View) -> None:
        self._folder = folder
        self._view = view
        self._found: tuple[instructions.InstructionFile, ...] = ()
        self._trusted: list[instructions.InstructionFile] = []
        self._has_told = False
        self.line = ""
        """What the model has got of them, such as `AGENTS.md: 412 tokens`; empty for nothing."""

    async def read(self) -> list[str]:
        """Find the files, and ask the user about those that are new or changed; a sentence about each that is left
        out. Raises: `ConfigError` where the answer cannot be stored."""
        self._found, wrong = await asyncio.to_thread(instructions.find, self._folder)
        left_out = [*wrong]
        self._trusted, self._has_told = [], False
        for each in self._found:
            if await self._is_trusted(each):
                self._trusted.append(each)
            else:
                left_out.append(each.file.left_out)
        return left_out

    async def _is_trusted(self, found: instructions.InstructionFile) -> bool:
        if (known := instructions.is_trusted(found, os.environ)) is not None:
            return known
        if (person := self._view.person()) is None:
            return False
        risk = found.file.risks[0]
        is_trusted = await person.confirm(
            f"{found.file.path} ({risk.value}) is new here, or has changed. It {risk.effect}. Trust it?"
        )
        if is_trusted:
            TrustStore.of_user().add(found.file)
        return is_trusted

    def give(self, session: Session, count: Callable[[str], int]) -> list[str]:
        """Put the trusted files that fit into the system prompt; a sentence about each that does not fit. `count`:
        tokens of a text."""
        given = instructions.given(self._trusted, session.n_ctx, count)
        session.instructions, self.line = given.text, given.line
        return [*given.left_out]

    def find_change(self) -> str:
        """A sentence where a file is not any more what `read` has found; once after each `read`."""
        if self._has_told or instructions.find(self._folder)[0] == self._found:
            return ""
        self._has_told = True
        return "The AGENTS.md of this folder has changed; /clear, or the next start, reads it."
