"""`shepherd help`: shows the pages of the documentation.

shepherd help            the first page, and the names of all
shepherd help window     that page
shepherd help launch     no page has this name: the help of the command
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from shepherd.cli import pages, render
from shepherd.core import ConfigError


def run(options: Mapping[str, Any], *, topic: str | None) -> None:
    found = pages.pages()
    if topic is None:
        _show(f"{pages.first()}\n\n'shepherd help PAGE' shows a page: {', '.join(found)}.\n")
        return
    name = topic.removeprefix("docs/").removesuffix(".md").lower()
    if name in found:
        _show(found[name].read_text("utf-8"))
        return
    root = click.get_current_context().find_root().command
    assert isinstance(root, click.Group)
    commands = pages.commands(root)
    if name in commands:
        root.main([name, "--help"], prog_name="shepherd")
    near = difflib.get_close_matches(name, [*found, *commands], n=1, cutoff=0.6)
    instead = f"did you mean 'shepherd help {near[0]}'?" if near else "'shepherd help' lists them"
    raise ConfigError(f"there is no page and no command {topic!r}; {instead}")


def _show(text: str) -> None:
    """As it is in a pipe; drawn on a terminal, in a pager where it is longer than the screen."""
    if not render.is_terminal(sys.stdout):
        click.echo(text, nl=False)
        return
    from shepherd.cli.terminal import markdown

    console = render.console()
    shown = markdown.draw_page(pages.linked(text), console)
    if len(shown) < console.height:
        click.echo("\n".join(shown))
        return
    os.environ.setdefault("LESS", "FRX")
    click.echo_via_pager("\n".join(shown) + "\n", color=render.colours_wanted())
