"""The /commands about tools: /tools, /permissions, and /mcp, /prompts, /prompt, /resource for MCP servers.

A function is a command; `*_words` are its completions. The table in `table.py` has their help.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from shepherd.agent import attachment
from shepherd.agent.attachment import Attached
from shepherd.core import Audio, Image, InvalidRequest, Text
from shepherd.core.errors import usual_size
from shepherd.tools.base import ToolError
from shepherd.tools.toolbox import ConversationToolbox

if TYPE_CHECKING:
    from shepherd.agent.session import Session
    from shepherd.app.commands.command import Surface
    from shepherd.tools.mcp.servers import McpServerPool
    from shepherd.tools.mcp.values import Prompt
    from shepherd.tools.toolbox import ToolStatus

_STATES = {"ready": "green", "starting": "yellow", "failed": "red", "off": "dim", "closed": "dim"}

# -- tools ------------------------------------------------------------------------------------------------------------


async def tools(chat: Surface, argument: str) -> None:
    box = _box(chat)
    verb, *names = argument.replace(",", " ").split() or [""]
    if verb in {"on", "off"}:
        if not names:
            raise InvalidRequest(f"write /tools {verb} NAME", field="name")
        for pattern in names:
            changed = box.turn(pattern, verb == "on", enables=not chat.is_guest)
            chat.switched_tools.update(dict.fromkeys(changed, verb == "on"))
            chat.note(f"{', '.join(changed)}: {verb}.")
    elif verb:
        for row in _matching(box, verb):
            chat.say(row.name, "bold")
            chat.say(row.description)
            state = f"off: {row.why_off}" if row.why_off else f"on; {_verdict(row)}".rstrip("; ")
            chat.note(f"{row.category}, {state}")
            spec = next((spec for spec in chat.session.tools if spec.name == row.name), None)
            if spec is not None:
                chat.say(json.dumps(spec.parameters, ensure_ascii=False, indent=2, default=dict))
    else:
        rows = box.status()
        if not rows:
            chat.note("There are no tools.")
            return
        widths = max(len(row.name) for row in rows), max(len(row.category) for row in rows)
        for row in rows:
            mark, style = ("off", "dim") if row.why_off else ("on ", "green")
            left = f" {row.name:<{widths[0]}}  {row.category:<{widths[1]}}  "
            chat.draw([(mark, style), (left, ""), (row.why_off or _verdict(row), "dim")])
        if n_tokens := box.context_for_all():
            chat.note(
                f"Tools without room in this context of {box.n_ctx} tokens are not described to the model; "
                f"--context-size {usual_size(n_tokens)} has room for all."
            )
        chat.note("/tools NAME shows one; /tools on NAME and /tools off NAME switch it.")


def restore_switches(session: Session, switched: Mapping[str, bool], *, enables: bool) -> None:
    """Switch the tools of a new toolbox as the user switched those of the last one. `enables`: also on those that the
    configuration does not enable."""
    if isinstance(box := session.toolbox, ConversationToolbox):
        for name, on in switched.items():
            with contextlib.suppress(ToolError):  # the tool has gone, or the configuration forbids it
                box.turn(name, on, enables=enables)


def tool_words(chat: Surface, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    if chat.session.toolbox is None:
        return []
    rows = _box(chat).status()
    names = [(row.name, f"off: {row.why_off}" if row.why_off else "on") for row in rows]
    if words:
        return names
    return [("on", "switch on"), ("off", "switch off"), *names]


def _verdict(row: ToolStatus) -> str:
    return f"{row.decision.verdict}: {row.decision.why}" if row.decision.why else row.decision.verdict


def _matching(box: ConversationToolbox, pattern: str) -> list[ToolStatus]:
    """The tool of this name, or those of a category, or those that match a glob. Raises: `InvalidRequest`."""
    rows, small = box.status(), pattern.casefold()
    found = [row for row in rows if fnmatchcase(row.name.casefold(), small) or row.category.casefold() == small]
    if not found:
        raise InvalidRequest(f"no tool is called {pattern!r}; the tools are {', '.join(row.name for row in rows)}")
    return found


def _box(chat: Surface) -> ConversationToolbox:
    """Raises: `InvalidRequest` without tools."""
    box = chat.session.toolbox
    if not isinstance(box, ConversationToolbox):
        raise InvalidRequest("this conversation has no tools (--notools)", field="tools")
    return box


# -- permissions ------------------------------------------------------------------------------------------------------


async def permissions(chat: Surface, argument: str) -> None:
    permission = _box(chat).permission
    verb, _, pattern = argument.partition(" ")
    if not argument:
        lines = permission.remembered()
        for line in lines:
            chat.say(line)
        chat.note("/permissions forget PATTERN asks again." if lines else "No answer is stored.")
    elif verb == "forget" and pattern:
        try:
            n = permission.forget(None if pattern.strip() == "all" else pattern.strip())
        except OSError as error:
            raise InvalidRequest(f"it cannot be removed: {error.strerror or error}", field="forget") from error
        chat.note(f"{n} answer{'' if n == 1 else 's'} forgotten.")
    else:
        raise InvalidRequest(
            "write /permissions, /permissions forget PATTERN or /permissions forget all", field="forget"
        )


def permission_words(chat: Surface, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    if not words:
        return [("forget", "ask again")]
    if len(words) > 1 or chat.session.toolbox is None:
        return []
    lines = (line.rpartition(": ") for line in _box(chat).permission.remembered())
    return [("all", "everything"), *((rule, how) for rule, _, how in lines if " " not in rule)]


# -- MCP servers ------------------------------------------------------------------------------------------------------


async def mcp(chat: Surface, argument: str) -> None:
    servers = _servers(chat)
    verb, _, name = argument.partition(" ")
    if verb == "restart" and name:
        await servers.restart(name.strip())
    elif argument:
        raise InvalidRequest("write /mcp, or /mcp restart NAME", field="mcp")
    for each in servers.statuses():
        n_tools = f"{each.n_tools} tool{'s' * (each.n_tools != 1)}" if each.n_tools else ""
        about = ", ".join(filter(None, (n_tools, each.detail)))
        chat.draw([(f"{each.state:<8}", _STATES.get(each.state, "")), (f" {each.name}  ", ""), (about, "dim")])


def server_words(chat: Surface, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    if chat.app.tools.servers is None or len(words) > 1:
        return []
    if not words:
        return [("restart", "stop and start again")]
    return [(each.name, each.state) for each in chat.app.tools.servers.statuses()]


async def prompts(chat: Surface, argument: str) -> None:
    found = await _servers(chat).prompts()
    for each in found:
        gaps = " ".join(gap.name if gap.required else f"[{gap.name}]" for gap in each.arguments)
        chat.draw([(f"{each.server}/{each.name} {gaps}".rstrip(), "cyan"), (f"  {each.description}", "")])
    chat.note("/prompt NAME ARGUMENT=VALUE asks with one." if found else "No server has prompts.")


async def prompt(chat: Surface, argument: str) -> None:
    servers = _servers(chat)
    if not argument:
        raise InvalidRequest("write /prompt NAME; /prompts lists them", field="name")
    try:
        name, *given = shlex.split(argument)
    except ValueError as error:
        raise InvalidRequest(f"the arguments cannot be read: {error}", field="arguments") from error
    found = _find_prompt(name, await servers.prompts())
    values = _fill_arguments(found, given, name)
    parts: list[Attached] = []
    messages = await servers.prompt(found.server, found.name, values)
    for message in messages:
        shown = [part for part in message.parts if isinstance(part, Text | Image | Audio)]
        if any(one.role != "user" for one in messages):  # an example conversation: the roles are part of it
            shown.insert(0, Text(f"{message.role.capitalize()}: "))
        parts += [*shown, Text("\n\n")]
    attachment.check_senses(parts, chat.senses(), chat.facts.model, where=f"a part of {found.name}", field="name")
    text = "".join(part.text for part in parts if isinstance(part, Text)).strip()
    chat.note(text)
    await chat.ask([*(part for part in parts if not isinstance(part, Text)), Text(text)])


def _find_prompt(name: str, known: Sequence[Prompt]) -> Prompt:
    """Raises: `InvalidRequest` when there is none, or more than one."""
    found = [each for each in known if name in {each.name, f"{each.server}/{each.name}"}]
    if len(found) == 1:
        return found[0]
    if found:
        whole = ", ".join(f"{each.server}/{each.name}" for each in found)
        raise InvalidRequest(f"several servers have a prompt {name!r}: {whole}; write one of these names", field="name")
    names = ", ".join(f"{each.server}/{each.name}" for each in known) or "none"
    raise InvalidRequest(f"no server has a prompt {name!r}; the prompts are: {names}", field="name")


def _fill_arguments(prompt: Prompt, given: Sequence[str], name: str) -> Mapping[str, str]:
    """The values by argument, those without a name in order. `name`: as the user wrote it. Raises: `InvalidRequest`."""
    gaps = [gap.name for gap in prompt.arguments]
    values: dict[str, str] = {}
    for word in given:
        gap, equals, value = word.partition("=")
        if not equals or gap not in gaps:
            gap, value = next((each for each in gaps if each not in values), ""), word
        if not gap:
            takes = ", ".join(gaps) or "no arguments"
            raise InvalidRequest(f"{name} takes {takes}; {word!r} is one too many", field="arguments")
        values[gap] = value
    if missing := [gap.name for gap in prompt.arguments if gap.required and gap.name not in values]:
        raise InvalidRequest(
            f"{name} needs {', '.join(missing)}; write /prompt {name} {missing[0]}=...", field=missing[0]
        )
    return values


def prompt_words(chat: Surface, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    if chat.app.tools.servers is None:
        return []
    known = chat.wait_for(chat.app.tools.servers.prompts()) or ()
    if not words:
        return [(each.name, f"{each.server}  {each.description}") for each in known]
    gaps = [gap for each in known if each.name == words[0] for gap in each.arguments]
    return [(f"{gap.name}=", gap.description) for gap in gaps if not any(w.startswith(f"{gap.name}=") for w in words)]


async def resource(chat: Surface, argument: str) -> None:
    servers = _servers(chat)
    if not argument:
        known = await servers.resources()
        for each in known:
            source = f"  {each.server}  {each.name}"
            chat.draw([(each.uri, "cyan"), (source, "dim"), (f"  {each.description}", "")])
        chat.note("/resource URI attaches one to your next message." if known else "No server has resources.")
        return
    server, _, uri = argument.rpartition(" ")
    found = await servers.read(server.strip() or None, uri)
    if not found.success:
        raise InvalidRequest(found.error or found.content, field="uri")
    limit = attachment.BYTES_PER_TOKEN * chat.session.n_ctx
    if len(found.content) > limit:
        raise InvalidRequest(
            f"{uri} has {len(found.content):,} characters, and the context has room for {limit:,}", field="uri"
        )
    chat.attached.append(Text(f"Resource {uri}:\n{attachment.fenced(found.content)}\n\n", aside=True))
    images = " Its images and recordings are not sent." if found.images or found.audio else ""
    chat.note(f"{uri} is attached to your next message: {len(found.content):,} characters.{images}")


def resource_words(chat: Surface, words: tuple[str, ...], last: str) -> Iterable[tuple[str, str]]:
    if chat.app.tools.servers is None:
        return []
    known = chat.wait_for(chat.app.tools.servers.resources()) or ()
    return [(each.uri, f"{each.server}  {each.name}") for each in known]


def _servers(chat: Surface) -> McpServerPool:
    """Raises: `InvalidRequest` when none runs."""
    if not chat.app.tools.wants_tools:
        raise InvalidRequest("--notools starts no MCP server; start the chat without it", field="mcp_servers")
    if chat.app.tools.servers is None:
        raise InvalidRequest("no MCP server is configured; 'shepherd mcp add' adds one", field="mcp_servers")
    return chat.app.tools.servers
