"""The command `shepherd`: how a command line is read, and the outermost error handler.

`shepherd` and `shepherd MODEL` are the chat; a first word that is no command is a model. Shared options mean the same
before and after the command's name. Not here: which commands exist (`subcommands.py`), what they do. Only click is
imported until a command runs, so that `shepherd --help` stays cheap.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from shepherd.cli.options import SECTIONS, SHARED, Context, Model, given_options, write_options
from shepherd.cli.subcommands import CHAT_PARAMS, SUBCOMMANDS, Subcommand
from shepherd.cli.text import clean, wrapped

_BARE = "shepherd.bare"
"""Key in `ctx.meta`: the chat was started without the word `chat`."""
N_IMPORTED = 200_000
"""More objects than a start makes; none of those is garbage."""


class ShepherdCommand(click.Command):
    """A command that takes all shared options; its help shows those of some sections."""

    context_class = Context

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of the help, whole: it is broken into lines, and not cut off."""
        return super().get_short_help_str(1_000)

    def __init__(self, *args: Any, sections: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params = [*self.params, *SHARED]
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter, self.sections)


class ShepherdGroup(click.Group, ShepherdCommand):
    """Commands under one word."""


class Program(ShepherdGroup):
    """The root: a word that is no command is a model to chat with."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        ShepherdCommand.format_options(self, ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is not None:
            return super().resolve_command(ctx, args)
        near = _near_command(args[0], self.list_commands(ctx))
        if near:
            ctx.fail(f"There is no command or model {args[0]!r}. Did you mean 'shepherd {near}'?")
        ctx.meta[_BARE] = True
        return "chat", self.get_command(ctx, "chat"), args

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        found = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("-"):
            found += Model().shell_complete(ctx, self.params[0], incomplete)
        return found

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the program; every error ends here as one sentence and an exit status."""
        output = _prepare_streams()
        try:
            try:
                sys.exit(super().main(*args, **{**settings, "standalone_mode": False}))
            finally:
                sys.stdout.flush()  # what cannot be written fails here, not behind the end of the program
        except click.ClickException as error:
            if not isinstance(error, click.exceptions.NoArgsIsHelpError):  # that is the help, with its colours
                text = _fitted(clean(error.format_message()))
                error.format_message = lambda: text  # type: ignore[method-assign] # the only way to its words
            error.show()
            sys.exit(error.exit_code)
        except click.Abort:
            click.echo("Aborted!", err=True)
            sys.exit(1)
        except Exception as error:  # a traceback is shown with --debug only
            if output is not None and output.failure is not None:
                _explain_output(output, output.failure)
                sys.exit(1)
            if "--debug" in (settings.get("args") or sys.argv[1:]):
                raise
            _explain(error)
            sys.exit(1)


def _fitted(text: str) -> str:
    """A sentence that follows `Error: `, in lines as wide as the terminal."""
    from shepherd.cli.render import width_of

    width = width_of(sys.stderr)
    return "\n".join(wrapped(text, None if width is None else max(1, width - len("Error: ")), 0))


def _near_command(word: str, commands: Sequence[str]) -> str | None:
    import difflib

    if os.path.exists(word) or not word.isalpha():
        return None
    return next(iter(difflib.get_close_matches(word, commands, n=1, cutoff=0.75)), None)


class Output(io.FileIO):
    """Standard output, which knows whether it has failed."""

    failure: OSError | None = None

    def write(self, content: bytes, /) -> int:  # type: ignore[override]  # all that a buffer writes
        try:
            return super().write(content)
        except OSError as error:
            self.failure = error
            raise


def _prepare_streams() -> Output | None:
    """Neither text that the terminal's encoding cannot show nor a closed stream may end the program.

    Returns: what standard output is written to; None where a program has put something else in its place.
    """
    output = None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as the program runs
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
            if name == "stdout" and type(getattr(stream.buffer, "raw", stream.buffer)) is io.FileIO:
                output = Output(stream.fileno(), "w", closefd=False)
                is_buffered = not stream.write_through  # PYTHONUNBUFFERED
                sys.stdout = io.TextIOWrapper(
                    io.BufferedWriter(output) if is_buffered else output,  # as Python does
                    encoding=stream.encoding,
                    errors="replace",
                    line_buffering=stream.line_buffering,
                    write_through=not is_buffered,
                )
    return output


def _explain_output(output: Output, failure: OSError) -> None:
    from shepherd.cli import render

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output.fileno())  # what still waits is not written once more at the end
    os.close(nowhere)
    if failure.errno != errno.EPIPE:  # a reader that has read enough, such as `head`, is no fault
        with contextlib.suppress(OSError):  # nothing is left to say it to
            render.show_error(f"the output cannot be written: {failure.strerror}")


