"""What a conversation was about, in a few hundred tokens, made without a model and always the same.

The task, the files that calls named, the commands that ran, the newest plan. It stands where a protocol shows the text
of a compaction. The messages themselves are stored word for word (`compaction_store`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shepherd.backends.local.leaving import PATHS
from shepherd.core import Message
from shepherd.wire.values import object_of

TASK_LINES, TASK_CHARS = 12, 800
MOST_FILES, MOST_COMMANDS, COMMAND_CHARS = 25, 10, 100
PLAN_LINES = 20
_COMMANDS = frozenset({"command", "cmd", "script"})
_PLANS = frozenset({"plan", "todos", "todo_list", "tasks"})
"""Arguments of calls, as agents name them."""
_ITEM = ("content", "step", "text", "title", "description")
"""Where an item of a plan has its words."""


def extract(messages: Sequence[Message]) -> str:
    """The newest files and commands come last; what would be too long loses its oldest."""
    task = next((message.own_text for message in messages if message.is_input and message.own_text.strip()), "")
    files: dict[str, None] = {}
    commands: dict[str, None] = {}
    plan: list[str] = []
    for arguments in _arguments(messages):
        for name, value in arguments.items():
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            if name in PATHS and isinstance(value, str):
                files.pop(text, None)
                files[text] = None
            elif name in _COMMANDS and text.strip():
                line = _cut(" ".join(text.split()), COMMAND_CHARS)
                commands.pop(line, None)
                commands[line] = None
            elif name in _PLANS and isinstance(value, list):
                plan = list(_open_points(value))
    sections = (
        ("Task", ["\n".join(_cut(task.strip(), TASK_CHARS).splitlines()[:TASK_LINES])] if task else []),
        ("Files", [_cut(file, COMMAND_CHARS) for file in files][-MOST_FILES:]),
        ("Commands", list(commands)[-MOST_COMMANDS:]),
        ("Open", plan[:PLAN_LINES]),
    )
    head = f"{len(messages)} earlier messages are stored word for word."
    return "\n\n".join([head, *(f"{name}:\n" + "\n".join(lines) for name, lines in sections if lines)])


def _arguments(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Of each call whose arguments are an object."""
    for message in messages:
        for call in message.calls:
            if (found := object_of(call.arguments)) is not None:
                yield found


def _open_points(items: list[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield f"- {_cut(item, COMMAND_CHARS)}"
        elif isinstance(item, dict) and item.get("status") not in ("completed", "done", "cancelled"):
            words = next((item[key] for key in _ITEM if isinstance(item.get(key), str)), "")
            if words:
                yield f"- {_cut(words, COMMAND_CHARS)}"


def _cut(text: str, n: int) -> str:
    return text if len(text) <= n else f"{text[: n - 1].rstrip()}…"
