"""The tags around a visible answer that are ordinary words of markup, such as `<response>`: dropped as a pair only.

The opener counts where nothing visible stands before it, the closer only behind such an opener: an answer that shows
XML with the same tags keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from shepherd.core import ToolSpec
from shepherd.dialects.parse.call import Fault, Found
from shepherd.dialects.parse.markup import Block, MakeBody, Thought


@dataclass(slots=True)
class Pair:
    """Whether the opener has come, in one answer."""

    is_open: bool = False


class AnswerBody:
    """One of the two tags: markup if the pair is in the state before it, else text."""

    def __init__(
        self, block: Block, openers: Sequence[str], tools: Sequence[ToolSpec], *, pair: Pair, opens: bool
    ) -> None:
        self.ended = False
        self.closed = True
        self.declined = block.opener if pair.is_open == opens else ""
        self.then: Thought | None = None
        pair.is_open = opens

    def feed(self, text: str, at: int, final: bool) -> int:
        self.ended = True
        return at

    def take_calls(self) -> list[tuple[str, tuple[Found | Fault, ...]]]:
        return []


def answer_tags(opener: str, closer: str) -> Callable[[Sequence[ToolSpec]], tuple[Block, ...]]:
    """A function for `Markup.declared`: both tags as blocks, knowing of each other. Some openers have no closer."""

    def declared(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
        pair = Pair()
        return (
            Block(opener, (), partial(AnswerBody, pair=pair, opens=True), "start", within="never"),
            *(
                (Block(closer, (), partial(AnswerBody, pair=pair, opens=False), "anywhere", within="never"),)
                if closer
                else ()
            ),
        )

    return declared


_body: MakeBody = partial(AnswerBody, pair=Pair(), opens=True)
