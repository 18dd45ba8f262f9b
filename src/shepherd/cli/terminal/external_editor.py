"""Edits a text in the editor of the user: `$VISUAL`, else `$EDITOR`, else an installed one."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from shepherd.cli.signals import handling
from shepherd.cli.terminal import mode
from shepherd.core import InvalidRequest
from shepherd.core.encoding import text_encoding

_USUAL = ("nano", "vi", "notepad")


async def edited(text: str) -> str:
    """The text after the user has edited `text`. Raises: `InvalidRequest` when there is no editor, or it fails."""
    command = _command()
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


def _command() -> list[str]:
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(chosen)
    except ValueError as error:
        raise InvalidRequest(f"$EDITOR cannot be read: {error}", field="text") from error
    found = next(filter(None, map(shutil.which, _USUAL)), None)
    if not words and not found:
        raise InvalidRequest("no editor was found; set EDITOR, or write /edit TEXT", field="text")
    return words or [str(found)]
