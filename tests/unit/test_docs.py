"""The documentation is run: Python and curl blocks against a really started server, commands through the real
parser."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests import command_line, config_page, providers_page
from tests.places import ROOT

from shepherd import config as configuration
from shepherd import dialects
from shepherd.cli.main import cli
from shepherd.core import ConfigError
from shepherd.models.pull.source import HubSource, WheelSource, parse
from shepherd.models.suggestions import SUGGESTIONS

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
INDEX = ROOT / "docs" / "README.md"
BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^ *(?:\$ )?((?:uv run )?shepherd\b[^|<>#\n]*)", re.MULTILINE)
"""A command line up to its comment, pipe or redirection; the banner's first line is none."""


CHAT = re.compile(r"^```text chat\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A conversation with the embedded model, as a pipe shows it."""
RUN = re.compile(r"^```console run\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""Commands, and what they print; all of a page in one folder, one after the other. `...` stands for anything."""
TASK = re.compile(r"^\| [^|`]+ \| `(shepherd\b[^`]*)` \| \[", re.MULTILINE)
"""The command of a row of the table "I want to"."""
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
PLAN = re.compile(r"^```text plan\n\$ (shepherd plan [^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A plan and what it prints: the table of standard error, an empty line, the configuration of standard output."""
FILES = {"README.md": "Hello, world.\n", "main.cpp": "int main() {}\n", "CMakeLists.txt": "project(hello)\n"}
"""Of the folder where the examples run."""


def sources(language: str) -> dict[str, str]:
    """The blocks in one language, by page and number."""
    return {name: match.group(2) for name, (match, _) in blocks(language).items()}


def blocks(language: str) -> dict[str, tuple[re.Match[str], str]]:
    """The blocks in one language, by page and number, each with the text of its page behind it."""
    return {
        f"{page.name}-{number}": (match, match.string[match.end() :])
        for page in PAGES
        for number, match in enumerate(BLOCK.finditer(page.read_text("utf-8")))
        if match.group(1) == language
    }


def with_files(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_files(tmp_path_factory.mktemp("examples"))


def commands() -> Sequence[object]:
    lines: dict[str, None] = {}
    for page in PAGES:
        for match in BLOCK.finditer(page.read_text("utf-8")):
            if match.group(1) in {"", "console", "sh"}:
                lines.update(dict.fromkeys(line.strip() for line in COMMAND.findall(match.group(2))))
    lines.update(dict.fromkeys(line.partition(" <")[0] for line in TASK.findall(INDEX.read_text("utf-8"))))
    return [pytest.param(line, id=line[:60]) for line in lines]


@pytest.fixture(scope="session")
def server(start_server: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    """For these tests alone: the pages tell how many tokens are cached."""
    with start_server() as address:
        yield address


def played(chat: str, folder: Path) -> str:
    """The chat of a page, with the answers that a pipe gets now."""
    asked = [line.removeprefix("> ") for line in chat.splitlines() if line.startswith("> ")]
    typed = "".join(f"{line}\n" for line in asked)
    done = command_line.run("--temperature", "0", "--no-recall", stdin=typed, cwd=folder)
    answers = done.stdout.partition("\n> ")[2].removesuffix("\n> \n").split("\n> ")
    return "".join(f"> {line}\n{answer}\n" for line, answer in zip(asked, answers, strict=True))


def matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("..."))), text, re.DOTALL) is not None


def test_what_prints_something_else_is_found_out() -> None:
    assert matches("a ... c\nd", "a b c\nd")
    assert not matches("a c", "a b c")


@pytest.mark.model
def test_the_chats_that_are_shown_are_what_the_embedded_model_writes(folder: Path) -> None:
    shown = {page.name: found for page in PAGES if (found := CHAT.findall(page.read_text("utf-8")))}
    assert shown
    for page, chats in shown.items():
        for chat in chats:
            assert played(chat, folder) == chat, page


@pytest.mark.model
def test_the_commands_that_are_shown_print_what_the_page_says(folder: Path, tmp_path: Path) -> None:
    shown = {page.name: found for page in PAGES if (found := RUN.findall(page.read_text("utf-8")))}
    assert shown
    for page, found in shown.items():
        home = tmp_path / page
        home.mkdir()
        env = {**os.environ, "HOME": str(home), "RAG_DB_PATH": str(home / "memory.db")}
        for line in "".join(found).removeprefix("$ ").split("\n$ "):
            command, _, printed = line.partition("\n")
            done = command_line.run(*shlex.split(command)[1:], env=env, cwd=folder)
            assert (done.returncode, done.stderr) == (0, ""), command
            assert matches(printed.strip(), done.stdout.strip()), (page, command, done.stdout)


@pytest.mark.model
def test_the_plans_that_are_shown_are_what_the_command_prints_and_can_be_read(tmp_path: Path) -> None:
    shown = PLAN.findall((ROOT / "docs" / "scaling.md").read_text("utf-8"))
    assert len(shown) >= 4
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for command, printed in shown:
        done = command_line.run(*shlex.split(command)[1:], env=env, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert [line.rstrip() for line in f"{done.stderr}\n{done.stdout}".splitlines()] == printed.splitlines(), command
        (tmp_path / "planned.toml").write_text(done.stdout)
        config = configuration.load(env={}, cwd=tmp_path, user_dir=tmp_path, file=tmp_path / "planned.toml")
        assert config.warnings == ()


@pytest.mark.parametrize("line", commands())
def test_commands_exist_with_their_options(line: str) -> None:
    words = shlex.split(line.removeprefix("uv run "))
    if "--" in words:  # what follows is another program's
        words = words[: words.index("--")]
    program, *arguments = words
    done = CliRunner().invoke(cli, [*arguments, "--help"], prog_name=program, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "Usage" in done.stdout


def heads(page: Path) -> set[str]:
    """The names under which the sections of a page can be linked, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head) for head in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in found}


def test_every_page_and_section_that_is_linked_exists() -> None:
    for page in PAGES:
        for target, section in LINK.findall(page.read_text("utf-8")):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}"
            if section:
                assert section in heads(linked), f"{page.name} links to {target}#{section}"


def test_every_page_is_in_the_list_of_pages_once_and_the_table_of_tasks_is_long_enough() -> None:
    tasks, _, pages = INDEX.read_text("utf-8").partition("\n## ")
    assert len(TASK.findall(tasks)) >= 20
    listed = [target for target, _ in LINK.findall(pages) if "/" not in target]
    assert sorted([*listed, "README.md", "start.md"]) == sorted(page.name for page in INDEX.parent.glob("*.md"))


def test_the_test_command_of_the_readme_is_the_one_ci_runs() -> None:
    assert "uv run pytest" in (ROOT / "README.md").read_text("utf-8")
    assert "uv run pytest\n" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_the_tables_of_providers_are_what_the_code_has() -> None:
    for page in providers_page.PAGES:
        assert page.read_text("utf-8") == providers_page.made(page), "run: python tests/providers_page.py"


def test_the_list_of_all_keys_is_what_the_schema_has() -> None:
    assert config_page.PAGE.read_text("utf-8") == config_page.made(), "run: python tests/config_page.py"


def test_the_configurations_of_the_page_of_providers_can_be_read(tmp_path: Path) -> None:
    found = [text for name, text in sources("toml").items() if name.startswith("providers.md")]
    assert len(found) >= 2
    for text in found:
        file = tmp_path / "shepherd.toml"
        file.write_text(text)
        config = configuration.load(env={}, cwd=tmp_path, user_dir=tmp_path, file=file)
        assert config.warnings == ()
        away = text.replace('cache = "main"', 'provider = "claude"', 1)
        if "privacy" in away:
            file.write_text(away)
            with pytest.raises(ConfigError, match="not on this machine"):
                configuration.load(env={}, cwd=tmp_path, user_dir=tmp_path, file=file)


def test_the_table_of_first_models_is_that_of_the_command() -> None:
    page = (ROOT / "docs" / "models.md").read_text("utf-8")
    rows = ["| memory | model | pull | on disk | licence | good for |", "| --- | --- | --- | --- | --- | --- |"]
    rows += [
        f"| {each.needed_bytes / 1e9:.1f} GB | {each.name} | `{each.spec}` | {each.size_gb:g} GB | {each.licence} | "
        f"{each.good_for} |"
        for each in SUGGESTIONS
    ]
    found = page.partition("<!-- suggestions -->\n")[2].partition("<!-- /suggestions -->")[0]
    assert found.strip() == "\n".join(rows)
    assert [each.needed_bytes for each in SUGGESTIONS] == sorted(each.needed_bytes for each in SUGGESTIONS)
    sources = [parse(each.spec) for each in SUGGESTIONS]
    assert all(isinstance(each, WheelSource) or (isinstance(each, HubSource) and each.label) for each in sources)


def test_every_dialect_has_its_place_in_the_table_of_families() -> None:
    page = (ROOT / "docs" / "families.md").read_text("utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`([^`]+)`", "".join(rows))) == list(dialects.names())
