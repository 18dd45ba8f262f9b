"""What another agent gets from us (MCP): the tools of a conversation, and resources and prompts beside them.

    memory://facts/{key}                             the value of a fact
    memory://conversations/{conversation}{?after}    a conversation as text, from the message number `after` on
    all others                                       resources of the user's own MCP servers, at their own addresses

    recall(question)                                 a prompt: the question, with what the memory has about it
    files_review, ...                                prompts of the user's own MCP servers

A resource needs the permission of the tool that shows the same: `get_fact`, `search_memory`, `read_resource`. Where
that tool is not offered, there is no resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote, urlsplit

from shepherd.core import Message
from shepherd.core.dataclasses import dataclass, replace
from shepherd.process.pools import in_pool
from shepherd.tools.base import ToolError
from shepherd.tools.mcp.servers import sanitised
from shepherd.tools.mcp.values import Prompt, PromptArgument, Resource

if TYPE_CHECKING:
    from shepherd.memory.store import MemoryStore
    from shepherd.tools.mcp.servers import McpServerPool
    from shepherd.tools.toolbox import ConversationToolbox

FACTS, CONVERSATIONS = "memory://facts/", "memory://conversations/"
TEMPLATES = {
    "get_fact": Resource("", f"{FACTS}{{key}}", "fact", "text/plain", "The value of a fact.", is_template=True),
    "search_memory": Resource(
        "", f"{CONVERSATIONS}{{conversation}}{{?after}}", "conversation", "text/plain",
        "An earlier conversation. `conversation`: its uuid, or the beginning of it. `after`: the number of the message "
        "to read on from.", is_template=True,
    ),
}  # fmt: skip
"""By the tool that shows the same."""
RECALL = Prompt(
    "", "recall", "Ask with what earlier conversations say about the question.",
    (PromptArgument("question", "What to search for.", required=True),),
)  # fmt: skip
MOST_LISTED = 100
"""Of each kind, the newest; completion and the templates reach the others."""
PAGE_MESSAGES, PAGE_CHARS = 200, 100_000
"""Of a conversation, at once."""
MOST_COMPLETIONS = 100
"""The protocol's limit."""


class UnknownResourceError(ToolError):
    """There is nothing at an address."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Of a resource."""

    body: str | bytes
    media_type: str = "text/plain"


