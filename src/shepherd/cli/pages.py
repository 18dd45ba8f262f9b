"""The pages of the documentation, which are installed with Shepherd: where they are, and their links.

They are the Markdown files of `docs/`: of the checkout, or of the package, where the build puts them. There is no list
of them to keep. Not here: what shows them (`command/help.py`).
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import click

import shepherd
from shepherd.core import ConfigError

FIRST = "README"
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)")


@functools.cache
def folder() -> Path:
    """Where the pages are. Raises: `ConfigError` where they have been taken away."""
    package = Path(shepherd.__file__).parent
    for place in (package / "docs", package.parents[1] / "docs"):
        if (place / f"{FIRST}.md").is_file():
            return place
    raise ConfigError(f"the pages are missing from {package / 'docs'}; install Shepherd again")


def pages() -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder().glob("*.md")) if path.stem != FIRST}


def first() -> str:
    return (folder() / f"{FIRST}.md").read_text("utf-8")


def commands(root: click.Group) -> list[str]:
    """The commands whose help can be shown as if it were a page."""
    return [name for name, command in root.commands.items() if not command.hidden]


def linked(text: str) -> str:
    """`text` with the commands that show the pages that it links to; other links and images keep their words."""

    def instead(link: re.Match[str]) -> str:
        words, target = link[1], link[2]
        name = target.removesuffix(".md")
        if name not in pages() or not target.endswith(".md"):
            return link[0] if "://" in target else words
        command = f"`shepherd help {name}`"
        return command if words.strip("`") in {name, target} else f"{words} ({command})"

    return _LINK.sub(instead, _COMMENT.sub("", text))
