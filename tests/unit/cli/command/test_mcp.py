"""`shepherd mcp`: what it prints and writes, and that it spoils no file."""

import json
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.cli import conftest

from shepherd.cli.command import mcp_file


class Shell(conftest.Shell):
    group = "mcp"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.user = folder / "config" / "shepherd" / "config.toml"
        self.project = folder / "shepherd.toml"
        self.env["XDG_CONFIG_HOME"] = str(folder / "config")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)


def test_a_server_is_added_listed_and_removed(shell: Shell) -> None:
    assert "No MCP servers" in shell.run().output
    shell.run("add", "files", "--env", "A=x=y", "--timeout", "9", "--", "npx", "-y", "pkg", "/tmp", 'odd " \\ \x7f')
    shell.run("add", "web", "--url", "https://x.example/mcp", "--header", "Authorization: Bearer ${TOKEN}")
    assert tomllib.loads(shell.user.read_text()) == {
        "mcp_servers": [
            {
                "name": "files",
                "command": "npx",
                "args": ["-y", "pkg", "/tmp", 'odd " \\ \x7f'],
                "env": {"A": "x=y"},
                "timeout": 9.0,
            },
            {"name": "web", "url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        ]
    }
    assert stat.S_IMODE(shell.user.stat().st_mode) == 0o600
    assert [each["name"] for each in shell.json("list")] == ["files", "web"]
    assert shell.json()[1]["headers"] == ["Authorization"]
    assert "https://x.example/mcp" in shell.run().output
    assert "Removed files" in shell.run("remove", "files").output
    shell.run("remove", "web")
    assert shell.json() == []


def test_the_projects_file_is_changed_only_when_asked_for(shell: Shell) -> None:
    shell.run("add", "a", "--project", "--", "true")
    assert not shell.user.exists()
    assert "--project changes" in shell.run("remove", "a", ends=1).output
    shell.run("remove", "--project", "a")
    assert shell.project.read_text() == ""


def test_a_secret_in_a_file_is_remarked_upon(shell: Shell) -> None:
    assert (
        "write '${API_KEY}' to read it from the environment"
        in shell.run("add", "a", "--env", "API_KEY=1", "--", "x").output
    )
    assert "environment" not in shell.run("add", "b", "--env", "API_KEY=${API_KEY}", "--", "x").output


WRONG = [
    (["add", "a"], "give either a command"),
    (["add", "a", "--url", "https://x.example", "--", "x"], "give either a command"),
    (["add", " ", "--", "x"], "needs a name"),
    (["add", "a", "--env", "A", "--", "x"], "'A' is not of the form --env NAME=VALUE"),
    (["add", "a", "--env", "A=1", "--url", "https://x.example"], "belong to a command"),
    (["add", "a", "--header", "A: 1", "--", "x"], "belongs to --url"),
    (["add", "b", "--", "x"], "already has an MCP server 'b'"),
    (["remove", "nope"], "has no MCP server 'nope'; it has: b"),
    (["test", "nope"], "no MCP server is called 'nope'; configured: b"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG, ids=[" ".join(each[0]) for each in WRONG])
def test_what_cannot_be_done_is_said_in_a_sentence(shell: Shell, arguments: list[str], said: str) -> None:
    shell.run("add", "b", "--", "true")
    before = shell.user.read_text()
    assert said in " ".join(shell.run(*arguments, ends=1).output.split())
    assert shell.user.read_text() == before


COMMENTED = """# mine
model = "embedded"   # small

[tools]
roots = ["/tmp"]

# the first
[[mcp_servers]]  # it
name = "one"
command = "a"
args = ["-x"]

[mcp_servers.env]
A = "1"

# the second
[[mcp_servers]]
name = "two"
url = "https://two.example/mcp"

# the end
[server]
port = 9
"""


def test_all_other_lines_of_a_file_stay(shell: Shell) -> None:
    shell.project.write_text(COMMENTED)
    shell.project.chmod(0o640)
    shell.run("add", "--project", "three", "--", "c")
    assert shell.project.read_text().startswith(COMMENTED)
    shell.run("remove", "--project", "one")
    text = shell.project.read_text()
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# mine", "# the first", "# the second", "# the end",
    ]  # fmt: skip
    assert [each["name"] for each in tomllib.loads(text)["mcp_servers"]] == ["two", "three"]
    shell.run("remove", "--project", "two")
    shell.run("remove", "--project", "three")
    rest = tomllib.loads(COMMENTED)
    del rest["mcp_servers"]
    assert tomllib.loads(shell.project.read_text()) == rest
    assert stat.S_IMODE(shell.project.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = [{name = "one", command = "a"}]\n',
        '[[mcp_servers]]\nname = "one"\ncommand = """\n[[mcp_servers]]\n"""\n',
        '[["mcp_servers"]]\nname = "one"\nargs = [\n"a",\n[[1]],\n]\ncommand = "a"\n',
    ],
)
def test_a_file_of_an_unusual_form_is_refused_and_not_spoilt(shell: Shell, text: str) -> None:
    shell.project.write_text(text)
    said = shell.run("remove", "--project", "one", ends=1).output
    assert "by hand" in said or "args" in said
    assert shell.project.read_text() == text


def test_json_files_are_written_too(shell: Shell) -> None:
    file = shell.project.with_suffix(".json")
    file.write_text('{"model": "embedded"}')
    shell.run("add", "--project", "one", "--", "true")
    assert json.loads(file.read_text()) == {"model": "embedded", "mcp_servers": [{"name": "one", "command": "true"}]}
    shell.run("remove", "--project", "one")
    assert json.loads(file.read_text()) == {"model": "embedded"}


def test_a_linked_file_stays_a_link(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    real = tmp_path / "elsewhere" / "real.toml"
    real.write_text("# here\n")
    shell.project.symlink_to(real)
    shell.run("add", "--project", "one", "--", "true")
    assert shell.project.is_symlink()
    assert real.read_text().startswith("# here\n\n[[mcp_servers]]")


VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(VALUES, max_size=3), st.dictionaries(VALUES, VALUES, max_size=3))
def test_every_text_can_be_written(args: list[str], env: dict[str, str]) -> None:
    said = {"name": "n", "command": "c", "args": args, "env": env}
    assert tomllib.loads(mcp_file.appended("", {"mcp_servers": [said]})) == {"mcp_servers": [said]}
