"""The one table of options that every command shares, and how help shows it.

An option's name is the key under which `config.load` knows it as a flag; the few that are not configuration are listed
in `OWN`. `None` means "not said". Not here: what the commands do. Imports click alone: `shepherd --help` reads this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

SECTIONS = ("Model", "Answers", "Server", "Tools", "Messages")


class Opt(click.Option):
    """An option that knows its section of the help page."""

    def __init__(self, *flags: str, section: str, **settings: Any) -> None:
        super().__init__(flags, **settings)
        self.section = section


class TokenCount(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    """A number of tokens; `32k` means 32 x 1024."""

    name = "TOKENS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        digits, factor = (value[:-1], 1024) if value[-1:] in {"k", "K"} else (value, 1)
        if not digits.isdecimal():
            self.fail(f"{value!r} is not a number of tokens; write 4096 or 32k.", param, ctx)
        return int(digits) * factor


class Layers(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    """A number of layers, or `all`."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if value == "all":
            return -1
        if not value.removeprefix("-").isdecimal():
            self.fail(f"{value!r} is not a number of layers; write a number or 'all'.", param, ctx)
        return int(value)


class Words(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    """Names with commas between them."""

    name = "LIST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(word for part in value.split(",") if (word := part.strip()))


class Model(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    """A model: a file, or a name that the catalogue finds."""

    name = "MODEL"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [*(CompletionItem(name) for name in _model_names(incomplete)), CompletionItem(incomplete, type="file")]


def _model_names(start: str) -> list[str]:
    import os
    from pathlib import Path

    from shepherd.models import catalog

    found = catalog.scan(env=os.environ, home=Path.home(), cwd=Path.cwd())
    return sorted({model.name for model in found if model.name.startswith(start)})


_CACHE_TYPES = click.Choice(("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"))
_LEVELS = click.Choice(("debug", "info", "warning", "error"), case_sensitive=False)

SHARED: tuple[Opt, ...] = (
    Opt("-m", "--model", section="Model", type=Model(), help="A GGUF file, or a name from 'shepherd models list'."),
    Opt(
        "--backend",
        section="Model",
        metavar="NAME",
        help="What runs the model; llamacpp is the default.",
    ),
    Opt(
        "--config",
        section="Model",
        type=click.Path(),
        metavar="FILE",
        help="Read this TOML or JSON file instead of the project's.",
    ),
    Opt("-c", "--context-size", section="Model", type=TokenCount(), help="Tokens of context, such as 8192 or 32k."),
    Opt(
        "--enable-eviction",
        "overflow",
        section="Model",
        flag_value="evict",
        default=None,
        help="When the context is full, let the oldest turns leave it.",
    ),
    Opt("--gpu-layers", section="Model", type=Layers(), help="Layers to put on the GPU; 'all' for every one."),
    Opt("--threads", section="Model", type=int, metavar="N", help="CPU threads; by default the cores that are free."),
    Opt("--batch", section="Model", type=int, metavar="N", help="Prompt tokens computed in one step."),
    Opt("--flash-attn/--no-flash-attn", section="Model", default=None, help="Force flash attention on or off."),
    Opt("--cache-type-k", section="Model", type=_CACHE_TYPES, metavar="TYPE", help="Number format of the cached keys."),
    Opt("--cache-type-v", section="Model", type=_CACHE_TYPES, metavar="TYPE", help="The same of the cached values."),
    Opt("--system", section="Answers", metavar="TEXT", help='The system prompt; "" for none at all.'),
    Opt("--temperature", section="Answers", type=float, metavar="X", help="Randomness; 0 always takes the best token."),
    Opt("--top-p", section="Answers", type=float, metavar="X", help="Draw from the tokens that make up this share."),
    Opt("--top-k", section="Answers", type=int, metavar="N", help="Draw from the N best tokens; 0 for no limit."),
    Opt("--min-p", section="Answers", type=float, metavar="X", help="Drop tokens below this share of the best one."),
    Opt("--seed", section="Answers", type=int, metavar="N", help="Makes answers repeatable."),
    Opt("--max-tokens", section="Answers", type=TokenCount(), help="Longest answer."),
    Opt("--reserve", section="Answers", type=TokenCount(), help="Context kept free for the answer."),
    Opt(
        "--think/--nothink",
        "thinking",
        section="Answers",
        default=None,
        help="Let the model reason before it answers, or not.",
    ),
    Opt(
        "--recall/--no-recall",
        section="Answers",
        default=None,
        help="Offer the model what was said before, or not; in a chat it is on.",
    ),
    Opt("--server", section="Server", is_flag=True, default=None, help="The same as 'shepherd serve'."),
    Opt("--host", section="Server", metavar="ADDR", help="Address to listen on; 127.0.0.1 by default."),
    Opt(
        "--port", section="Server", type=click.IntRange(0, 65535), metavar="N", help="8000 by default; 0 for any free."
    ),
    Opt(
        "--api-key",
        "api_keys",
        section="Server",
        multiple=True,
        default=None,
        metavar="KEY",
        help="Ask clients for this key; may be repeated.",
    ),
    Opt(
        "--origin",
        "origins",
        section="Server",
        multiple=True,
        default=None,
        metavar="URL",
        help="Let web pages from there use the server; may be repeated.",
    ),
    Opt("--record", "record_dir", section="Server", metavar="DIR", help="Record every request, for 'shepherd replay'."),
    Opt("--log-json", section="Messages", is_flag=True, default=None, help="Log one JSON object per line."),
    Opt("--list-tools", section="Tools", is_flag=True, default=None, help="Show the tools that exist, and leave."),
    Opt("--enable-tools", section="Tools", type=Words(), help="Offer only these tools or groups to the model."),
    Opt("--disable-tools", section="Tools", type=Words(), help="Never offer these tools or groups."),
    Opt("--notools", section="Tools", is_flag=True, default=None, help="Offer no tool at all."),
    Opt("--allow-tools", section="Tools", type=Words(), help="Carry these out without asking; '*' for all."),
    Opt(
        "--root",
        "roots",
        section="Tools",
        multiple=True,
        default=None,
        type=click.Path(),
        metavar="DIR",
        help="A folder that file tools may touch; may be repeated.",
    ),
    Opt("--read-only", section="Tools", is_flag=True, default=None, help="Refuse calls that change anything."),
    Opt(
        "--dry-run",
        section="Tools",
        is_flag=True,
        default=None,
        help="Show what would change in files, and leave it.",
    ),
    Opt(
        "--use-tools",
        "--server-tools",
        "use_tools",
        section="Server",
        is_flag=True,
        default=None,
        help="Give requests that bring no tools ours, and carry them out here.",
    ),
    Opt("--save/--no-save", section="Messages", default=None, help="Keep the conversation in a file, or not."),
    Opt("-v", "--verbose", section="Messages", is_flag=True, default=None, help="Say more about what happens."),
    Opt("--log-level", section="Messages", type=_LEVELS, metavar="LEVEL", help="debug, info, warning or error."),
    Opt(
        "--debug",
        section="Messages",
        is_flag=True,
        default=None,
        help="Log everything, and show tracebacks; a server writes each request to files.",
    ),
)

OWN = frozenset({"bare", "config", "server", "list_tools", "notools", "verbose", "log_level", "debug"})
"""Options that are not keys of the configuration. `bare` is set by `main`: the chat runs without its name."""


def given_options(ctx: click.Context) -> dict[str, Any]:
    """The shared options given anywhere on the line; those after a command win over those before it."""
    shared = {option.name for option in SHARED}
    chain = []
    link: click.Context | None = ctx
    while link is not None:
        chain.append(link.params)
        link = link.parent
    merged: dict[str, Any] = {}
    for params in reversed(chain):
        merged |= {key: value for key, value in params.items() if key in shared and value not in (None, ())}
    return merged


def config_flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `options` that the configuration understands."""
    flags = {key: value for key, value in options.items() if key not in OWN}
    if options.get("notools"):
        flags["enable_tools"] = ()
    return flags


# -- help -------------------------------------------------------------------------------------------------------------


def paint(ctx: click.Context) -> bool:
    """Whether help may carry colours: only on a terminal that wants them."""
    import os
    import sys

    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or ctx.color is False:
        return False
    return sys.stdout.isatty()


class Colours(click.HelpFormatter):
    """Click's help formatter with coloured headings and names."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.coloured = False

    def _style(self, text: str, colour: str) -> str:
        return click.style(text, fg=colour, bold=colour == "yellow") if self.coloured else text

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{self._style(heading + ':', 'yellow')}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(self._style(name, "cyan"), text) for name, text in rows], col_max, col_spacing)


class Context(click.Context):
    """Click's context with our formatter."""

    formatter_class = Colours

    def make_formatter(self) -> click.HelpFormatter:
        formatter = super().make_formatter()
        assert isinstance(formatter, Colours)
        formatter.coloured = paint(self)
        return formatter


def write_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter, only: Sequence[str]
) -> None:
    """Write the options of `command`: its own first, then the shared ones of the sections in `only`."""
    own: list[tuple[str, str]] = []
    sections: dict[str, list[tuple[str, str]]] = {section: [] for section in only}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None:
            continue
        if not isinstance(param, Opt):
            own.append(record)
        elif param.section in sections:
            sections[param.section].append(record)
    for heading, rows in (("Options", own), *sections.items()):
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows)
