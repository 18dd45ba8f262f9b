"""Who may do what: rules, answers, and nobody there."""

import asyncio
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.core import InvalidRequest
from shepherd.tools.base import Effect, Form, Question, Result, ToolError, Verdict
from shepherd.tools.permission import ConsentStore, Permission, Rule, about
from shepherd.tools.sandbox.roots import Roots
from shepherd.tools.tool import Tool, ToolContext


async def nothing(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
    return Result("done")


def made(name: str, effect: Effect, category: str, subject: str = "", **more: Any) -> Tool:
    schema = {
        "type": "object",
        "properties": {subject: {"type": "string"} | more.pop("property", {})} if subject else {},
    }
    return Tool(name, "", schema, nothing, category, effect, subject=subject, **more)


READ = made("read_file", "read", "filesystem", "path")
LIST = made("list_directory", "read", "filesystem", "path", property={"default": "."})
WRITE = made("write_file", "write", "filesystem", "path", aliases=("Write",))
COMMAND = made("execute_command", "run", "command_execution", "command")
GET = made("http_get", "net", "http", "url")
POST = made("http_post", "net", "http", "url")
FACT = made("set_fact", "write", "memory", "key")
PLAIN = made("weather", "write", "other")


class Someone:
    """A person with prepared answers; every question is kept."""

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts = list(verdicts)
        self.questions: list[Question] = []
        self.n_now = self.most_now = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def allow(self, question: Question) -> Verdict:
        self.questions.append(question)
        self.n_now += 1
        self.most_now = max(self.most_now, self.n_now)
        self.asked.set()
        try:
            await self.gate.wait()
            return self.verdicts.pop(0)
        finally:
            self.n_now -= 1

    async def fill(self, form: Form) -> None:
        return None


async def verdict(permission: Permission, tool: Tool, **arguments: Any) -> str:
    """`yes`, or the sentence of the refusal."""
    try:
        await permission.check(tool, arguments)
    except ToolError as error:
        return error.message
    return "yes"


# -- rules ------------------------------------------------------------------------------------------------------------

ALL = (READ, WRITE, COMMAND, GET, POST, FACT, PLAIN)


@pytest.mark.parametrize(
    ("rules", "free"),
    [
        ({}, ["read_file", "set_fact"]),
        ({"allow": ["write_file"]}, ["read_file", "write_file", "set_fact"]),
        ({"allow": ["WRITE"]}, ["read_file", "write_file", "set_fact"]),
        ({"allow": ["http_*"]}, ["read_file", "http_get", "http_post", "set_fact"]),
        ({"allow": ["command"]}, ["read_file", "execute_command", "set_fact"]),
        ({"allow": ["command_execution"]}, ["read_file", "execute_command", "set_fact"]),
        ({"allow": ["*"]}, [tool.name for tool in ALL]),
        ({"allow": ["*"], "ask": ["http"]}, ["read_file", "write_file", "execute_command", "set_fact", "weather"]),
        ({"allow": ["*"], "ask": ["*"], "deny": ["*"]}, []),
        ({"allow": ["*"], "read_only": True}, ["read_file", "http_get"]),
        ({"ask": ["read_file", "memory"]}, []),
        ({"enabled": ["filesystem", "weather"]}, ["read_file", "write_file", "set_fact", "weather"]),
        ({"enabled": ["filesystem"], "ask": ["write_file"]}, ["read_file", "set_fact"]),
        ({"enabled": ["filesystem"], "deny": ["write_file"]}, ["read_file", "set_fact"]),
    ],
)
async def test_with_nobody_there_rules_and_what_the_operator_enabled_decide(
    rules: dict[str, Any], free: list[str], tmp_path: Path
) -> None:
    permission = Permission(**rules, folder=tmp_path)
    arguments = {"path": "a.txt", "url": "http://a.example/", "command": "ls", "key": "k"}
    let = [tool.name for tool in ALL if await verdict(permission, tool, **arguments) == "yes"]
    assert let == free
    assert [each.name for each in ALL if permission.explain(each).verdict == "free"] == free


@pytest.mark.parametrize(
    ("rules", "tool", "says"),
    [
        ({}, WRITE, "no user is present to allow it; it needs --allow-tools write_file"),
        ({"ask": ["write_file"], "enabled": ["write_file"]}, WRITE, "must be asked about this call (ask: write_file)"),
        ({"deny": ["filesystem(*.txt)"]}, READ, "rules forbid this call of read_file (deny: filesystem(*.txt))"),
        ({"read_only": True}, WRITE, "read-only, and write_file changes what is on this machine"),
        ({"read_only": True}, COMMAND, "read-only, and execute_command runs programs"),
        ({"read_only": True}, POST, "read-only, and http_post calls other machines"),
    ],
)
async def test_a_refusal_says_what_refuses(rules: dict[str, Any], tool: Tool, says: str, tmp_path: Path) -> None:
    permission = Permission(**rules, folder=tmp_path)
    assert says in await verdict(permission, tool, path="a.txt", url="http://a.example/", command="ls")


@pytest.mark.parametrize("text", ["", "  ", "(x)", "write_file(", "write_file(a)b", "execute_command(ls"])
def test_a_rule_that_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not valid"):
        Permission(allow=[text])
    assert str(Rule.read(" HTTP_Get(*.Example) ")) == "http_get(*.Example)"


# -- what a call is about ---------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`work` with notes, a secret, and links in and out of the notes."""
    work = tmp_path / "work"
    (work / "notes" / "deep").mkdir(parents=True)
    for name in ("notes/a.txt", "secret.env", "notes/.env"):
        (work / name).write_text(name)
    (work / "notes" / "out").symlink_to(work / "secret.env")
    (work / "notes" / "up").symlink_to("..")
    (work / "harmless.txt").symlink_to(".env.d/../secret.env")
    (work / ".env.d").mkdir()
    (work / "loop").symlink_to("loop")
    return work


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("notes/a.txt", True),
        ("notes/new.txt", True),
        ("notes/deep/../a.txt", True),
        ("./notes//a.txt", True),
        ("notes/up/notes/a.txt", True),
        ("{folder}/notes/a.txt", True),
        ("notes/../secret.env", False),
        ("notes/out", False),
        ("notes/up/secret.env", False),
        ("notes", False),
        ("{folder}/notes/../secret.env", False),
        ("/notes/a.txt", False),
        ("notes/\0", False),
        ("notes/" + "x/" * 5_000, False),
        ("NOTES/a.txt", False),
        ("~nobody-at-all/notes/a.txt", False),
    ],
)
async def test_an_allowed_folder_is_what_the_path_really_leads_to(path: str, is_allowed: bool, folder: Path) -> None:
    permission = Permission(allow=["write_file(notes/*)"], folder=folder)
    let = await verdict(permission, WRITE, path=path.format(folder=folder)) == "yes"
    assert let == is_allowed


