"""The line below the prompt and below an answer that comes: model, mode, folder and branch, context, cost.

    lamb · ask · ~/work/shepherd (main) · ▕█░░░░░░░▏ 397/4096 · cost 0.25

In a narrow terminal the parts become shorter, one after the other, and then fewer. The facts are gathered between two
lines, because the line itself is drawn often.
"""

from __future__ import annotations

import os
from pathlib import Path

from shepherd.cli.chat.state import Chat
from shepherd.cli.text import bar, cut, n_columns, one_line
from shepherd.core.dataclasses import dataclass
from shepherd.core.status import money_text
from shepherd.process.files import working_folder

_HEAD_BYTES = 1_024
_MOST_FOLDERS = 64
"""Folders above this one that may hold a repository."""
_LONGEST_NAME = 24
"""Columns of a model or a branch."""


@dataclass(frozen=True, slots=True)
class Facts:
    model: str = ""
    folder: str = ""
    branch: str = ""
    n_held: int | None = None
    """Tokens in the context; None = not known."""
    n_ctx: int = 0
    cost: str = ""
    """Of this program, by the prices of the configuration; empty = nothing."""


def gather(chat: Chat) -> Facts:
    """Reads the disk."""
    active = chat.app.conversations.active
    here = working_folder()
    spent = sum(each.total.money for each in chat.app.totals().spending.values())
    return Facts(
        active.model,
        shortened(here),
        branch_of(here),
        chat.turns[-1].n_held if chat.turns and chat.is_measured else None,
        active.n_ctx,  # that of the session may be assumed
        money_text(spent) if spent else "",
    )


def line(facts: Facts, mode: str, width: int) -> str:
    """At most `width` columns."""
    folder = facts.folder
    last = os.path.basename(folder.rstrip("/")) or folder
    branch = f" ({cut(facts.branch, _LONGEST_NAME)})" if facts.branch else ""
    size = f"{'-' if facts.n_held is None else f'{facts.n_held:,}'}/{facts.n_ctx:,}" if facts.n_ctx else ""
    drawn = f"{bar(facts.n_held, facts.n_ctx, 8)} {size}" if size and facts.n_held is not None else size
    cost = f"cost {facts.cost}" if facts.cost else ""
    model = cut(facts.model, _LONGEST_NAME)
    for parts in (
        (facts.model, mode, folder + branch, drawn, cost),
        (facts.model, mode, folder + branch, size, cost),
        (model, mode, last + branch, size, cost),
        (model, mode, last, size, cost),
        (cut(model, 12), mode, cut(last, 12), size, cost),
        (cut(model, 12), mode, size),
    ):
        text = one_line(" · ".join(filter(None, parts)))
        if n_columns(text) <= width:
            return text
    return cut(mode, width)


def shortened(folder: Path) -> str:
    """The folder, from the home folder on with a `~`."""
    home, text = os.path.expanduser("~").rstrip(os.sep), str(folder)
    is_within = bool(home) and (text + os.sep).startswith(home + os.sep)
    return "~" + text[len(home) :] if is_within else text


def branch_of(folder: Path) -> str:
    """The branch of the git repository around a folder, or the beginning of its commit; empty outside of one."""
    for above in (folder, *folder.parents)[:_MOST_FOLDERS]:
        git = above / ".git"
        if os.path.isfile(git):  # of another working tree, or a submodule
            git = above / _head(git).removeprefix("gitdir:").strip()
        if head := _head(git / "HEAD"):
            ref = head.removeprefix("ref:").strip()
            return ref.removeprefix("refs/heads/") if ref != head else head[:8]
    return ""


def _head(file: Path) -> str:
    try:
        with open(file, "rb") as opened:
            return opened.read(_HEAD_BYTES).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return ""
