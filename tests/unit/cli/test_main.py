"""How a command line is read. What the commands then do with a model: `test_process.py`."""

from __future__ import annotations

import importlib
import json
import math
import pty
import re
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

import click
import pytest
from tests.unit.cli.conftest import shepherd
from tests.unit.engine.tiny_bert import write_bert

from shepherd.cli.main import cli
from shepherd.cli.options import SECTIONS, SHARED
from shepherd.cli.subcommands import SUBCOMMANDS, Subcommand
from shepherd.models import gguf


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("NO_COLOR", "")])
def test_an_error_has_a_colour_only_where_the_terminal_and_the_user_want_it(
    empty_home: Path, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    ours, theirs = pty.openpty()
    with open(ours, encoding="utf-8") as screen, open(theirs, "w", encoding="utf-8") as terminal:
        with redirect_stderr(terminal), pytest.raises(SystemExit):
            cli.main(["replay", "--url", "http://127.0.0.1:1", str(empty_home)])
        shown = screen.readline()
    assert shown.startswith("shepherd: " if value else "\x1b[31mshepherd: ")
    assert ("\x1b" in shown) == (not value)


def test_no_help_shows_a_bound_that_is_none() -> None:
    for command in ((), *(row.name.split() for row in SUBCOMMANDS)):
        assert "None" not in shepherd(*command, "--help").output


@pytest.mark.parametrize("number", ["٣", "9" * 5_000, "", "-", "1.5", "some"])
def test_what_is_no_number_of_layers_is_one_sentence(number: str) -> None:
    said = shepherd("--gpu-layers", number, "-p", "Hello").output.replace("\n", " ")
    assert "is not a number of layers; write a number or 'all'." in said


def test_help_lists_every_command_and_every_option() -> None:
    text = shepherd("--help").output
    for word in ("chat", "serve", "top", "models", "config", "doctor", "completion", *SECTIONS):
        assert word in text
    shared = [flag for option in SHARED if not option.hidden for flag in option.opts]
    for flag in (*shared, "--prompt", "--json", "--version"):
        assert flag in text


def test_help_has_colours_on_a_terminal_only() -> None:
    assert "\x1b" not in shepherd("--help").output


@pytest.mark.parametrize("bad", ["80x", "", "-1", "nan", "1e400", "9" * 5_000])
def test_no_value_of_any_option_is_refused_in_the_words_of_the_library(bad: str) -> None:
    words: list[str] = []
    for where, command in commands(cli):
        for option in command.params:
            if isinstance(option, click.Option) and option.is_flag:
                continue
            try:
                value = option.type_cast_value(where, (bad,) if option.multiple or option.nargs < 0 else bad)
                assert not isinstance(value, float) or math.isfinite(value), option.opts
            except click.BadParameter as refused:
                words.append(refused.format_message())
    assert len(words) > 20
    assert [each for each in words if re.search(r"is not a valid|not in the range|<=?x", each)] == []


def commands(
    command: click.Command, above: click.Context | None = None
) -> Iterator[tuple[click.Context, click.Command]]:
    """The command and all below it."""
    here = click.Context(command, parent=above, info_name=command.name)
    yield here, command
    if isinstance(command, click.Group):
        for name in command.list_commands(here):
            if (below := command.get_command(here, name)) is not None:
                yield from commands(below, here)


@pytest.mark.parametrize(
    ("value", "says"),
    [("100G", "not a number of tokens"), ("99999999999", "too many tokens; at most 2147483647"), ("2048M", "too many")],
)
def test_more_tokens_than_can_be_counted_are_too_many(value: str, says: str) -> None:
    assert says in " ".join(shepherd("-c", value, "-p", "Hello").output.split())


@pytest.mark.parametrize("row", SUBCOMMANDS, ids=lambda row: row.name)
def test_every_command_has_a_help_page_and_a_function_that_runs_it(row: Subcommand) -> None:
    result = shepherd(*row.name.split(), "--help")
    assert result.exit_code == 0
    assert f"shepherd {row.name}" in result.output
    if row.runs:
        module, _, function = row.runs.rpartition(".")
        assert callable(getattr(importlib.import_module(f"shepherd.cli.{module}"), function))


def test_the_list_of_a_group_shows_whole_sentences() -> None:
    for group in ("", "memory", "memory facts", "memory profile", "models", "tools", "mcp", "config"):
        listed = shepherd(*group.split(), "--help").output.partition("Commands:\n")[2].partition("\n\n")[0]
        assert listed
        assert "..." not in listed


def test_version() -> None:
    assert shepherd("--version").output.startswith("shepherd 0.")


@pytest.mark.model
def test_tools_are_listed_without_a_model() -> None:
    result = shepherd("--list-tools")
    assert result.exit_code == 0
    assert re.match(r"\d\d tools available\n", result.output)
    assert {"list_directory", "search_memory", "execute_command"} <= set(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modle", "x"], "--model"),
        (["chat", "--contxt-size", "4"], "--context-size"),
        (["serv"], "shepherd serve"),
        (["chat", "--context-size", "much"], "write 4096, 32k or 1M"),
        (["--gpu-layers", "some"], "write a number or 'all'"),
        (["serve", "--port", "99999"], "99999"),
        (["chat", "a.gguf", "--model", "b.gguf"], "Two models are named"),
        (["bench", "a.gguf", "--model", "b.gguf"], "Two models are named"),
        (["optimize", "a.gguf", "--model", "b.gguf"], "Two models are named"),
        (["-p", "hello", "serve"], "belong to the chat"),
        (["completion", "tcsh"], "bash"),
        (["chat", "a.gguf", "b.gguf"], "unexpected extra argument"),
    ],
)
def test_a_wrong_line_is_refused_with_status_2_and_a_hint(empty_home: Path, arguments: list[str], message: str) -> None:
    result = shepherd(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        (["--context-size", "8k"], ["n_ctx = 8192"]),
        (["--enable-eviction"], ['overflow = "evict"']),
        (["--gpu-layers", "48"], ["gpu_layers = 48"]),
        (["--gpu-layers", "all"], ["gpu_layers = -1"]),
        (["--rpc-servers", "a:1,b:2"], ['rpc_servers = ["a:1", "b:2"]']),
        (["--threads", "3", "--batch", "64"], ["n_threads = 3", "n_batch = 64"]),
        (["--no-flash-attn"], ["flash_attn = false"]),
        (["--no-speculate"], ["speculate = false"]),
        (["--cache-type-k", "q8_0"], ['cache_type_k = "q8_0"']),
        (["--system", ""], ['system = ""']),
        (["--nothink"], ["thinking = false", "show_thinking = false"]),
        (["--temperature", "0.5", "--top-p", "0.9", "--top-k", "3"], ["temperature = 0.5", "top_p = 0.9", "top_k = 3"]),
        (["--min-p", "0.1", "--seed", "7", "--max-tokens", "2k"], ["min_p = 0.1", "seed = 7", "max_tokens = 2048"]),
        (["--host", "0.0.0.0", "--port", "0"], ['host = "0.0.0.0"', "port = 0"]),
        (["--api-key", "secret"], ["# api_keys: set, not shown"]),
        (["--enable-tools", "a,b", "--disable-tools", "c"], ['enabled = ["a", "b"]', 'disabled = ["c"]']),
        (["--notools"], ["enabled = []", "client_tools = false"]),
        (["--model", "/x/y.gguf"], ['path = "/x/y.gguf"']),
    ],
)
@pytest.mark.parametrize("place", ["before", "after"])
def test_a_flag_means_the_same_before_and_after_the_command(
    empty_home: Path, flags: list[str], lines: list[str], place: str
) -> None:
    result = shepherd(*flags, "config", "show") if place == "before" else shepherd("config", "show", *flags)
    assert result.exit_code == 0, result.output
    for line in lines:
        assert line in result.stdout.splitlines()
    assert "secret" not in result.output


