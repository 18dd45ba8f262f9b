"""AGENTS.md in a chat: the question whether to trust it, its place in the system prompt, and the notice of a change.

    read: find ─▶ trusted? ─▶ files        give: files that fit ─▶ Session.instructions        changed: once, a line

Read at the start and by /clear. Not here: which files there are (`config/instructions.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.cli import trust
from shepherd.cli.text import format_count
from shepherd.config import given_consent, instructions

if TYPE_CHECKING:
    from shepherd.agent.session import Session
    from shepherd.cli.terminal.view import View

SHARE = 4
"""Of the context, the instructions may have this part at most."""


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
        if (consent := given_consent(os.environ)) is not None:
            return consent(found.file)
        store = trust.store()
        if found.file in store:
            return True
        if (person := self._view.person()) is None:
            return False
        risk = found.file.risks[0]
        is_trusted = await person.confirm(
            f"{found.file.path} ({risk.value}) is new here, or has changed. It {risk.effect}. Trust it?"
        )
        if is_trusted:
            store.add(found.file)
        return is_trusted

    def give(self, session: Session, count: Callable[[str], int]) -> list[str]:
        """Put the trusted files that fit into the system prompt, the nearest first; a sentence about each that does
        not fit. `count`: tokens of a text."""
        files, left_out = [*self._trusted], []
        room = session.n_ctx // SHARE
        while (n_tokens := count(instructions.prompt(files)) if files else 0) > room > 0:
            far = files.pop(0)
            left_out.append(
                f"{far.file.path}: left out: the instructions of this folder have {n_tokens:,} tokens, and may have "
                f"{room:,}, a quarter of the context; shorten the file, or start with a larger --context-size"
            )
        session.instructions = instructions.prompt(files)
        names = ", ".join(each.name for each in files)
        self.line = f"{names}: {format_count(n_tokens, 'token')}" if files else ""
        return left_out

    def find_change(self) -> str:
        """A sentence where a file is not any more what `read` has found; once after each `read`."""
        if self._has_told or instructions.find(self._folder)[0] == self._found:
            return ""
        self._has_told = True
        return "The AGENTS.md of this folder has changed; /clear, or the next start, reads it."
