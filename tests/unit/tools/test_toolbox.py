"""The wall between a call and what carries it out: whatever is behind, one result of a fitting size comes out."""

import asyncio
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shepherd.core import Audio, Image, InvalidRequest, MemoryFailure, Text, ToolCall
from shepherd.tools.base import CallOutcome, Form, Question, Result, ToolError, Verdict
from shepherd.tools.builtin.files import read_file
from shepherd.tools.permission import Permission
from shepherd.tools.sandbox.roots import Roots
from shepherd.tools.selection import DISABLED, NO_ROOM, NOT_ENABLED
from shepherd.tools.signature import tool
from shepherd.tools.tool import Tool, ToolContext
from shepherd.tools.toolbox import ConversationToolbox


class Agreeing:
    """A person who says yes to every call, and fills in nothing."""

    async def allow(self, question: Question) -> Verdict:
        return "once"

    async def fill(self, form: Form) -> None:
        return None


@tool(effect="read", aliases=("Double",), argument_aliases={"number": "n"})
async def double(n: int) -> str:
    """Double a number."""
    return str(2 * n)


def words(text: str) -> int:
    return len(text.split())


def tokens(text: str) -> int:
    return len(text) // 3 + 1


def boxed(
    *tools: Tool,
    off: Mapping[str, str] | None = None,
    permission: Permission | None = None,
    n_ctx: int = 8_000,
    **more: Any,
) -> ConversationToolbox:
    context = more.pop("context", ToolContext(count=words))
    return ConversationToolbox(
        lambda: tools,
        context=context,
        permission=permission or Permission(person=Agreeing()),
        n_ctx=n_ctx,
        choose=lambda tools: off or {},
        **more,
    )


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall("c1", name, json.dumps(arguments))


def text_of(ran: CallOutcome) -> str:
    (part,) = ran.result.parts
    assert isinstance(part, Text)
    part.text.encode()  # what cannot be encoded ends the request
    return part.text


def plain(name: str, run: Any, **fields: Any) -> Tool:
    """A tool that takes no arguments and only reads, without `@tool`'s help."""
    return Tool(name, "", {"type": "object", "properties": {}}, run, effect="read", **fields)


def returning(value: Any) -> Tool:
    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Any:
        return value

    return plain("give", run)


def raising(error: BaseException) -> Tool:
    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        raise error

    return plain("fail", run)


# -- which tool, with which arguments ---------------------------------------------------------------------------------


async def test_a_call_has_its_result_under_its_own_name_and_id() -> None:
    ran = await boxed(double).run(ToolCall("c7", "Double", '{"number": "21"}'))
    assert ran.result.call_id == "c7"
    assert ran.result.name == "Double"
    assert not ran.result.is_error
    assert text_of(ran) == "42"
    assert ran.summary == "42"


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("dubble", "{}", "Error: there is no tool 'dubble'; there are: double, give"),
        ("giv", "{}", "Error: there is no tool 'giv'; there are: give, double"),
        ("x" * 10**6, "{}", "Error: there is no tool 'xxx"),
        ("", "{}", "Error: there is no tool ''; there are: give, double"),
        ("double", "{", "Error: the arguments are not JSON"),
        ("double", "[1]", "Error: the arguments must be one JSON object"),
        ("double", "{}", "'n'"),
        ("double", '{"n": "many"}', "'n'"),
        ("double", '{"n": NaN}', "NaN is not a number"),
        ("double", "[" * 10**5, "Error: the arguments are"),
        ("double", '{"n": [\ud800]}', "Error: "),
    ],
)
async def test_a_wrong_call_is_answered_with_what_to_do(name: str, arguments: str, says: str) -> None:
    ran = await boxed(returning(Result("x")), double).run(ToolCall("c", name, arguments))
    assert ran.result.is_error
    assert says in text_of(ran)
    assert len(text_of(ran)) < 1_000


async def test_without_tools_an_unknown_one_is_told_so() -> None:
    assert "there are none at all" in text_of(await boxed().run(call("x")))


