"""The pages that `shepherd help` shows, and the messages that name them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from click.shell_completion import ShellComplete
from tests.places import ROOT, SOURCE
from tests.unit.cli.conftest import shepherd

from shepherd.cli import pages
from shepherd.cli.main import cli

NAMES = {*pages.pages(), *pages.commands(cli)}
NAMED = re.compile(r"shepherd help ([\w-]+)")


def messages(text: str) -> Iterator[str]:
    """All strings of a program but its docstrings."""
    tree = ast.parse(text)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def faults(text: str) -> list[str]:
    """What the messages of a program name that an installed person does not have."""
    said = [*messages(text)]
    found = [each for each in said if re.search(r"docs/\w+\.md", each)]
    return found + [name for each in said for name in NAMED.findall(each) if name not in NAMES]


def test_messages_name_pages_that_an_installed_person_has() -> None:
    programs = {str(path.relative_to(SOURCE)): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    programs = {name: text for name, text in programs.items() if "docs/" in text or NAMED.search(text)}
    programs.pop("cli/command/help.py")
    assert {name: found for name, text in programs.items() if (found := faults(text))} == {}
    assert sum(bool(NAMED.search(text)) for text in programs.values()) >= 3


def test_a_message_that_names_something_else_is_found_out() -> None:
    assert faults('"""See docs/rpc.md."""\nx = "see docs/rpc.md"\ny = "try shepherd help rcp"') == [
        "see docs/rpc.md",
        "rcp",
    ]


def test_every_page_of_the_documentation_is_shown_as_it_is() -> None:
    files = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"}
    assert set(pages.pages()) == files
    for name in files:
        shown = shepherd("help", name)
        assert shown.exit_code == 0
        assert shown.output == (ROOT / "docs" / f"{name}.md").read_text("utf-8")


def test_without_a_name_the_first_page_is_shown_and_all_are_named() -> None:
    shown = shepherd("help").output
    assert shown.startswith((ROOT / "docs" / "README.md").read_text("utf-8"))
    assert re.findall(r"[\w-]+", shown.splitlines()[-1].partition(": ")[2]) == [*pages.pages()]


@pytest.mark.parametrize(
    ("topic", "status", "words"),
    [
        ("docs/window.md", 0, "# A window larger than the context"),
        ("Window", 0, "# A window larger than the context"),
        ("launch", 0, "Usage: shepherd launch"),
        ("widnow", 1, "there is no page and no command 'widnow'; did you mean 'shepherd help window'?"),
        ("zzzz", 1, "there is no page and no command 'zzzz'; 'shepherd help' lists them"),
        ("../README", 1, "there is no page and no command '../README'"),
    ],
)
def test_a_topic_is_a_page_or_else_a_command(topic: str, status: int, words: str) -> None:
    shown = shepherd("help", topic)
    assert (shown.exit_code, words in shown.output) == (status, True), shown.output


def test_topics_are_completed() -> None:
    complete = ShellComplete(cli, {}, "shepherd", "_SHEPHERD_COMPLETE")
    assert [each.value for each in complete.get_completions(["help"], "wi")] == ["window", "window-events"]
    assert [each.value for each in complete.get_completions(["help"], "se")] == ["serve", "service"]
    assert [each.value for each in complete.get_completions(["doctor", "--build"], "c")] == ["cpu", "cuda"]


def test_a_link_becomes_the_command_that_shows_its_page() -> None:
    text = (
        "[memory.md](memory.md#a) [the server](serve.md#keys) ![a picture](context.svg) [decisions](adr/) "
        "[out](https://example.org/x.md)<!-- mark -->\n"
    )
    assert pages.linked(text) == (
        "`shepherd help memory` the server (`shepherd help serve`) a picture decisions [out](https://example.org/x.md)"
    )
