"""The tests of `tests/process/cli/test_terminal.py` that take long."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import gguf
import pytest
from tests.process.cli.test_terminal import (
    Start,
    start,  # noqa: F401 - a fixture
)
from tests.scripted_service import ScriptedService, saying

from shepherd.agent.storage import SavedConversation, to_json
from shepherd.core import Message, Text
from shepherd.engine.stats import CacheStats

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.unit.cli.conftest import Home

    Listening = Callable[..., AbstractContextManager[int]]

pytestmark = pytest.mark.model


def test_lines_are_edited_as_documented(home: Home, start: Start) -> None:
    person = start("--temperature", "0", "--notools")
    person.waits_for("> ")
    person.types("one\\\rtwo\x1b\rthree\r")
    person.waits_for("/4096")
    person.waits_for("> ")
    person.types("```\rx = 1\r```\r")
    person.waits_for("/4096")
    person.waits_for("> ")
    person.types("/save talk.json\r")
    person.waits_for("Saved 4 messages")
    person.types("\x04")
    assert person.waits_for_the_end() == 0
    messages = json.loads((home.folder / "talk.json").read_text())["messages"]
    assert [m["parts"][0]["text"] for m in messages[::2]] == ["one\ntwo\nthree", "```\nx = 1\n```"]


PAYLOADS = (
    "\x1b]0;owned\x07",  # OSC: the title of the window
    "\x1b]52;c;b3duZWQ=\x1b\\",  # OSC: the clipboard
    "\x1b[5;7m",  # CSI: blinks
    "\x1b[1;1Howned",  # CSI: goes to the first line
    "\x1bPowned\x1b\\",  # DCS
    "\x1bc",  # resets the terminal
    "\x9d0;owned\x9c",  # OSC and its end, as C1
    "\x9b5;7m",  # CSI, as C1
    "\x08owned",
    "\u202edewno",  # what follows reads from right to left
    "\u2066dewno",
)


NASTY = "a" + "b".join(PAYLOADS) + "c"


IN_A_NAME = NASTY.replace("\\", "")
"""The same without the end of two sequences: a shell would take the backslash away."""


IN_A_CHAT = (
    *("/mcp", "/mcp restart failing", "/prompts", "/prompt their_prompt", "/prompt nothing"),
    *("/resource", "/resource note://1", "/resource note://2"),
    *("/tools", "/tools theirs_their_tool", "/tools nothing", "/permissions"),
    *("/load", "/load b", "/load talk", "/context", "/system", "/undo", "/stats"),
    *("/export no/folder.md", "/model", "/model nothing", "/provider", "/save", "/memory dewno", "/facts"),
)


IN_A_SHELL = (
    *("models", "models --json", "models list", "models list --json", "models info mNASTY", "models info NASTY"),
    *("doctor", "doctor --json", "config", "config show", "config path", "config show --config fNASTY"),
    *("mcp", "mcp --json", "mcp test", "mcp test --json", "tools", "tools NASTY", "--list-tools"),
    *("chat mNASTY", "--resume NASTY", "NASTY", "--NASTY", "-m NASTY -p hello", "-p @NASTY", "replay NASTY"),
    *("chat a NASTY", "memory show NASTY", "memory show", "memory import NASTY", "memory facts show NASTY"),
)


def unclean(raw: str) -> list[str]:
    """The payloads that reached the terminal."""
    return [payload for payload in (*PAYLOADS, *"\x9b\x9c\x9d\u202e\u2066") if payload.replace("\\", "") in raw]


def server_of_others(folder: Path) -> str:
    """An MCP server whose every text is an attack, as a table of the configuration."""
    script = folder / "server.py"
    script.write_text(f"NASTY = {NASTY!r}\n" + OF_OTHERS)
    values = {"name": "theirs", "command": sys.executable, "args": ["-I", "-S", str(script)]}
    failing = {"name": "failing", "command": sys.executable, "args": ["-c", f"import sys; sys.exit({NASTY!r})"]}
    tables = [values, failing]
    return "".join(
        "[[mcp_servers]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())
        for table in tables
    )


ONE_BY_ONE = """
import json, sys
from shepherd.cli.main import main
lines = json.loads(sys.argv[1])
for sys.argv[1:] in lines:
    try:
        main()
    except SystemExit:
        print("-- next --", flush=True)
