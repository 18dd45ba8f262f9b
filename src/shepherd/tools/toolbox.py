"""The tools of one conversation: everything between a model's call and the function that carries it out.

    ToolCall ─▶ find the tool ─▶ read the arguments ─▶ permission ─▶ run, within its time ─▶ bring to size ─▶ outcome
                    │                  │                  │              │                        │
                 no such tool       `arguments`      `permission`    time is up, it fails     `shorten`, `kept`
                    └──────────────────┴──────────────────┴──────────────┴─▶ a sentence for the model

    toolbox = ConversationToolbox(registry.tools, context=ToolContext(...), permission=Permission(...), n_ctx=8192)
    outcome = await toolbox.run(call, share=len(calls), tell=show)     raises only `CancelledError`
    toolbox.specs                                                      the tools that are offered now

A tool may hang, raise, or return a gigabyte or no result at all. `run` returns one result of a size that the
conversation has room for, or one sentence that says what to do.

Not here: which tools there are (`registry.py`) and which of them are offered (`selection.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shepherd.core import Audio, Image, ShepherdError, Text, ToolCall, ToolSpec
from shepherd.core import ToolResult as CallResult
from shepherd.core.dataclasses import dataclass, replace
from shepherd.process.pools import in_pool
from shepherd.tools.arguments import coerce_arguments, read_arguments
from shepherd.tools.base import MOST_MEDIA_BYTES, CallOutcome, Result, ToolError
from shepherd.tools.permission import Decision, NotPermitted, Permission
from shepherd.tools.registry import find, no_such_tool
from shepherd.tools.results import ResultStore, replace_unencodable, shorten
from shepherd.tools.selection import DISABLED, NO_ROOM, NOT_ENABLED, NOT_TRAINED, ROOM_SHARE, context_for, matches
from shepherd.tools.signature import as_json, as_result, carry_out
from shepherd.tools.tool import Tool, ToolContext

logger = logging.getLogger(__name__)
content_logger = logging.getLogger("shepherd.content")

TIMEOUT_S = 120.0
GRACE_S = 5.0
"""For a stopped call to end; `execute_command` needs two seconds to end a process gently."""
LEAST_TOKENS = 64
"""Of a result, for any number of results in one round: the sentence that says how to read on must fit."""
LARGE_CHARS = 20_000
"""Results above this are brought to size in a thread."""
SUMMARY_CHARS = 200
MOST_DIFF_CHARS = 200_000
TURNED_OFF = "turned off"


@dataclass(frozen=True, slots=True)
class ToolStatus:
    name: str
    category: str
    description: str
    why_off: str
    """Empty = it is offered."""
    decision: Decision


@dataclass(frozen=True, slots=True)
class ToolSnapshot:
    """All tools at one moment."""

    tools: tuple[Tool, ...]
    off: Mapping[str, str]
    """By name, why a tool is not offered; empty = it is."""

    @property
    def offered(self) -> list[Tool]:
        return [tool for tool in self.tools if not self.off.get(tool.name)]

    def get(self, name: str) -> Tool:
        """The tool of a name. Raises: `ToolError`."""
        tool = self.get_known(name)
        self.check(tool)
        return tool

    def get_known(self, name: str) -> Tool:
        """The tool of a name, offered or not. Raises: `ToolError`."""
        if (tool := find(name, self.tools)) is not None:
            return tool
        names = [tool.name for tool in self.offered]
        near = difflib.get_close_matches(name[:80].casefold(), names, n=3, cutoff=0.5)
        raise ToolError(no_such_tool(name, [*near, *(name for name in names if name not in near)]))

    def check(self, tool: Tool) -> None:
        """Raises: `ToolError` for a tool that may not be called."""
        why = self.off.get(tool.name)
        if why in {None, "", NO_ROOM, NOT_TRAINED}:  # these two are not offered, and can be called
            return
        if why in {DISABLED, NOT_ENABLED, TURNED_OFF}:
            raise ToolError(f"the tool {tool.name} is {why}; continue without it, or tell the user that you need it")
        raise ToolError(f"the tool {tool.name} cannot be used: {why}; continue without it")


def may_be_opened(why_off: str) -> bool:
    """Whether a person can turn a tool on, which the configuration may prevent."""
    return why_off in {"", NOT_ENABLED, NO_ROOM, NOT_TRAINED, TURNED_OFF}


class ConversationToolbox:
    """A `Toolbox`. On one event loop; calls may run side by side."""

    def __init__(
        self,
        tools: Callable[[], Sequence[Tool]],
        *,
        context: ToolContext,
        permission: Permission,
        n_ctx: int,
        choose: Callable[[Sequence[Tool]], Mapping[str, str]] = lambda tools: {},
        share: int = ROOM_SHARE,
        result_tokens: int | None = None,
        timeout_s: float = TIMEOUT_S,
        grace_s: float = GRACE_S,
    ) -> None:
        """`tools`: all, the most useful first; called again each time, since MCP servers change theirs. `choose`: by
        name, those that are not offered, and why; called again when the tools have changed. `share`: as `choose` counts
        the room for descriptions (`reasons_off`). `result_tokens`: of the results of one round; None = a third of the
        context, of a long one more (H4).
        """
        self.session = context.session
        self.permission = permission
        if context.roots is not None:
            permission.folder = Path(context.roots.base)
        self.n_ctx = n_ctx
        self.timeout_s = timeout_s
        self._grace_s = grace_s
        self.kept = context.kept or ResultStore()
        """Results that were cut, whole."""
        self._result_tokens = result_tokens
        self._context = replace(context, kept=self.kept)
        self._tools = tools
        self._choose = choose
        self._share = share
        self._turned: dict[str, bool] = {}
        """The tools that a person has turned on or off, by name."""
        self._known: ToolSnapshot | None = None
        self._left: set[asyncio.Task[Any]] = set()
        """Calls that did not end when they were stopped."""

    @property
    def tools(self) -> list[Tool]:
        """Those that are offered, the most useful first."""
        return self._stock().offered

    def get_known(self, name: str) -> Tool:
        return self._stock().get_known(name)

    @property
    def specs(self) -> list[ToolSpec]:
        return [tool.spec for tool in self.tools]

    def budget(self, share: int = 1) -> int:
        """Tokens of one result, where so many share the room."""
        wanted = int(self.n_ctx * min(0.6, 0.33 + self.n_ctx / 80_000 * 0.27))
        if self._result_tokens is not None:
            wanted = min(self._result_tokens, int(self.n_ctx * 0.6))
        return max(LEAST_TOKENS, wanted // max(1, share))

    async def run(
        self, call: ToolCall, *, share: int = 1, tell: Callable[[str], None] = lambda line: None
    ) -> CallOutcome:
        """See `Toolbox`. Raises: only `CancelledError`."""
        line = ProgressReporter(tell)
        context = replace(self._context, session=self.session, budget=self.budget(share), tell=line.report)
        tool = None
        try:
            tool, arguments = self._resolve(call)
            return await self._outcome(call, tool, await self._carry_out(tool, arguments, context), context)
        except Exception as error:  # the wall
            log(tool.name if tool else "(unknown)", error)
            failed = Result(success=False, error=error_sentence(error, call.name))
        finally:
            line.close()
        return await self._outcome(call, tool, failed, context)

    # for a person

    def status(self) -> list[ToolStatus]:
        """All tools, offered or not."""
        stock, explain = self._stock(), self.permission.explain
        return [
            ToolStatus(tool.name, tool.category, tool.description, stock.off.get(tool.name, ""), explain(tool))
            for tool in stock.tools
        ]

    def context_for_all(self) -> int:
        """The tokens of context that have room for every tool; 0 where this one has."""
        stock = self._stock()
        return context_for(stock.tools, stock.off, self._context.count, self._share)

    def turn(self, name: str, on: bool, *, enables: bool = True) -> list[str]:
        """Offer the tools of a name, a category or a glob for the rest of the conversation, or do not; their names.
        `enables`: also those that the configuration does not enable. Raises: `ToolError` for an unknown name, and if
        the configuration closes all these tools.
        """
        stock = self._stock()
        found = [tool for tool in stock.tools if matches(tool, [name])]
        if not found:
            raise ToolError(
                f"no tool or category is called {name!r}; there are: {', '.join(t.name for t in stock.tools)}"
            )
        if on:
            off = stock.off if enables else dict(self._choose(stock.tools))
            shut = () if enables else (NOT_ENABLED,)
            reasons = {tool.name: off.get(tool.name, "") for tool in found}
            closed = {name: why for name, why in reasons.items() if why in shut or not may_be_opened(why)}
            found = [tool for tool in found if tool.name not in closed]
            if not found:
                raise ToolError("; ".join(f"{name}: {why}" for name, why in closed.items()))
        self._turned |= {tool.name: on for tool in found}
        self._known = None
        return [tool.name for tool in found]

    # the steps of a call

    def _stock(self) -> ToolSnapshot:
        tools = tuple(self._tools())
        if self._known is None or self._known.tools != tools:
            self._known = self._snapshot(tools)
        return self._known

    def _snapshot(self, tools: tuple[Tool, ...]) -> ToolSnapshot:
        off = dict(self._choose(tools))
        for name, on in self._turned.items():
            if may_be_opened(off.get(name, "")):
                off[name] = "" if on else TURNED_OFF
        return ToolSnapshot(tools, off)

    def _resolve(self, call: ToolCall) -> tuple[Tool, dict[str, Any]]:
        """The tool and its arguments. Raises: `ToolError`."""
        stock = self._stock()
        tool = stock.get(call.name)
        arguments = read_arguments(call.arguments, tool)
        if tool.name == "call_mcp_tool" and self._context.servers is not None:
            # The rules and the schema of the named tool apply.
            tool, inner = self._context.servers.resolve_call(arguments)
            if tool.name not in {each.name for each in stock.tools}:  # of a server that is still starting
                stock = self._snapshot((*stock.tools, tool))
            stock.check(tool)
            arguments = coerce_arguments(inner, tool)
        return tool, arguments

    async def _carry_out(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Result:
        """Raises: anything."""

        async def preview() -> str:
            return text_of(await self._within_time(tool, tool.preview, context, arguments))

        overwrites = tool.overwrites and await self._within_time(tool, tool.overwrites, context, arguments)
        await self.permission.check(tool, arguments, preview if tool.preview else None, overwrites=bool(overwrites))
        if self.permission.dry_run and tool.effect_of(arguments) != "read":
            if tool.preview is None:
                raise ToolError(f"this is a dry run, and {tool.name} is not carried out; say what it would do")
            diff = await preview()
            return Result(f"Dry run: nothing was changed. This would change:\n{diff or 'nothing'}", diff=diff,
                          summary="dry run: nothing was changed")  # fmt: skip
        return as_result(await self._within_time(tool, tool.run, context, arguments))

    async def _within_time(self, tool: Tool, work: Any, context: ToolContext, arguments: Mapping[str, Any]) -> Any:
        """The value of a function of the tool. When the time is up, or we are cancelled, it is cancelled and
        has a while to end.

        In a task of its own: a cancel scope that leaks does not reach ours. Raises: anything but `CancelledError` of
        its own.
        """
        limit_s = tool.timeout_s or self.timeout_s
        task = asyncio.ensure_future(_behind_wall(work, context, arguments))
        try:
            await asyncio.wait({task}, timeout=limit_s)
        except asyncio.CancelledError:
            await self._stop(task, tool)
            raise
        if not task.done():
            await self._stop(task, tool)
            raise ToolError(f"{tool.name} took longer than {limit_s:g} s and was stopped; ask for less at once")
        if task.cancelled():
            raise ToolError(f"{tool.name} stopped itself; try again, or continue without it")
        value, error = task.result()
        if error is not None:
            raise error
        return value

    async def _stop(self, task: asyncio.Task[Any], tool: Tool) -> None:
        task.cancel()
        await asyncio.wait({task}, timeout=self._grace_s)
        if not task.done():
            logger.warning("%s still runs although it was stopped; what it returns is dropped", tool.name)
            self._left.add(task)
            task.add_done_callback(self._left.discard)

    async def _outcome(self, call: ToolCall, tool: Tool | None, result: Result, context: ToolContext) -> CallOutcome:
        content, error = text_of(result.content), text_of(result.error)
        if not result.success:
            # The sentence comes first: it survives any cut.
            content = content if error in content[:2_000] else f"{error}\n{content}" if content else error
            content = f"Error: {content or 'it failed and gave no reason'}"
        elif not (content or result.images or result.audio):
            content = "(no output)"
        known = self._known.offered if self._known else ()
        can_read_on = any(each.name == "read_file" and each.category == "filesystem" for each in known)
        job = (content, tool, text_of(result.more), can_read_on, context)
        text = await in_pool("tools", self._sized, *job) if len(content) > LARGE_CHARS else self._sized(*job)
        media, note = limit_media((*result.images, *result.audio))
        whole = "\n".join(filter(None, (text, note)))
        diff = text_of(result.diff)
        if (n_left := len(diff) - MOST_DIFF_CHARS) > 0:
            diff = f"{diff[:MOST_DIFF_CHARS]}\n… {n_left:,} more characters\n"
        return CallOutcome(
            CallResult(call.id, (*([Text(whole)] if whole else ()), *media), call.name, is_error=not result.success),
            summary=one_line(text_of(result.summary) or error or content),
            diff=replace_unencodable(diff),
        )

    def _sized(self, content: str, tool: Tool | None, more: str, can_read_on: bool, context: ToolContext) -> str:
        """The content within the budget; the whole of a cut one is stored if the model can read it. Any thread."""
        kept: tuple[str, bool] | None = None

        def rest(head: str) -> str:
            nonlocal kept
            if more:
                return more
            if tool is not None and tool.name == "read_file":
                return "Ask for fewer lines, with limit."
            if not can_read_on:
                return "Ask for less of it."
            name, is_whole = kept = kept or self.kept.keep(content)
            line, column = head.count("\n") + 1, len(head) - head.rfind("\n")
            place = f"offset={line}" + (f", column={column}" if column > 1 else "")
            return f'read_file(path="{name}", {place}) reads on{"" if is_whole else ", but not to the end"}.'

        return replace_unencodable(
            shorten(content, context.budget, lambda text: context.count(replace_unencodable(text)), rest)
        )


async def _behind_wall(work: Callable[..., Any], *arguments: Any) -> tuple[Any, BaseException | None]:
    """What it returns or raises: the loop must not see what would end it (`SystemExit`, `KeyboardInterrupt`)."""
    try:
        return await carry_out(work, *arguments), None
    except asyncio.CancelledError:
        raise
    except Exception as error:
        return None, error
    except BaseException as error:  # raised by the tool: a person's Ctrl-C cancels us
        return None, RuntimeError(f"{type(error).__name__}: {error}")


class ProgressReporter:
    """Shows a tool's lines while it runs: from any thread, until its call is over."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell: Callable[[str], None] | None = tell
        self._loop = asyncio.get_running_loop()

    def report(self, line: str) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._show(line)
        else:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(self._show, line)

    def _show(self, line: str) -> None:
        if self._tell is None:
            return
        try:
            self._tell(one_line(text_of(line)))
        except Exception:  # a listener's error does not end the call
            logger.debug("a line of a tool cannot be shown", exc_info=True)

    def close(self) -> None:
        self._tell = None


