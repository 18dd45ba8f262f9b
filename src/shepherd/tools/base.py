"""The seam of the tools: what is offered to a model, and what carries out its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shepherd.core import ToolCall, ToolResult, ToolSpec


class Toolbox(Protocol):
    """Tools that can be called from one conversation. Safe for concurrent use from one event loop."""

    session: str | None
    """The name of the conversation that calls; it says so itself."""

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """What is offered, in the order in which it is."""
        ...

    async def run(self, call: ToolCall) -> ToolResult:
        """The answer to one call. A call that fails has one, too, with `is_error`: the model is to read why."""
        ...