@pytest.mark.parametrize(
    ("path", "is_denied"),
    [
        ("notes/a.txt", False),
        ("secret.env", True),
        ("SECRET.ENV", True),
        ("notes/.env", True),
        ("notes/out", True),
        ("harmless.txt", True),
        ("notes/../secret.env", True),
        ("secret.env/", True),
        ("secret.env/.", True),
        ("no/such/../../secret.env", True),
        ("x://../secret.env", True),
        ("secret.env\0", True),
        ("loop", False),
    ],
)
async def test_a_denied_file_is_denied_by_any_of_its_names(path: str, is_denied: bool, folder: Path) -> None:
    for rule in ("*(*.env)", "READ_file(*.ENV)"):
        permission = Permission(deny=[rule], folder=folder)
        assert ("deny" in await verdict(permission, READ, path=path)) == is_denied


async def test_a_path_that_is_left_out_is_its_default(folder: Path) -> None:
    assert "deny" in await verdict(Permission(deny=["list_directory(.)"], folder=folder), LIST)
    assert "deny" in await verdict(Permission(deny=[f"list_directory({folder})"], folder=folder), LIST)
    assert await verdict(Permission(deny=["list_directory(notes)"], folder=folder), LIST) == "yes"


@pytest.mark.parametrize(
    ("rule", "command", "is_allowed"),
    [
        ("git status", "git status", True),
        ("git status", "git status --short", False),
        ("git *", "git log -3", True),
        ("git *", "git log; rm -rf /", False),
        ("git *", "git log && rm x", False),
        ("git *", "git log | sh", False),
        ("git *", "git log > /etc/passwd", False),
        ("git *", "git log $(rm x)", False),
        ("git *", "git log `rm x`", False),
        ("git *", "git log\nrm x", False),
        ("git *", "git log \\\n rm", False),
        ("git ?", "git ;", False),
        ("git * | head", "git log | head", True),
        ("git * | head", "git log | sh | head", False),
        ("*", "anything; at > all", True),
        ("[a-z]*", "rm", False),
    ],
)
async def test_a_star_of_an_allowed_command_starts_no_other_program(
    rule: str, command: str, is_allowed: bool, tmp_path: Path
) -> None:
    permission = Permission(allow=[f"execute_command({rule})"], folder=tmp_path)
    assert (await verdict(permission, COMMAND, command=command) == "yes") == is_allowed


