"""A dialect as data: tags around thoughts, tags around calls. A family of this kind is one value of `TagDialect`.

Not here: the families themselves (one file each), and how they are chosen (`detection`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shepherd.core import ToolSpec
from shepherd.dialects.base import Dialect, Keep
from shepherd.dialects.markup import Markup
from shepherd.dialects.scanner import Scanner, new_call_id

TURN_TAGS = re.compile(
    r"<\|(?:im_(?:start|user|system|assistant)|start_(?:header_id|of_role)|turn|user|system|assistant|User"
    r"|(?:user|system|developer)_start|START_OF_TURN_TOKEN)\|?>|<start_of_turn>|<｜User｜>"
)
"""What templates write at the head of a turn, and so nothing that an answer may hold.

Not among them: `<|start|>`, by which gpt-oss begins every part of one answer.
"""


@dataclass(frozen=True, slots=True)
class TagDialect:
    """A family whose markup is tags."""

    name: str
    markup: Markup
    marks: tuple[str, ...] = ()
    """A template speaks this dialect if it holds all of these..."""
    foreign: tuple[str, ...] = ()
    """...and none of these."""
    stops: tuple[str, ...] = ()
    thinks: bool = False

    @property
    def thoughts(self) -> tuple[tuple[str, str], ...]:
        return self.markup.thoughts

    @property
    def openers(self) -> tuple[str, ...]:
        return self.markup.openers

    def signs(self, template: str) -> bool:
        return all(mark in template for mark in self.marks) and not any(mark in template for mark in self.foreign)

    def fitted(self, template: str) -> TagDialect:
        """The same dialect with the turn headers that the template writes, and whether it knows of thoughts."""
        return replace(
            self,
            stops=tuple(dict.fromkeys(TURN_TAGS.findall(template))),
            thinks=any(opener in template or closer in template for opener, closer in self.thoughts),
        )

    def parser(
        self,
        *,
        tools: Sequence[ToolSpec] = (),
        opened: str = "",
        reasoning: Keep = "split",
        ids: Callable[[], str] = new_call_id,
    ) -> Scanner:
        """A scanner for this markup; `ids` names the calls."""
        return Scanner(self.markup, tools=tools, opened=opened, reasoning=reasoning, ids=ids)


_dialect: type[Dialect] = TagDialect
