"""`shepherd help`: shows the pages of the documentation, which are installed with Shepherd.

    shepherd help            the first page, and the names of all
    shepherd help window     that page
    shepherd help launch     no page has this name: the help of the command

The pages are the Markdown files of `docs/`: of the checkout, or of the package, where the build puts them. There is no
list of them to keep.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

import shepherd
from shepherd.cli import render
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
    """The pages by name."""
    return {path.stem: path for path in sorted(folder().glob("*.md")) if path.stem != FIRST}


def names() -> list[str]:
    """Of pages and of commands."""
    from shepherd.cli.subcommands import SUBCOMMANDS

    return [*pages(), *(row.name for row in SUBCOMMANDS if not row.hidden and " " not in row.name)]


def run(options: Mapping[str, Any], *, topic: str | None) -> None:
    """Raises: `ConfigError` for a name that is neither a page nor a command."""
    found = pages()
    if topic is None:
        text = (folder() / f"{FIRST}.md").read_text("utf-8")
        _show(f"{text}\n\n'shepherd help PAGE' shows a page: {', '.join(found)}.\n")
        return
    name = topic.removeprefix("docs/").removesuffix(".md").lower()
    if name in found:
        _show(found[name].read_text("utf-8"))
        return
    from shepherd.cli.main import cli

    if name in names():
        cli.main([name, "--help"], prog_name="shepherd")
    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.6)
    instead = f"did you mean 'shepherd help {near[0]}'?" if near else "'shepherd help' lists them"
    raise ConfigError(f"there is no page and no command {topic!r}; {instead}")


def _show(text: str) -> None:
    """As it is in a pipe; drawn on a terminal, in a pager where it is longer than the screen."""
    if not render.is_terminal(sys.stdout):
        click.echo(text, nl=False)
        return
    from shepherd.cli.terminal import markdown

    console = render.console()
    shown = markdown.draw_page(linked(text), console)
    if len(shown) < console.height:
        click.echo("\n".join(shown))
        return
    os.environ.setdefault("LESS", "FRX")
    click.echo_via_pager("\n".join(shown) + "\n", color=render.colours_wanted())


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