async def test_a_denied_command_is_found_anywhere_in_the_line(tmp_path: Path) -> None:
    permission = Permission(allow=["command"], deny=["command(*rm -rf*)"], folder=tmp_path)
    assert "deny" in await verdict(permission, COMMAND, command="git log; rm -rf /")
    assert "deny" in await verdict(permission, COMMAND, command="git log;\nRM -RF /")
    assert await verdict(permission, COMMAND, command="rm -r x") == "yes"


@pytest.mark.parametrize(
    ("rule", "url", "is_met"),
    [
        ("*.example", "https://api.example/x", True),
        ("*.example", "HTTPS://API.Example./x", True),
        ("*.example", "https://user:pw@api.example:8443/x", True),
        ("api.example:8443", "https://api.example:8443/x", True),
        ("https://api.example/v1/*", "https://api.example/v1/x?q=1", True),
        ("https://api.example/*", "https://api.example@evil.test/", False),
        ("*.example", "https://evil.test/.example", False),
        ("*.example", "https://evil.test#.example", False),
        ("*.example", "https://evil.test/?x=https://api.example/", False),
        ("*.example", "https://api.example.evil.test/", False),
    ],
)
async def test_a_rule_about_hosts_looks_at_the_host_that_would_be_called(
    rule: str, url: str, is_met: bool, tmp_path: Path
) -> None:
    allowing = Permission(allow=[f"http_get({rule})"], folder=tmp_path)
    assert (await verdict(allowing, GET, url=url) == "yes") == is_met
    denying = Permission(allow=["http"], deny=[f"http_get({rule})"], folder=tmp_path)
    if is_met:
        assert "deny" in await verdict(denying, GET, url=url)


@pytest.mark.parametrize("url", ["https://evil.test\\@api.example/", "not a url", "https://", "https://a\tb.example/"])
async def test_an_address_that_can_be_read_in_two_ways_is_never_allowed_and_always_denied(
    url: str, tmp_path: Path
) -> None:
    assert "no user is present" in await verdict(Permission(allow=["http_get(*e*)"], folder=tmp_path), GET, url=url)
    assert "deny" in await verdict(
        Permission(allow=["http_get"], deny=["http_get(other.test)"], folder=tmp_path), GET, url=url
    )


parts = st.sampled_from(
    ["notes", "deep", "a.txt", "out", "up", "..", ".", "", "secret.env", ".env.d", "harmless.txt", "~", "n"]
)


@settings(deadline=None, max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.lists(parts, max_size=6).map("/".join))
def test_rules_read_a_path_as_the_file_tools_do(path: str, folder: Path) -> None:
    roots = Roots.of([str(folder)], str(folder))
    try:
        with roots.find(path) as place:
            leads_to = place.path
    except ToolError:
        return
    assert leads_to in about(WRITE, {"path": path}, folder).certain


