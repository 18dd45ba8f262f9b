"""A conversation as a file: Markdown and HTML for people, JSON and JSON Lines for programs."""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shepherd.agent.attachment import fenced
from shepherd.core import (
    Audio,
    BadCall,
    Document,
    Image,
    InvalidRequest,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from shepherd.process.files import replace_private

Render = Callable[[Sequence[Message], str | None, str], str]


def save(
    name: str, messages: Sequence[Message], *, system: str | None, model: str, form: str = "", overwrite: bool = False
) -> Path:
    """Write a file in the format `form`, or else of the end of `name`; its path. Raises: `InvalidRequest`;
    `FileExistsError` for an existing one, unless it may `overwrite` it."""
    path = Path(name).expanduser()
    suffix = form or path.suffix.lower().removeprefix(".") or "md"
    if suffix not in FORMATS:
        raise InvalidRequest(
            f"{suffix!r} is not a format of a transcript; the formats are {', '.join(FORMATS)}", field="form"
        )
    content = FORMATS[suffix](messages, system, model).encode("utf-8", "replace")
    try:
        # Conversations are private: only the owner may read the file.
        if overwrite:
            replace_private(path, content)
        else:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
    except FileExistsError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InvalidRequest(f"{name} cannot be written: {reason or error}", field="file") from error
    return path


def to_json(messages: Sequence[Message], system: str | None, model: str) -> str:
    """`{"model", "system", "messages": [{"role", "parts": [{"type", ...}]}]}`."""
    document = {"model": model, "system": system, "messages": [_message_json(message) for message in messages]}
    return _json(document, indent=2)


def to_json_lines(messages: Sequence[Message], system: str | None, model: str) -> str:
    """One message per line, the system prompt first; the parts as in `to_json`."""
    prompt = [Message.system(system)] if system else []
    return "".join(_json(_message_json(message)) for message in (*prompt, *messages))


def to_markdown(messages: Sequence[Message], system: str | None, model: str) -> str:
    """One heading per message; reasoning as a quotation."""
    pieces = [f"# Conversation with {model}"]
    for heading, blocks in _sections(messages, system):
        pieces += [f"## {heading}", *blocks]
    return "\n\n".join(piece.strip("\n") for piece in pieces) + "\n"


def to_html(messages: Sequence[Message], system: str | None, model: str) -> str:
    """One page without scripts and without any other file."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - few conversations become a page

    # A model may name images on other servers, which would learn who opens the page.
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["strikethrough", "table"])
    markdown.disable("image")
    title = html.escape(f"Conversation with {model}")
    sections = "".join(
        f"<section class={heading.lower()}>\n<h2>{heading}</h2>\n{''.join(map(markdown.render, blocks))}</section>\n"
        for heading, blocks in _sections(messages, system)
    )
    return (
        f'<!DOCTYPE html>\n<html lang="">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>\n{_STYLE}</style>\n<h1>{title}</h1>\n{sections}</html>\n"
    )


FORMATS: Mapping[str, Render] = {"md": to_markdown, "json": to_json, "jsonl": to_json_lines, "html": to_html}

_STYLE = """\
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46em; margin: 2em auto; padding: 0 1em }
h2 { font-size: 1em; margin: 2em 0 .5em; opacity: .6 }
.user { border-left: 3px solid #4a8; padding-left: 1em }
blockquote { opacity: .7; font-style: italic; margin: 0; padding-left: 1em; border-left: 3px solid #8888 }
pre { overflow-x: auto; padding: .7em; background: #8882 }
table { border-collapse: collapse } td, th { border: 1px solid #8888; padding: .2em .6em }
"""


def _sections(messages: Sequence[Message], system: str | None) -> Iterator[tuple[str, list[str]]]:
    """Heading and blocks of Markdown, the system prompt first."""
    if system:
        yield "System", [system]
    for message in messages:
        yield message.role.capitalize(), [block for part in message.parts for block in _blocks(part)]


def _blocks(part: Part) -> Iterator[str]:
    match part:
        case Text(text=text):
            yield text
        case Reasoning(text=text):
            yield "\n".join(f"> {line}".rstrip() for line in text.splitlines())
        case ToolCall(name=name, arguments=arguments):
            yield fenced(f'{json.dumps({"call": name})[:-1]}, "arguments": {arguments}}}', "json")
        case ToolResult(parts=parts):
            for piece in parts:
                yield fenced(piece.text) if isinstance(piece, Text) else _picture(piece)
        case Image() | Audio():
            yield _picture(part)
        case BadCall(raw=raw):
            yield fenced(raw)
        case Document(note=note):
            yield note
        case Opaque(parts=parts):
            for inner in parts:
                yield from _blocks(inner)


def _picture(image: Image | Audio) -> str:
    if isinstance(image, Audio):
        return f"[{image.media_type}, {len(image.data)} bytes]"
    return f"![image]({image.url})" if image.url else f"[{image.media_type or 'image'}, {len(image.data or b'')} bytes]"


def _message_json(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [{"type": type(part).__name__, **asdict(part)} for part in message.parts]}


def _json(document: Any, indent: int | None = None) -> str:
    """JSON, with bytes as base64."""

    def encode(raw: bytes) -> str:
        return base64.b64encode(raw).decode("ascii")

    return json.dumps(document, ensure_ascii=False, indent=indent, default=encode) + "\n"
