"""The text and the token counts of an answer, from its JSON in any protocol: events of a stream, or a whole body.

It reads what is there and checks nothing: other servers write these protocols, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shepherd.core.dataclasses import dataclass

RESPONSES_DELTAS = (
    "output_text.delta", "refusal.delta", "reasoning_text.delta", "reasoning_summary_text.delta",
    "function_call_arguments.delta", "custom_tool_call_input.delta",
)  # fmt: skip


@dataclass(slots=True)
class ReplySummary:
    text: str = ""
    """Reasoning, text and calls, in order; or the error."""
    failed: bool = False
    prompt: int | None = None
    """Tokens, cached ones included; None before the answer reports them."""
    cached: int | None = None
    output: int | None = None

    def feed(self, event: Any) -> None:
        if not isinstance(event, dict):
            return
        if (error := error_message(event)) is not None:
            self.failed = True
            self.text += error
            return
        self.text += "".join(texts_in(event))
        for usage in usage_counts(event):
            self._count(usage)

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Read the counts of any protocol; later ones replace earlier ones."""

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
            if "input_tokens_details" in usage:  # Responses: it includes cached tokens
                self.prompt, self.cached = given, number("cached_tokens", "input_tokens_details")
            else:  # Anthropic: it does not
                self.cached = number("cache_read_input_tokens") or 0
                self.prompt = given + self.cached + (number("cache_creation_input_tokens") or 0)
        self.output = number("output_tokens") or self.output


def error_message(event: Mapping[str, Any]) -> str | None:
    response = event.get("response")
    for holder in (event, response if isinstance(response, Mapping) else {}):
        error = holder.get("error")
        if isinstance(error, str):
            return error
        if isinstance(error, Mapping):
            return str(error.get("message") or error)
    return str(event.get("message")) if event.get("type") == "error" else None


def usage_counts(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for holder in (event, event.get("message"), event.get("response")):
        if isinstance(holder, Mapping) and isinstance(holder.get("usage"), Mapping):
            yield holder["usage"]
    if "prompt_eval_count" in event:
        yield event


def texts_in(event: Mapping[str, Any]) -> Iterator[str]:
    """The texts in an event, in order; a call is its name and its arguments."""
    kind = event.get("type")
    if isinstance(event.get("choices"), list):  # OpenAI's chat and completions
        for choice in filter(is_object, event["choices"]):
            yield message_text(choice.get("delta") or choice.get("message") or {"content": choice.get("text")})
    elif isinstance(kind, str) and kind.startswith("response."):
        if kind.endswith(RESPONSES_DELTAS):
            yield str(event.get("delta") or "")
        elif kind == "response.output_item.added" and is_object(event.get("item")):
            yield call_name(event["item"])
    elif isinstance(event.get("output"), list):  # a whole response
        for item in filter(is_object, event["output"]):
            yield call_name(item)
            yield str(item.get("arguments") or item.get("input") or "")
            for part in filter(is_object, [*(item.get("summary") or ()), *(item.get("content") or ())]):
                yield str(part.get("text") or "")
    elif kind == "content_block_start" and is_object(event.get("content_block")):
        yield block_text({**event["content_block"], "input": None})
    elif kind == "content_block_delta" and is_object(event.get("delta")):
        yield block_text(event["delta"])
    elif kind == "message":  # a whole message of Anthropic's
        for block in filter(is_object, event.get("content") or ()):
            yield block_text(block)
    elif "done" in event:  # Ollama
        yield message_text(event["message"] if is_object(event.get("message")) else {"content": event.get("response")})


def message_text(message: Mapping[str, Any]) -> str:
    """The text of a message or a delta of OpenAI's chat or of Ollama."""
    text = str(message.get("reasoning_content") or message.get("thinking") or "") + str(message.get("content") or "")
    for call in filter(is_object, message.get("tool_calls") or ()):
        function = call.get("function") or {}
        text += call_name(function) + str(function.get("arguments") or "")
    return text


def block_text(block: Mapping[str, Any]) -> str:
    """The text of a content block or a delta of Anthropic."""
    text = block.get("text") or block.get("thinking") or block.get("partial_json") or block.get("input") or ""
    return call_name(block) + str(text)


def call_name(call: Mapping[str, Any]) -> str:
    """The name of a called tool, on a line of its own."""
    return f"\n{call['name']} " if call.get("name") else ""


def is_object(value: Any) -> bool:
    return isinstance(value, Mapping)