def test_what_a_call_is_about_is_shown_as_a_person_would_say_it(folder: Path) -> None:
    assert about(WRITE, {"path": "notes/deep/../a.txt"}, folder).subject == "notes/a.txt"
    home = Path(os.path.realpath(Path.home()))
    assert about(WRITE, {"path": "~/a.txt"}, home).subject == "a.txt"
    assert about(WRITE, {"path": "/etc/hosts"}, folder).subject == os.path.realpath("/etc/hosts")
    assert about(GET, {"url": "https://Api.Example/x"}, folder).subject == "api.example"
    assert about(COMMAND, {"command": "ls  -l"}, folder).subject == "ls  -l"
    assert about(FACT, {"key": {"a": 1}}, folder).subject == '{"a": 1}'
    assert about(PLAIN, {}, folder).subject == ""


# -- somebody there ---------------------------------------------------------------------------------------------------


async def test_a_question_says_what_would_happen(folder: Path) -> None:
    someone = Someone("once")
    permission = Permission(person=someone, folder=folder, ask=["http"])

    async def preview() -> str:
        return "-old\n+new"

    await permission.check(WRITE, {"path": "notes/a.txt"}, preview)
    assert someone.questions == [
        Question(
            "write_file",
            {"path": "notes/a.txt"},
            "write",
            "notes/a.txt",
            "-old\n+new",
            "changes what is on this machine",
        )
    ]


async def test_a_call_that_cannot_be_shown_cannot_be_carried_out_and_nobody_is_asked(folder: Path) -> None:
    async def preview() -> str:
        raise ToolError("there is no such text in the file")

    someone = Someone()
    with pytest.raises(ToolError, match="no such text"):
        await Permission(person=someone, folder=folder).check(WRITE, {"path": "a"}, preview)
    assert someone.questions == []


@pytest.mark.parametrize(
    ("answer", "same", "other"),
    [
        ("once", "asked", "asked"),
        ("session", "yes", "asked"),
        ("always", "yes", "asked"),
        ("no", "asked", "asked"),
        ("never", "the user refused this call of write_file for this conversation; continue without it", "asked"),
    ],
)
async def test_an_answer_is_about_the_same_tool_on_the_same_file(
    answer: Verdict, same: str, other: str, folder: Path, tmp_path: Path
) -> None:
    someone = Someone(answer)
    permission = Permission(person=someone, folder=folder, answers=ConsentStore(tmp_path / "data" / "allowed.json"))
    said = await verdict(permission, WRITE, path="notes/a.txt")
    assert said == ("yes" if answer in {"once", "session", "always"} else said)
    assert ("the user refused" in said) == (answer in {"no", "never"})

    async def again(tool: Tool, path: str) -> str:
        someone.verdicts, someone.questions = ["once"], []
        told = await verdict(permission, tool, path=path)
        return "asked" if someone.questions else told

    assert await again(WRITE, "notes/../notes/a.txt") == same
    assert await again(WRITE, "notes/b.txt") == other
    assert await again(made("edit_file", "write", "filesystem", "path"), "notes/a.txt") == "asked"


