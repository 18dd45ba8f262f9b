"""The command `shepherd`: which commands there are, how a line is read, and the wall that errors stop at.

`shepherd` and `shepherd MODEL` are the chat; a first word that is no command is a model. Shared options mean the same
before and after the command's name. Not here: what the commands do. Only click is imported until a command runs, so
that `shepherd --help` stays cheap.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from shepherd.cli.command import memory_options
from shepherd.cli.options import SECTIONS, SHARED, Context, Model, said, write_options

_BARE = "shepherd.bare"
"""Key in `ctx.meta`: the chat was started without its name."""


class ShepherdCommand(click.Command):
    """A command that takes all shared options and shows those of some sections in its help."""

    context_class = Context

    def __init__(self, *args: Any, shown: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params = [*self.params, *SHARED]
        self.shown = shown

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter, self.shown)


class ShepherdGroup(click.Group):
    """Commands under one word; takes all shared options, shows none of them."""

    context_class = Context
    command_class = ShepherdCommand

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params = [*self.params, *SHARED]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter, ())
        self.format_commands(ctx, formatter)


class Program(ShepherdGroup):
    """The root: a word that is no command is a model to chat with."""

    group_class = ShepherdGroup

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        write_options(self, ctx, formatter, SECTIONS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is not None:
            return super().resolve_command(ctx, args)
        near = _near_command(args[0], self.list_commands(ctx))
        if near:
            ctx.fail(f"No such command or model {args[0]!r}. Did you mean 'shepherd {near}'?")
        ctx.meta[_BARE] = True
        return "chat", self.get_command(ctx, "chat"), args

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        found = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("-"):
            found += Model().shell_complete(ctx, self.params[0], incomplete)
        return found

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the program; every error ends here as one sentence and an exit status."""
        _prepare_streams()
        try:
            return super().main(*args, **settings)
        except Exception as error:  # the last wall: a user never sees a traceback without asking for it
            if _wants_traceback(settings.get("args")):
                raise
            _explain(error)
            sys.exit(1)


def _near_command(word: str, commands: Sequence[str]) -> str | None:
    import difflib
    from pathlib import Path

    if Path(word).exists() or not word.isalpha():
        return None
    return next(iter(difflib.get_close_matches(word, commands, n=1, cutoff=0.75)), None)


def _prepare_streams() -> None:
    """Text that the terminal's encoding cannot show must not end the program, nor a stream that somebody closed."""
    import io
    import os

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as the program runs
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _wants_traceback(args: Sequence[str] | None) -> bool:
    return "--debug" in (sys.argv[1:] if args is None else args)


def _explain(error: Exception) -> None:
    from shepherd.core import ShepherdError

    if isinstance(error, ShepherdError):
        click.secho(f"shepherd: {error.message}", fg="red", err=True)
    else:
        click.secho(
            f"shepherd: internal error ({type(error).__name__}: {error}); run it again with --debug and report it",
            fg="red",
            err=True,
        )


def _show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        import shepherd

        click.echo(f"shepherd {shepherd.__version__}")
        ctx.exit()


_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_PROMPT = click.Option(["-p", "--prompt"], metavar="TEXT", help="Answer this and leave.")
_JSON_EVENTS = click.Option(["--json", "as_json"], is_flag=True, help="Print one event per line, for programs.")
_CONTINUE = click.Option(["--continue", "go_on"], is_flag=True, help="Go on with the newest saved conversation.")
_RESUME = click.Option(["--resume"], metavar="NAME", help="Go on with this saved conversation; /load lists them.")
_CHAT = (_PROMPT, _JSON_EVENTS, _CONTINUE, _RESUME)
_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, for programs.")


