"""The table of options that every command takes, and how help shows them.

The name of an option is its key in the flags of `config.load`; `NOT_CONFIG` lists the others. None means "not given".
Not here: the commands (`subcommands.py`). Imports click alone: `shepherd --help` reads this file.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from shepherd.cli.text import n_columns, wrapped

FACTORS = {"k": 1024, "K": 1024, "m": 1024**2, "M": 1024**2}
MOST_TOKENS = 2**31 - 1
"""As the library counts them."""


def token_count(value: str) -> int:
    """A number of tokens; `32k` means 32 x 1024, `1M` 1024 x 1024. Raises: `BadParameter`."""
    digits, factor = (value[:-1], FACTORS[value[-1:]]) if value[-1:] in FACTORS else (value, 1)
    if not re.fullmatch(r"[0-9]+", digits):
        raise click.BadParameter(f"{value!r} is not a number of tokens; write 4096, 32k or 1M.")
    if len(digits) > 10 or (n_tokens := int(digits) * factor) > MOST_TOKENS:
        raise click.BadParameter(f"{value!r} is too many tokens; at most {MOST_TOKENS} are possible.")
    return n_tokens


def layers(value: str) -> int:
    """A number of layers, or `all`. Raises: `BadParameter`."""
    if value == "all":
        return -1
    if not re.fullmatch(r"-?[0-9]{1,10}", value):
        raise click.BadParameter(f"{value!r} is not a number of layers; write a number or 'all'.")
    return int(value)


def name_list(value: str) -> tuple[str, ...]:
    return tuple(word for part in value.split(",") if (word := part.strip()))


class WholeNumber(click.IntRange):
    """A whole number, with its bounds in words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            least = f" of at least {self.min}" if self.min is not None else ""
            bounds = least if self.max is None else f" from {self.min} to {self.max}"
            self.fail(f"{value!r} is not a whole number{bounds}.", param, ctx)

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


class Number(click.FloatRange):
    """A number, with its bounds in words; no NaN, which is within all bounds."""

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if math.isfinite(number):
            return number
        least = "" if self.min is None else f" above {self.min}" if self.min_open else f" of at least {self.min}"
        bounds = least if self.max is None else f" from {self.min} to {self.max}"
        return self.fail(f"{value!r} is not a number{bounds}; write one such as 0.7.", param, ctx)


