"""`shepherd tools`: lists the tools, with the reason why one is off; shows one; runs one call."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from shepherd.app.app import App
from shepherd.cli import configure, render, signals
from shepherd.cli.terminal.reader import read_pipe
from shepherd.config import Config
from shepherd.core import Audio, ConfigError, Image, InvalidRequest, Text, ToolCall
from shepherd.core.dataclasses import dataclass
from shepherd.memory.users import LOCAL
from shepherd.tools import selection
from shepherd.tools.base import CATEGORIES
from shepherd.tools.permission import EFFECTS
from shepherd.tools.registry import find, no_such_tool
from shepherd.tools.tool import Tool
from shepherd.tools.toolbox import ConversationToolbox

logger = logging.getLogger(__name__)

T = TypeVar("T")

HINTS = {
    selection.DISABLED: "disabled (tools.disabled, --disable-tools)",
    selection.NOT_ENABLED: "not enabled (tools.enabled, --enable-tools)",
}
"""Reasons with the settings that decide them; other reasons are shown unchanged."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    tool: Tool
    source: str
    """`shepherd`, a package, a file, or the MCP servers."""
    why: str
    """Why it is off; empty = it is on."""

    @property
    def hint(self) -> str:
        return HINTS.get(self.why, self.why)

    @property
    def document(self) -> dict[str, Any]:
        tool = self.tool
        return {
            "name": tool.name,
            "category": tool.category,
            "description": tool.description,
            "parameters": dict(tool.parameters),
            "aliases": list(tool.aliases),
            "effect": "depends on the arguments" if callable(tool.effect) else tool.effect,
            "source": self.source,
            "enabled": not self.why,
            "why_off": self.why,
        }


def show_list(options: Mapping[str, Any], *, as_json: bool) -> None:
    config = configure.load_config(options, looks=True)
    rows, failures = list_tools(config)
    if as_json:
        render.show_json({"tools": [row.document for row in rows], "failures": list(failures)})
        return
    on, off = [row for row in rows if not row.why], [row for row in rows if row.why]
    width = max((len(row.tool.name) for row in rows), default=0)
    render.show(f"{len(on)} tools available")
    used = {row.tool.category for row in on}
    for category in (*(each for each in CATEGORIES if each in used), *sorted(used - set(CATEGORIES))):
        render.show(f"{category}:")
        for row in on:
            if row.tool.category == category:
                about = row.tool.description.strip().partition("\n")[0]  # an MCP server may send a page
                render.show(f"  {row.tool.name:<{width}}  {about}".rstrip())
    if off:
        render.show()
        render.show(f"{len(off)} tools off:")
        for row in off:
            render.show(f"  {row.tool.name:<{width}}  {row.hint}")
    if config.tools.enabled is None and on:
        render.show()
        render.show("A small context has no room for all descriptions: --enable-tools LIST selects the tools to offer.")


def show_one(options: Mapping[str, Any], *, name: str, as_json: bool) -> None:
    row = chosen(name, list_tools(configure.load_config(options, looks=True))[0])
    if as_json:
        render.show_json(row.document)
        return
    tool = row.tool
    lines = {
        "Name": tool.name,
        "Does": tool.description,
        "Category": tool.category,
        "Effect": "depends on its arguments" if callable(tool.effect) else EFFECTS[tool.effect],
        "From": row.source,
        "Also called": ", ".join(tool.aliases),
        "Off": row.hint,
    }
    render.show_fields({label: text for label, text in lines.items() if text})
    render.show("Arguments:")
    render.show(json.dumps(tool.parameters, ensure_ascii=False, indent=2, default=dict))


def run(options: Mapping[str, Any], *, name: str, arguments: Sequence[str], as_json: bool) -> int:
    """Run one call and print its result; the exit status is 1 when the call fails.

    It does not ask: the command itself is the consent. Disabled and denied tools stay off, and so does --read-only.

    Raises: `InvalidRequest` for a tool that does not exist or is off.
    """
    text = arguments_of(arguments)

    async def call(app: App, box: ConversationToolbox) -> int:
        row = chosen(name, listed_tools(app, box))
        if row.why:
            raise InvalidRequest(f"{row.tool.name} cannot be called: {row.hint}", field="name")
        on_terminal = render.is_terminal(sys.stderr)

        def show_progress(line: str) -> None:
            if on_terminal:
                render.show_warning(line)

        ran = await box.run(ToolCall("call", row.tool.name, text), tell=show_progress)
        parts = ran.result.parts
        content = "\n".join(part.text for part in parts if isinstance(part, Text))
        if as_json:
            document = {"tool": row.tool.name, "success": not ran.result.is_error, "content": content}
            document |= {"images": sum(isinstance(part, Image) for part in parts)}
            document |= {"audio": sum(isinstance(part, Audio) for part in parts)}
            render.show_json(document | {"summary": ran.summary, "diff": ran.diff})
        elif ran.result.is_error:
            render.show_error(content.removeprefix("Error: "))
        else:
            render.write(content if content.endswith("\n") else content + "\n")
        return int(ran.result.is_error)

    return with_tools(configure.load_config(options), call, allow=("*",))


def arguments_of(words: Sequence[str]) -> str:
    """The JSON text of a call's arguments: one object, `-` for one from standard input, or NAME=VALUE ... Raises:
    `InvalidRequest`."""
    if not words:
        return "{}"
    if list(words) == ["-"]:
        return read_pipe()
    if len(words) == 1 and words[0].lstrip().startswith(("{", "[", '"')):
        return words[0]
    pairs = [word.partition("=") for word in words]
    odd = [word for word, (name, mark, _) in zip(words, pairs, strict=True) if not (name and mark)]
    if odd:
        raise InvalidRequest(
            f"{odd[0][:80]!r} is not an argument; write one JSON object, or NAME=VALUE for each", field="arguments"
        )
    return json.dumps({name: value for name, _, value in pairs})


def chosen(name: str, rows: Sequence[ListedTool]) -> ListedTool:
    """The tool of this name. Raises: `InvalidRequest` that lists the names."""
    tool = find(name, [row.tool for row in rows])
    if tool is None:
        raise InvalidRequest(no_such_tool(name, [row.tool.name for row in rows]), field="name")
    return next(row for row in rows if row.tool is tool)


def with_tools(
    config: Config, work: Callable[[App, ConversationToolbox], Awaitable[T]], *, allow: Sequence[str] = ()
) -> T:
    """What `work` returns; it gets the configured tools with the MCP servers. No model is loaded."""

    async def body() -> T:
        app = App(config)
        try:
            try:
                box = await app.toolbox(user=LOCAL, allow=allow)
            except ConfigError as error:
                if config.memory.database_path is not None:
                    raise
                logger.warning("there is no memory: %s", error)
                box = await app.toolbox(allow=allow)
            return await work(app, box)
        finally:
            await app.aclose()

    return signals.run(body())


def list_tools(config: Config) -> tuple[list[ListedTool], Sequence[str]]:
    async def look(app: App, box: ConversationToolbox) -> tuple[list[ListedTool], Sequence[str]]:
        return listed_tools(app, box), app.tools.registry.failures

    return with_tools(config, look)


def listed_tools(app: App, box: ConversationToolbox) -> list[ListedTool]:
    """All tools, the most useful first. A tool that a small context has no room for is on here."""
    off = {status.name: status.why_off for status in box.status() if status.why_off != selection.NO_ROOM}
    return [
        ListedTool(tool, app.tools.registry.group_of(tool.name), off.get(tool.name, ""))
        for tool in app.tools.registry.tools()
    ]
