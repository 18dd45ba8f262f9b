"""Files that start programs or give orders once they are there: the right to write files must not become the right to
run programs.

Our own configuration and memory, what lies in a `.git` folder, hooks, and the start files of shells and sessions. A
change of one is asked for each time, whatever the rules allow (`tools/permission.py`). Pure: a path has no links.
"""

from __future__ import annotations

import itertools
import os
import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase

OWN, HOOK, SHELL, OTHER = (
    "a configuration or a memory of Shepherd",
    "a file of version control that may start programs",
    "a file that a shell or a session runs at its start",
    "a file from which another program takes commands or rights",
)
NAMES = {
    **dict.fromkeys(("shepherd.toml", "shepherd.json", "shepherd_memory.db", "shepherd_memory.db-*"), OWN),
    **dict.fromkeys((".git", ".gitconfig", ".gitmodules", ".hgrc", ".pre-commit-config.yaml"), HOOK),
    **dict.fromkeys((".bash*", ".zsh*", ".zprofile", ".zlog*", ".ksh*", ".csh*", ".tcsh*", ".login", ".logout"), SHELL),
    **dict.fromkeys((".profile", ".x*rc", ".xprofile", ".xsession", ".pam_environment", ".inputrc"), SHELL),
    **dict.fromkeys((".envrc", ".mcp.json", "*_profile.ps1", "profile.ps1"), OTHER),
}
"""Globs over the last name of a path, in small letters."""
FOLDERS = {
    **dict.fromkeys((".git", "*.git", ".hg", ".husky", ".githooks"), HOOK),
    **dict.fromkeys((".config/fish", ".config/autostart", ".config/environment.d", "systemd/user"), SHELL),
    "library/launchagents": SHELL,
    **dict.fromkeys((".ssh", ".config/git", ".vscode", ".claude", ".cursor"), OTHER),
}
"""Globs over the folders on the way, one name or two."""


def why_guarded(path: str, own: Sequence[str] = ()) -> str:
    """What is special about a file; empty = nothing. `path`, and our `own` files and folders, are absolute."""
    plain = _plain(path)
    if any(plain == each or plain.startswith((f"{each}/", f"{each}-")) for each in map(_plain, own)):
        return OWN  # with a dash: SQLite's files beside a memory
    *folders, name = plain.split("/")
    pairs = [f"{first}/{second}" for first, second in itertools.pairwise(folders)]
    found = (why for glob, why in FOLDERS.items() if any(fnmatchcase(each, glob) for each in (*folders, *pairs)))
    return next((why for glob, why in NAMES.items() if fnmatchcase(name, glob)), "") or next(found, "")


def _plain(path: str) -> str:
    """One spelling: some systems ignore the case, the form of letters, and dots and spaces at the end of a name."""
    text = unicodedata.normalize("NFKC", path).casefold().replace(os.sep, "/")
    kept = "".join(each for each in text if unicodedata.category(each) != "Cf")
    return "/".join(name.rstrip(". ") for name in kept.split("/"))
