"""The requests of a server to us: for values of the user (elicitation), an answer of the model (sampling), our folders.

Nothing is answered without consent, and while a person decides, no request to that server times out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import mcp_types as types

from shepherd.core import Audio, Image, Message, Part, ShepherdError, Text
from shepherd.core.dataclasses import dataclass
from shepherd.tools.base import Form, Person
from shepherd.tools.mcp.content import as_message
from shepherd.tools.mcp.values import AskModel

logger = logging.getLogger(__name__)

SHOWN_CHARS = 1_500
"""Of a server's question to the model, shown to the person."""
MOST_TOKENS = 4096
"""Of an answer to a server."""
REJECTED = -1
"""The protocol's code for the refusal of a user."""


@dataclass(frozen=True, slots=True)
class ServerRequestHandler:
    server: str
    person: Callable[[], Person | None]
    """Called for each request: the person changes with the conversation."""
    answer: AskModel | None
    """None = servers may not ask the model."""
    roots: Sequence[str]
    off_the_clock: Callable[[], AbstractContextManager[None]]
    """Requests do not time out in this block."""

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Values from the user; `decline` without a user, or if the user refuses."""
        person = self.person()
        if person is None:
            return types.ElicitResult(action="decline")
        if isinstance(params, types.ElicitRequestURLParams):
            form = Form(self.server, params.message, url=params.url)
        else:
            form = Form(self.server, params.message, fields=params.requested_schema)
        with self.off_the_clock():
            values = await person.fill(form)
        if values is None:
            return types.ElicitResult(action="decline")
        if form.url:
            return types.ElicitResult(action="accept")
        known = form.fields.get("properties")
        content = {key: value for key, value in values.items() if not isinstance(known, Mapping) or key in known}
        return types.ElicitResult(action="accept", content=content)

    async def sample(
        self, context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Our model's answer, if the user agrees."""
        person = self.person()
        if person is None or self.answer is None:
            return refusal("no user is present to allow a question to the model")
        if params.tools:
            return refusal("questions to the model cannot use tools")
        messages = [as_message(self.server, each.role, each.content_as_list) for each in params.messages]
        limit = max(1, min(params.max_tokens, MOST_TOKENS))
        with self.off_the_clock():
            if await person.fill(Form(self.server, describe(messages, params.system_prompt, limit))) is None:
                return refusal("the user refused")
            try:
                text = await self.answer(messages, params.system_prompt, limit)
            except ShepherdError as error:
                return types.ErrorData(code=types.INTERNAL_ERROR, message=error.message)
        content = types.TextContent(type="text", text=text)
        return types.CreateMessageResult(role="assistant", content=content, model="shepherd", stop_reason="endTurn")

    async def list_roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate({"roots": [as_root(folder) for folder in self.roots]})


def as_root(folder: str) -> dict[str, str]:
    path = Path(folder).absolute()
    return {"uri": path.as_uri(), "name": path.name or folder}


def describe(messages: Sequence[Message], system: str | None, limit: int) -> str:
    text = "\n".join(f"{each.role}: {''.join(map(format_part, each.parts))}" for each in messages)
    text = f"system: {system}\n{text}" if system else text
    if len(text) > SHOWN_CHARS:
        half = SHOWN_CHARS // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} more characters …\n{text[-half:]}"
    return f"The server wants to ask the model this, for an answer of at most {limit} tokens:\n{text}"


def format_part(part: Part) -> str:
    if isinstance(part, Image | Audio):
        word = "image" if isinstance(part, Image) else "audio"
        return f"[{word}, {part.media_type}, {len(part.data or b''):,} bytes]"
    return part.text if isinstance(part, Text) else ""


def refusal(reason: str) -> types.ErrorData:
    return types.ErrorData(code=REJECTED, message=reason)
