"""Conversations as their model reads them: messages, and the text that `chat_template.jinja` makes of them.

    Chat(tools, messages) ─▶ pieces ─▶ text;   each piece: who wrote it

`pieces` says the same as the template (a test compares them through the engine's own renderer): the template is what
other programs use, and does not say which characters the model itself writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
START, END, TEXT_END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
CALL, CALL_END = "<tool_call>", "</tool_call>"
RESPONSE, RESPONSE_END = "<tool_response>", "</tool_response>"
TOOLS_HEAD = "# Tools\n\nThese functions can be called:\n<tools>"
TOOLS_TAIL = (
    f"\n</tools>\n\nTo call one, answer with:\n{CALL}\n"
    f'{{"name": <function name>, "arguments": {{<arguments as JSON>}}}}\n{CALL_END}'
)

Spec = dict[str, Any]
"""A tool as an OpenAI client describes it."""


class Called(NamedTuple):
    name: str
    arguments: dict[str, Any]

    @property
    def text(self) -> str:
        arguments = json.dumps(self.arguments, ensure_ascii=False)
        return f'{CALL}\n{{"name": "{self.name}", "arguments": {arguments}}}\n{CALL_END}'


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    """`system`, `user`, `assistant`, or `tool` for the result of a call."""
    text: str = ""
    calls: tuple[Called, ...] = ()


def user(text: str) -> Message:
    return Message("user", text)


def says(text: str) -> Message:
    return Message("assistant", text)


def calls(*each: Called) -> Message:
    return Message("assistant", "", each)


def result(text: str) -> Message:
    return Message("tool", text)


@dataclass(slots=True)
class Chat:
    messages: list[Message] = field(default_factory=list)
    tools: Sequence[Spec] = ()
    system: str = ""
    jumps: dict[int, int] = field(default_factory=dict)
    """By the index of a message, how many positions are skipped in front of it, as after an eviction."""

    def ask(self, question: str, *answer: Message) -> None:
        self.messages += [user(question), *answer]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces())

    def prompt(self) -> str:
        """Up to where the model speaks last."""
        *before, last = list(self.pieces())
        if not last.is_answer:  # the line end behind its end mark
            last = before.pop()
        assert last.is_answer, "the last message of the conversation is not the model's"
        return "".join(piece.text for piece in before)

    def answer(self) -> str:
        """What the model says last, with its end mark."""
        return [piece.text for piece in self.pieces() if piece.is_answer][-1]

    def pieces(self) -> Iterator[Piece]:
        if self.tools:
            head = f"{self.system}\n\n" if self.system else ""
            listed = "".join(f"\n{json.dumps(tool, ensure_ascii=False)}" for tool in self.tools)
            yield Piece(f"{START}system\n{head}{TOOLS_HEAD}{listed}{TOOLS_TAIL}{END}\n", False, -1)
        elif self.system:
            yield Piece(f"{START}system\n{self.system}{END}\n", False, -1)
        roles = ["", *(each.role for each in self.messages), ""]
        for at, message in enumerate(self.messages):
            before, after = roles[at], roles[at + 2]
            match message.role:
                case "assistant":
                    said = [message.text] * bool(message.text) + [call.text for call in message.calls]
                    yield Piece(f"{START}assistant\n", False, at)
                    yield Piece("\n".join(said) + END, True, at)
                    yield Piece("\n", False, at)
                case "tool":
                    head = f"{START}user" if before != "tool" else ""
                    tail = f"{END}\n" if after != "tool" else ""
                    yield Piece(f"{head}\n{RESPONSE}\n{message.text}\n{RESPONSE_END}{tail}", False, at)
                case role:
                    yield Piece(f"{START}{role}\n{message.text}{END}\n", False, at)

    def as_json(self) -> list[dict[str, Any]]:
        """The messages as an OpenAI client sends them."""
        return [_as_json(each) for each in ([Message("system", self.system)] if self.system else []) + self.messages]


class Piece(NamedTuple):
    text: str
    is_answer: bool
    """The model writes it."""
    at: int
    """The index of its message; -1 for the system prompt."""


def _as_json(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.calls:
        found["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in message.calls
        ]
    return found
