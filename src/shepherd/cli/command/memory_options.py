"""The commands of `shepherd memory` as one table: what each is called, what it takes, and what runs it.

Imports click alone: `shepherd --help` reads this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import click


class Row(NamedTuple):
    """One command."""

    name: str
    """`facts set` is the command `set` in the group `facts`."""
    runs: str
    """A module of `shepherd.cli.command` and its function; it gets the question, and the parameters by name."""
    help: str
    params: tuple[click.Parameter, ...] = ()
    """Beside `--json` and `--user`, which all take."""


def _text(*flags: str, metavar: str, help: str) -> click.Option:
    return click.Option(flags, metavar=metavar, help=help)


def _flag(flag: str, help: str) -> click.Option:
    return click.Option([flag], is_flag=True, help=help)


def _words(name: str, metavar: str, *, required: bool = True) -> click.Argument:
    """Words of a text: on a command line they need no quotation marks."""
    return click.Argument([name], metavar=metavar, nargs=-1, required=required)


def _number(*flags: str, most: int | None = None, least: int = 0, default: Any = None, help: str) -> click.Option:
    return click.Option(flags, metavar="N", type=click.IntRange(least, most), default=default, help=help)


EACH: tuple[click.Parameter, ...] = (
    _flag("--json", "Print JSON, for programs."),
    _text("--user", metavar="ID", help="The memory of this user; by default your own."),
)
_NUMBER = click.IntRange(1, 2**63 - 1)
_KEY, _ID = click.Argument(["key"]), click.Argument(["id"], type=_NUMBER)
_ROLES = click.Choice(("user", "assistant", "tool"))
_AFTER = _text(
    "--after", metavar="TIME", help="Said then or later: 2026-03-02, 2026-03-02T14:00, or an age such as 7d."
)
_BEFORE = _text("--before", metavar="TIME", help="Said before that time.")
_CONVERSATION = _text("--conversation", metavar="NAME", help="The conversation whose name begins so.")

ROWS = (
    Row(
        "search",
        "memory.search",
        "Find what was said, best first. Without a query: what was said last.",
        (
            _words("words", "[QUERY]...", required=False),
            _number("-n", "limit", least=1, most=50, default=5, help="How many at most; 5 by default."),
            _CONVERSATION,
            click.Option(["--role", "roles"], multiple=True, type=_ROLES, help="Who said it; may be repeated."),
            _AFTER,
            _BEFORE,
            _text("--phrase", metavar="TEXT", help="Words that stand side by side."),
            _text("--prefix", metavar="TEXT", help="How a word begins."),
        ),
    ),
    Row(
        "show",
        "memory.show",
        "Show conversations and messages. Alone, it lists the newest conversations; a message is shown with its turn.",
        (
            click.Argument(["name"], metavar="[CONVERSATION | MESSAGE]", required=False),
            _number("-n", "limit", most=1_000_000, default=20, help="How many conversations are listed; 0 for all."),
        ),
    ),
    Row("facts", "memory.list_facts", "Show and change what is kept by name. Alone, it lists that."),
    Row("facts list", "memory.list_facts", "List the facts."),
    Row(
        "facts set",
        "memory.set_fact",
        "Keep a value by its name. The one before becomes history.",
        (_KEY, _words("words", "VALUE...")),
    ),
    Row("facts get", "memory.get_fact", "Print a value.", (_KEY,)),
    Row("facts clear", "memory.clear_fact", "Delete a fact with all its history.", (_KEY,)),
    Row("facts history", "memory.fact_history", "Show what a fact was before.", (_KEY,)),
    Row(
        "profile",
        "memory.list_profile",
        "Show and change standing instructions. Preferences, too; alone, it lists them.",
    ),
    Row("profile list", "memory.list_profile", "List them, and what was proposed."),
    Row(
        "profile add",
        "memory.add_to_profile",
        "Add an instruction or a preference.",
        (
            _words("words", "TEXT..."),
            click.Option(
                ["--kind"],
                type=click.Choice(("instruction", "preference")),
                default="instruction",
                help="An instruction by default.",
            ),
        ),
    ),
    Row("profile confirm", "memory.confirm", "Take what was proposed into the profile.", (_ID,)),
    Row("profile reject", "memory.reject", "Turn down what was proposed. It is not proposed again.", (_ID,)),
    Row("profile remove", "memory.reject", "Take something out of the profile.", (_ID,)),
    Row(
        "forget",
        "memory_care.forget",
        "Forget messages for good. Says what would go, and asks; of several choices all must fit.",
        (
            click.Option(
                ["--message", "messages"],
                multiple=True,
                type=_NUMBER,
                metavar="ID",
                help="This message; may be repeated.",
            ),
            _CONVERSATION,
            _text("--matching", metavar="TEXT", help="All that says this, and the facts that do."),
            _BEFORE,
            _flag("--everything", "All of it. With --user and nothing else: all of that user."),
            _flag("--yes", "Do not ask."),
        ),
    ),
    Row("stats", "memory_care.stats", "Show how much is kept."),
    Row(
        "export",
        "memory_care.export",
        "Write the archive as lines of JSON. Without a file, to standard output.",
        (click.Argument(["file"], metavar="[FILE]", default="-", required=False), _CONVERSATION),
    ),
    Row(
        "import",
        "memory_care.import_files",
        "Store what other programs have exported. ChatGPT and Claude (a zip, a folder or conversations.json), JSON "
        "Lines, and our own exports; '-' is standard input. The same file again stores only what is new.",
        (click.Argument(["files"], metavar="FILE...", nargs=-1, required=True),),
    ),
    Row(
        "prune",
        "memory_care.prune",
        "Give up the oldest texts. Down to the limit; facts and pinned messages stay.",
        (_text("--to", metavar="SIZE", help="Such as 500MB or 2GiB; by default the configured limit."),),
    ),
    Row(
        "check",
        "memory_care.check",
        "Check the file. The exit status is 1 when something is wrong.",
        (_flag("--deep", "Compare every index with its table."), _flag("--repair", "Mend what can be mended.")),
    ),
    Row(
        "eval",
        "memory_care.evaluate",
        "Measure retrieval on a data set. LoCoMo, BEAM or LongMemEval, a file or a folder; the result is JSON.",
        (
            click.Argument(["file"]),
            _text("--embedder", metavar="FILE", help="An embedding GGUF, for search by meaning as well."),
        ),
    ),
    Row(
        "embed",
        "memory_care.embed",
        "Make vectors, for search by meaning. With the embedding GGUF of --model, or of the configuration.",
    ),
)
