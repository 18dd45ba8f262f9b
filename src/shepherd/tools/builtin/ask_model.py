"""`ask_<name>`: one model asks another one that is configured. Never offered unless somebody enables them.

Not here: which models there are and how they are asked (`Models`, given by whoever composes the parts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shepherd.tools.base import Result, ToolError
from shepherd.tools.tool import Models, Run, Tool, ToolContext

MOST_TOKENS = 1024
"""Of an answer, unless the call says otherwise: it stands in the context of the one who asks."""


def tools(models: Models) -> list[Tool]:
    """One for each model; the registry makes their names fit."""
    return [
        Tool(
            f"ask_{advisor.name}",
            f"Ask the model {advisor.name}.",
            PARAMETERS,
            _asking(advisor.name),
            category="models",
            effect="read" if advisor.is_local else "net",
            subject="prompt",
            offered=False,
            timeout_s=600.0,
        )
        for advisor in models.advisors()
    ]


PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "The whole question: it sees nothing else.", "minLength": 1},
        "max_tokens": {"type": "integer", "minimum": 1},
    },
    "required": ["prompt"],
}


def chat_tool(models: Models) -> Tool:
    """For other agents, which have no model of ours yet: any of them under one name."""
    advisors = models.advisors()
    known = {"type": "string", "enum": [advisor.name for advisor in advisors]}

    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        name = arguments.get("model") or advisors[0].name
        n_tokens = arguments.get("max_tokens", MOST_TOKENS)
        text = await models.ask(name, arguments["prompt"], system=arguments.get("system"), max_tokens=n_tokens)
        return Result(text.strip() or f"{name} gave an empty answer")

    return Tool(
        "chat",
        f"Ask a language model ({advisors[0].name} unless another one is named).",
        {
            "type": "object",
            "properties": {**PARAMETERS["properties"], "model": known, "system": {"type": "string"}},
            "required": ["prompt"],
        },
        run,
        category="models",
        effect="read" if all(advisor.is_local for advisor in advisors) else "net",
        subject="model",
        timeout_s=600.0,
    )


def _asking(name: str) -> Run:
    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        if context.models is None:
            raise ToolError("this conversation cannot ask another model; answer yourself")
        wanted = min(arguments.get("max_tokens", MOST_TOKENS), max(16, context.budget))
        text = await context.models.ask(name, arguments["prompt"], max_tokens=wanted)
        return Result(
            text.strip() or f"{name} gave an empty answer", summary=f"{name} answered with {len(text)} characters"
        )

    return run