async def test_always_outlives_the_conversation_in_its_folder_only(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "data" / "allowed.json"
    first = Permission(person=Someone("always", "always"), folder=folder, answers=ConsentStore(file))
    assert await verdict(first, COMMAND, command="git status") == "yes"
    assert await verdict(first, GET, url="https://a.example/1") == "yes"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(file.parent) == ["allowed.json"]

    later = Permission(folder=folder, answers=ConsentStore(file))
    assert await verdict(later, COMMAND, command="git status") == "yes"
    assert await verdict(later, GET, url="https://a.example/2") == "yes"
    assert "no user is present" in await verdict(later, COMMAND, command="git status --short")
    assert "no user is present" in await verdict(later, COMMAND, command="git statu*")
    elsewhere = Permission(folder=tmp_path, answers=ConsentStore(file))
    assert "no user is present" in await verdict(elsewhere, COMMAND, command="git status")
    assert "read-only" in await verdict(
        Permission(folder=folder, answers=ConsentStore(file), read_only=True), COMMAND, command="git status"
    )
    assert "deny" in await verdict(
        Permission(folder=folder, answers=ConsentStore(file), deny=["command"]), COMMAND, command="git status"
    )


@pytest.mark.parametrize("answer", ["session", "always"])
async def test_a_tool_that_its_server_has_changed_is_asked_for_again(
    answer: Verdict, folder: Path, tmp_path: Path
) -> None:
    someone, store = Someone(answer, "no", "no", answer), ConsentStore(tmp_path / "a.json")
    permission = Permission(person=someone, folder=folder, answers=store)
    first, changed = (replace(made("s_send", "write", "mcp"), fingerprint=each) for each in ("one", "two"))
    assert [await verdict(permission, first) for _ in range(2)] == ["yes", "yes"]
    assert "the user refused" in await verdict(permission, changed)
    assert await verdict(permission, first) == "yes"
    if answer == "always":  # in the next conversation, too
        permission = Permission(person=someone, folder=folder, answers=store)
    assert "the user refused" in await verdict(permission, changed)
    assert [await verdict(permission, changed) for _ in range(2)] == ["yes", "yes"]
    usual, *others, last = [question.why for question in someone.questions]
    assert usual == "changes what is on this machine"
    assert {*others, last} == {"it has changed since you allowed it"}


async def test_an_answer_from_before_fingerprints_is_asked_for_again(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"version": 1, "allowed": {str(folder): [["s_send", ""], ["write_file", "a"]]}}))
    someone = Someone("always")
    permission = Permission(person=someone, folder=folder, answers=ConsentStore(file))
    assert await verdict(permission, WRITE, path="a") == "yes"
    assert someone.questions == []
    assert await verdict(permission, replace(made("s_send", "write", "mcp"), fingerprint="one")) == "yes"
    assert [question.why for question in someone.questions] == ["changes what is on this machine"]


async def test_an_ask_rule_asks_each_time_whatever_was_answered(folder: Path, tmp_path: Path) -> None:
    someone = Someone("always", "session", "never")
    store = ConsentStore(tmp_path / "a.json")
    permission = Permission(person=someone, folder=folder, answers=store, ask=["write_file"], allow=["write_file"])
    assert [await verdict(permission, WRITE, path="a") for _ in range(2)] == ["yes", "yes"]
    assert someone.questions[0].why == "the rule ask: write_file"
    assert "the user refused" in await verdict(permission, WRITE, path="a")
    assert "the user refused" in await verdict(permission, WRITE, path="a")
    assert len(someone.questions) == 3


async def test_what_was_answered_can_be_seen_and_forgotten(folder: Path, tmp_path: Path) -> None:
    someone = Someone("always", "session", "never")
    permission = Permission(person=someone, folder=folder, answers=ConsentStore(tmp_path / "a.json"))
    for path in ("a", "b", "c"):
        await verdict(permission, WRITE, path=path)
    assert permission.remembered() == [
        "write_file(b): yes, in this conversation",
        "write_file(c): no, in this conversation",
        f"write_file(a): yes, always in {folder}",
    ]
    assert permission.forget("write_file(c)") == 1
    assert permission.forget("http_*") == 0
    assert permission.forget("write_*(a)") == 1
    assert permission.remembered() == ["write_file(b): yes, in this conversation"]
    assert permission.forget() == 1
    assert permission.remembered() == []
    assert json.loads((tmp_path / "a.json").read_text())["allowed"] == {}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"allowed": []}',
        b'{"allowed": {"%s": [1, ["a"], ["b", 2]]}}',
    ],
)  # fmt: skip
async def test_a_damaged_file_of_answers_only_means_being_asked(content: bytes, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content.replace(b"%s", str(folder).encode()))
    someone = Someone("always")
    permission = Permission(person=someone, folder=folder, answers=ConsentStore(file))
    assert permission.remembered() == []
    assert await verdict(permission, WRITE, path="a") == "yes"
    assert ConsentStore(file).of(folder) == {("write_file", "a"): ""}


