"""Edits a text in the editor of the user: `$VISUAL`, else `$EDITOR`, else an installed one."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from shepherd.cli.signals import handling
from shepherd.cli.terminal import mode
from shepherd.core import InvalidRequest
from shepherd.core.encoding import text_encoding

_USUAL: Mapping[str, str] = {
    "nano": "Ctrl-O and Enter save, Ctrl-X leaves",
    "vi": "Esc and :wq save and leave, Esc and :q! leave without a change",
    "notepad": "Ctrl-S saves; close the window",
}
"""Editors that a user may not have chosen, and how to leave them."""


async def edited(text: str, note: Callable[[str], None] = lambda line: None) -> str:
    """The text after the user has edited `text`. `note`: shows a line about an editor that the user has not chosen.
    Raises: `InvalidRequest` when there is no editor, or it fails."""
    command, how = _command()
    if how:
        note(f"{Path(command[0]).name} opens the question: {how}. Set EDITOR to choose another editor.")
    with tempfile.TemporaryDirectory(prefix="shepherd-") as folder:  # readable by its owner alone
        file = Path(folder) / "question.md"
        file.write_text(text, encoding="utf-8", newline="\n")
        try:
            # Ctrl-C belongs to the editor, which would inherit `SIG_IGN`, but not a handler.
            with handling(signal.SIGINT, lambda *_: None), mode.reading(keys=False):
                done = await asyncio.to_thread(subprocess.run, [*command, str(file)], check=False)
        except OSError as error:
            raise InvalidRequest(
                f"the editor {command[0]!r} cannot be started: {error.strerror}", field="text"
            ) from error
        if done.returncode:
            raise InvalidRequest(f"the editor {command[0]!r} ended with status {done.returncode}", field="text")
        raw = file.read_bytes()
        return raw.decode(text_encoding(raw) or "utf-8", "replace").replace("\r\n", "\n")


def _command() -> tuple[list[str], str]:
    """The command of the editor, and how to leave it where the user has not chosen it."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(chosen)
    except ValueError as error:
        raise InvalidRequest(f"$EDITOR cannot be read: {error}", field="text") from error
    if words:
        return words, ""
    found = next((name for name in _USUAL if shutil.which(name)), None)
    if found is None:
        raise InvalidRequest("no editor was found; set EDITOR, or write /edit TEXT", field="text")
    return [str(shutil.which(found))], _USUAL[found]