def _model_argument() -> click.Argument:
    return click.Argument(["model_word"], metavar="[MODEL]", required=False, type=Model())


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings=_HELP,
    subcommand_metavar="[COMMAND | MODEL] [ARGS]...",
    params=[*_CHAT],
    epilog="Start with 'shepherd' alone: it chats with a tiny model that needs no download.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and leave.",
)
@click.pass_context
def cli(
    ctx: click.Context, /, prompt: str | None, as_json: bool, go_on: bool, resume: str | None, **_shared: Any
) -> None:
    """Runs language models on your own machine: a chat in the terminal, and a server for other programs."""
    if ctx.invoked_subcommand is None:
        ctx.meta[_BARE] = True
        _talk(ctx, None, prompt, as_json)
    elif ctx.invoked_subcommand not in {"chat"}:
        if prompt is not None or as_json:
            ctx.fail("-p and --json belong to the chat; write them after the command's name if it has them.")
        if go_on or resume is not None:
            ctx.fail("--continue and --resume belong to the chat.")


@cli.command(shown=("Model", "Answers", "Tools", "Messages"), params=[_model_argument(), *_CHAT])
@click.pass_context
def chat(ctx: click.Context, /, model_word: str | None, prompt: str | None, as_json: bool, **_shared: Any) -> None:
    """Chat with a model, or answer one prompt.

    Text from a pipe is the prompt: 'shepherd chat -p "Summarise this." < notes.txt'.
    """
    root = ctx.find_root().params
    _talk(ctx, model_word, prompt if prompt is not None else root["prompt"], as_json or root["as_json"])


def _talk(ctx: click.Context, model_word: str | None, prompt: str | None, as_json: bool) -> None:
    options = _options(ctx, model_word)
    if options.get("list_tools"):
        from shepherd.cli.command import tools

        tools.show_list(options, as_json=as_json)
        return
    from shepherd.cli import configure
    from shepherd.cli.chat import run as conversation

    config = configure.load_config(options)
    asked_to_chat = prompt is not None or as_json or _resumed(ctx) is not None or not ctx.meta.get(_BARE)
    if options.get("server") or (config.serve and not asked_to_chat):
        from shepherd.cli import logs
        from shepherd.cli.command import serve as server

        logs.set_up({**options, "server": True, "log_json": config.server.log_json})
        server.run(config)
        return
    bare = bool(ctx.meta.get(_BARE))
    sys.exit(conversation.run(config, prompt=prompt, as_json=as_json, bare=bare, resume=_resumed(ctx)))


def _resumed(ctx: click.Context) -> str | None:
    """The saved conversation to go on with, "" for the newest; None for a new one."""
    places = (ctx.params, ctx.find_root().params)
    name = next((name for place in places if (name := place.get("resume")) is not None), None)
    newest = any(place.get("go_on") for place in places)
    if newest and name is not None:
        ctx.fail("--continue and --resume name two conversations; give one.")
    if name is not None and not name.strip():
        ctx.fail("--resume needs the name of a conversation; --continue goes on with the newest.")
    return "" if newest else name


@cli.command(shown=("Model", "Answers", "Server", "Tools", "Messages"), params=[_model_argument()])
@click.pass_context
def serve(ctx: click.Context, /, model_word: str | None, **_shared: Any) -> None:
    """Serve models over HTTP, in the protocols of OpenAI, Anthropic and Ollama."""
    from shepherd.cli import configure
    from shepherd.cli.command import serve as server

    server.run(configure.load_config({**_options(ctx, model_word), "server": True}))


@cli.group(invoke_without_command=True, params=[_JSON])
@click.pass_context
def models(ctx: click.Context, /, as_json: bool, **_shared: Any) -> None:
    """Show the configured models and what memory they take, find others on this machine, and look into them."""
    if ctx.invoked_subcommand is None:
        from shepherd.cli import configure
        from shepherd.cli.command import models as shelf

        shelf.show_configured(configure.load_config(_options(ctx, None)), as_json=as_json)


@models.command("list", params=[_JSON])
def models_list(as_json: bool, **_shared: Any) -> None:
    """List the models that can be used without a download."""
    from shepherd.cli.command import models as shelf

    shelf.show_list(as_json=as_json)


@models.command("info", params=[click.Argument(["model_word"], metavar="MODEL", type=Model()), _JSON])
def models_info(model_word: str, as_json: bool, **_shared: Any) -> None:
    """Show what a model is, and how much memory it needs."""
    from shepherd.cli.command import models as shelf

    shelf.show_one(model_word, as_json=as_json)


@cli.group()
def memory(**_shared: Any) -> None:
    """Look into what was said, and take care of the file that it is in."""