class Model(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    name = "MODEL"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from pathlib import Path

        from shepherd.cli import known_providers
        from shepherd.models import catalog

        elsewhere = known_providers.completions(incomplete)
        if "/" in incomplete and elsewhere:
            return [*map(CompletionItem, elsewhere)]
        found = catalog.scan(env=os.environ, home=Path.home(), cwd=Path.cwd())
        names = sorted({model.name for model in found if model.name.startswith(incomplete)})
        names += [each for each in known_providers.configured_names(incomplete) if each not in names]
        others = [CompletionItem(f"{name}/") for name in elsewhere]
        return [*map(CompletionItem, names), *others, CompletionItem(incomplete, type="file")]


class Named(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    def __init__(self, name: str, find: Callable[[str], Iterable[str]]) -> None:
        """`find`: the names for what is typed so far; others are left out. Only completion calls it."""
        self.name, self._find = name, find

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _beginning(incomplete, self._find(incomplete))


def _pulled(incomplete: str) -> Iterable[str]:
    """The models that Shepherd pulled, and unfinished pulls."""
    from pathlib import Path

    from shepherd.models.pull.staging import unfinished
    from shepherd.models.pulled import models_folder, pulled_models

    root = models_folder(os.environ, Path.home())
    return (*(each.name for each in pulled_models(root)), *(each.name for each in unfinished(root)))


def _suggested() -> list[str]:
    from shepherd.models.suggestions import SUGGESTIONS

    return [each.spec for each in SUGGESTIONS]


def _machines(incomplete: str) -> Iterable[str]:
    from shepherd.models.machines import MACHINES, THIS

    return (THIS, *(each.name for each in MACHINES))


def _formats(incomplete: str) -> Iterable[str]:
    from shepherd.models.outline import FORMATS

    return FORMATS


def _backends(incomplete: str) -> Iterable[str]:
    from shepherd.engine.llamacpp.build import BACKENDS

    return BACKENDS


def _providers(incomplete: str) -> Iterable[str]:
    from shepherd.cli import known_providers

    return known_providers.completions(incomplete)


class PlannedModel(Model):
    """A model that can be planned for: of those, the ones that are here and the suggested ones."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [*super().shell_complete(ctx, param, incomplete), *_beginning(incomplete, _suggested())]


class Topic(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    name = "TOPIC"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from shepherd.cli import pages

        root = ctx.find_root().command
        assert isinstance(root, click.Group)
        return _beginning(incomplete, (*pages.pages(), *pages.commands(root)))


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(incomplete)]


PULLED = Named("MODEL", _pulled)
PULL_SOURCE = Named("SOURCE", lambda typed: (*_pulled(typed), *_suggested()))
MACHINE = Named("NAME", _machines)
FORMAT = Named("NAME", _formats)
BACKEND = Named("NAME", _backends)
PROVIDER = Named("NAME", _providers)


def _option(*flags: str, **settings: Any) -> click.Option:
    return click.Option(flags, **settings)


def _flag(*flags: str, help: str) -> click.Option:
    return click.Option(flags, is_flag=True, default=None, help=help)


def _repeated(*flags: str, metavar: str, help: str, type: Any = None) -> click.Option:
    return click.Option(
        flags, multiple=True, default=None, metavar=metavar, type=type, help=f"{help}; may be repeated."
    )


_CACHE_TYPE: Mapping[str, Any] = {
    "type": click.Choice(("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")),
    "metavar": "TYPE",
}
_TOKENS: Mapping[str, Any] = {"type": token_count, "metavar": "TOKENS"}
_NAMES: Mapping[str, Any] = {"type": name_list, "metavar": "LIST"}
_INT: Mapping[str, Any] = {"type": WholeNumber(), "metavar": "N"}
_FLOAT: Mapping[str, Any] = {"type": Number(), "metavar": "X"}
_LEVELS = click.Choice(("debug", "info", "warning", "error"), case_sensitive=False)

OPTIONS: Mapping[str, tuple[click.Option, ...]] = {
    "Model": (
        _option(
            "-m",
            "--model",
            type=Model(),
            help="A GGUF file, a folder for TensorRT-LLM, a name from 'shepherd models list', or PROVIDER/MODEL.",
        ),
        _option(
            "--backend",
            metavar="NAME",
            help="What runs the model: llamacpp, tensorrt, or a provider; by default what fits it.",
        ),
        _option("--config", type=click.Path(), metavar="FILE", help="Read this TOML or JSON file, not the project's."),
        _option("-c", "--context-size", **_TOKENS, help="Tokens of context, such as 8192 or 32k."),
        _option(
            "--window",
            metavar="TOKENS",
            help="Tokens of a whole conversation, such as 1M, or 8x the context: what is old leaves the context.",
        ),
        _option(
            "--enable-eviction",
            "overflow",
            flag_value="evict",
            default=None,
            help="Remove the oldest turns from a full context.",
        ),
        _option(
            "--speculate/--no-speculate",
            default=None,
            help="Draft what a conversation may repeat, and check the drafts in one step, or not.",
        ),
        _option("--gpu-layers", type=layers, metavar="N", help="Layers to put on the GPU; 'all' for every one."),
        _option("--rpc-servers", **_NAMES, help="Spread the model over these workers, HOST:PORT with commas between."),
        _option("--threads", **_INT, help="CPU threads; by default, and with 0, the free cores."),
        _option("--batch", **_INT, help="Prompt tokens computed in one step."),
        _option("--flash-attn/--no-flash-attn", default=None, help="Force flash attention on or off."),
        _option(
            "--isolate/--no-isolate",
            default=None,
            help="Compute the model in a process of its own, which may die without this one; on in a server.",
        ),
        _option("--probe/--no-probe", default=None, hidden=True),  # of earlier versions, without effect
        _option("--cache-type-k", **_CACHE_TYPE, help="Number format of the cached keys."),
        _option("--cache-type-v", **_CACHE_TYPE, help="Number format of the cached values."),
    ),
    "Answers": (
        _option("--system", metavar="TEXT", help='The system prompt; "" for none.'),
        _option(
            "--agents-file/--no-agents-file",
            default=None,
            help="Give the model of a chat the AGENTS.md of the folder, or not; on by default.",
        ),
        _option("--temperature", **_FLOAT, help="Randomness; 0 always takes the most likely token."),
        _option("--top-p", **_FLOAT, help="Sample from the likeliest tokens that make up this share."),
        _option("--top-k", **_INT, help="Sample from the N likeliest tokens; 0 for no limit."),
        _option("--min-p", **_FLOAT, help="Drop tokens below this share of the likeliest one."),
        _option("--seed", **_INT, help="Makes answers repeatable."),
        _option("--max-tokens", **_TOKENS, help="The longest answer; over HTTP, of a request that names no length."),
        _option("--reserve", **_TOKENS, help="Tokens of context kept free for the answer."),
        _option("--think/--nothink", "thinking", default=None, help="Let the model reason before it answers, or not."),
        _option("--effort", type=click.Choice(("low", "medium", "high", "max")), help="How much it reasons."),
        _option(
            "--recall/--no-recall",
            default=None,
            help="Show the model what it remembers of earlier conversations, or not; in a chat this is on.",
        ),
    ),
    "Server": (
        _flag("--server", help="The same as 'shepherd serve'."),
        _option("--host", metavar="ADDR", help="Address to listen on, or several with commas; 127.0.0.1 by default."),
        _option("--port", type=WholeNumber(0, 65535), metavar="N", help="8000 by default; 0 for any free port."),
        _option("--tls-cert", type=click.Path(), metavar="FILE", help="Speak https with this certificate (PEM)."),
        _option("--tls-key", type=click.Path(), metavar="FILE", help="The private key of the certificate (PEM)."),
        _repeated("--api-key", "api_keys", metavar="KEY", help="Ask clients for this key"),
        _repeated("--origin", "origins", metavar="URL", help="Let web pages of this origin use the server"),
        _option("--record", "record_dir", metavar="DIR", help="Record every request, for 'shepherd replay'."),
        _flag(
            "--use-tools",
            "--server-tools",
            "use_tools",
            help="Run the local tools on the server for requests that bring no tools.",
        ),
    ),
    "Tools": (
        _flag("--list-tools", help="List the tools and exit."),
        _option("--enable-tools", **_NAMES, help="Offer only these tools or groups to the model."),
        _option("--disable-tools", **_NAMES, help="Never offer these tools or groups."),
        _flag("--notools", help="Offer no tool at all; a server leaves out those of its clients, too."),
        _option("--allow-tools", **_NAMES, help="Run these without asking; '*' for all."),
        _repeated("--root", "roots", type=click.Path(), metavar="DIR", help="A folder that file tools may use"),
        _flag("--read-only", help="Refuse calls that change anything."),
        _flag("--dry-run", help="Show how files would change, and do not change them."),
    ),
    "Messages": (
        _flag("--log-json", help="Log one JSON object per line."),
        _option("--save/--no-save", default=None, help="Save the conversation in a file, or not."),
        _flag("-v", "--verbose", help="Show more messages."),
        _option("--log-level", type=_LEVELS, metavar="LEVEL", help="debug, info, warning or error."),
        _flag("--debug", help="Log everything and show tracebacks; a server writes each request to files."),
    ),
}
"""The options that every command takes, by the section of the help page."""

SECTIONS = tuple(OPTIONS)
SHARED = tuple(option for section in OPTIONS.values() for option in section)

NOT_CONFIG = frozenset({"bare", "config", "server", "list_tools", "notools", "verbose", "log_level", "debug"})
"""Options that are not keys of the configuration. `bare` is set by `main`: the chat runs without its name."""


def given_options(ctx: click.Context) -> dict[str, Any]:
    """The shared options on the command line; those after a command win over those before it."""
    before = {} if ctx.parent is None else given_options(ctx.parent)
    return before | {o.name: v for o in SHARED if o.name and (v := ctx.params.get(o.name)) not in (None, ())}


def config_flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """The `options` that are keys of the configuration."""
    flags = {key: value for key, value in options.items() if key not in NOT_CONFIG}
    if options.get("notools"):
        flags |= {"enable_tools": (), "client_tools": False}
    return flags


# -- help -------------------------------------------------------------------------------------------------------------


class ColourFormatter(click.HelpFormatter):
    """Click's help formatter with coloured headings and names; `click.echo` removes the colours in a pipe."""

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{click.style(f'{heading}:', fg='yellow', bold=True)}\n")

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        paragraphs = [" ".join(each.split()) for each in text.split("\n\n")]
        self.write("\n\n".join("\n".join(wrapped(indent + each, self.width)) for each in paragraphs) + "\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Names, each with its text behind it, or below a name that is too long; broken between words."""
        pairs = list(rows)
        col_max = min(col_max, self.width // 3)
        column = max((n_columns(name) for name, _ in pairs if n_columns(name) <= col_max), default=0) + col_spacing
        indent, below = " " * self.current_indent, " " * (self.current_indent + column)
        for name, text in pairs:
            lines = wrapped(" ".join(text.split()), self.width - len(below), 0)
            gap = " " * (column - n_columns(name))
            self.write(f"{indent}{click.style(name, fg='cyan')}")
            if not text:
                lines = [""]
            elif n_columns(name) > column - col_spacing:
                lines = ["", *lines]
                gap = ""
            self.write(f"{gap if text else ''}{lines[0]}\n")
            for line in lines[1:]:
                self.write(f"{below}{line}\n")


class Context(click.Context):
    """Click's context with our formatter, and without colours where the user or the terminal refuses them."""

    formatter_class = ColourFormatter

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            self.color = False


def write_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter, sections: Sequence[str]
) -> None:
    """Write the options of `command`: its own first, then the shared ones of the `sections`."""
    own = [param for param in command.get_params(ctx) if param not in SHARED]
    for heading, params in (("Options", own), *((section, OPTIONS[section]) for section in sections)):
        if rows := [record for param in params if (record := param.get_help_record(ctx)) is not None]:
            with formatter.section(heading):
                formatter.write_dl(rows)
