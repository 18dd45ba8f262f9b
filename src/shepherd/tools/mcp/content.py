"""The answers of servers as our values: results, resources, messages. What is left out gets a note."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import mcp_types as types

from shepherd.core import Audio, Image, Message, Text
from shepherd.core.encoding import read_base64
from shepherd.media.sound import find_type
from shepherd.tools.base import Result
from shepherd.tools.mcp.values import Prompt, PromptArgument, Resource, ServerTool

DESCRIPTION_CHARS = 1024
"""Of a tool: the limit of OpenAI's API."""
COMPARED_CHARS = 10**6
ERROR_CHARS = 300


def as_tool(tool: types.Tool) -> ServerTool:
    description = tool.description or tool.title or ""
    if len(description) > DESCRIPTION_CHARS:
        description = description[: DESCRIPTION_CHARS - 1] + "…"
    notes = tool.annotations or types.ToolAnnotations()
    # Only explicit hints count: by the protocol's default, an open world, every tool would call other machines.
    effect: Any = "net" if notes.open_world_hint else "read" if notes.read_only_hint else "write"
    whole = json.dumps(tool.model_dump(mode="json", exclude={"icons", "meta"}), sort_keys=True)
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    return ServerTool(tool.name, description, tool.input_schema, effect, digest)


def as_resource(server: str, found: types.Resource | types.ResourceTemplate) -> Resource:
    is_template = isinstance(found, types.ResourceTemplate)
    uri = found.uri_template if isinstance(found, types.ResourceTemplate) else str(found.uri)
    name, kind = found.title or found.name, found.mime_type or ""
    return Resource(server, uri, name, kind, found.description or "", is_template)


def as_prompt(server: str, found: types.Prompt) -> Prompt:
    arguments = (
        PromptArgument(each.name, each.description or "", bool(each.required)) for each in found.arguments or ()
    )
    return Prompt(server, found.name, found.description or found.title or "", tuple(arguments))


# -- results ----------------------------------------------------------------------------------------------------------


def as_result(server: str, answer: types.CallToolResult) -> Result:
    """All items of an answer; one with `isError` is a failure."""
    texts, media = read_blocks(server, answer.content)
    images = tuple(part for part in media if isinstance(part, Image))
    audio = tuple(part for part in media if isinstance(part, Audio))
    structured = answer.structured_content
    if structured is not None and not any(says(text, structured) for text in texts):
        texts.append(json.dumps(structured, ensure_ascii=False))
    content = "\n".join(texts)
    if not answer.is_error:
        return Result(content, images=images, audio=audio)
    reason = content.strip() or "the server reports that the call failed, without a reason"
    return Result(content, success=False, error=reason[:ERROR_CHARS], images=images, audio=audio)


def says(text: str, structured: Any) -> bool:
    """Whether a text is the same as JSON: servers should send both. SDKs wrap values in an object with one key."""
    is_wrapped = isinstance(structured, dict) and len(structured) == 1
    inner = next(iter(structured.values())) if is_wrapped else structured
    if text == inner:
        return True
    if len(text) > COMPARED_CHARS:
        return False
    try:
        return json.loads(text) in (structured, inner)
    except (ValueError, RecursionError):
        return False


def read_contents(found: types.TextResourceContents | types.BlobResourceContents, *, is_alone: bool) -> str:
    if isinstance(found, types.TextResourceContents):
        return found.text if is_alone else f"[{found.uri}]\n{found.text}"
    kind = found.mime_type or "of an unknown type"
    return f"[{found.uri}: binary data, {kind}, {size(found.blob)}, not shown]"


def read_blocks(server: str, blocks: Iterable[Any]) -> tuple[list[str], tuple[Image | Audio, ...]]:
    """Texts, with a note where something else stood; and the images and recordings."""
    texts: list[str] = []
    media: list[Image | Audio] = []
    for block in blocks:
        match block:
            case types.TextContent():
                texts.append(block.text)
            case types.ImageContent():
                texts.append(f"[image, {block.mime_type}, {size(block.data)}]")
                with contextlib.suppress(ValueError):
                    media.append(Image(block.mime_type, read_base64(block.data)))
            case types.AudioContent():
                texts.append(f"[audio, {block.mime_type}, {size(block.data)}]")
                with contextlib.suppress(ValueError):
                    content = read_base64(block.data)
                    media.append(Audio(find_type(content) or block.mime_type, content))
            case types.ResourceLink():
                about = ", ".join(filter(None, (block.title or block.name, block.mime_type, block.description)))
                texts.append(f'[{about}: read_resource(uri="{block.uri}", server="{server}") reads it]')
            case types.EmbeddedResource():
                texts.append(read_contents(block.resource, is_alone=False))
            case _:
                texts.append(f"[something of the type {getattr(block, 'type', '?')!r}, not shown]")
    return texts, tuple(media)


def size(text: str) -> str:
    """Of data in base64, for people."""
    n_bytes = len(text) * 3 // 4 - text[-2:].count("=")
    return f"{n_bytes} bytes" if n_bytes < 10_000 else f"{n_bytes / 1000:.0f} kB"


def as_message(server: str, role: types.Role, blocks: Sequence[Any]) -> Message:
    """The blocks in their order; an image and a recording stand for themselves."""
    parts: list[Text | Image | Audio] = []
    for block in blocks:
        texts, media = read_blocks(server, [block])
        parts += media or map(Text, texts)
    return Message("assistant" if role == "assistant" else "user", tuple(parts))