@pytest.mark.parametrize(
    ("why", "says"),
    [
        (DISABLED, "Error: the tool double is disabled; continue without it"),
        (NOT_ENABLED, "Error: the tool double is not enabled; continue without it"),
        ("there is no memory", "Error: the tool double cannot be used: there is no memory; continue without it"),
        (NO_ROOM, "42"),
        ("", "42"),
    ],
)
async def test_a_tool_that_is_off_is_neither_listed_nor_carried_out(why: str, says: str) -> None:
    box = boxed(double, returning("x"), off={"double": why})
    assert [spec.name for spec in box.specs] == (["give"] if why else ["double", "give"])
    assert text_of(await box.run(call("DOUBLE", n=21))).startswith(says)
    if why:
        assert "there are: give" in text_of(await box.run(call("nothing")))


async def test_tools_that_come_and_go_are_there_and_gone_at_once() -> None:
    tools: list[Tool] = [double]
    asked: list[Sequence[Tool]] = []

    def choose(tools: Sequence[Tool]) -> Mapping[str, str]:
        asked.append(tools)
        return {}

    box = ConversationToolbox(lambda: tools, context=ToolContext(), permission=Permission(), n_ctx=100, choose=choose)
    assert [spec.name for spec in box.specs] == ["double"]
    tools.append(returning("new"))
    assert [spec.name for spec in box.specs] == ["double", "give"]
    assert text_of(await box.run(call("give"))) == "new"
    tools.pop(0)
    assert "no tool 'double'" in text_of(await box.run(call("double", n=1)))
    assert len(asked) == 3


async def test_what_the_box_is_made_of_may_fail_too() -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("the model has gone")

    box = ConversationToolbox(broken, context=ToolContext(), permission=Permission(), n_ctx=100)
    assert text_of(await box.run(call("double", n=1))) == "Error: the tool failed: RuntimeError: the model has gone"
    box = boxed(returning("x" * 1_000), context=ToolContext(count=broken))
    assert text_of(await box.run(call("give"))) == "Error: the tool failed: RuntimeError: the model has gone"


async def test_a_person_turns_tools_on_and_off_but_opens_nothing_that_is_closed() -> None:
    box = boxed(double, returning("x"), read_file, off={"give": NOT_ENABLED, "read_file": DISABLED})
    for on in (False, True):  # turned off or not, it is not enabled
        with pytest.raises(ToolError, match="give: not enabled"):
            box.turn("give", on=True, enables=False)
        assert box.turn("*", on=on, enables=False) == (["double"] if on else ["double", "give", "read_file"])
    assert box.turn("Double", on=False) == ["double"]
    assert "the tool double is turned off" in text_of(await box.run(call("double", n=1)))
    assert box.turn("other", on=True) == ["double", "give"]
    assert [tool.name for tool in box.tools] == ["double", "give"]
    with pytest.raises(ToolError, match="read_file: disabled"):
        box.turn("filesystem", on=True)
    assert box.turn("*", on=True) == ["double", "give"]
    assert box.turn("*", on=False) == ["double", "give", "read_file"]
    assert box.turn("*e*", on=True) == ["double", "give"]
    with pytest.raises(ToolError, match="no tool or category is called 'fly'; there are: double, give, read_file"):
        box.turn("fly", on=True)
    assert [(each.name, each.why_off, each.decision.verdict) for each in box.status()] == [
        ("double", "", "free"),
        ("give", "", "free"),
        ("read_file", "disabled", "free"),
    ]


class Servers:
    """What stands behind `call_mcp_tool`."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool

    def resolve_call(self, arguments: Mapping[str, Any]) -> tuple[Tool, Mapping[str, Any]]:
        if arguments["tool"] != "double":
            raise ToolError("the server calc has no such tool; it has: double")
        return self.tool, arguments["arguments"]


@pytest.mark.parametrize(
    ("inner", "off", "rules", "says"),
    [
        ({"n": "4"}, {}, {}, "8"),
        ({"n": "4"}, {"calc_double": NO_ROOM}, {}, "8"),
        ({"n": "4"}, {"calc_double": DISABLED}, {}, "the tool calc_double is disabled"),
        ({"n": "4"}, {}, {"deny": ["calc_*"]}, "forbid this call of calc_double"),
        ({"n": "x"}, {}, {}, "'n'"),
    ],
)
async def test_a_tool_of_a_server_is_the_same_whichever_way_it_is_called(
    inner: Mapping[str, Any], off: dict[str, str], rules: dict[str, Any], says: str
) -> None:
    @tool(effect="read", category="mcp")
    async def call_mcp_tool(server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool of a server."""
        raise AssertionError

    real = replace(double, name="calc_double", category="mcp", aliases=())
    context = ToolContext(count=words, servers=Servers(real))  # type: ignore[arg-type]
    box = boxed(call_mcp_tool, real, off=off, permission=Permission(**rules), context=context)
    for asked in (call("call_mcp_tool", server="calc", tool="double", arguments=inner), call("calc_double", **inner)):
        assert says in text_of(await box.run(asked))
    wrong = call("call_mcp_tool", server="calc", tool="treble", arguments={})
    assert "it has: double" in text_of(await box.run(wrong))


