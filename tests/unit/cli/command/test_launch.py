"""`shepherd launch`: the settings of clients, the same when printed, and the start and the end of the server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import command_line
from tests.scripted_service import ScriptedService, saying

from shepherd.cli.command.launch import as_arguments
from shepherd.cli.command.launch_program import Package, find_package, keep_prompt, least_node, recall_prompt
from shepherd.cli.command.launch_settings import (
    CLIENTS,
    FOLDER,
    SIDE_MODEL,
    LaunchTarget,
    side_model,
)
from shepherd.cli.main import cli
from shepherd.cli.options import SHARED, given_options
from shepherd.config import RouteConfig
from shepherd.core.status import Health, ModelCard

Listening = Callable[..., AbstractContextManager[int]]

SERVED = LaunchTarget("http://127.0.0.1:8000", "qwen", n_ctx=65536, reserve=4096)

STUB = """#!{python}
import json, os, pathlib, sys
named = [word.split('"')[1] if '="/' in word else word for word in sys.argv[1:]]
files = {{word: pathlib.Path(word).read_text() for word in named if word.startswith("/") and os.path.isfile(word)}}
told = {{"env": dict(os.environ), "arguments": sys.argv[1:], "files": sorted(files.values())}}
pathlib.Path(os.environ["TOLD"]).write_text(json.dumps(told))
{then}
"""
"""A client that records its arguments and variables."""


class Stub:
    """A folder of programs that stand for all clients."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.told_file = folder / "told.json"
        self.env = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "TOLD": str(self.told_file)}
        self.env |= {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "TMPDIR": str(folder)}
        self.env["XDG_CACHE_HOME"] = str(cache)  # the library's self-test runs once
        self.env.pop("SHEPHERD_API_KEY", None)
        self.then("")

    def then(self, code: str) -> None:
        """What the programs do after they have written it down."""
        for client in CLIENTS.values():
            program = self.folder / client.program
            program.write_text(STUB.format(python=sys.executable, then=code))
            program.chmod(0o755)

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.told_file.read_text())
        self.told_file.unlink()
        return told

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return command_line.run("launch", *words, env={**self.env, **variables}, cwd=self.folder.parent)


@pytest.fixture
def stub(tmp_path: Path, shared_cache: Path) -> Stub:
    return Stub(tmp_path, shared_cache)


def service(n_ctx: int = 65536) -> ScriptedService:
    made = ScriptedService(saying("Hi"))
    made.cards = (ModelCard("qwen", n_ctx, 1_700_000_000), ModelCard("small", 2048, 1_700_000_000))
    return made


# -- the installed program --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "least"),
    [
        (">=22", (22, 0)),
        (">=22.19.0", (22, 19)),
        (">= 18.0.0 <25", (18, 0)),
        ("^20.19.0 || >=22.12.0", (20, 19)),
        ("<30 >=22", (22, 0)),
        ("< 30", (0, 0)),
        ("v22.x", (22, 0)),
        ("*", (0, 0)),
        ("lts/*", (0, 0)),
        (["22"], (22, 0)),
        ("9" * 10_000, (0, 0)),
    ],
)
def test_the_least_node_of_a_range_is_read(wanted: object, least: tuple[int, int]) -> None:
    assert least_node(wanted) == least


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ('{"version": "1.6.0", "engines": {"node": ">=22.19"}}', Package("1.6.0", (22, 19))),
        ('{"version": "1.6.0", "engines": ["node >= 8"]}', Package("1.6.0")),
        ("{}", Package()),
        ("[1]", Package()),
        ("no JSON", Package()),
        ("[" * 100_000, Package()),
        ('{"version": ' + "9" * 5_000 + "}", Package()),
    ],
)
def test_the_package_of_a_program_is_found_through_its_links(tmp_path: Path, text: str, package: Package) -> None:
    script = tmp_path / "lib" / "node_modules" / "@a" / "pi" / "dist" / "cli.js"
    script.parent.mkdir(parents=True)
    script.touch()
    (script.parents[1] / "package.json").write_text(text)
    (tmp_path / "pi").symlink_to(script)
    assert find_package(str(tmp_path / "pi")) == package


@pytest.mark.parametrize("text", ["", "[]", '{"pi": 5}', '{"pi": {"tokens": "many"}}', '{"pi": {"tokens": true}}'])
def test_what_is_known_of_a_prompt_may_be_damaged(tmp_path: Path, text: str) -> None:
    file = tmp_path / "state" / "launch.json"
    keep_prompt("codex", Package("1.0"), 5_000, file)
    assert recall_prompt("codex", file)[0] == 5_000
    file.write_text(text)
    assert recall_prompt("pi", file) == (0, "")
    keep_prompt("pi", Package(), 2_000, file)
    assert recall_prompt("pi", file)[0] == 2_000


