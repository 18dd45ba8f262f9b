"""`shepherd tools`: what is there, what is off and why, and one call."""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shepherd.cli.command.tools import arguments_of
from shepherd.cli.main import cli
from shepherd.core import InvalidRequest

Shepherd = Callable[..., Result]


@pytest.fixture
def shepherd(tmp_path: Path) -> Shepherd:
    """The program in an empty folder without a configuration."""
    home = {name: str(tmp_path / name) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
    (work := tmp_path / "work").mkdir()

    def run(*arguments: str, text: str = "") -> Result:
        with contextlib.chdir(work):
            return CliRunner(env=home).invoke(cli, arguments, input=text, prog_name="shepherd")

    return run


def parts(output: str) -> tuple[str, str]:
    """What is printed of tools that are on, and of those that are off."""
    on, _, off = output.partition(" tools off:\n")
    return on, off


def test_tools_are_listed_by_category_and_those_that_are_off_say_why(shepherd: Shepherd) -> None:
    for line in (["--list-tools"], ["tools"], ["tools", "list"], ["chat", "--list-tools"]):
        result = shepherd(*line)
        assert result.exit_code == 0
        assert result.stderr == ""
        on, off = parts(result.stdout)
        n = re.match(r"(\d+) tools available\nfilesystem:\n  list_directory +\w", on)
        assert n
        assert len(re.findall(r"^  \w+ ", on, re.MULTILINE)) == int(n[1]) > 10
        assert re.search(r"^memory:\n  search_memory  +Search earlier conversations\.$", on, re.MULTILINE)
        assert "execute_command" not in on
        assert re.search(r"^  execute_command +not enabled \(tools\.enabled, --enable-tools\)$", off, re.MULTILINE)
        assert re.search(r"^  call_mcp_tool +no MCP server is configured$", off, re.MULTILINE)


def test_a_dangerous_tool_that_is_disabled_is_in_the_other_part_although_it_is_enabled(shepherd: Shepherd) -> None:
    result = shepherd("--list-tools", "--enable-tools", "filesystem,command", "--disable-tools", "command_execution")
    on, off = parts(result.stdout)
    assert "read_file" in on
    assert "execute_command" not in on
    assert re.search(r"^  execute_command +disabled \(tools\.disabled, --disable-tools\)$", off, re.MULTILINE)
    assert re.search(r"^  http_get +not enabled", off, re.MULTILINE)


def test_the_list_is_json_for_programs(shepherd: Shepherd) -> None:
    document = json.loads(shepherd("tools", "--json", "--disable-tools", "json").stdout)
    tools = {tool["name"]: tool for tool in document["tools"]}
    assert document["failures"] == []
    assert tools["read_file"]["enabled"] is True
    assert tools["read_file"]["parameters"]["required"] == ["path"]
    assert (tools["read_file"]["source"], tools["read_file"]["effect"]) == ("shepherd", "read")
    assert {name for name, tool in tools.items() if tool["why_off"] == "disabled"} == {
        name for name, tool in tools.items() if tool["category"] == "json"
    }
    assert json.loads(shepherd("--list-tools", "--json", "--disable-tools", "json").stdout) == document


def test_what_a_small_context_has_no_room_for_is_there_all_the_same(shepherd: Shepherd) -> None:
    assert shepherd("tools", "--context-size", "512").stdout == shepherd("tools").stdout


def test_one_tool_is_shown_by_any_of_its_names(shepherd: Shepherd) -> None:
    result = shepherd("tools", "show", "Set_Fact")
    assert result.stdout.startswith("Name:     set_fact\nDoes:     Store a value under a key.\n")
    assert "Effect:   changes what is on this machine\n" in result.stdout
    assert '"key"' in result.stdout
    assert json.loads(shepherd("tools", "show", "set_fact", "--json").stdout)["name"] == "set_fact"
    assert "Off:         not enabled" in shepherd("tools", "show", "execute_command").stdout


def test_a_call_is_carried_out_and_its_result_printed(shepherd: Shepherd, tmp_path: Path) -> None:
    (tmp_path / "work" / "a.txt").write_text("one\ntwo\n")
    for arguments in (['{"path": "a.txt"}'], ["path=a.txt"], ["file_path=a.txt", "offset=1"]):
        result = shepherd("tools", "run", "read_file", *arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "one\ntwo" in result.stdout
    written = shepherd("tools", "run", "write_file", "-", "--json", text='{"path": "b.txt", "content": "three"}')
    document = json.loads(written.stdout)
    assert (document["tool"], document["success"]) == ("write_file", True)
    assert (tmp_path / "work" / "b.txt").read_text() == "three"


def test_facts_are_kept_between_two_calls(shepherd: Shepherd) -> None:
    assert shepherd("tools", "run", "set_fact", "key=color", "value=blue").stdout == '{"success": true}\n'
    assert shepherd("tools", "run", "get_fact", '{"key": "color"}').stdout == '{"value": "blue"}\n'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["read_file"], "the argument 'path' is missing"),
        (["read_file", "{"], "the arguments are not JSON"),
        (["read_file", "path=none.txt"], "none.txt"),
        (["read_file", "path=../../x"], "outside"),
    ],
)
def test_a_call_that_fails_says_why_and_ends_with_status_1(shepherd: Shepherd, line: list[str], says: str) -> None:
    result = shepherd("tools", "run", *line)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("shepherd: ")
    assert not result.stderr.startswith("shepherd: Error:")
    assert says in result.stderr
    failed = shepherd("tools", "run", *line, "--json")
    assert (failed.exit_code, json.loads(failed.stdout)["success"]) == (1, False)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["run", "fly"], "there is no tool 'fly'; there are: list_directory, read_file"),
        (["show", "fly"], "there is no tool 'fly'"),
        (["run", "read_file", "a.txt"], "'a.txt' is not an argument; write one JSON object, or NAME=VALUE"),
        (["run", "execute_command", "command=ls"], "execute_command cannot be called: not enabled"),
        (["run", "read_file", "path=x", "--disable-tools", "read_file"], "read_file cannot be called: disabled"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_in_one_sentence(shepherd: Shepherd, line: list[str], says: str) -> None:
    result = shepherd("tools", *line)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("shepherd: ")
    assert says in result.stderr


@pytest.mark.parametrize("flag", ["--read-only", "--dry-run"])
def test_what_the_flags_close_stays_closed_for_a_call_by_hand(shepherd: Shepherd, tmp_path: Path, flag: str) -> None:
    shepherd("tools", "run", "write_file", "path=new.txt", "content=x", flag)
    assert not (tmp_path / "work" / "new.txt").exists()


def test_a_file_of_tools_that_cannot_be_used_is_told_and_the_rest_is_listed(shepherd: Shepherd, tmp_path: Path) -> None:
    (tmp_path / "work" / "good.py").write_text(
        'from shepherd.tools import tool\n\n@tool(effect="read")\ndef roll(sides: int = 6) -> int:\n'
        '    """Roll a die."""\n    return sides\n'
    )
    (tmp_path / "work" / "bad.py").write_text("1 / 0\n")
    (tmp_path / "work" / "shepherd.toml").write_text('[tools]\nfiles = ["good.py", "bad.py"]\n')
    result = shepherd("tools")
    assert result.exit_code == 0
    assert re.search(r"^other:\n  roll  +Roll a die\.$", result.stdout, re.MULTILINE)
    (failure,) = json.loads(shepherd("tools", "--json").stdout)["failures"]
    assert "ZeroDivisionError: division by zero (line 1)" in failure
    assert shepherd("tools", "run", "roll", "sides=3").stdout == "3\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "{}"),
        (['{"a": 1}'], '{"a": 1}'),
        (["a=1", "b=x=y", "c="], '{"a": "1", "b": "x=y", "c": ""}'),
        ([" [1]"], " [1]"),
    ],
)
def test_arguments_are_json_or_pairs(words: list[str], text: str) -> None:
    assert arguments_of(words) == text


@pytest.mark.parametrize("words", [["a"], ["=1"], ["a=1", "b"], ['{"a": 1}', "b"]])
def test_arguments_that_are_neither_are_refused(words: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="is not an argument"):
        arguments_of(words)