def _add_memory_commands() -> None:
    """Make the commands of the table; one whose name begins others is a group, and runs when it stands alone."""
    groups: dict[str, click.Group] = {"": memory}
    for row in memory_options.ROWS:
        above, _, name = row.name.rpartition(" ")
        params = [*row.params, *memory_options.EACH]
        if any(other.name.startswith(f"{row.name} ") for other in memory_options.ROWS):
            group = ShepherdGroup(
                name, callback=_memory_command(row), help=row.help, params=params, invoke_without_command=True
            )
            groups[row.name] = group
            memory.add_command(group)
        else:
            command = ShepherdCommand(name, callback=_memory_command(row), help=row.help, params=params)
            groups[above].add_command(command)


def _memory_command(row: memory_options.Row) -> Callable[..., None]:
    @click.pass_context
    def run(ctx: click.Context, /, **said: Any) -> None:
        if ctx.invoked_subcommand is not None:
            return
        import importlib

        from shepherd.cli.command.memory import Ask

        outer = ctx.parent.params if ctx.parent else {}
        user = said["user"] if said["user"] is not None else outer.get("user")
        ask = Ask.of(_options(ctx, None), user=user, as_json=bool(said["json"] or outer.get("json")))
        module, _, function = row.runs.partition(".")
        own = {param.name: said[param.name] for param in row.params if param.name}
        sys.exit(getattr(importlib.import_module(f"shepherd.cli.command.{module}"), function)(ask, **own))

    return run


_add_memory_commands()


@cli.group("tools", invoke_without_command=True, params=[_JSON])
@click.pass_context
def tools_group(ctx: click.Context, /, as_json: bool, **_shared: Any) -> None:
    """Show the tools that the model may use, look at one, and carry one out."""
    if ctx.invoked_subcommand is None:
        from shepherd.cli.command import tools

        tools.show_list(_options(ctx, None), as_json=as_json)


@tools_group.command("list", shown=("Tools",), params=[_JSON])
@click.pass_context
def tools_list(ctx: click.Context, /, as_json: bool, **_shared: Any) -> None:
    """List the tools that there are, and say why some of them are off.

    MCP servers are started for it, and stopped again.
    """
    from shepherd.cli.command import tools

    tools.show_list(_options(ctx, None), as_json=as_json)


@tools_group.command("show", params=[click.Argument(["name"]), _JSON])
@click.pass_context
def tools_show(ctx: click.Context, /, name: str, as_json: bool, **_shared: Any) -> None:
    """Show what a tool does and which arguments it takes."""
    from shepherd.cli.command import tools

    tools.show_one(_options(ctx, None), name, as_json=as_json)


@tools_group.command(
    "run",
    shown=("Tools",),
    params=[click.Argument(["name"]), click.Argument(["arguments"], metavar="[ARGUMENTS]...", nargs=-1), _JSON],
)
@click.pass_context
def tools_run(ctx: click.Context, /, name: str, arguments: tuple[str, ...], as_json: bool, **_shared: Any) -> None:
    """Carry out one call as a model would, and print what it would read.

    ARGUMENTS are one JSON object, or NAME=VALUE for each, or - for JSON from standard input:
    'shepherd tools run read_file path=notes.txt'. The exit status is 1 when the call fails.
    """
    from shepherd.cli.command import tools

    sys.exit(tools.run(_options(ctx, None), name, arguments, as_json=as_json))


@cli.group("mcp", invoke_without_command=True, params=[_JSON])
@click.pass_context
def mcp_group(ctx: click.Context, /, as_json: bool, **_shared: Any) -> None:
    """Show the MCP servers whose tools the model may use, add, remove and test them."""
    if ctx.invoked_subcommand is None:
        from shepherd.cli.command import mcp

        mcp.show_list(_options(ctx, None), as_json=as_json)


@mcp_group.command("list", params=[_JSON])
@click.pass_context
def mcp_list(ctx: click.Context, /, as_json: bool, **_shared: Any) -> None:
    """List the configured servers."""
    from shepherd.cli.command import mcp

    mcp.show_list(_options(ctx, None), as_json=as_json)


