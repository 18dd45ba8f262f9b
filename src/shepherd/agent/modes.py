"""The modes of a chat: ask, accept edits, plan. Shift+Tab, /mode and --mode change them.

What a mode lets run is in `tools/permission.py`. The model reads of plan mode in a notice at the head of the next
message, and of its end in another one: nothing before them changes, so no prompt is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shepherd.core import InvalidRequest, Message, Text
from shepherd.tools.permission import MODES, Mode
from shepherd.tools.toolbox import ConversationToolbox

if TYPE_CHECKING:
    from shepherd.agent.session import Session

LABELS: Mapping[Mode, str] = {"ask": "ask", "edits": "accept edits", "plan": "plan"}
PLAN_BEGINS = (
    "[NOTICE: plan mode is on. Only read: tools that change something or run programs are refused. "
    "Answer with what you would do, step by step.]\n\n"
)
PLAN_ENDS = "[NOTICE: plan mode is off. You may use all tools again.]\n\n"


def notices(mode: Mode, messages: Sequence[Message]) -> tuple[Text, ...]:
    """What the next message tells the model about plan mode: nothing where the last notice says it already."""
    asides = (part.text for message in reversed(messages) if message.role == "user"
              for part in reversed(message.parts) if isinstance(part, Text) and part.aside)  # fmt: skip
    last = next((text for text in asides if text in {PLAN_BEGINS, PLAN_ENDS}), PLAN_ENDS)
    wanted = PLAN_BEGINS if mode == "plan" else PLAN_ENDS
    return () if wanted == last else (Text(wanted, aside=True),)


def apply(mode: Mode, session: Session) -> None:
    """Let the tools of a conversation follow the mode."""
    if isinstance(session.toolbox, ConversationToolbox):
        session.toolbox.permission.mode = mode


def following(mode: Mode) -> Mode:
    order = [*MODES]
    return order[(order.index(mode) + 1) % len(order)]


def read(word: str) -> Mode:
    """Raises: `InvalidRequest`."""
    small = " ".join(word.casefold().split())
    found = next((name for name, label in LABELS.items() if small in {name, label}), None)
    if found is None:
        raise InvalidRequest(f"there is no mode {word!r}; the modes are {', '.join(MODES)}", field="mode")
    return found
