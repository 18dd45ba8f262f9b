"""A dialect as data: tags around thoughts, tags around calls. A family is one value of `TagDialect`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from shepherd.core import ToolSpec
from shepherd.core.dataclasses import dataclass, replace
from shepherd.dialects.base import Keep
from shepherd.dialects.parse.markup import Markup, Thought
from shepherd.dialects.parse.scanner import Scanner, new_call_id

TURN_TAGS = re.compile(
    r"<\|(?:im_(?:start|user|system|assistant)|start_(?:header_id|of_role)|turn|user|system|assistant|User"
    r"|(?:user|system|developer)_start|START_OF_TURN_TOKEN)\|?>|<start_of_turn>|<｜User｜>"
)
"""The heads of turns in templates, which no answer may hold.

Not among them: `<|start|>`, by which gpt-oss begins every part of one answer.
"""


@dataclass(frozen=True, slots=True)
class TagDialect:
    name: str
    markup: Markup
    marks: tuple[str, ...] = ()
    """A template speaks this dialect if it holds all of these and no `foreign` one."""
    foreign: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    """Turn headers that the answer must never contain."""
    thinks: bool = False
    tuned: Callable[[Markup, str], Markup] = lambda markup, template: markup

    @property
    def thoughts(self) -> tuple[tuple[str, str], ...]:
        """The pairs of tags around reasoning, the most common one first."""
        return tuple((thought.opener, thought.closers[0]) for thought in self.markup.thoughts if thought.opener)

    @property
    def headed(self) -> tuple[tuple[str, str], ...]:
        """As `thoughts`, of those that a header opens; the closer ends with the head of what follows."""
        return tuple((thought.opener, thought.closers[0]) for thought in self.markup.headed)

    def signs(self, template: str) -> bool:
        return all(mark in template for mark in self.marks) and not any(mark in template for mark in self.foreign)

    def fitted(self, template: str) -> TagDialect:
        """The same dialect with the thoughts and the turn headers that the template writes."""
        markup = self.tuned(self.markup, template)
        own = {thought.opener for thought in markup.thoughts}
        new = tuple(one for one in THOUGHTS if mentions(template, one) and one.opener not in own)
        return replace(
            self,
            # A family whose thoughts are no tags has thoughts of its own.
            markup=replace(markup, thoughts=(*new, *markup.thoughts)),
            stops=tuple(dict.fromkeys((*self.stops, *TURN_TAGS.findall(template)))),
            thinks=self.thinks or bool(new) or any(mentions(template, one) for one in markup.thoughts),
        )

    def parser(
        self,
        *,
        tools: Sequence[ToolSpec] = (),
        opened: str = "",
        reasoning: Keep = "split",
        ids: Callable[[], str] = new_call_id,
    ) -> Scanner:
        """A parser for one answer that continues `opened`, the `Prompt`'s field of that name, which is not reported
        again."""
        return Scanner(self.markup, tools=tools, opened=opened, reasoning=reasoning, ids=ids)


THOUGHTS = (
    Thought("<think>", ("</think>",)),
    Thought("<thinking>", ("</thinking>",)),
    Thought("<thought>", ("</thought>",)),
    Thought("<seed:think>", ("</seed:think>",)),
    Thought("<mm:think>", ("</mm:think>",)),
    Thought("[THINK]", ("[/THINK]",)),
)
"""All tags that models use around reasoning (C13)."""


def mentions(template: str, thought: Thought) -> bool:
    return bool(thought.opener) and any(tag in template for tag in (thought.opener, *thought.closers))