@mcp_group.command("test", params=[click.Argument(["names"], metavar="[NAME]...", nargs=-1), _JSON])
@click.pass_context
def mcp_test(ctx: click.Context, /, names: tuple[str, ...], as_json: bool, **_shared: Any) -> None:
    """Start servers, show what they offer, and stop them; without a name, all of them.

    The exit status is 1 when one of them fails.
    """
    from shepherd.cli.command import mcp

    sys.exit(mcp.test(_options(ctx, None), names=names, as_json=as_json))


_PROJECT = click.Option(["--project"], is_flag=True, help="In the file of this folder, not in your own.")


@mcp_group.command(
    "add",
    params=[
        click.Argument(["name"]),
        click.Argument(["command"], metavar="[-- COMMAND ARGS...]", nargs=-1, type=click.UNPROCESSED),
        click.Option(["--url"], metavar="URL", help="The server's address, instead of a command."),
        click.Option(["--env"], metavar="NAME=VALUE", multiple=True, help="A variable for it; may be repeated."),
        click.Option(["--header", "headers"], metavar="'NAME: VALUE'", multiple=True, help="Sent to the URL."),
        click.Option(["--cwd"], metavar="DIR", help="The folder that it is started in."),
        click.Option(["--timeout"], type=click.FloatRange(0.1, 86_400), metavar="S", help="For each request; 60."),
        _PROJECT,
    ],
)
@click.pass_context
def mcp_add(ctx: click.Context, /, name: str, command: tuple[str, ...], **asked: Any) -> None:
    """Add a server to your configuration.

    The command follows two dashes: 'shepherd mcp add files -- npx -y @modelcontextprotocol/server-filesystem .'
    """
    from shepherd.cli.command import mcp_file

    own = {key: asked[key] for key in ("url", "env", "headers", "cwd", "timeout", "project")}
    mcp_file.add(_options(ctx, None), name=name, command=command, **own)


@mcp_group.command("remove", params=[click.Argument(["name"]), _PROJECT])
@click.pass_context
def mcp_remove(ctx: click.Context, /, name: str, project: bool, **_shared: Any) -> None:
    """Remove a server from your configuration."""
    from shepherd.cli.command import mcp_file

    mcp_file.remove(_options(ctx, None), name=name, project=project)


@mcp_group.command("serve", shown=("Model", "Tools", "Messages"), params=[_model_argument()])
@click.pass_context
def mcp_serve(ctx: click.Context, /, model_word: str | None, **_shared: Any) -> None:
    """Offer our tools, memory and models to another agent, over standard input and output.

    Everything that is enabled is carried out unasked: it is for the agent to ask its user.
    """
    from shepherd.cli import configure
    from shepherd.cli.command import mcp_serve as offer

    sys.exit(offer.run(configure.load_config({**_options(ctx, model_word), "server": True})))


cli.add_command(ShepherdCommand("mcp-serve", callback=mcp_serve.callback, params=[_model_argument()], hidden=True))


@cli.group("config", invoke_without_command=True)
@click.pass_context
def config_group(ctx: click.Context, /, **_shared: Any) -> None:
    """Show the configuration and where it comes from."""
    if ctx.invoked_subcommand is None:
        from shepherd.cli import configure

        configure.show_config(_options(ctx, None))


@config_group.command("show")
@click.pass_context
def config_show(ctx: click.Context, /, **_shared: Any) -> None:
    """Print the whole configuration as TOML, as it would be used."""
    from shepherd.cli import configure

    configure.show_config(_options(ctx, None))


@config_group.command("path")
@click.pass_context
def config_path(ctx: click.Context, /, **_shared: Any) -> None:
    """Print where configuration files are looked for."""
    from shepherd.cli import configure

    configure.show_paths(_options(ctx, None))


