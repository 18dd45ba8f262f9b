"""What an answer says and what it cost, read from its JSON in whatever protocol: events of a stream, or a whole body.

It reads what our server writes, and what others write, as far as it is there; nothing here checks a protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

RESPONSES_DELTAS = (
    "output_text.delta", "refusal.delta", "reasoning_text.delta", "reasoning_summary_text.delta",
    "function_call_arguments.delta", "custom_tool_call_input.delta",
)  # fmt: skip


class ReplySummary:
    """One answer, event by event."""

    def __init__(self) -> None:
        self.text = ""
        """Thoughts, words and calls in the order in which they came; or the error."""
        self.failed = False
        self.prompt: int | None = None
        """Tokens, cached ones included; None until it is told."""
        self.cached: int | None = None
        self.output: int | None = None

    def take(self, event: Any) -> None:
        """Read one event, or a whole body."""
        if not isinstance(event, dict):
            return
        if (error := error_in(event)) is not None:
            self.failed = True
            self.text += error
            return
        self.text += "".join(words_in(event))
        for usage in usages_in(event):
            self._count(usage)

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Take the counts of one protocol or another; of several the last one is right."""

        def number(name: str, within: str = "") -> int | None:
            holder = usage.get(within) if within else usage
            value = holder.get(name) if isinstance(holder, Mapping) else None
            return value if isinstance(value, int) else None

        if (prompt := number("prompt_tokens")) is not None:  # OpenAI's chat
            self.prompt, self.cached = prompt, number("cached_tokens", "prompt_tokens_details")
            self.output = number("completion_tokens")
        elif (prompt := number("prompt_eval_count")) is not None:  # Ollama
            self.prompt, self.output = prompt, number("eval_count")
        elif (given := number("input_tokens")) is not None:
            if "input_tokens_details" in usage:  # Responses: what was cached is in it
                self.prompt, self.cached = given, number("cached_tokens", "input_tokens_details")
            else:  # Anthropic: it is beside it
                self.cached = number("cache_read_input_tokens") or 0
                self.prompt = given + self.cached + (number("cache_creation_input_tokens") or 0)
        self.output = number("output_tokens") or self.output


def error_in(event: Mapping[str, Any]) -> str | None:
    """The sentence of an error, if the event is one."""
    response = event.get("response")
    for holder in (event, response if isinstance(response, Mapping) else {}):
        error = holder.get("error")
        if isinstance(error, str):
            return error
        if isinstance(error, Mapping):
            return str(error.get("message") or error)
    return str(event.get("message")) if event.get("type") == "error" else None


def usages_in(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The counts in an event, wherever a protocol has them."""
    for holder in (event, event.get("message"), event.get("response")):
        if isinstance(holder, Mapping) and isinstance(holder.get("usage"), Mapping):
            yield holder["usage"]
    if "prompt_eval_count" in event:
        yield event


def words_in(event: Mapping[str, Any]) -> Iterator[str]:
    """The texts in an event, in order; a call is its name and what it is called with."""
    kind = event.get("type")
    if isinstance(event.get("choices"), list):  # OpenAI's chat and completions
        for choice in filter(is_object, event["choices"]):
            yield from of_message(choice.get("delta") or choice.get("message") or {"content": choice.get("text")})
    elif isinstance(kind, str) and kind.startswith("response."):
        if kind.endswith(RESPONSES_DELTAS):
            yield str(event.get("delta") or "")
        elif kind == "response.output_item.added" and is_object(event.get("item")):
            yield from named(event["item"])
    elif isinstance(event.get("output"), list):  # a whole response
        for item in filter(is_object, event["output"]):
            yield from named(item)
            yield str(item.get("arguments") or item.get("input") or "")
            for part in filter(is_object, [*(item.get("summary") or ()), *(item.get("content") or ())]):
                yield str(part.get("text") or "")
    elif kind == "content_block_start" and is_object(event.get("content_block")):
        yield from of_block({**event["content_block"], "input": None})
    elif kind == "content_block_delta" and is_object(event.get("delta")):
        yield from of_block(event["delta"])
    elif kind == "message":  # a whole message of Anthropic's
        for block in filter(is_object, event.get("content") or ()):
            yield from of_block(block)
    elif "done" in event:  # Ollama
        yield from of_message(
            event["message"] if is_object(event.get("message")) else {"content": event.get("response")}
        )


def of_message(message: Mapping[str, Any]) -> Iterator[str]:
    """The texts of a message, or of a piece of one, of OpenAI's chat or of Ollama's."""
    yield str(message.get("reasoning_content") or message.get("thinking") or "")
    yield str(message.get("content") or "")
    for call in filter(is_object, message.get("tool_calls") or ()):
        function = call.get("function") or {}
        yield from named(function)
        yield str(function.get("arguments") or "")


def of_block(block: Mapping[str, Any]) -> Iterator[str]:
    """The texts of a content block, or of a piece of one, of Anthropic's."""
    yield from named(block)
    yield str(block.get("text") or block.get("thinking") or block.get("partial_json") or block.get("input") or "")


def named(call: Mapping[str, Any]) -> Iterator[str]:
    """The name of what is called, on a line of its own."""
    if call.get("name"):
        yield f"\n{call['name']} "


def is_object(value: Any) -> bool:
    return isinstance(value, Mapping)