@dataclass(frozen=True, slots=True)
class Offer:
    """For one user. One event loop. All methods raise `ToolError`."""

    toolbox: ConversationToolbox
    store: MemoryStore | None = None
    servers: McpServerPool | None = None
    """Those whose resources and prompts are passed on."""

    # -- resources --------------------------------------------------------------------------------------------------

    async def resources(self) -> Sequence[Resource]:
        """The newest ones, and all templates."""
        offered = self._offered()
        found = [template for tool, template in TEMPLATES.items() if self.store is not None and tool in offered]
        if self.store is not None:
            found += await in_pool("memory", _listed, self.store, offered)
        if self.servers is not None and "read_resource" in offered:
            found += await self.servers.resources()
        return found

    async def read(self, uri: str) -> Contents:
        """Raises: `UnknownResourceError`, and what the permission raises."""
        tool, name = ("get_fact", "key") if uri.startswith(FACTS) else ("search_memory", "query")
        if not uri.startswith((FACTS, CONVERSATIONS)):
            return Contents(await self._read_of_server(uri))
        if self.store is None or tool not in self._offered():
            raise _unknown(uri)
        parts = urlsplit(uri)
        wanted = unquote(parts.path[1:])
        await self._check(tool, {name: wanted})
        if tool == "get_fact":
            if (fact := await in_pool("memory", self.store.get_fact, wanted)) is None:
                raise _unknown(uri)
            return Contents(fact.value)
        after = parse_qs(parts.query).get("after", ["-1"])[0]
        if not after.removeprefix("-").isdecimal():
            raise _unknown(uri)
        return Contents(await in_pool("memory", _conversation, self.store, wanted, int(after)))

    async def _read_of_server(self, uri: str) -> str:
        listed = (
            () if self.servers is None or "read_resource" not in self._offered() else await self.servers.resources()
        )
        fitting = sorted((each for each in listed if each.fits(uri)), key=lambda each: each.is_template)
        if self.servers is None or not fitting:
            raise _unknown(uri)
        await self._check("read_resource", {"uri": uri, "server": fitting[0].server})
        return (await self.servers.read(fitting[0].server, uri)).content

    async def _check(self, tool: str, arguments: Mapping[str, str]) -> None:
        await self.toolbox.permission.check(self.toolbox.get_known(tool), arguments, None)

    def _offered(self) -> set[str]:
        return {tool.name for tool in self.toolbox.tools}

    # -- prompts ----------------------------------------------------------------------------------------------------

    async def prompts(self) -> Sequence[Prompt]:
        """By our names."""
        own = [RECALL] if self.store is not None and "search_memory" in self._offered() else []
        return [
            *own,
            *(replace(each, server="", name=name) for name, each in (await self._prompts_of_servers()).items()),
        ]

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> Sequence[Message]:
        """The messages of a prompt with its arguments filled in."""
        own = RECALL if name == RECALL.name and self.store is not None and "search_memory" in self._offered() else None
        theirs = {} if own else await self._prompts_of_servers()
        found = own or theirs.get(name)
        if found is None:
            names = ", ".join(each.name for each in await self.prompts())
            raise ToolError(f"there is no prompt {name[:80]!r}; there are: {names or 'none'}")
        missing = [each.name for each in found.arguments if each.required and each.name not in arguments]
        if missing:
            raise ToolError(f"the prompt {name} needs {', '.join(missing)}")
        if found is own:
            question = arguments["question"]
            await self._check("search_memory", {"query": question})
            assert self.store is not None
            return [Message.user(await in_pool("memory", _recalled, self.store, question))]
        assert self.servers is not None
        return await self.servers.prompt(found.server, found.name, arguments)

    async def _prompts_of_servers(self) -> dict[str, Prompt]:
        """By our names."""
        theirs = await self.servers.prompts() if self.servers is not None else ()
        return {sanitised(each.server, each.name): each for each in theirs}

    # -- completion -------------------------------------------------------------------------------------------------

    async def complete(self, template: str, argument: str, begun: str) -> Sequence[str]:
        """The values of a variable of one of our templates that begin so; for conversations also by their titles."""
        offered = self._offered()
        if self.store is None or not any(each.uri == template and tool in offered for tool, each in TEMPLATES.items()):
            return []
        if argument not in {"key", "conversation"}:
            return []
        found = await in_pool("memory", _keys if argument == "key" else _uuids, self.store, begun.casefold())
        return found[:MOST_COMPLETIONS]


def _unknown(uri: str) -> UnknownResourceError:
    return UnknownResourceError(f"there is no resource {uri[:200]!r}; resources/list names those that there are")


# -- on the thread of a reader ----------------------------------------------------------------------------------------


def _listed(store: MemoryStore, offered: set[str]) -> list[Resource]:
    facts = store.facts()[-MOST_LISTED:] if "get_fact" in offered else ()
    found = [Resource("", f"{FACTS}{quote(each.key, safe='')}", each.key, "text/plain") for each in facts if each.key]
    for each in store.conversations(MOST_LISTED) if "search_memory" in offered else ():
        title = each.title or f"conversation {each.uuid[:8]}"
        about = f"{each.n_messages} messages" + (f", with {each.model}" if each.model else "")
        found.append(Resource("", f"{CONVERSATIONS}{each.uuid}", title, "text/plain", about))
    return found


def _conversation(store: MemoryStore, name: str, after: int) -> str:
    """Its messages after that one; the last line names the address of what follows."""
    if (found := store.conversation(name)) is None:
        raise _unknown(f"{CONVERSATIONS}{name}")
    texts: list[str] = []
    left = PAGE_CHARS
    messages = store.messages(found.uuid, after_seq=after, limit=PAGE_MESSAGES + 1, shared=True)
    for n, each in enumerate(messages):
        if n == PAGE_MESSAGES or left < 0:
            texts.append(f"[more: {CONVERSATIONS}{found.uuid}?after={messages[n - 1].seq}]")
            break
        texts.append(f"{each.role}: {each.body}")
        left -= len(texts[-1])
    return "\n\n".join(texts)


def _recalled(store: MemoryStore, question: str) -> str:
    from shepherd.memory.search.search import as_text  # noqa: PLC0415 - what an agent without a memory need not load

    return f"{question}\n\nThe memory has this about it:\n\n{as_text(store.search(question), question)}"


def _keys(store: MemoryStore, begun: str) -> list[str]:
    return [each.key for each in store.facts() if each.key and each.key.casefold().startswith(begun)]


def _uuids(store: MemoryStore, begun: str) -> list[str]:
    return [each.uuid for each in store.conversations()
            if each.uuid.startswith(begun) or (begun and begun in each.title.casefold())]  # fmt: skip