async def test_where_answers_cannot_be_kept_they_hold_for_the_conversation(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    permission = Permission(person=Someone("always"), folder=folder, answers=ConsentStore(tmp_path / "file" / "a.json"))
    assert [await verdict(permission, WRITE, path="a") for _ in range(2)] == ["yes", "yes"]


async def test_questions_come_one_after_the_other_and_an_answer_may_settle_the_next(folder: Path) -> None:
    someone = Someone("session", "no")
    someone.gate.clear()
    permission = Permission(person=someone, folder=folder)
    tasks = [asyncio.create_task(verdict(permission, WRITE, path=path)) for path in ("a", "a", "b", "./a")]
    await someone.asked.wait()
    someone.gate.set()
    assert [said[:4] for said in await asyncio.gather(*tasks)] == ["yes", "yes", "the ", "yes"]
    assert [question.subject for question in someone.questions] == ["a", "b"]
    assert someone.most_now == 1


async def test_a_question_that_is_cancelled_lets_the_next_one_come(folder: Path) -> None:
    someone = Someone("once")
    someone.gate.clear()
    permission = Permission(person=someone, folder=folder)
    first = asyncio.create_task(verdict(permission, WRITE, path="a"))
    await someone.asked.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    someone.gate.set()
    assert await verdict(permission, WRITE, path="b") == "yes"


async def test_what_is_no_answer_is_no_yes(folder: Path) -> None:
    permission = Permission(person=Someone("maybe"), folder=folder)  # type: ignore[arg-type]
    assert "the user refused" in await verdict(permission, WRITE, path="a")


async def test_a_dry_run_asks_nobody_and_still_refuses(folder: Path) -> None:
    someone = Someone()
    permission = Permission(person=someone, folder=folder, dry_run=True, deny=["execute_command"])
    assert await verdict(permission, WRITE, path="a") == "yes"
    assert "deny" in await verdict(permission, COMMAND, command="ls")
    assert someone.questions == []


async def test_an_effect_that_depends_on_the_arguments_is_of_this_call(folder: Path) -> None:
    def effect(arguments: Mapping[str, Any]) -> Effect:
        return "read" if arguments["method"] == "GET" else "net"

    tool = Tool("http_request", "", {"properties": {}}, nothing, "http", effect)
    permission = Permission(folder=folder)
    assert await verdict(permission, tool, method="GET") == "yes"
    assert "no user is present" in await verdict(permission, tool, method="POST")
    decision = permission.explain(tool)  # its effect is unknown without arguments
    assert decision.verdict == "refused"


def test_what_becomes_of_every_tool_is_explained(folder: Path) -> None:
    permission = Permission(person=Someone(), folder=folder, allow=["http_get"], deny=["weather"], ask=["read_file"])
    told = {each.name: (explained.verdict, explained.why) for each in ALL for explained in [permission.explain(each)]}
    assert told == {
        "read_file": ("asked", "ask: read_file"),
        "write_file": ("asked", "changes what is on this machine"),
        "execute_command": ("asked", "runs programs"),
        "http_get": ("free", "allow: http_get"),
        "http_post": ("asked", "calls other machines"),
        "set_fact": ("free", "the memory is the model's own"),
        "weather": ("refused", "deny: weather"),
    }
    permission.dry_run = True
    assert {each.name for each in ALL if permission.explain(each).verdict == "refused"} == {
        "write_file", "execute_command", "http_get", "http_post", "set_fact", "weather"
    }  # fmt: skip


# -- modes ------------------------------------------------------------------------------------------------------------

EDIT = made("edit_file", "write", "filesystem", "path")
DELETE = made("delete_file", "write", "filesystem", "path")


@pytest.mark.parametrize(
    ("tool", "arguments", "asks"),
    [
        (WRITE, {"path": "notes/new.txt"}, False),
        (EDIT, {"path": "{folder}/notes/a.txt"}, False),
        (WRITE, {"path": "notes/up/notes/a.txt"}, False),
        (WRITE, {"path": "../outside.txt"}, True),
        (WRITE, {"path": "notes/../../outside.txt"}, True),
        (WRITE, {"path": "/tmp/outside.txt"}, True),
        (WRITE, {"path": "away/outside.txt"}, True),
        (WRITE, {"path": "linked.txt"}, True),
        (WRITE, {"path": "."}, True),
        (WRITE, {"path": "a\0b"}, True),
        (WRITE, {"path": ".git/hooks/pre-commit"}, True),
        (WRITE, {"path": "shepherd.toml"}, True),
        (WRITE, {}, True),
        (DELETE, {"path": "notes/a.txt"}, True),
        (COMMAND, {"command": "touch notes/a.txt"}, True),
        (POST, {"url": "http://a.example/"}, True),
        (PLAIN, {"path": "notes/a.txt"}, True),
        (made("write_file", "write", "filesystem", "path", fingerprint="of a server"), {"path": "notes/a.txt"}, True),
        (made("save_all", "write", "filesystem", "path"), {"path": "notes/a.txt"}, True),
    ],
)
async def test_accepted_edits_are_those_of_files_in_the_folder_and_all_else_is_asked(
    tool: Tool, arguments: dict[str, str], asks: bool, folder: Path
) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder / "away").symlink_to(folder.parent / "elsewhere")
    (folder / "linked.txt").symlink_to(folder.parent / "elsewhere" / "target.txt")
    person = Someone("no")
    permission = Permission(person=person, folder=folder)
    permission.mode = "edits"
    given = {name: value.format(folder=folder) for name, value in arguments.items()}
    assert (await verdict(permission, tool, **given) == "yes") != asks
    assert len(person.questions) == asks


