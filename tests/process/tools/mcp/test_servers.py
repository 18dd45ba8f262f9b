"""MCP servers that behave, and that misbehave in every way that was seen: nothing of it reaches the chat."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.in_time import in_time, until
from tests.unit.tools.mcp.scene import SCRIPT, Nod, Stage, call_tool, pids_in, scripted, seen_in

from shepherd.core import Message, ShepherdError
from shepherd.tools.base import Form, Result, ToolError
from shepherd.tools.mcp.servers import McpServerPool, sanitised
from shepherd.tools.mcp.values import Prompt, PromptArgument, ServerOptions
from shepherd.tools.permission import Permission
from shepherd.tools.tool import Tool, ToolContext

CONTEXT = ToolContext()


async def call(servers: McpServerPool, tool: str, server: str = "s", /, **arguments: Any) -> Result:
    return await call_tool(servers, server, tool, arguments, CONTEXT)


async def failure_of(servers: McpServerPool, tool: str, server: str = "s", /, **arguments: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await call(servers, tool, server, **arguments)
    return caught.value.message


# -- what works, whatever else is on the wire -------------------------------------------------------------------------


FAULTS: list[dict[str, Any]] = [
    {},
    {"notify_first": True},
    {"garbage": True},
    {"twice": True},
    {"split": 7},
    {"crlf": True},
    {"paginate": True},
    {"noise": 10**6},
    {"notify_first": True, "garbage": True, "twice": True, "split": 50, "crlf": True, "paginate": True},
    {"version": "2024-11-05"},
    {"version": "2025-03-26"},
    {"version": "2025-06-18"},
    {"restless": True},
]


async def test_tools_resources_and_prompts_arrive_whole_whatever_else_is_sent() -> None:
    stage = Stage(*(scripted(json.dumps(faults), **faults) for faults in FAULTS))
    async with stage as servers:
        for faults, status in zip(FAULTS, servers.statuses(), strict=True):
            name = status.name
            assert (name, status.state, status.n_tools, status.skipped) == (name, "ready", 19, ("freeze", "old"))
            assert status.protocol == faults.get("version", "2025-11-25")
            echoed = await call(servers, "echo", name, at={"x": 1}, path=[{"x": 2}])
            assert echoed.content == '{"at": {"x": 1}, "path": [{"x": 2}]}'
            found = await servers.resources(name)
            assert [each.uri for each in found] == ["note://1", "note://2", "city://{name}/weather"]
        assert [each.name for each in await servers.prompts()] == ["greet", "plain"] * len(FAULTS)
    assert stage.warnings == []


async def test_a_schema_arrives_as_the_server_wrote_it() -> None:
    async with Stage(scripted()) as servers:
        echo = servers.tools()[0]
    assert echo.name == "s_echo"
    assert echo.aliases == ("s:echo",)
    assert echo.parameters["$defs"]["point"]["properties"] == {"x": {"type": "number"}}
    assert echo.parameters["properties"]["at"] == {"$ref": "#/$defs/point"}
    assert echo.parameters["properties"]["colour"] == {"enum": ["red", "green"]}


async def test_a_server_is_believed_that_its_tools_only_read_if_it_is_trusted(tmp_path: Path) -> None:
    believed = replace(scripted("t"), trust_annotations=True)
    async with Stage(scripted(), believed) as servers:
        tools = {tool.name: tool for tool in (*servers.tools(), resolved(servers, "s"), resolved(servers, "t"))}
        effects = {name: tool.effect for name, tool in tools.items()}
    assert (effects["t_echo"], effects["t_many"], effects["t_wrong"]) == ("read", "net", "write")
    assert (effects["s_echo"], effects["s_many"], effects["s_wrong"]) == ("write", "net", "write")
    permission = Permission(read_only=True, folder=tmp_path)
    await permission.check(tools["t_echo"], {})
    with pytest.raises(ToolError, match="read-only, and s_echo changes"):
        await permission.check(tools["s_echo"], {})


def resolved(servers: McpServerPool, server: str) -> Tool:
    """As `call_mcp_tool` finds it."""
    return servers.resolve_call({"server": server, "tool": "echo"})[0]


async def test_the_fingerprint_of_a_tool_is_that_of_its_definition_and_of_its_server(tmp_path: Path) -> None:
    file = tmp_path / "echo.json"
    file.write_text("{}")
    options = scripted(echo=str(file))

    async def fingerprint(options: ServerOptions, **changed: Any) -> str:
        file.write_text(json.dumps(changed))
        async with Stage(options) as servers:
            return servers.tools()[0].fingerprint

    first = await fingerprint(options)
    assert first == await fingerprint(options)
    others = [
        await fingerprint(options, description="Say it again!"),
        await fingerprint(options, description="x" * 2000),
        await fingerprint(options, description="x" * 2000 + "!"),  # behind what the model is shown
        await fingerprint(options, inputSchema={"type": "object"}),
        await fingerprint(options, annotations={"readOnlyHint": False}),
        await fingerprint(replace(options, cwd=str(tmp_path))),
        await fingerprint(replace(options, args=("-B", *options.args))),
        await fingerprint(replace(options, name="other")),
    ]
    assert len({first, *others}) == 1 + len(others)


async def test_every_item_of_an_answer_is_there_or_noted() -> None:
    async with Stage(scripted()) as servers:
        result = await call(servers, "many")
        assert result.content == (
            "first\n[image, image/png, 5 bytes]\n[audio, audio/wav, 5 bytes]\n[note://2]\ninside\n"
            "[note://3: binary data, a/b, 5 bytes, not shown]\n"
            '[note, text/plain: read_resource(uri="note://1", server="s") reads it]\nlast'
        )
        assert [image.data for image in result.images] == [b"hello"]
        assert [(audio.media_type, audio.data) for audio in result.audio] == [("audio/wav", b"hello")]
        wrong = await call(servers, "wrong")
        assert (wrong.success, wrong.content, wrong.error) == (False, "no such\ncity", "no such\ncity")
        assert json.loads((await call(servers, "structured")).content) == {"t": 1, "nested": {"a": [1, 2]}}
        assert json.loads((await call(servers, "both")).content) == {"t": 1}
        assert (await call(servers, "half")).content == "a? b"


async def test_an_error_of_the_server_is_reported_in_its_words() -> None:
    async with Stage(scripted()) as servers:
        assert await failure_of(servers, "refused") == (
            "the MCP server s says: there is no such city; give one of: Rome, Oslo"
        )
        assert await failure_of(servers, "nonsense") == "the MCP server s says: the answer is not valid JSON-RPC"
        assert (await call(servers, "echo")).content == "{}"


async def test_a_result_that_breaks_the_protocol_is_what_the_tool_has_said() -> None:
    async with Stage(scripted(broken=True)) as servers:
        for result, said in (
            ({"content": "done"}, "done"),
            ({"content": [{"type": "text", "text": "a"}, {"type": "image"}]}, 'a\n{"type": "image"}'),
            ({"result": "done"}, "done"),
            ({"content": [{"type": "text", "text": "done"}]}, "done"),  # without what its schema declares
            ({"content": [], "structuredContent": {"n": "one"}}, '{"n": "one"}'),  # and with something else
        ):
            found = await call(servers, "broken", result=result)
            assert (found.success, found.content) == (True, said)
        wrong = await call(servers, "broken", result={"content": "no such city", "isError": "true"})
        assert (wrong.success, wrong.error) == (False, "no such city")


async def test_fifty_megabytes_are_an_answer_like_others() -> None:
    async with Stage(scripted()) as servers:
        assert len((await call(servers, "big", n=50_000_000)).content) == 50_000_000


async def test_progress_is_reported_and_keeps_a_call_alive() -> None:
    reported: list[str] = []
    async with Stage(scripted()) as servers:
        assert (await call_tool(servers, "s", "slow", {}, ToolContext(tell=reported.append))).content == "done"
    assert reported == ["step 1 (1/3)", "step 2 (2/3)", "step 3 (3/3)"]


async def test_calls_run_side_by_side() -> None:
    async with Stage(scripted()) as servers:
        hanging = asyncio.create_task(call(servers, "hang"))
        answers = await asyncio.gather(*(call(servers, "echo", n=n) for n in range(50)))
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
    assert [json.loads(each.content) for each in answers] == [{"n": n} for n in range(50)]


# -- standard error, descriptors, environment -------------------------------------------------------------------------


async def test_a_flood_on_standard_error_is_drained_bounded_and_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    async with Stage(scripted()) as servers:
        assert (await call(servers, "flood")).content == "flooded"
        assert (await call(servers, "echo")).content == "{}"
    (status,) = servers.statuses()
    assert 0 < len(status.log) <= 200
    assert max(map(len, status.log)) <= 500
    assert status.log[-1] == "no end of line"
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_a_server_gets_three_descriptors_and_no_keys() -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    env = {**os.environ, "OPENAI_API_KEY": "secret", "SHEPHERD_API_KEY": "secret"}
    try:
        async with Stage(scripted(), env=env) as servers:
            assert (await call(servers, "descriptors")).content.endswith("[0, 1, 2]")
            names = json.loads((await call(servers, "environment")).content)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert "PATH" in names
    assert not [name for name in names if "KEY" in name]


# -- what does not start ----------------------------------------------------------------------------------------------

BAD_STARTS: list[tuple[dict[str, Any], str]] = [
    (
        {"command": "no-such-program"},
        r"is not started: its command 'no-such-program' is not installed, or not on the PATH",
    ),
    ({"command": "/no/such/file"}, r"is not started: its command '/no/such/file' does not exist or may not be run"),
    ({"command": "cat", "cwd": "/no/such/folder"}, r"is not started: its cwd '/no/such/folder' is not a folder; .*"),
    (
        {"command": "cat", "args": ("${MISSING_ONE}",)},
        r"is not started: args\[0\] needs the environment variable MISSING_.*",
    ),
    (
        {"command": "cat", "env": {"A": "${MISSING_ONE}"}},
        r"is not started: env.A needs .* MISSING_ONE, which is not set.*",
    ),
    ({"url": "http://${MISSING_ONE}/mcp"}, r"is not started: url needs the environment variable MISSING_ONE.*"),
    ({"command": "true"}, r"ended with exit status 0 before it was ready"),
    (
        {"command": "sh", "args": ("-c", "echo no licence >&2; exit 7")},
        r"ended .* 7 before it was ready \(its last output: no l.*",
    ),
    ({"command": "sh", "args": ("-c", "kill -9 $$")}, r"was ended by SIGKILL before it was ready"),
    ({"command": "sh", "args": ("-c", "kill -40 $$")}, r"was ended by signal 40 before it was ready"),
    ({"command": "sleep", "args": ("100",), "timeout": 0.2}, r"did not start within 0.2 s"),
    ({"command": "yes", "timeout": 0.5}, r"did not start within 0.5 s"),
    ({"url": "http://127.0.0.1:9/mcp", "timeout": 60}, r"cannot be reached: .*"),
]


async def test_each_server_that_does_not_start_costs_one_warning() -> None:
    bad = [ServerOptions(f"bad{index}", **settings) for index, (settings, _) in enumerate(BAD_STARTS)]
    stage = Stage(*bad, scripted("good"))
    async with stage as servers:
        assert (await call(servers, "echo", "good")).content == "{}"
        *failed, good = servers.statuses()
        assert good.state == "ready"
        for status, (settings, problem) in zip(failed, BAD_STARTS, strict=True):
            assert (settings, status.state) == (settings, "failed")
            assert re.fullmatch(problem, status.detail), (settings, status.detail)
            assert await failure_of(servers, "echo", status.name) == f"the MCP server {status.name} {status.detail}"
    assert sorted(stage.warnings) == sorted(f"the MCP server {each.name} {each.detail}" for each in failed)


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_one_that_hangs_while_it_starts_delays_no_other(method: str) -> None:
    servers = McpServerPool([scripted("slow", hang_at=method), scripted("quick")], env=os.environ)
    async with servers:
        await servers.connections["quick"].settled.wait()
        assert [tool.name for tool in servers.tools()][:1] == ["quick_echo"]
        assert servers.statuses()[0].state == "starting"
        await servers.ready(0.01)
        ours, arguments = servers.resolve_call({"server": "slow", "tool": "echo", "arguments": {"a": 1}})
        assert (ours.name, ours.effect, arguments) == ("slow_echo", "write", {"a": 1})


async def test_one_that_is_switched_off_is_not_started(tmp_path: Path) -> None:
    off = ServerOptions("off", "touch", (str(tmp_path / "started"),), enabled=False)
    async with Stage(off) as servers:
        assert servers.statuses()[0].state == "off"
        with pytest.raises(ToolError, match="off is off"):
            await servers.restart("off")
    assert not (tmp_path / "started").exists()


async def test_variables_are_filled_in_everywhere(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    options = ServerOptions(
        "s",
        "${PY}",
        ("-I", "-S", SCRIPT, '{"seen": "${DIR}/seen"}'),
        env={"TOKEN_FOR_IT": "${TOKEN}", "ELSE": "${NOT_SET:-this}", "PLAIN": "$HOME ${"},
        cwd="${DIR}",
    )
    env = {**os.environ, "PY": sys.executable, "DIR": str(tmp_path / "here"), "TOKEN": "t"}
    filled = options.expanded(env)
    assert (filled.command, filled.cwd) == (sys.executable, str(tmp_path / "here"))
    assert filled.env == {"TOKEN_FOR_IT": "t", "ELSE": "this", "PLAIN": "$HOME ${"}
    async with Stage(options, env=env) as servers:
        assert {"TOKEN_FOR_IT", "ELSE"} <= set(json.loads((await call(servers, "environment")).content))
    assert (tmp_path / "here" / "seen").exists()
    assert "t'" not in repr(options)


# -- what goes wrong later --------------------------------------------------------------------------------------------


async def test_a_call_without_an_answer_times_out_and_is_cancelled(tmp_path: Path) -> None:
    async def attempt(timeout_s: float) -> None:
        seen = tmp_path / f"seen within {timeout_s}"
        async with Stage(scripted(timeout=timeout_s, seen=str(seen))) as servers:
            assert await failure_of(servers, "hang") == (
                f"the MCP server s did not answer the call of hang within {timeout_s:g} s; the request "
                "was cancelled; try something smaller, or continue without it"
            )
            assert (await call(servers, "echo")).content == "{}"
        sent = seen_in(seen)
        (hung,) = [each for each in sent if each.get("params", {}).get("name") == "hang"]
        (cancelled,) = [each for each in sent if each["method"] == "notifications/cancelled"]
        assert cancelled["params"]["requestId"] == hung["id"]

    await in_time(attempt)


async def test_a_call_that_is_cancelled_is_cancelled_over_there(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    async with Stage(scripted(seen=str(seen))) as servers:
        hanging = asyncio.create_task(call(servers, "hang"))
        while not any(each.get("params", {}).get("name") == "hang" for each in seen_in(seen)):
            await call(servers, "echo")  # a round trip: what was sent before has been read
        hanging.cancel()
        assert isinstance((await asyncio.gather(hanging, return_exceptions=True))[0], asyncio.CancelledError)
        await call(servers, "echo")
    assert "notifications/cancelled" in [each.get("method") for each in seen_in(seen)]


async def test_a_server_that_crashes_is_started_again_once_and_each_crash_is_reported() -> None:
    stage = Stage(scripted())
    async with stage as servers:
        names = [tool.name for tool in servers.tools()]
        assert await failure_of(servers, "crash") == (
            "the MCP server s ended with exit status 3 (its last output: out of cheese) during the call of crash; it "
            "is being started again; repeat the call if doing it twice does no harm"
        )
        assert (await call(servers, "echo")).content == "{}"
        assert "that was the second time" in await failure_of(servers, "crash")
        await servers.connections["s"].settled.wait()
        assert await failure_of(servers, "echo") == (
            "the MCP server s ended with exit status 3 (its last output: out of cheese)"
        )
        assert [tool.name for tool in servers.tools()] == names
        assert servers.statuses()[0].state == "failed"
        await servers.restart("s")
        assert (await call(servers, "echo")).content == "{}"
    assert [warning.rpartition("; ")[2] for warning in stage.warnings] == [
        "it is being started again",
        "that was the second time, and it is not started again",
    ]


async def test_the_last_words_are_those_of_the_process_that_has_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    stage = Stage(scripted(pids=str(pids)))
    async with stage as servers:
        assert "out of cheese" in await failure_of(servers, "crash")
        await call(servers, "echo")
        pids_in(pids)[-1].kill()
        await until(lambda: servers.statuses()[0].state == "failed")
    assert stage.warnings[1].startswith("the MCP server s was ended by SIGKILL; that was the second time")


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_a_crash_at_the_start_is_reported_with_the_last_words(method: str) -> None:
    stage = Stage(scripted(crash_at=method))
    async with stage:
        pass
    assert stage.warnings == [
        "the MCP server s ended with exit status 4 before it was ready (its last output: cannot go on)"
    ]


async def test_tools_that_come_later_are_offered_then() -> None:
    stage = Stage(scripted())
    async with stage as servers:
        stage.changed.clear()
        await call(servers, "grow")
        await stage.changed.wait()
        assert servers.tools()[-1].name == "s_more21"


@pytest.mark.parametrize("fault", ["endless", "circle"])
async def test_a_list_without_end_is_cut_with_a_warning(fault: str) -> None:
    faults: dict[str, Any] = {fault: "tools"}
    stage = Stage(scripted(**faults))
    async with stage as servers:
        assert servers.statuses()[0].state == "ready"
        assert (await call(servers, "echo")).content == "{}" if fault == "circle" else len(servers.tools()) == 100
    (warning,) = stage.warnings
    assert re.fullmatch(r"the MCP server s: its list of tools does not end; the first \d+ are used", warning)


async def test_tools_above_the_limit_of_a_server_are_named_once_and_cannot_be_called() -> None:
    stage = Stage(replace(scripted(many=200), max_tools=40))
    async with stage as servers:
        assert len(servers.tools()) == 40 - 2  # deprecated ones count
        assert servers.tools()[-1].name == "s_t18"
        assert "has no tool 't19'" in await failure_of(servers, "t19")
        await servers.restart("s")
    (warning,) = stage.warnings
    assert warning == (
        "the MCP server s has 221 tools, and the first 40 are used (max_tools = 40); not used: "
        + ", ".join(f"t{n}" for n in range(19, 39)) + " and 161 more"
    )  # fmt: skip


async def test_without_a_limit_of_its_own_a_server_has_256_tools() -> None:
    stage = Stage(scripted(many=10_000 - 21))
    async with stage as servers:
        assert len(servers.connections["s"].tools) == 256
        assert len(servers.tools()) == 254
    assert "has 10000 tools, and the first 256 are used" in stage.warnings[0]


@pytest.mark.parametrize("limit_s", [120, 9], ids=["discover first", "initialize first"])
@pytest.mark.parametrize(
    ("faults", "protocol"),
    [
        ({"modern": True}, "2026-07-28"),
        (
            {"modern": True, "version": "2026-07-28"},
            "2026-07-28",
        ),  # `initialize` is answered with a revision without it
        ({"strict": True}, "2025-11-25"),  # ends at a request before `initialize`
    ],
    ids=["refuses initialize", "answers initialize with the newest revision", "refuses discover"],
)
async def test_every_server_is_spoken_to_in_the_newest_revision_that_it_knows(
    faults: dict[str, Any], protocol: str, limit_s: float
) -> None:
    async with Stage(scripted(timeout=limit_s, **faults)) as servers:
        (status,) = servers.statuses()
        assert (status.state, status.protocol, status.n_tools) == ("ready", protocol, 19)


# -- names ------------------------------------------------------------------------------------------------------------


async def test_equal_names_become_different_ones_and_stay_so() -> None:
    options = [scripted("a"), scripted("A"), scripted("a:b"), scripted("日本"), scripted("中国")]
    async with Stage(*options) as servers:
        names = [tool.name for tool in servers.tools()]
        assert len(set(names)) == len(names) == 19 * 5
        assert [name for name in names if name.endswith(("echo", "echo_2"))] == [
            "a_echo", "a_echo_2", "a_b_echo", "___echo", "___echo_2",
        ]  # fmt: skip
        again = [tool.name for tool in servers.tools()]
    assert again == names
    assert all(re.fullmatch(r"[a-z0-9_-]{1,64}", name) for name in names)


def test_long_names_end_in_a_digest() -> None:
    one, other = sanitised("s" * 60, "one"), sanitised("s" * 60, "other")
    assert len(one) == len(other) == 64
    assert one != other


async def test_what_call_mcp_tool_means_is_found_or_the_choice_is_named() -> None:
    async with Stage(scripted("one"), scripted("Two")) as servers:

        def resolve_call(**arguments: Any) -> str:
            return servers.resolve_call(arguments)[0].name

        assert resolve_call(server="one", tool="echo") == "one_echo"
        assert resolve_call(server="two", tool="ECHO") == "two_echo"
        assert (
            resolve_call(server="one", tool="one:echo")
            == resolve_call(tool="one:echo")
            == resolve_call(server="one", tool="one_echo")
        )
        assert resolve_call(server="one", tool="old") == "one_old"
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"server": "three", "tool": "echo"}, "there is no MCP server 'three'; there are: one, Two"),
            ({"server": "one", "tool": "nope"}, "the MCP server one has no tool 'nope'; it has: echo, many, wrong"),
        ]
        for arguments, message in wrong:
            with pytest.raises(ToolError) as caught:
                servers.resolve_call(arguments)
            assert caught.value.message.startswith(message)


# -- resources and prompts --------------------------------------------------------------------------------------------


async def test_resources_are_read_from_the_server_that_has_them() -> None:
    async with Stage(scripted("one"), scripted("two", crash_at="resources/list")) as servers:
        assert (await servers.read(None, "note://1")).content == "the text of note://1"
        assert (await servers.read(None, "city://Rome/weather")).content == "the text of city://Rome/weather"
        assert (await servers.read("one", "note://2")).content == (
            "[note://2: binary data, application/octet-stream, 5 bytes, not shown]"
        )


async def test_prompts_are_filled_in_or_say_what_is_missing() -> None:
    async with Stage(scripted()) as servers:
        assert (await servers.prompts())[0] == Prompt(
            "s", "greet", "Greets.", (PromptArgument("who", "", True), PromptArgument("how"))
        )
        assert await servers.prompt("s", "greet", {"who": "Ada"}) == (
            Message.user("Greet Ada!"),
            Message.assistant("Hello"),
        )
        for name, arguments, message in [
            ("greet", {}, "the prompt greet needs who; write: who=..."),
            ("greet", {"who": "a", "x": "b"}, "the prompt greet takes no 'x'; it takes: who, how"),
            ("nope", {}, "the MCP server s has no prompt 'nope'; it has: greet, plain"),
        ]:
            with pytest.raises(ToolError) as caught:
                await servers.prompt("s", name, arguments)
            assert caught.value.message == message


# -- what servers ask of us -------------------------------------------------------------------------------------------


async def ours(messages: Any, system: str | None, max_tokens: int | None) -> str:
    return f"{[each.text for each in messages]} {system} {max_tokens}"


async def broken(messages: Any, system: str | None, max_tokens: int | None) -> str:
    raise ShepherdError("the model has gone")


@pytest.mark.parametrize(
    ("values", "answer"),
    [({"name": "Ada", "more": 1}, {"action": "accept", "content": {"name": "Ada"}}), (None, {"action": "decline"})],
)
async def test_the_user_is_asked_for_what_a_server_wants_to_know(values: Any, answer: Any) -> None:
    person = Nod(values)
    async with Stage(scripted(), person=person) as servers:
        assert json.loads((await call(servers, "ask_user")).content) == answer
    (form,) = person.forms
    assert (form.server, form.message, list(form.fields["properties"])) == ("s", "Who are you?", ["name"])


async def test_a_form_that_the_server_withdraws_is_taken_from_the_person() -> None:
    opened, withdrawn = asyncio.Event(), asyncio.Event()

    class Slow(Nod):
        async def fill(self, form: Form) -> Mapping[str, Any] | None:
            opened.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                withdrawn.set()
            raise AssertionError

    async with Stage(scripted(), person=Slow(None)) as servers:
        asking = asyncio.create_task(call(servers, "ask_user"))
        await opened.wait()
        assert (await call(servers, "echo", withdraw=True)).content == "withdrawn"
        await asyncio.wait_for(withdrawn.wait(), 60)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_the_model_answers_a_server_only_with_consent() -> None:
    person = Nod({})
    async with Stage(scripted(), scripted("mute", ask_model=False), person=person, answer=ours) as servers:
        said = json.loads((await call(servers, "ask_model")).content)
        assert said["content"]["text"] == "['2+2?'] Be brief. 9"
        assert "2+2?" in person.forms[0].message
        assert "Be brief." in person.forms[0].message
        assert "not supported" in (await call(servers, "ask_model", "mute")).content
        person.values = None
        assert json.loads((await call(servers, "ask_model")).content)["error"]["message"] == "the user refused"


async def test_a_model_that_fails_is_an_error_for_the_server() -> None:
    async with Stage(scripted(), person=Nod({}), answer=broken) as servers:
        assert "the model has gone" in (await call(servers, "ask_model")).content


async def test_no_call_runs_out_of_time_while_a_person_thinks() -> None:
    async def attempt(timeout_s: float) -> None:
        class Thinker(Nod):
            async def fill(self, form: Any) -> Any:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1.7 * timeout_s):
                        await asyncio.Event().wait()
                return await super().fill(form)

        async with Stage(scripted(timeout=timeout_s), person=Thinker({"name": "Ada"})) as servers:
            assert json.loads((await call(servers, "ask_user")).content)["action"] == "accept"
            assert f"within {timeout_s:g} s" in await failure_of(servers, "hang")

    await in_time(attempt)


async def test_servers_get_our_folders(tmp_path: Path) -> None:
    async with Stage(scripted(), roots=[str(tmp_path)]) as servers:
        assert json.loads((await call(servers, "ask_roots")).content) == {
            "roots": [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]
        }


# -- the end ----------------------------------------------------------------------------------------------------------


ENDS: list[dict[str, Any]] = [
    {},
    {"deaf": True},
    {"child": "group"},
    {"child": "session"},
    {"deaf": True, "child": "session"},
]


async def test_nothing_survives_the_end(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with Stage(*(scripted(f"s{n}", pids=str(pids), **faults) for n, faults in enumerate(ENDS))) as servers:
        assert len(pids_in(pids)) == len(ENDS) + sum("child" in faults for faults in ENDS)
        hanging = [asyncio.create_task(call(servers, "hang", f"s{n}")) for n in range(len(ENDS))]
        await asyncio.gather(*(call(servers, "echo", f"s{n}") for n in range(len(ENDS))))
    assert pids_in(pids) == []
    assert [str(each) for each in await asyncio.gather(*hanging, return_exceptions=True)] == [
        f"the MCP server s{n} has been stopped during the call of hang" for n in range(len(ENDS))
    ]


async def test_nothing_survives_an_end_that_is_broken_off(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    servers = McpServerPool([scripted(pids=str(pids), deaf=True, child="group")], env=os.environ)
    servers.start()
    await servers.ready(None)
    line = servers.connections["s"].connector
    assert line is not None
    assert line.child is not None
    closing = asyncio.create_task(servers.close())
    while not line.child.pipes.stdin.is_closing():  # noqa: ASYNC110 - a pipe reports no event
        await asyncio.sleep(0)
    started = pids_in(pids)
    closing.cancel()
    await asyncio.gather(closing, *servers.tasks, return_exceptions=True)
    assert len(started) == 2
    assert psutil.wait_procs(started, timeout=60)[1] == []
    servers.guardian.close()


async def test_nothing_survives_a_start_that_is_broken_off(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    servers = McpServerPool([scripted(pids=str(pids), hang_at="initialize", child="group", deaf=True)], env=os.environ)
    async with servers:
        line = None
        while line is None or line.child is None or not pids.exists():
            await asyncio.sleep(0)
            line = servers.connections["s"].connector
    assert pids_in(pids) == []


PARENT = """
import asyncio, json, os, sys
sys.path[:0] = json.loads(sys.argv[1])
from tests.unit.tools.mcp.scene import Stage, scripted
async def main():
    each = enumerate(json.loads(sys.argv[3]))
    async with Stage(*(scripted(f"s{n}", pids=sys.argv[2], **faults) for n, faults in each)):
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no guardian")
def test_nothing_survives_a_parent_that_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    faults: list[dict[str, Any]] = [{}, {"deaf": True}, {"child": "group"}, {"deaf": True, "child": "group"}]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, json.dumps(sys.path), str(pids), json.dumps(faults)],
        stdout=subprocess.PIPE,
        cwd=".",
    ) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"ready\n"
            started = pids_in(pids)
            assert len(started) == 6
            guardians = [each for each in psutil.Process(parent.pid).children() if "groups" in " ".join(each.cmdline())]
            assert len(guardians) == 1
        finally:
            parent.kill()
    _, alive = psutil.wait_procs([*started, *guardians], timeout=60)
    assert alive == []


async def test_a_chat_without_servers_imports_no_sdk() -> None:
    script = (
        "import sys, asyncio\n"
        "import shepherd.tools.builtin.mcp\n"
        "from shepherd.tools.mcp.servers import McpServerPool\n"
        "async def main():\n"
        "    async with McpServerPool([], env={}) as servers: await servers.ready(); assert servers.tools() == ()\n"
        "asyncio.run(main())\n"
        "assert not {'mcp', 'mcp_types', 'pydantic', 'httpx2', 'psutil', 'anyio'} & set(sys.modules), sys.modules\n"
    )
    done = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await done.wait() == 0
