"""The prompts and resources of an `Offer`, and completion of their names, as the MCP server's methods."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from shepherd.core import Audio, Image, Message, ShepherdError, Text
from shepherd.tools.offer import Offer, UnknownResourceError

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server import Server, ServerRequestContext

    from shepherd.core.messages import Part

    Context = ServerRequestContext[Any, Any]

RESOURCE_NOT_FOUND = -32002
"""Of the revisions before 2026-07-28, which has -32602 (SEP-2164)."""


def add_library(server: Server[Any], offer_of: Callable[[Context], Awaitable[Offer]]) -> None:
    """Put the methods into a server; `offer_of` gives what the caller of a request may have."""
    import mcp_types as types  # noqa: PLC0415 - with `mcp.server`, 0.7 s

    async def list_prompts(context: Context, params: types.PaginatedRequestParams) -> types.ListPromptsResult:
        async with _refusing(context):
            found = await (await offer_of(context)).prompts()
        prompts = [
            types.Prompt(
                name=each.name,
                description=each.description or None,
                arguments=[
                    types.PromptArgument(name=one.name, description=one.description or None, required=one.required)
                    for one in each.arguments
                ],
            )
            for each in found
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        async with _refusing(context):
            messages = await (await offer_of(context)).prompt(params.name, params.arguments or {})
        return types.GetPromptResult(messages=[each for message in messages for each in _as_messages(message)])

    async def list_resources(context: Context, params: types.PaginatedRequestParams) -> types.ListResourcesResult:
        async with _refusing(context):
            found = await (await offer_of(context)).resources()
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=each.uri, name=each.name or each.uri, description=each.description or None,
                               mime_type=each.media_type or None)
                for each in found if not each.is_template
            ]
        )  # fmt: skip

    async def list_templates(
        context: Context, params: types.PaginatedRequestParams
    ) -> types.ListResourceTemplatesResult:
        async with _refusing(context):
            found = await (await offer_of(context)).resources()
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(uri_template=each.uri, name=each.name or each.uri,
                                       description=each.description or None, mime_type=each.media_type or None)
                for each in found if each.is_template
            ]
        )  # fmt: skip

    async def read(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        async with _refusing(context, uri):
            found = await (await offer_of(context)).read(uri)
        contents: types.TextResourceContents | types.BlobResourceContents
        if isinstance(found.body, str):
            contents = types.TextResourceContents(uri=uri, text=found.body, mime_type=found.media_type)
        else:
            blob = base64.b64encode(found.body).decode()
            contents = types.BlobResourceContents(uri=uri, blob=blob, mime_type=found.media_type)
        return types.ReadResourceResult(contents=[contents])

    async def complete(context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        values = []
        if isinstance(params.ref, types.ResourceTemplateReference):
            async with _refusing(context):
                offer = await offer_of(context)
                values = [*await offer.complete(params.ref.uri, params.argument.name, params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=values))

    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
    server.add_request_handler("resources/list", types.PaginatedRequestParams, list_resources)
    server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, list_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)


@contextlib.asynccontextmanager
async def _refusing(context: Context, uri: str = "") -> AsyncIterator[None]:
    """Within the block, our errors are those of the protocol."""
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415
    from mcp_types import INVALID_PARAMS  # noqa: PLC0415
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS  # noqa: PLC0415

    try:
        yield
    except UnknownResourceError as error:
        is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        raise MCPError(INVALID_PARAMS if is_modern else RESOURCE_NOT_FOUND, error.message, {"uri": uri}) from error
    except ShepherdError as error:
        raise MCPError(INVALID_PARAMS, error.message) from error


def _as_messages(message: Message) -> list[types.PromptMessage]:
    """One for each part: the protocol's messages have one."""
    import mcp_types as types  # noqa: PLC0415

    role: types.Role = "assistant" if message.role == "assistant" else "user"
    found = (content_of(part) for part in message.parts)
    return [types.PromptMessage(role=role, content=each) for each in found if each is not None]


def content_of(part: Part) -> types.TextContent | types.ImageContent | types.AudioContent | None:
    """A part of a message as the protocol has it; None for what it has no form for, such as the address of an image."""
    import mcp_types as types  # noqa: PLC0415

    match part:
        case Text(text=text):
            return types.TextContent(text=text)
        case Image(data=bytes() as data, media_type=kind):
            return types.ImageContent(data=base64.b64encode(data).decode(), mime_type=kind or "image/png")
        case Audio(data=data, media_type=kind):
            return types.AudioContent(data=base64.b64encode(data).decode(), mime_type=kind)
        case _:
            return None