def test_a_flag_after_the_command_wins_over_one_before_it(empty_home: Path) -> None:
    assert "port = 2" in shepherd("--port", "1", "config", "show", "--port", "2").stdout.splitlines()


def test_a_file_is_read_and_flags_win_over_it(empty_home: Path) -> None:
    (empty_home / "my.json").write_text('{"context_size": 512, "server_mode": {"enabled": true, "port": 7}}')
    lines = shepherd("config", "show", "--config", "my.json", "--port", "9").stdout.splitlines()
    assert {"n_ctx = 512", "port = 9", "enabled = true"} <= set(lines)


def test_an_unknown_key_is_warned_of_once_on_standard_error(empty_home: Path) -> None:
    (empty_home / "shepherd.toml").write_text("contxt_size = 512\n")
    result = shepherd("config", "show")
    assert result.exit_code == 0
    assert result.stderr.count("contxt_size") == 1
    assert "context_size" in result.stderr
    assert "contxt_size" not in result.stdout


def test_config_path_says_where_files_are_looked_for(empty_home: Path) -> None:
    (empty_home / "shepherd.toml").write_text("")
    lines = shepherd("config", "path").stdout.splitlines()
    assert f"{empty_home / 'shepherd.toml'}" in lines[0]
    assert lines[0].endswith("found")
    assert all(line.endswith("not found") for line in lines[1:])