async def test_edits_accepted_in_a_script_are_made_and_all_else_is_refused_as_before(folder: Path) -> None:
    permission = Permission(folder=folder)
    assert "no user is present" in await verdict(permission, WRITE, path="new.txt")
    permission.mode = "edits"
    assert await verdict(permission, WRITE, path="new.txt") == "yes"
    for tool, arguments in ((WRITE, {"path": "../new.txt"}), (COMMAND, {"command": "ls"})):
        assert "no user is present" in await verdict(permission, tool, **arguments)


async def test_accepted_edits_open_nothing_that_a_rule_closes(folder: Path) -> None:
    person = Someone("no")
    permission = Permission(person=person, folder=folder, deny=["write_file(secret.env)"], ask=["write_file(notes/*)"])
    permission.mode = "edits"
    assert "deny: write_file(secret.env)" in await verdict(permission, WRITE, path="secret.env")
    assert "refused" in await verdict(permission, WRITE, path="notes/a.txt")
    assert len(person.questions) == 1
    permission.read_only = True
    assert "read-only" in await verdict(permission, WRITE, path="new.txt")


async def test_in_plan_mode_nothing_that_writes_runs_whatever_was_allowed(folder: Path) -> None:
    permission = Permission(person=Someone("session", "once"), folder=folder, allow=["*"])
    for tool, arguments in ((WRITE, {"path": "a"}), (COMMAND, {"command": "ls"}), (POST, {"url": "http://a.example/"}),
                            (FACT, {"key": "a"}), (PLAIN, {})):  # fmt: skip
        permission.mode = "ask"
        assert await verdict(permission, tool, **arguments) == "yes"
        permission.mode = "plan"
        said = await verdict(permission, tool, **arguments)
        assert said.startswith(f"this conversation is in plan mode, and {tool.name} "), tool.name
        assert "the user leaves plan mode" in said
        assert permission.explain(tool).verdict == "refused"
    assert await verdict(permission, READ, path="notes/a.txt") == "yes"


def test_what_becomes_of_an_edit_is_explained_by_the_mode(folder: Path) -> None:
    permission = Permission(person=Someone(), folder=folder)
    permission.mode = "edits"
    assert permission.explain(WRITE).why == "in the working folder (accept edits)"
    assert permission.explain(COMMAND).verdict == "asked"