# -- the table --------------------------------------------------------------------------------------------------------


def test_the_command_knows_exactly_the_clients_of_the_table() -> None:
    (choice,) = (param.type for param in cli.commands["launch"].params if param.name == "client")
    assert isinstance(choice, click.Choice)
    assert tuple(choice.choices) == tuple(CLIENTS)


def test_help_shows_the_options_that_decide_how_large_the_context_is() -> None:
    shown = command_line.run("launch", "--help").stdout
    assert re.findall(r"^  (?:-c, )?(--context-size|--reserve|--max-tokens) ", shown, re.MULTILINE) == [
        "--context-size", "--max-tokens", "--reserve",
    ]  # fmt: skip


def test_claude_code_is_told_what_keeps_the_prefix_and_how_much_room_there_is() -> None:
    settings = CLIENTS["claude"].configure(replace(SERVED, side_model=SIDE_MODEL, key="sk"), ())
    told = settings.variables
    assert told["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8000"
    assert (told["ANTHROPIC_AUTH_TOKEN"], told["ANTHROPIC_API_KEY"]) == ("sk", "")
    assert {told[f"ANTHROPIC_DEFAULT_{tier}_MODEL"] for tier in ("OPUS", "SONNET", "FABLE")} == {"qwen"}
    assert (told["ANTHROPIC_MODEL"], told["ANTHROPIC_DEFAULT_HAIKU_MODEL"]) == ("qwen", SIDE_MODEL)
    assert told["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == str(65536 - 4096)
    assert told["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "4096"
    assert told["CLAUDE_CODE_ATTRIBUTION_HEADER"] == "0"
    assert told["CLAUDE_CODE_TOTAL_TOKENS_REMINDER"] == "off"
    # Its own settings file would win over the environment: the overlay says everything again.
    (name,) = settings.files
    assert json.loads(settings.files[name]) == {"env": told}
    assert settings.arguments == ("--settings", f"{FOLDER}/{name}")


@pytest.mark.parametrize(
    "said", [["--settings", '{"env": {"A": "1"}, "x": 2}'], ['--settings={"env":{"A":"1"},"x":2}']]
)
def test_settings_of_the_user_are_joined_with_ours(said: list[str]) -> None:
    settings = CLIENTS["claude"].configure(SERVED, said)
    joined = json.loads(next(iter(settings.files.values())))
    assert joined == {"env": {"A": "1", **settings.variables}, "x": 2}
    # The client takes the last one: theirs may not come behind ours.
    assert settings.arguments == ("--settings", f"{FOLDER}/settings.json")


def test_pi_gets_a_provider_of_its_own_and_names_its_conversations() -> None:
    settings = CLIENTS["pi"].configure(replace(SERVED, key="sk"), ())
    assert settings.variables["SHEPHERD_API_KEY"] == "sk"
    assert settings.arguments == ("-e", f"{FOLDER}/shepherd.mjs", "--provider", "shepherd", "--model", "qwen")
    assert "sk" not in settings.files["shepherd.mjs"]
    script = re.fullmatch(
        r'export default \(pi\) => pi\.registerProvider\("shepherd", (.*)\);', settings.files["shepherd.mjs"], re.DOTALL
    )
    assert script is not None
    provider = json.loads(script[1])
    assert provider["baseUrl"] == "http://127.0.0.1:8000/v1"
    (model,) = provider["models"]
    assert (model["id"], model["contextWindow"], model["maxTokens"]) == ("qwen", 65536, 4096)
    assert model["compat"] == {"sendSessionAffinityHeaders": True}


def test_nobody_is_told_about_room_that_is_not_known() -> None:
    for client in CLIENTS.values():
        settings = client.configure(replace(SERVED, n_ctx=0), ())
        assert not re.search(r"CONTEXT_TOKENS|context_?[wW]indow|max_input|maxTokens|\"limit\"", repr(settings))


@given(st.integers(1, 2_000_000), st.none() | st.integers(0, 3_000_000))
def test_prompt_and_answer_share_the_context(n_ctx: int, reserve: int | None) -> None:
    served = replace(SERVED, n_ctx=n_ctx, reserve=reserve)
    assert served.prompt + served.answer == n_ctx
    assert served.answer >= 1
    assert served.prompt >= 0


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        ((), ""),
        ((RouteConfig(match="*", cache="main"),), ""),
        ((RouteConfig(match="*Haiku*", cache="fast"), RouteConfig(match="*", cache="main")), SIDE_MODEL),
        ((RouteConfig(match="*haiku*", endpoint="/v1/embeddings", cache="fast"),), ""),
        ((RouteConfig(model="qwen", cache="fast"),), ""),
    ],
)
def test_side_tasks_get_a_name_of_their_own_where_a_route_is_there_for_them(
    routes: tuple[RouteConfig, ...], expected: str
) -> None:
    assert side_model(routes) == expected


SAMPLES = {
    "token_count": ["8k", "100"],
    "layers": ["all", "3"],
    "name_list": ["a,b"],
    "choice": ["f16", "info"],
    "text": ["two words", ""],
}
"""By type of option; a number for all others."""


def ways_to_say(option: click.Option) -> list[list[str]]:
    if option.is_flag:
        return [[flag] for flag in (*option.opts, *option.secondary_opts)]
    samples = SAMPLES.get(option.type.name, ["7"])
    if isinstance(option.type, click.Choice):
        samples = [sample for sample in samples if sample in option.type.choices]
    return [[flag, sample] for flag in option.opts for sample in samples]


@pytest.mark.parametrize("words", [words for option in SHARED for words in ways_to_say(option)], ids=" ".join)
def test_shared_options_survive_being_written_as_words(words: list[str]) -> None:
    def read(words: list[str]) -> dict[str, Any]:
        return given_options(cli.commands["serve"].make_context("serve", words))

    options = read(words)
    assert options
    written = as_arguments(options)
    for left_out in ("api_keys", "server", "list_tools"):
        options.pop(left_out, None)
    assert read(written) == options


def test_keys_are_in_no_command_line_which_everybody_can_read() -> None:
    assert "s3cret" not in " ".join(as_arguments({"api_keys": ("s3cret",), "port": 1}))


# -- the whole way ----------------------------------------------------------------------------------------------------


def test_a_client_that_is_missing_is_one_sentence_that_says_how_to_get_it(stub: Stub) -> None:
    for name, client in CLIENTS.items():
        ran = stub.run(name, PATH="/nowhere")
        assert ran.returncode == 127
        assert ran.stderr.strip() == (
            f"shepherd: there is no program {client.program!r} on this machine; install it with: {client.install}"
        )


def test_the_configuration_says_what_is_printed_when_no_server_runs(stub: Stub, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        '[models.m]\npath = "embedded"\n[caches.main]\nmodel = "m"\nn_ctx = 40000\n[caches.fast]\nmodel = "m"\n'
        'n_ctx = 9000\n[[routes]]\nmatch = "*haiku*"\ncache = "fast"\n[[routes]]\nmatch = "*"\ncache = "main"\n'
        "[server]\nport = 1\n"
    )
    ran = stub.run("claude", "--print", "--config", str(config), "--reserve", "1000")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:1" in lines
    assert "export ANTHROPIC_MODEL=m" in lines
    assert f"export ANTHROPIC_DEFAULT_HAIKU_MODEL={SIDE_MODEL}" in lines
    assert "export CLAUDE_CODE_MAX_CONTEXT_TOKENS=39000" in lines
    assert "no server answers" in ran.stderr
    ran = stub.run("claude", "--print", "--config", str(config), "--reserve", "1000", "--window", "8x")
    assert "export CLAUDE_CODE_MAX_CONTEXT_TOKENS=319000" in ran.stdout.splitlines()


@pytest.mark.parametrize(
    ("made", "options", "sentence"),
    [
        (service(), {"api_keys": ("sk",)}, "refuses access; give its key with --api-key KEY"),
        (ScriptedService(saying(), health=Health("error", "b", "m", detail="no memory")), {}, "answer: no memory"),
    ],
    ids=["no key", "a model that failed"],
)
def test_a_server_that_is_of_no_use_is_one_sentence(
    made: ScriptedService, options: dict[str, Any], sentence: str, stub: Stub, listening: Listening
) -> None:
    with listening(made, **options) as port:
        ran = stub.run("aider", "--url", f"http://127.0.0.1:{port}")
    assert ran.returncode == 1
    assert sentence in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not stub.told_file.exists()


def test_what_is_no_shepherd_server_is_told_so(stub: Stub) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"Ollama is running")

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        ran = stub.run("aider", "--port", str(other.server_port))
        other.shutdown()
    assert "is no Shepherd server; choose another port with --port" in ran.stderr


def test_nobody_at_the_address_that_was_named(stub: Stub) -> None:
    ran = stub.run("aider", "--url", "127.0.0.1:1")
    assert ran.returncode == 1
    assert "no server answers at http://127.0.0.1:1; start one" in ran.stderr