@pytest.mark.model
@pytest.mark.parametrize(
    ("arguments", "model"),
    [
        (["nowhere.gguf"], "nowhere.gguf"),
        (["--temperature", "0", "nowhere.gguf", "-p", "x"], "nowhere.gguf"),
        (["-p", "x", "nowhere.gguf"], "nowhere.gguf"),
        (["chat", "nowhere.gguf"], "nowhere.gguf"),
        (["serve", "nowhere.gguf", "--port", "0"], "nowhere.gguf"),
        (["--server", "nowhere.gguf", "--port", "0"], "nowhere.gguf"),
        (["nowhere.gguf", "--server", "--port", "0"], "nowhere.gguf"),
        (["--server", "--model", "nowhere.gguf", "--port", "0"], "nowhere.gguf"),
        (["./chat"], "chat"),
        (["models", "info", "nowhere.gguf"], "nowhere.gguf"),
    ],
)
def test_a_word_that_is_no_command_is_a_model(empty_home: Path, arguments: list[str], model: str) -> None:
    result = shepherd(*arguments, input="Hello\n")
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("shepherd: ")
    assert model in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.model
def test_a_model_may_be_called_like_a_command(empty_home: Path) -> None:
    (empty_home / "serv").write_text("no model")
    assert "is not a GGUF file" in shepherd("serv").stderr


def test_an_unreadable_configuration_is_one_sentence(empty_home: Path) -> None:
    (empty_home / "shepherd.toml").write_text("= 3")
    result = shepherd("-p", "Hello")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "shepherd.toml" in result.stderr


@pytest.mark.model
def test_debug_shows_the_traceback(empty_home: Path) -> None:
    result = shepherd("--debug", "-p", "x", "nowhere.gguf")
    assert result.exception is not None
    assert not isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    result = shepherd("completion", shell)
    assert result.exit_code == 0
    assert "_SHEPHERD_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("shepherd ", "serve"),
        ("shepherd emb", "embedded"),
        ("shepherd chat --mod", "--model"),
        ("shepherd chat --model emb", "embedded"),
        ("shepherd --cache-type-k q", "q8_0"),
        ("shepherd models ", "info"),
        ("shepherd completion ", "fish"),
        ("shepherd to", "top"),
        ("shepherd top --", "--once"),
    ],
)
def test_completion_knows_commands_options_and_models(empty_home: Path, words: str, offered: str) -> None:
    *_, last = words.split(" ")
    environment = {"_SHEPHERD_COMPLETE": "fish_complete", "COMP_WORDS": words, "COMP_CWORD": last}
    result = shepherd(env=environment)
    assert offered in [line.split("\t")[0].split(",")[-1] for line in result.output.splitlines()]