def _explain(error: Exception) -> None:
    from shepherd.cli import render
    from shepherd.core import ShepherdError

    if isinstance(error, ShepherdError):
        text = error.message
    elif isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        text = f"the system refuses ({error.strerror}{where}); run the command again with --debug for more"
    else:
        text = f"internal error ({type(error).__name__}: {error}); run the command again with --debug and report it"
    with contextlib.suppress(OSError):  # nothing is left to say it to
        render.show_error(text)


def _check_folder() -> None:
    """Raises: `ConfigError` where the working folder has been deleted."""
    from shepherd.core import ConfigError

    try:
        os.getcwd()
    except OSError as error:
        what = "change to another one (cd) and run the command again"
        raise ConfigError(f"the working folder cannot be used ({error.strerror}); {what}") from error


# -- from the table to commands ---------------------------------------------------------------------------------------


def _run(row: Subcommand, ctx: click.Context, /, **_values: Any) -> None:
    """Import the function of a command, call it, and exit with its status; nothing for a group before its command."""
    import importlib

    from shepherd.cli.signals import in_order

    if ctx.invoked_subcommand is not None:
        return
    _check_folder()
    values = {param.name: _value(ctx, param.name) for param in row.params if param.name}
    options = given_options(ctx)
    if (model := values.pop("model_word", None)) is not None and options.setdefault("model", model) != model:
        ctx.fail(f"Two models are named, {model!r} and {options['model']!r}; give one.")
    if ctx.meta.get(_BARE):
        options["bare"] = True
    first: Any = options
    if row.name.startswith("memory "):
        from shepherd.cli.command.memory import MemoryAccess

        first = MemoryAccess.of(options, user=values.pop("user"), as_json=values.pop("as_json"))
    module, _, function = row.runs.rpartition(".")
    with in_order():
        sys.exit(getattr(importlib.import_module(f"shepherd.cli.{module}"), function)(first, **values))


def _value(ctx: click.Context, name: str) -> Any:
    """The value of a parameter: of this command, or else of a group before it."""
    link: click.Context | None = ctx
    while link is not None:
        value = link.params.get(name)
        if value is not None and value is not False and value != ():
            return value
        link = link.parent
    return ctx.params.get(name)


def _start(ctx: click.Context, /, **_values: Any) -> None:
    """The root: the chat, when no command follows."""
    if ctx.invoked_subcommand is None:
        ctx.meta[_BARE] = True
        _run(next(row for row in SUBCOMMANDS if row.name == "chat"), ctx)
    elif ctx.invoked_subcommand != "chat":
        if ctx.params["prompt"] is not None or ctx.params["as_json"]:
            ctx.fail("-p and --json belong to the chat; write them after the command's name if it has them.")
        if ctx.params["go_on"] or ctx.params["resume"] is not None:
            ctx.fail("--continue and --resume belong to the chat.")
        if ctx.params["mode"] is not None:
            ctx.fail("--mode belongs to the chat.")


def _program() -> Program:
    root = Program(
        "shepherd",
        callback=click.pass_context(_start),
        invoke_without_command=True,
        params=[*CHAT_PARAMS],
        sections=SECTIONS,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        subcommand_metavar="[COMMAND | MODEL] [ARGS]...",
        help="Runs language models on your own machine: a chat in the terminal, and a server for other programs.",
        epilog="Start with 'shepherd' alone: it offers a model that fits this machine, or a tiny one at once.",
    )
    click.version_option(package_name="shepherd", prog_name="shepherd", message="%(prog)s %(version)s")(root)
    groups: dict[str, click.Group] = {"": root}
    for row in SUBCOMMANDS:
        above, _, name = row.name.rpartition(" ")
        callback = click.pass_context(partial(_run, row)) if row.runs else None
        command: click.Command
        if any(other.name.startswith(f"{row.name} ") for other in SUBCOMMANDS):
            command = groups[row.name] = ShepherdGroup(
                name, callback=callback, invoke_without_command=bool(row.runs), help=row.help, params=[*row.params]
            )
        else:
            command = ShepherdCommand(
                name, callback=callback, help=row.help, params=[*row.params], sections=row.sections, hidden=row.hidden
            )
        groups[above].add_command(command)
    return root


cli = _program()


def show_completion(options: Mapping[str, Any], *, shell: str) -> None:
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(cli, {}, "shepherd", "_SHEPHERD_COMPLETE").source())


def main(*words: str) -> None:
    """The whole program. It looks for garbage after its start only: looking costs a fifth of the time of a command."""
    usual = gc.get_threshold()

    def has_started(_phase: str, _info: dict[str, int]) -> None:
        gc.callbacks.remove(has_started)
        gc.set_threshold(*usual)

    gc.callbacks.append(has_started)
    gc.set_threshold(N_IMPORTED)
    try:
        cli.main(args=[*words, *sys.argv[1:]], prog_name="shepherd")
    finally:
        gc.freeze()  # what is left ends with the process


serve_main, optimize_main, build_main = (partial(main, word) for word in ("serve", "optimize", "build"))