"""


OF_OTHERS = """
import json, sys
SCHEMA = {"type": "object", "properties": {"x": {"type": "string", "description": NASTY}}}
PROMPT = {"name": "p" + NASTY.replace(" ", ""), "description": NASTY, "arguments": [{"name": NASTY}]}
SAYS = {
    "tools/list": {"tools": [{"name": "their_tool", "description": NASTY, "inputSchema": SCHEMA}]},
    "prompts/list": {"prompts": [PROMPT, {**PROMPT, "name": "their_prompt", "arguments": []}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": NASTY}}]},
    "resources/list": {"resources": [{"uri": "note://1", "name": NASTY, "description": NASTY}]},
    "resources/read": {"contents": [{"uri": "note://1", "text": NASTY}]},
    "resources/templates/list": {"resourceTemplates": []},
}
for line in sys.stdin:
    said = json.loads(line)
    if "id" not in said or "method" not in said:
        continue
    result = SAYS.get(said["method"], {})
    if said["method"] == "initialize":
        offers = {"tools": {}, "prompts": {}, "resources": {}}
        about = {"name": "theirs" + NASTY, "version": NASTY}
        wanted = said["params"]["protocolVersion"]
        result = {"protocolVersion": wanted, "capabilities": offers, "serverInfo": about, "instructions": NASTY}
    print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
"""


def saved_by_others(home: Home) -> None:
    """Two saved conversations: one whose texts are attacks, and a damaged one whose name is an attack."""
    folder = home.folder / ".local" / "share" / "shepherd" / "conversations"
    folder.mkdir(parents=True)
    texts = [("user", NASTY), ("assistant", NASTY)]
    messages = tuple(Message(role, (Text(text),)) for role, text in texts)  # type: ignore[arg-type] # both are roles
    saved = SavedConversation("id", messages, system=NASTY, title=NASTY, model=NASTY)
    (folder / "talk.json").write_text(json.dumps(to_json(saved)))
    (folder / f"broken{IN_A_NAME}.json").write_text("{")


def test_no_text_of_others_steers_the_terminal_of_a_chat(home: Home, start: Start, lamb: Path) -> None:
    (home.folder / "shepherd.toml").write_text(server_of_others(home.folder))
    saved_by_others(home)
    model = home.folder / f"m{IN_A_NAME}.gguf"
    model.symlink_to(lamb)  # its name is in the loading bar, and in the banner
    person = start("-m", str(model), "--temperature", "0", "--max-tokens", "5", "--verbose")
    person.waits_for("> ")
    found = {"start": unclean(person.raw)}
    for n, line in enumerate(IN_A_CHAT):
        person.raw, done = "", "/" + "z" * (n + 2)
        person.types(f"{line}\r{done}\r")
        person.waits_for(f"There is no command {done};")
        found[line] = unclean(person.raw)
    person.types("\x04")
    person.waits_for_the_end()
    assert {line: bad for line, bad in found.items() if bad} == {}


def test_no_text_of_others_steers_the_terminal_of_a_command(home: Home, start: Start) -> None:
    (home.folder / "shepherd.toml").write_text(
        f"models.{json.dumps('a' + NASTY)} = {{ path = {json.dumps(NASTY)} }}\n"
        f"unknown = 1\nsystem = {json.dumps(NASTY)}\n" + server_of_others(home.folder)
    )
    saved_by_others(home)
    (home.folder / "models").mkdir()
    writer = gguf.GGUFWriter(home.folder / "models" / f"m{IN_A_NAME}.gguf", "llama")
    writer.add_name(NASTY)
    writer.add_chat_template(NASTY)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    home.command = (sys.executable, "-c", ONE_BY_ONE)
    person = start(json.dumps([[word.replace("NASTY", IN_A_NAME) for word in line.split()] for line in IN_A_SHELL]))
    person.waits_for_the_end()
    assert "Traceback" not in person.raw
    *shown, _ = person.raw.split("-- next --")
    assert all(raw.strip() for raw in shown)
    assert {line: bad for line, raw in zip(IN_A_SHELL, shown, strict=True) if (bad := unclean(raw))} == {}


def test_top_shows_what_changes_and_waits_for_a_server_that_goes_away(start: Start, listening: Listening) -> None:
    service = ScriptedService(saying("Hi"))
    with listening(service) as port:
        person = start("top", "--url", f"127.0.0.1:{port}")
        person.waits_for("17/4096 cells")
        service.caches["main"] = CacheStats(4096, used=18, generated_tokens=1000)
        person.waits_for("18/4096 cells")
        person.waits_for(r"decode \d+")
    away = person.waits_for(r"no server answers at (.|\n)*trying\s+again")
    assert "18/4096 cells" in away
    service.caches["main"] = CacheStats(4096, used=19)
    with listening(service, port=port):
        person.waits_for("19/4096 cells")
        person.sends(signal.SIGTERM)
        assert person.waits_for_the_end() == 143
    assert person.echoes_and_lines()