@pytest.mark.parametrize("typed", ["qui", "big"])
def test_completion_knows_the_names_of_the_configuration(empty_home: Path, typed: str) -> None:
    (empty_home / "shepherd.toml").write_text('[models.bigone]\npath = "embedded"\n[aliases]\nquick = "bigone"\n')
    words = f"shepherd chat -m {typed}"
    environment = {"_SHEPHERD_COMPLETE": "fish_complete", "COMP_WORDS": words, "COMP_CWORD": typed}
    result = shepherd(env=environment)
    offered = [line.split("\t")[0].split(",")[-1] for line in result.output.splitlines()]
    assert {"qui": "quick", "big": "bigone"}[typed] in offered


def test_models_list_has_the_embedded_model_and_what_is_here(empty_home: Path, lamb: Path) -> None:
    (empty_home / "models").mkdir()
    (empty_home / "models" / "mine.gguf").symlink_to(lamb)
    (empty_home / "models" / "broken.gguf").write_bytes(lamb.read_bytes()[:1000])
    text = shepherd("models", "list").stdout
    assert [line.split()[0] for line in text.splitlines()] == ["NAME", "embedded", "broken"]
    assert "F16" in text
    assert "4096" in text
    told = json.loads(shepherd("models", "list", "--json").stdout)
    assert [model["name"] for model in told] == ["embedded", "broken"]
    assert told[0]["context"] == 4096
    assert "download it again" in told[1]["problem"]


def test_models_info_says_what_a_model_is_and_needs(empty_home: Path, lamb: Path) -> None:
    text = shepherd("models", "info", str(lamb)).stdout
    parameters = f"{gguf.read_header(lamb).n_params / 1e6:.1f} million"
    for word in ("llama", parameters, "F16", "4096 tokens", "hermes", "Tools:           yes", "MiB"):
        assert word in text
    told = json.loads(shepherd("models", "info", "embedded", "--json").stdout)
    assert told["architecture"] == "llama"
    assert told["memory_bytes"]["4096"] > told["memory_bytes"]["2048"] > told["size_bytes"]


MODELS = """
[models.a]
path = "embedded"
[models.b]
path = "embedded"
pooling = "mean"
[models.late]
path = "late.gguf"
"""


@pytest.mark.model
def test_models_alone_shows_those_of_the_configuration_with_their_memory(empty_home: Path) -> None:
    (empty_home / "shepherd.toml").write_text(MODELS)
    result = shepherd("models")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[1][:4] == ["a", "chat", "a", "4096"]
    assert rows[2][:3] == ["b", "embedding", "4096"]
    assert rows[3][:3] == ["late", "not", "usable"]
    assert "All models together may take" in result.stdout
    told = json.loads(shepherd("models", "--json").stdout)
    assert [(row["name"], row["kind"], row["load"]) for row in told["models"]] == [
        ("a", "chat", "start"), ("b", "embedding", "demand"), ("late", "chat", "demand"),
    ]  # fmt: skip
    assert told["memory_budget_bytes"] > 0
    assert told["models"][0]["caches"] == {"a": 4096}
    assert "late.gguf" in told["models"][2]["problem"]


def test_config_alone_shows_it_with_routes_that_cannot_be_reached(empty_home: Path) -> None:
    rules = "[[routes]]\nmatch = '*'\ncache = 'main'\n[[routes]]\nmatch = '*haiku*'\ncache = 'main'\n"
    (empty_home / "shepherd.toml").write_text(f"[caches.main]\n{rules}")
    result = shepherd("config")
    assert result.exit_code == 0
    assert "[caches.main]" in result.stdout
    assert "routes[1] can never be reached, because routes[0] takes its requests first" in result.stderr
    assert result.stdout == shepherd("config", "show").stdout


def test_models_info_says_what_a_file_is_for(empty_home: Path) -> None:
    for pooling, kind, words in ((4, "reranker", "it scores pairs of texts"), (1, "embedding", "it makes vectors")):
        write_bert(empty_home / "made.gguf", pooling=pooling, n_labels=1)
        assert f"{kind}: {words}" in shepherd("models", "info", "made.gguf").stdout
        assert json.loads(shepherd("models", "info", "made.gguf", "--json").stdout)["kind"] == kind
