"""`ask_<name>`: one model asks another one that is configured. Offered only if the configuration enables them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shepherd.tools.base import Result
from shepherd.tools.tool import Models, Tool, ToolContext

MOST_TOKENS = 1024
"""Of an answer, unless the call says otherwise: the asking model reads it all."""
PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "The whole question: it sees nothing else.", "minLength": 1},
        "max_tokens": {"type": "integer", "minimum": 1},
    },
    "required": ["prompt"],
}


def tools(models: Models) -> list[Tool]:
    """One for each model; the registry makes their names fit."""
    return [_ask_tool(models, advisor.name, advisor.is_local) for advisor in models.advisors()]


def _ask_tool(models: Models, name: str, is_local: bool) -> Tool:
    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        wanted = min(arguments.get("max_tokens", MOST_TOKENS), max(16, context.budget))
        text = await models.ask(name, arguments["prompt"], user=context.user, max_tokens=wanted)
        summary = f"{name} answered with {len(text)} characters"
        return Result(text.strip() or f"{name} gave an empty answer", summary=summary)

    return Tool(
        f"ask_{name}", f"Ask the model {name}.", PARAMETERS, run, category="models",
        effect="read" if is_local else "net", subject="prompt", offered=False, timeout_s=600.0,
    )  # fmt: skip


def chat_tool(models: Models) -> Tool:
    """For other agents, which have no model of ours yet: any of them under one name. Without a model it cannot run."""
    advisors = models.advisors()
    first = next((advisor.name for advisor in advisors), "")
    known = {"type": "string", "enum": [advisor.name for advisor in advisors]}
    properties = {**PARAMETERS["properties"], "model": known, "system": {"type": "string"}}

    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        name = arguments.get("model") or first
        n_tokens = arguments.get("max_tokens", MOST_TOKENS)
        text = await models.ask(
            name, arguments["prompt"], user=context.user, system=arguments.get("system"), max_tokens=n_tokens
        )
        return Result(text.strip() or f"{name} gave an empty answer")

    return Tool(
        "chat", f"Ask a language model ({first} unless another one is named).",
        {"type": "object", "properties": properties, "required": ["prompt"]}, run, category="models",
        effect="read" if all(advisor.is_local for advisor in advisors) else "net", subject="model", timeout_s=600.0,
    )  # fmt: skip