# -- texts ------------------------------------------------------------------------------------------------------------


def log(name: str, error: Exception) -> None:
    """Log why a call has failed, without its content; with `--debug`, all of it."""
    if isinstance(error, NotPermitted):
        why = error.message
    elif isinstance(error, PermissionError) or isinstance(error.__cause__, PermissionError):
        why = "permission denied"
    else:
        why = type(error).__name__
    logger.info("tool %s: %s", name, why)
    content_logger.debug("tool %s failed", name, exc_info=error)


def error_sentence(error: Exception, name: str) -> str:
    """An error as one sentence for the model."""
    match error:
        case ShepherdError():
            return error.message
        case TimeoutError():
            return f"{name[:80]} got no answer in time; try again later, or continue without it"
        case OSError() if error.strerror:
            where = f": {error.filename}" if error.filename else ""
            return f"{error.strerror[:1].lower()}{error.strerror[1:]}{where}"
        case MemoryError():
            return f"{name[:80]} needs more memory than there is; ask for less at once"
    try:
        text = str(error)
    except Exception:  # its own text fails
        text = ""
    return f"the tool failed: {type(error).__name__}{': ' if text else ''}{text}"


def text_of(value: Any) -> str:
    """The text of a field that a tool should have filled with one."""
    return value if isinstance(value, str) else "" if value is None else as_json(value)


def one_line(text: str) -> str:
    """The first line that is not blank, without control characters."""
    head = text[: 4 * SUMMARY_CHARS].strip().partition("\n")[0]
    line = "".join(char if char.isprintable() else " " for char in head).strip()
    return line if len(line) <= SUMMARY_CHARS else f"{line[: SUMMARY_CHARS - 1]}…"


def limit_media(parts: Sequence[Image | Audio]) -> tuple[tuple[Image | Audio, ...], str]:
    """The images and recordings that a prompt can hold, and a note about the others."""
    room = MOST_MEDIA_BYTES
    taken: list[Image | Audio] = []
    for part in parts:
        n_bytes = len(part.data or b"")
        if n_bytes <= room:
            room -= n_bytes
            taken.append(part)
    n_left = Counter(map(type, parts)) - Counter(map(type, taken))
    left = " and ".join(f"{n} {_NAMES[kind]}" for kind, n in n_left.items())
    return tuple(taken), f"[{left} left out: more than {MOST_MEDIA_BYTES // 2**20} MiB]" if left else ""


_NAMES: Mapping[type[Image | Audio], str] = {Image: "image(s)", Audio: "recording(s)"}