# -- what tools do ----------------------------------------------------------------------------------------------------


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ToolError("do it differently"), "Error: do it differently"),
        (InvalidRequest("the key is empty", field="key"), "Error: the key is empty"),
        (MemoryFailure("the disk is full"), "Error: the disk is full"),
        (FileNotFoundError(2, "No such file or directory", "a.txt"), "Error: no such file or directory: a.txt"),
        (PermissionError(13, "Permission denied", "/root"), "Error: permission denied: /root"),
        (OSError("odd"), "Error: the tool failed: OSError: odd"),
        (TimeoutError(), "Error: fail got no answer in time; try again later, or continue without it"),
        (MemoryError(), "Error: fail needs more memory than there is; ask for less at once"),
        (ZeroDivisionError("by zero"), "Error: the tool failed: ZeroDivisionError: by zero"),
        (RecursionError(), "Error: the tool failed: RecursionError"),
        (KeyError("\ud800\x1b[31m"), "Error: the tool failed: KeyError: '\\ud800\\x1b[31m'"),
        (Mute(), "Error: the tool failed: Mute"),
        (StopAsyncIteration(), "Error: the tool failed: StopAsyncIteration"),
        (
            ExceptionGroup("two", [ValueError(1), TypeError(2)]),
            "Error: the tool failed: ExceptionGroup: two (2 sub-exc",
        ),
        (SystemExit(3), "Error: the tool tried to end the program"),
        (KeyboardInterrupt(), "Error: the tool failed: RuntimeError: KeyboardInterrupt"),
        (BaseExceptionGroup("x", [SystemExit()]), "Error: the tool failed: RuntimeError: BaseExceptionGroup"),
        (asyncio.CancelledError(), "Error: fail stopped itself; try again, or continue without it"),
        (ValueError("x" * 10**7), "Error: the tool failed: ValueError: xxx"),
    ],
)
async def test_whatever_a_tool_raises_becomes_a_sentence(error: BaseException, says: str) -> None:
    ran = await boxed(raising(error), context=ToolContext()).run(call("fail"))
    assert ran.result.is_error
    assert text_of(ran).startswith(says)
    assert len(text_of(ran)) < 3_000
    assert len(ran.summary) <= 200


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ZeroDivisionError("secret"), "tool fail: ZeroDivisionError"),
        (ToolError("secret"), "tool fail: ToolError"),
        (PermissionError(13, "Permission denied", "secret"), "tool fail: permission denied"),
    ],
)
async def test_the_log_says_why_and_what_only_for_debugging(
    error: Exception, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    # By name: a command that another test has run in this process has set its level.
    with caplog.at_level(logging.DEBUG, "shepherd"), caplog.at_level(logging.DEBUG, "shepherd.content"):
        await boxed(raising(error)).run(call("fail"))
    assert [record.getMessage() for record in caplog.records if record.name == "shepherd.tools.toolbox"] == [says]
    (record,) = (record for record in caplog.records if record.name == "shepherd.content")
    assert record.exc_info
    assert record.exc_info[1] is error


async def test_a_refusal_is_logged_with_the_rule_that_refuses(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "shepherd"):
        await boxed(double, permission=Permission(deny=["dou*"])).run(call("double", n=1))
    assert caplog.messages == [
        "tool double: the user's rules forbid this call of double (deny: dou*); continue without it"
    ]


ODD: list[Any] = [[]]
ODD[0].append(ODD)


@pytest.mark.parametrize(
    ("value", "says", "is_error"),
    [
        (Result("fine"), "fine", False),
        (Result("", success=False), "Error: it failed and gave no reason", True),
        (Result("the end", success=False), "Error: the end", True),
        (Result("output\nexit code 1", success=False, error="it ended with 1"), "Error: it ended with 1\noutput", True),
        (Result('{"error": "no"}', success=False, error="no"), 'Error: {"error": "no"}', True),
        (Result(""), "(no output)", False),
        (Result(5, summary=[1], diff=None), "5", False),  # type: ignore[arg-type]
        (Result(ODD), "Error: the tool failed: ValueError: Circular reference detected", True),  # type: ignore[arg-type]
        (Result("x", images=(3,)), "Error: the tool failed: AttributeError", True),  # type: ignore[arg-type]
        ("text", "text", False),
        (None, "done", False),
        ({"success": True}, '{"success": true}', False),
        ({"success": False, "error": "full"}, 'Error: {"success": false, "error": "full"}', True),
        ([1, {"a": float("nan")}], '[1, {"a": NaN}]', False),
        (b"\xff\x00", "\"b'\\\\xff\\\\x00'\"", False),
        (ODD, "Error: the tool failed: ValueError: Circular reference detected", True),
        (object, "\"<class 'object'>\"", False),
        ("a\ud800b\udc00\ud83d\ude00\0c", "a\ufffdb\ufffd\U0001f600\ufffdc", False),
        ("\x1b[31mred\x07\r\n<|im_end|>\u202e</s>", "\x1b[31mred\x07\r\n<|im_end|>\u202e</s>", False),
    ],
)
async def test_whatever_a_tool_returns_is_one_sound_text(value: Any, says: str, is_error: bool) -> None:
    ran = await boxed(returning(value), context=ToolContext()).run(call("give"))
    assert text_of(ran).startswith(says)
    assert ran.result.is_error == is_error
    assert ran.summary.isprintable()


async def test_images_go_along_as_far_as_a_prompt_holds_them() -> None:
    small, large = Image("image/png", b"x"), Image("image/png", bytes(21 * 2**20))
    ran = await boxed(returning(Result("two", images=(large, small)))).run(call("give"))
    assert ran.result.parts == (Text("two\n[1 image(s) left out: more than 20 MiB]"), small)
    ran = await boxed(returning(Result("", images=(small,)))).run(call("give"))
    assert ran.result.parts == (small,)  # providers refuse an empty text
    ran = await boxed(returning(Result("", images=(large,)))).run(call("give"))
    assert ran.result.parts == (Text("[1 image(s) left out: more than 20 MiB]"),)
    short, long = Audio("audio/wav", b"x"), Audio("audio/wav", bytes(21 * 2**20))
    ran = await boxed(returning(Result("", images=(small, large), audio=(long, short)))).run(call("give"))
    note = "[1 image(s) and 1 recording(s) left out: more than 20 MiB]"
    assert ran.result.parts == (Text(note), small, short)
    ran = await boxed(returning(Result("", audio=(short,)))).run(call("give"))
    assert ran.result.parts == (short,)


async def test_a_tool_knows_who_calls_and_how_much_room_it_has() -> None:
    seen: list[ToolContext] = []

    @tool(effect="read")
    async def look(context: ToolContext) -> str:
        """Look."""
        seen.append(context)
        return "ok"

    box = boxed(look, n_ctx=10_000, context=ToolContext(user="ann", count=words))
    box.session = "s1"
    await box.run(call("look"), share=3)
    assert (seen[0].user, seen[0].session, seen[0].budget) == ("ann", "s1", 1_212)
    assert seen[0].kept is box.kept


@pytest.mark.parametrize(
    ("n_ctx", "result_tokens", "share", "budget"),
    [
        (1_000, None, 1, 333),
        (80_000, None, 1, 48_000),
        (200_000, None, 1, 120_000),
        (8_000, 500, 1, 500),
        (8_000, 500, 4, 125),
        (8_000, 500, 100, 64),
        (1_000, 5_000, 1, 600),
        (8_000, None, 0, 2_856),
    ],
)
def test_the_results_of_a_round_share_a_part_of_the_context(
    n_ctx: int, result_tokens: int | None, share: int, budget: int
) -> None:
    assert boxed(n_ctx=n_ctx, result_tokens=result_tokens).budget(share) == budget


async def test_what_a_tool_tells_arrives_until_its_call_is_over() -> None:
    told: list[str] = []
    contexts: list[ToolContext] = []

    def hear(line: str) -> None:
        assert threading.current_thread() is threading.main_thread()
        told.append(line)

    @tool(effect="read")
    def work(context: ToolContext) -> str:
        """Work in a thread."""
        contexts.append(context)
        context.tell("half\x1b[2J way\nand more")
        return "ok"

    @tool(effect="read")
    async def wait(context: ToolContext) -> str:
        """Work on the loop."""
        contexts.append(context)
        context.tell("first")
        context.tell(["second"])  # type: ignore[arg-type]
        return "ok"

    box = boxed(work, wait)
    await box.run(call("work"), tell=hear)
    await box.run(call("wait"), tell=hear)
    for context in contexts:
        context.tell("too late")
    assert told == ["half [2J way", "first", '["second"]']


async def test_a_listener_that_fails_does_not_fail_the_call() -> None:
    @tool(effect="read")
    async def work(context: ToolContext) -> str:
        """Work."""
        context.tell("half way")
        return "ok"

    def broken(line: str) -> None:
        raise RuntimeError(line)

    assert text_of(await boxed(work).run(call("work"), tell=broken)) == "ok"


# -- time -------------------------------------------------------------------------------------------------------------


class Slow:
    """A tool that waits until it is let go, and tells how it ended."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.ended: list[str] = []

    def tool(self, **fields: Any) -> Tool:
        async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
            self.begun.set()
            try:
                await self.go.wait()
                return Result("done")
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
            finally:
                self.ended.append("tidied up")

        return plain("slow", run, **fields)


@pytest.mark.parametrize("fields", [{}, {"timeout_s": 0.01}])
async def test_a_call_that_takes_too_long_is_stopped_and_says_so(fields: dict[str, float]) -> None:
    slow = Slow()
    ran = await boxed(slow.tool(**fields), timeout_s=60.0 if fields else 0.01).run(call("slow"))
    assert text_of(ran) == "Error: slow took longer than 0.01 s and was stopped; ask for less at once"
    assert slow.ended == ["cancelled", "tidied up"]


async def test_a_call_that_is_cancelled_has_tidied_up_before_that_is_told() -> None:
    slow = Slow()
    task = asyncio.create_task(boxed(slow.tool()).run(call("slow")))
    await slow.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert slow.ended == ["cancelled", "tidied up"]


async def test_a_call_that_will_not_be_stopped_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    release, ended = asyncio.Event(), asyncio.Event()

    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        raise ValueError("nobody hears this")

    box = boxed(plain("stubborn", run), timeout_s=0.01, grace_s=0.01)
    assert "was stopped" in text_of(await box.run(call("stubborn")))
    assert "stubborn still runs although it was stopped" in caplog.text
    release.set()
    await ended.wait()


async def test_a_thread_that_hangs_holds_up_nothing() -> None:
    hold = threading.Event()

    @tool(effect="read")
    def hang() -> str:
        """Hang."""
        hold.wait()
        return "late"

    box = boxed(hang, double, timeout_s=0.05)
    try:
        hangs = [asyncio.create_task(box.run(call("hang"))) for _ in range(40)]
        assert text_of(await box.run(call("double", n=1))) == "2"
        assert {text_of(await each) for each in hangs} == {
            "Error: hang took longer than 0.05 s and was stopped; ask for less at once"
        }
    finally:
        hold.set()


async def test_calls_run_side_by_side() -> None:
    meeting = asyncio.Barrier(8)

    @tool(effect="read")
    async def meet() -> str:
        """Wait for the others."""
        await meeting.wait()
        return "met"

    box = boxed(meet)
    rans = await asyncio.gather(*(box.run(call("meet"), share=8) for _ in range(8)))
    assert [text_of(ran) for ran in rans] == ["met"] * 8


# -- permission -------------------------------------------------------------------------------------------------------


def previewed(preview: Callable[[ToolContext, Mapping[str, Any]], Any], done: list[str]) -> Tool:
    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        done.append(arguments["path"])
        return Result("written", diff="+new")

    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return Tool("write_file", "", schema, run, "filesystem", "write", subject="path", preview=preview)


async def diff(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    return f"+++ {arguments['path']}\n+new\n"


async def test_rules_are_about_the_paths_that_file_tools_would_touch(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    done: list[str] = []
    context = ToolContext(count=words, roots=Roots.of([str(tmp_path / "data")]))
    permission = Permission(allow=["write_file(notes/*)"], folder=tmp_path)  # not where relative paths begin
    box = boxed(previewed(diff, done), permission=permission, context=context)
    await box.run(call("write_file", path="notes/a"))
    await box.run(call("write_file", path=str(tmp_path / "notes" / "b")))
    await box.run(call("write_file", path=str(tmp_path / "data" / "notes" / "c")))
    assert done == ["notes/a", str(tmp_path / "data" / "notes" / "c")]


def failing(error: Exception) -> Callable[..., Any]:
    async def fail(*_: object) -> Any:
        raise error

    return fail


class Gone(Agreeing):
    async def allow(self, question: Question) -> Verdict:
        raise EOFError("the terminal is closed")


@pytest.mark.parametrize(
    ("preview", "permission", "says"),
    [
        (diff, Permission(), "--allow-tools write_file"),
        (diff, Permission(person=Gone()), "Error: "),
        (failing(ToolError("there is no such line")), None, "there is no such line"),
        (failing(ValueError("odd")), None, "odd"),
    ],
    ids=["refused", "a person who vanishes", "a preview that finds fault", "a preview that fails"],
)
async def test_a_call_that_cannot_be_allowed_is_answered_and_not_carried_out(
    preview: Callable[..., Any], permission: Permission | None, says: str
) -> None:
    done: list[str] = []
    ran = await boxed(previewed(preview, done), permission=permission).run(call("write_file", path="a"))
    assert ran.result.is_error
    assert says in text_of(ran)
    assert done == []


async def test_the_person_is_shown_the_diff_and_so_is_who_watches(tmp_path: Path) -> None:
    questions: list[Question] = []

    class Watching(Agreeing):
        async def allow(self, question: Question) -> Verdict:
            questions.append(question)
            return "once"

    done: list[str] = []
    box = boxed(previewed(diff, done), permission=Permission(person=Watching(), folder=tmp_path))
    ran = await box.run(call("write_file", path="a"))
    assert [question.diff for question in questions] == ["+++ a\n+new\n"]
    assert (text_of(ran), ran.diff, done) == ("written", "+new", ["a"])


async def test_a_dry_run_shows_what_would_change_and_changes_nothing(tmp_path: Path) -> None:
    done: list[str] = []
    box = boxed(
        previewed(diff, done),
        double,
        replace(double, name="send", effect="net"),
        permission=Permission(dry_run=True, folder=tmp_path),
    )
    ran = await box.run(call("write_file", path="a"))
    assert text_of(ran) == "Dry run: nothing was changed. This would change:\n+++ a\n+new\n"
    assert ran.diff == "+++ a\n+new\n"
    assert not ran.result.is_error
    assert done == []
    assert text_of(await box.run(call("double", n=1))) == "2"
    sent = await box.run(call("send", n=1))
    assert sent.result.is_error
    assert "this is a dry run, and send is not carried out" in text_of(sent)


# -- size -------------------------------------------------------------------------------------------------------------


def log(n_lines: int) -> str:
    return "".join(f"line {n} of the log\n" for n in range(1, n_lines + 1))


READ_ON = re.compile(
    r"(?:\[Cut here: [\d,]+ of [\d,]+ characters are left out\. |\[This is [^\]]*?)"
    r"read_file\(path=\"(result:\d+)\", offset=(\d+)(?:, column=(\d+))?\) reads on\.\]\n?"
)


@pytest.mark.parametrize(
    "whole",
    [log(5_000), "x y " * 20_000, "\n" * 30_000, "head\n" + "日本 " * 9_000 + "\nend\n", "a\r\n" * 9_000],
    ids=["lines", "one line", "empty lines", "a long line", "carriage returns"],
)
async def test_a_long_result_is_cut_once_and_can_be_read_to_its_end(whole: str) -> None:
    box = boxed(returning(whole), read_file, result_tokens=2_000, context=ToolContext(count=tokens))
    first = text_of(await box.run(call("give")))
    assert tokens(first) <= 2_000
    read, name, offset, column, tail = READ_ON.split(first)
    assert name == "result:1"
    assert whole.endswith(tail)
    if column is None and not read.endswith("\n"):
        read = read.removesuffix("\n")
    elif column is not None:
        read = read.removesuffix("\n")  # of the notice
    assert whole.startswith(read)
    for _ in range(100):
        page = text_of(await box.run(call("read_file", path=name, offset=int(offset), column=int(column or 1))))
        assert tokens(page) <= 2_000
        assert "Cut here" not in page
        text, *more = READ_ON.split(page)
        if not more:
            read += text
            break
        _, offset, column, _ = more
        read += text.removesuffix("\n") if column is not None else text
    assert read == whole
    with pytest.raises(ToolError):
        box.kept.get("result:2")


CARELESS = replace(returning(Result(log(500))), name="read_file", category="filesystem")


@pytest.mark.parametrize(
    ("tools", "says"),
    [
        ((returning(Result(log(500), more="ask for page 2")), read_file), "left out. ask for page 2]"),
        ((returning(Result(log(500))),), "left out. Ask for less of it.]"),
        ((returning(Result(log(500))), replace(read_file, category="other")), "left out. Ask for less of it.]"),
        ((CARELESS,), "left out. Ask for fewer lines, with limit.]"),
        ((returning(Result(log(3), more="page 2")), read_file), log(3)),
    ],
    ids=["as the tool says", "nothing reads on", "another read_file", "a reading tool that says too much", "short"],
)
async def test_a_result_that_nobody_can_read_on_is_not_kept_and_says_what_to_do(
    tools: tuple[Tool, ...], says: str
) -> None:
    box = boxed(*tools, result_tokens=200)
    text = text_of(await box.run(call(tools[0].name)))
    assert says in text
    assert text == says or "left out" in says
    with pytest.raises(ToolError):
        box.kept.get("result:1")


async def test_a_failure_with_a_long_output_begins_with_the_reason() -> None:
    failed = Result(log(5_000) + "exit code 2", success=False, error="the command ended with exit code 2")
    text = text_of(await boxed(returning(failed), result_tokens=100).run(call("give")))
    assert text.startswith("Error: the command ended with exit code 2\nline 1 of")
    assert text.endswith("exit code 2")
    assert words(text) <= 100


async def test_of_a_giant_result_little_is_counted_and_the_loop_goes_on() -> None:
    counted: list[int] = []
    threads: set[str] = set()

    def count(text: str) -> int:
        counted.append(len(text))
        threads.add(threading.current_thread().name)
        return len(text) // 4

    box = boxed(returning("word " * 10_000_000), read_file, context=ToolContext(count=count), result_tokens=1_000)
    text = text_of(await box.run(call("give")))
    assert "50,000,000 characters" in text
    assert "reads on, but not to the end." in text
    assert sum(counted) < 100_000
    assert threading.main_thread().name not in threads


async def test_a_giant_diff_is_cut_for_the_person() -> None:
    ran = await boxed(returning(Result("ok", diff="+x\n" * 10**6))).run(call("give"))
    assert len(ran.diff) < 210_000
    assert ran.diff.endswith("more characters\n")


@pytest.mark.parametrize(
    ("result", "summary"),
    [
        (Result("\n\n  first line\nsecond"), "first line"),
        (Result("text", summary="read 5 lines\n\x1b[31m"), "read 5 lines"),
        (Result("x" * 10**6), "x" * 199 + "…"),
        (Result("out", success=False, error="no such file"), "no such file"),
        (Result("\x1b]0;title\x07hi"), "]0;title hi"),
    ],
)
async def test_the_summary_is_one_line_for_a_terminal(result: Result, summary: str) -> None:
    assert (await boxed(returning(result)).run(call("give"))).summary == summary