@cli.command(
    params=[
        click.Option(["--url"], metavar="URL", help="The server; by default the configured one on this machine."),
        click.Option(["--once"], is_flag=True, help="Look once and leave, as it always does in a pipe."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one object per second, for programs."),
    ]
)
@click.pass_context
def top(ctx: click.Context, /, url: str | None, once: bool, as_json: bool, **_shared: Any) -> None:
    """Watch what a running server's caches and conversations are doing.

    A server that asks for a key gets the one of --api-key. The key q leaves.
    """
    from shepherd.cli.command import top as watching

    sys.exit(watching.run(_options(ctx, None), address=url, once=once, as_json=as_json))


@cli.command(
    params=[
        click.Argument(["client"], metavar="CLIENT", type=click.Choice(("claude", "codex", "opencode", "aider"))),
        click.Argument(["said"], metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED),
        click.Option(["--print", "printing"], is_flag=True, help="Show the settings, for a shell, and start nothing."),
        click.Option(["--show-key"], is_flag=True, help="Write the server's key out in what --print shows."),
        click.Option(["--url"], metavar="URL", help="A server that runs; by default the configured one, or a new one."),
    ],
    shown=("Model", "Server"),
)
@click.pass_context
def launch(ctx: click.Context, /, client: str, said: tuple[str, ...], url: str | None, **asked: Any) -> None:
    """Run a coding agent on our server: claude, codex, opencode or aider.

    The server is started if none runs, and stopped afterwards. The client's own options follow two dashes:
    'shepherd launch claude -- --continue'. Its own configuration is not changed.
    """
    from shepherd.cli.command import launch as launching

    sys.exit(
        launching.run(
            _options(ctx, None), client, said, url=url, printing=asked["printing"], show_key=asked["show_key"]
        )
    )


@cli.command(
    params=[
        click.Argument(["paths"], metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True)),
        click.Option(["--url"], metavar="URL", help="A server that runs; by default the configured model, in process."),
        click.Option(
            ["--speed"],
            metavar="FACTOR",
            type=click.FloatRange(min=0, min_open=True),
            help="Keep the recorded pauses, 1 as they were, 2 half as long; by default there are none.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one object per request, for programs."),
    ],
    shown=("Model", "Server"),
)
@click.pass_context
def replay(
    ctx: click.Context, /, paths: tuple[str, ...], url: str | None, speed: float | None, as_json: bool, **_shared: Any
) -> None:
    """Send recorded requests again, and show what they cost and what has changed.

    PATH is a recording or a folder of them ('shepherd serve --record'), or the folder of a request that --debug has
    left, or a folder of those. The exit status is 1 when something ends in another way than it was recorded.
    """
    from pathlib import Path

    from shepherd.cli.command import replay as replaying

    sys.exit(replaying.run(_options(ctx, None), [Path(path) for path in paths], url=url, speed=speed, as_json=as_json))


@cli.command(params=[_JSON], shown=("Server",))
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool, **_shared: Any) -> None:
    """Check this installation and this machine.

    The exit status is 1 when something is broken.
    """
    from shepherd.cli.command import doctor as clinic

    sys.exit(clinic.run(_options(ctx, None), as_json=as_json))


@cli.command(params=[click.Argument(["shell"], type=click.Choice(("bash", "zsh", "fish")))])
def completion(shell: str, **_shared: Any) -> None:
    """Print a script for shell completion.

    It completes commands, options and model names. For bash: eval "$(shepherd completion bash)"
    """
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(cli, {}, "shepherd", "_SHEPHERD_COMPLETE").source())


@cli.command(hidden=True)
def build(**_shared: Any) -> None:
    """Test the native library that was built when Shepherd was installed."""
    from shepherd.cli.command import doctor as clinic

    sys.exit(clinic.show_build())


def _options(ctx: click.Context, model_word: str | None) -> dict[str, Any]:
    options = said(ctx)
    if model_word is not None:
        if options.get("model", model_word) != model_word:
            ctx.fail(f"Two models are named, {model_word!r} and {options['model']!r}; give one.")
        options["model"] = model_word
    return options


def main() -> None:
    """Entry point of `shepherd`."""
    cli.main(prog_name="shepherd")


def serve_main() -> None:
    """Entry point of `serve`: the same as `shepherd serve`."""
    cli.main(args=["serve", *sys.argv[1:]], prog_name="shepherd")


def build_main() -> None:
    """Entry point of `build`: the same as `shepherd build`."""
    cli.main(args=["build", *sys.argv[1:]], prog_name="shepherd")
