"""A conversation as a file: Markdown to read, JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from shepherd.core import Image, Message, Reasoning, Text, ToolCall, ToolResult


def save(name: str, messages: Sequence[Message], *, system: str | None, model: str) -> Path:
    """Write a new file and return its path; `.json` at the end of `name` chooses the form.

    Raises: `FileExistsError`: nothing is ever overwritten; other `OSError`s.
    """
    path = Path(name).expanduser()
    text = to_json if path.suffix.lower() == ".json" else to_markdown
    # Conversations are private: only their owner may read them.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(text(messages, system=system, model=model))
    return path


def to_json(messages: Sequence[Message], *, system: str | None, model: str) -> str:
    """`{"model", "system", "messages": [{"role", "parts": [{"type", ...}]}]}`."""
    told = [
        {"role": message.role, "parts": [{"type": type(part).__name__, **asdict(part)} for part in message.parts]}
        for message in messages
    ]
    return json.dumps({"model": model, "system": system, "messages": told}, ensure_ascii=False, indent=2) + "\n"


def to_markdown(messages: Sequence[Message], *, system: str | None, model: str) -> str:
    """One heading per message; reasoning as a quotation."""
    pieces = [f"# Conversation with {model}"]
    if system:
        pieces += ["## System", system]
    for message in messages:
        pieces.append(f"## {message.role.capitalize()}")
        for part in message.parts:
            match part:
                case Text(text=text):
                    pieces.append(text)
                case Reasoning(text=text):
                    pieces.append("\n".join(f"> {line}".rstrip() for line in text.splitlines()))
                case ToolCall(name=name, arguments=arguments):
                    pieces.append(f'```json\n{json.dumps({"call": name})[:-1]}, "arguments": {arguments}}}\n```')
                case ToolResult(parts=parts):
                    pieces += [piece.text for piece in parts if isinstance(piece, Text)]
                case Image(url=url):
                    pieces.append(f"![image]({url or ''})")
                case _:
                    pieces.append(f"```\n{part.raw}\n```")
    return "\n\n".join(piece.strip("\n") for piece in pieces) + "\n"
