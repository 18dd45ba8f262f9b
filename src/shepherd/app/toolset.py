"""The tools of conversations: what they may touch, the MCP servers, and the folder where conversations are saved.

    [tools] [[mcp_servers]] [chat] ─▶ Toolset ─ box(...) ─▶ ConversationToolbox, for one conversation
                                        │
                       Registry ◀─ ours, packages', files', MCP servers', other models

Modules of tools are imported when a tool is needed: a script that asks one question does not wait for them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from shepherd.config import ENVIRONMENT, Config
from shepherd.core import Assembler, ConfigError, Event, InvalidRequest, Message, Request
from shepherd.memory.location import unusual_path
from shepherd.memory.users import LOCAL

if TYPE_CHECKING:
    from shepherd.agent.storage import ConversationStore
    from shepherd.memory.store import MemoryStore
    from shepherd.tools.base import Person
    from shepherd.tools.mcp.servers import McpServerPool
    from shepherd.tools.offer import Offer
    from shepherd.tools.permission import Permission
    from shepherd.tools.registry import Registry
    from shepherd.tools.sandbox.journal import FileJournal
    from shepherd.tools.tool import AskableModel, SearchLeft, Tool, ToolContext
    from shepherd.tools.toolbox import ConversationToolbox

logger = logging.getLogger(__name__)

Stream = Callable[[Request], AsyncGenerator[Event, None]]

MCP, MODELS = "mcp", "models"
"""Groups of the registry that come with the configuration."""
AGENT_CTX = 32_768
"""Tokens of context that another agent, or an unknown model, is assumed to have: results are shortened to fit."""
OPEN_TOOLS = ("memory", "chat")
"""HTTP offers the same by other paths: these tools need no permission of their own."""
TINY_TOOLS = (
    "list_directory", "read_file", "search_memory", "get_fact", "set_fact", "search_files", "write_file", "edit_file",
    "delete_file", "clear_fact",
)  # fmt: skip
"""Of Shepherd's own tools, those that the embedded model gets and is trained to call (training/conversations.py); the
first ones where the window is small."""
TINY_SHARE = 3
"""One part in so many of its window may be their descriptions: a window of 4,096 tokens has room for all."""
CHARS_PER_TOKEN = 4
"""Where no model can count."""


class Toolset:
    """One per program. One event loop."""

    def __init__(self, config: Config, *, env: Mapping[str, str], models: Advisors) -> None:
        """Raises: `ConfigError` for unknown names of tools, and for folders that do not exist."""
        self._config = config
        self._env = env
        self._models = models
        self.servers: McpServerPool | None = None
        """The MCP servers; None = none are configured, or nothing has been started."""
        tools = config.tools
        if tools.enabled or tools.disabled or tools.allow or tools.ask or tools.deny:
            self._check_names()
        for folder in tools.roots or ():
            if not Path(folder).is_dir():
                raise ConfigError(
                    f"{folder} is not a folder; create it, or name the folders that file tools may touch",
                    key="tools.roots",
                )

    @cached_property
    def registry(self) -> Registry:
        """All tools; those of MCP servers come and go."""
        from shepherd.tools.builtin import ask_model  # noqa: PLC0415
        from shepherd.tools.registry import Registry  # noqa: PLC0415

        found = Registry.found(self._config.tools.files)
        if len(self._models.advisors()) > 1:
            found.add(*ask_model.tools(self._models), group=MODELS)
        return found

    @property
    def wants_tools(self) -> bool:
        """Whether there can be any tools: not with `--notools`."""
        return self._config.tools.enabled != ()

    @property
    def names_tools(self) -> bool:
        """Whether the configuration names some, which one answer then has, too."""
        return bool(self._config.tools.enabled or self._config.tools.allow)

    def start(self, person: Person | None = None) -> None:
        """Start the MCP servers without waiting for them. `person`: answers their questions; they learn so now."""
        is_wanted = self.wants_tools and any(each.enabled for each in self._config.mcp_servers)
        if self.servers is not None or not is_wanted:
            return
        from shepherd.tools.mcp.servers import McpServerPool  # noqa: PLC0415
        from shepherd.tools.mcp.values import ServerOptions  # noqa: PLC0415

        self.servers = McpServerPool(
            [ServerOptions.of(each) for each in self._config.mcp_servers],
            env=self._env,
            roots=self.folders,
            answer=self._models.answer,
            person=person,
            on_tools=self._take_over,
        )
        self.servers.start()

    async def ready(self, *, all_of_them: bool = False) -> None:
        """Wait a moment for the MCP servers, or for `all_of_them`: their tools stand at the head of every prompt."""
        if self.servers is not None:
            await (self.servers.ready(None) if all_of_them else self.servers.ready())
            self._take_over()

    async def aclose(self) -> None:
        """Stop the MCP servers and all processes that they have started."""
        if self.servers is not None:
            servers, self.servers = self.servers, None
            await servers.close()

    @property
    def folders(self) -> tuple[str, ...]:
        return self._config.tools.roots or (str(Path.cwd()),)

    def saves(self, below: str = "") -> ConversationStore | None:
        """Where conversations are saved, or in a folder `below` it; None = they are not."""
        if not self._config.chat.save:
            return None
        from shepherd.agent.storage import ConversationStore  # noqa: PLC0415

        folder = self._config.chat.folder
        at = Path(folder) if folder else _data_folder() / "conversations"
        return ConversationStore(at / below, self._config.chat.keep)

    def journal(self) -> FileJournal:
        """What keeps the former contents of files that a conversation changes: beside the saved conversations, or only
        for this program where none are saved."""
        from shepherd.tools.sandbox.journal import FileJournal  # noqa: PLC0415

        saves = self.saves()
        return FileJournal(saves.folder / "changed-files" if saves else None, self.folders)

    def offer(
        self, *, user: str | None, store: MemoryStore | None, everything: bool, allow: Sequence[str] = ()
    ) -> Offer:
        """What other agents get: the memory and `chat` with any of our models; or `everything` enabled."""
        from shepherd.tools.builtin.ask_model import chat_tool  # noqa: PLC0415
        from shepherd.tools.offer import Offer  # noqa: PLC0415

        box = self.box(
            n_ctx=AGENT_CTX,
            user=user,
            store=store,
            allow=(*OPEN_TOOLS, *allow),
            only=None if everything else OPEN_TOOLS,
            extra=[chat_tool(self._models)] if self._models.advisors() else [],
        )
        return Offer(box, store, self.servers if everything else None)

    def box(
        self,
        *,
        n_ctx: int,
        count: Callable[[str], int] | None = None,
        user: str | None = None,
        store: MemoryStore | None = None,
        person: Person | None = None,
        only: Sequence[str] | None = None,
        allow: Sequence[str] = (),
        extra: Sequence[Tool] = (),
        search_left: SearchLeft | None = None,
        is_tiny: bool = False,
        journal: FileJournal | None = None,
    ) -> ConversationToolbox:
        """The tools of one conversation.

        `count`: tokens of a text, as its model counts them. `only`: patterns of the tools that may be offered. `allow`:
        patterns of calls that need no consent, besides the configuration's. `extra`: tools of this conversation alone.
        `search_left`: as in `ToolContext`. `is_tiny`: its model is too small to be relied on. It gets `TINY_TOOLS` and
        those that the user has added, unless the configuration names others, and a person is asked before each write.
        `journal`: hears of each change of a file.
        """
        from shepherd.tools import selection  # noqa: PLC0415
        from shepherd.tools.toolbox import ConversationToolbox  # noqa: PLC0415

        tools, measure = self._config.tools, count or (lambda text: len(text) // CHARS_PER_TOKEN)
        share = TINY_SHARE if is_tiny else selection.ROOM_SHARE
        # The extra tools are always enabled.
        enabled = tools.enabled and (*tools.enabled, *(each.name for each in extra))
        # Allowed tools come first where there is little room: the user has chosen them.
        allowed = [word.partition("(")[0] for word in tools.allow]

        def choose(known: Sequence[Tool]) -> Mapping[str, str]:
            off = selection.reasons_off(
                sorted(known, key=lambda tool: not selection.matches(tool, allowed)),
                enabled=enabled,
                disabled=tools.disabled,
                n_ctx=n_ctx,
                cost=lambda spec: selection.cost(spec, measure),
                lacking=self._lacking(store, search_left),
                own=(*TINY_TOOLS, *allowed) if is_tiny else None,
                share=share,
            )
            if only is not None:
                off |= {tool.name: selection.NOT_ENABLED for tool in known if not selection.matches(tool, only)}
            return off

        return ConversationToolbox(
            lambda: [*extra, *self.registry.tools()],
            context=replace(self._context(user, store, measure, journal), search_left=search_left),
            permission=self._permission(person, allow, asks_writes=is_tiny),
            n_ctx=n_ctx,
            choose=choose,
            share=share,
            result_tokens=tools.result_tokens,
            timeout_s=tools.timeout_s,
        )

    def _context(
        self, user: str | None, store: MemoryStore | None, count: Callable[[str], int], journal: FileJournal | None
    ) -> ToolContext:
        from shepherd.tools.sandbox.network import NetworkPolicy  # noqa: PLC0415
        from shepherd.tools.sandbox.roots import Roots  # noqa: PLC0415
        from shepherd.tools.tool import CommandOptions, ToolContext  # noqa: PLC0415

        tools = self._config.tools
        return ToolContext(
            user=user,
            count=count,
            roots=Roots.of(self.folders, journal=journal),
            reach=NetworkPolicy(tools.http.allow_private, tools.http.allow_hosts, tools.http.max_bytes),
            commands=CommandOptions(tools.command.max_bytes, tools.command.keep_env, tools.command.allow_sudo),
            memory=store,
            servers=self.servers,
            models=self._models,
            secrets=tuple(self._secrets()),
        )

    def _permission(self, person: Person | None, allow: Sequence[str], *, asks_writes: bool) -> Permission:
        from shepherd.tools.permission import ConsentStore, Permission  # noqa: PLC0415

        tools = self._config.tools
        try:
            return Permission(
                allow=(*tools.allow, *allow),
                ask=tools.ask,
                deny=tools.deny,
                enabled=(*(tools.enabled or ()), *self.registry.given()),
                read_only=tools.read_only,
                dry_run=tools.dry_run,
                person=person,
                answers=ConsentStore(_data_folder() / "permissions.json"),
                own=tuple(self._own_files()),
                asks_writes=asks_writes,
            )
        except InvalidRequest as error:
            raise ConfigError(error.message, key="tools") from error

    def _own_files(self) -> Iterable[str]:
        """Files and folders that decide what Shepherd does, or what it remembers."""
        for folder in (platformdirs.user_config_dir, platformdirs.user_state_dir, platformdirs.user_data_dir):
            yield folder("shepherd")
        memory = unusual_path(self._config.memory.database_path, self._env)
        yield from (str(memory), str(memory.with_name(f"{memory.stem}-users"))) if memory else ()
        yield from self._config.tools.files
        yield from (str(each.file) for each in self._config.sources if each.file)

    def _secrets(self) -> Iterable[str]:
        yield from (name for name, key in ENVIRONMENT.items() if "api_key" in key)
        yield from (each.api_key_env for each in self._config.providers if each.api_key_env)
        yield from (each.key_env for each in self._config.server.keys or () if each.key_env)

    def _lacking(self, store: MemoryStore | None, search_left: SearchLeft | None) -> dict[str, str]:
        """Tools that cannot be used here, and why."""
        lacking = {} if self.servers is not None else dict.fromkeys(_OF_SERVERS, "no MCP server is configured")
        if store is not None:
            return lacking
        # What has left its own conversation can be searched without a memory.
        needs = ("memory",) if search_left is None else ("*_fact", "store_memory", "clear_memory")
        return lacking | dict.fromkeys(needs, "there is no memory")

    def _take_over(self) -> None:
        if self.servers is not None:
            self.registry.replace(MCP, self.servers.tools())

    def _check_names(self) -> None:
        """Raises: `ConfigError` for an unknown name: a typing error in `disabled` would leave a tool enabled (C21)."""
        from shepherd.tools import selection  # noqa: PLC0415
        from shepherd.tools.builtin.ask_model import chat_tool  # noqa: PLC0415

        config, tools = self._config, [*self.registry.tools(), chat_tool(self._models)]
        servers = [each.name for each in config.mcp_servers]
        for key in ("enabled", "disabled", "allow", "ask", "deny"):
            names = [word.partition("(")[0] for word in getattr(config.tools, key) or ()]
            for word in selection.unknown(names, tools, servers=servers):
                known = ", ".join(sorted({tool.category for tool in tools}))
                if any(mark in word for mark in "*?["):
                    logger.warning("tools.%s: %r means no tool that there is", key, word)
                    continue
                raise ConfigError(
                    f"there is no tool or category {word!r}; categories are {known}; shepherd tools lists all tools",
                    key=f"tools.{key}",
                )


class Advisors:
    """The models of the configuration, one question at a time; satisfies `ask_model.Models`."""

    def __init__(self, names: Sequence[tuple[str, bool]], stream: Stream) -> None:
        """`names`: and whether prompts stay on this machine; the default model first."""
        self._names = names
        self._stream = stream

    def advisors(self) -> Sequence[AskableModel]:
        from shepherd.tools.tool import AskableModel  # noqa: PLC0415

        return [AskableModel(name, is_local=is_local) for name, is_local in self._names]

    async def ask(self, name: str, prompt: str, *, user: str | None, system: str | None = None, max_tokens: int) -> str:
        return await self._reply(name, [Message.user(prompt)], system, max_tokens, "" if user == LOCAL else user or "")

    async def answer(self, messages: Sequence[Message], system: str | None, max_tokens: int | None) -> str:
        """The default model's answer to a conversation, such as that of an MCP server which asks it (sampling).

        Raises: as `Backend.stream`.
        """
        return await self._reply(self._names[0][0], messages, system, max_tokens)

    async def _reply(
        self, name: str, messages: Sequence[Message], system: str | None, max_tokens: int | None, owner: str = ""
    ) -> str:
        prompt = (*([Message.system(system)] if system else ()), *messages)
        assembler = Assembler()
        async with aclosing(self._stream(Request(name, prompt, max_tokens=max_tokens, owner=owner))) as events:
            async for event in events:
                assembler.feed(event)
        return assembler.reply().message.text


_OF_SERVERS = ("list_resources", "read_resource", "call_mcp_tool")


def _data_folder() -> Path:
    return Path(platformdirs.user_data_dir("shepherd"))
