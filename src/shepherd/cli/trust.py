"""`shepherd trust`, and the question about a file of the working folder that starts programs or widens permissions.

Asked once for each file and content. A command that only looks leaves the file out; where there is no terminal to ask
in, and for a server, the file is refused with the command that trusts it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import platformdirs

from shepherd import config
from shepherd.cli import render
from shepherd.config import Consent, FolderFile, TrustStore
from shepherd.core import ConfigError, InvalidRequest


def user_dir() -> Path:
    return Path(platformdirs.user_config_dir("shepherd"))


def store() -> TrustStore:
    return TrustStore.of_user()


def consent(options: Mapping[str, Any], *, looks: bool) -> Consent:
    """The consent of the user at the terminal. `looks`: no question; a file that is not trusted is left out."""

    def allow(file: FolderFile) -> bool:
        if file in (trusted := store()):
            return True
        if looks:
            return False
        if options.get("server") or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise file.refusal()
        _show(file, "is new here, or has changed", err=True)
        if not click.confirm("Trust it?", default=False, err=True):
            raise file.refusal()
        trusted.add(file)
        return True

    return allow


def files_of(folder: Path) -> list[FolderFile]:
    """The files that a start in `folder` would need trust for. Raises: `ConfigError`."""
    from shepherd.config import instructions  # here, for it brings asyncio to every command

    found: list[FolderFile] = []

    def keep(file: FolderFile) -> bool:
        found.append(file)
        return False

    home = {"HOME": os.environ["HOME"]} if os.environ.get("HOME") else {}
    config.load(env=home, cwd=folder, user_dir=user_dir(), consent=keep)
    return found + [each.file for each in instructions.find(folder)[0]]


def is_trusted(path: Path) -> bool:
    """Whether a file of a folder counts without a question: it is trusted, it needs no trust, or it is not there."""
    try:
        return all(each in store() for each in files_of(path.parent) if each.path == path.resolve())
    except ConfigError:
        return False


def add(path: Path) -> None:
    """Trust a file of a folder as it is now: the user has just changed it with our help. Raises: `ConfigError`."""
    for each in files_of(path.parent):
        if each.path == path.resolve():
            store().add(each)


def _show(file: FolderFile, state: str, *, err: bool) -> None:
    from shepherd.cli.terminal.consent import exposed

    def line(text: str) -> None:
        click.echo(exposed(text, in_one_line=True), err=err)

    line(f"{file.path} {state}:")
    for risk in file.risks:
        line(f"  {risk.key or 'it'} {risk.effect}{': ' if risk.value else ''}{risk.value}")


# -- the command ------------------------------------------------------------------------------------------------------


def run(options: Mapping[str, Any], *, file: Path | None, listing: bool, removing: bool) -> None:
    if listing:
        render.show_table(("FILE", ""), [(path, _state(path)) for path in store().entries()], "No file is trusted.")
        return
    path = (file or Path.cwd()).expanduser().resolve()
    if removing:
        _remove(path)
        return
    if not path.exists():
        raise InvalidRequest(f"there is no file {path}", field="file")
    folder = path if path.is_dir() else path.parent
    found = [each for each in files_of(folder) if path in {folder, each.path}]
    for each in found:
        _show(each, "is trusted now", err=False)
        store().add(each)
    if not found:
        render.show(f"{path}: nothing here needs trust.")


def _remove(path: Path) -> None:
    trusted = store()
    found = [Path(each) for each in trusted.entries() if path in {Path(each), Path(each).parent}]
    if not found:
        raise InvalidRequest(f"{path} is not trusted; 'shepherd trust --list' shows the trusted files", field="file")
    for each in found:
        trusted.remove(each)
        render.show(f"{each} is no longer trusted.")


def _state(path: str) -> str:
    if not os.path.exists(path):
        return "gone"
    try:
        found = [each for each in files_of(Path(path).parent) if str(each.path) == path]
    except ConfigError:
        return "cannot be read"
    if not found:
        return "needs no trust"
    return "" if found[0] in store() else "changed, will be asked again"
