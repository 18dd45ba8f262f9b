"""Batches of conversations, as tokens with positions and weights.

    seed, share, number of the pool ─▶ conversations ─ encode ─▶ Row ─ by length ─▶ Batch

Each pool is made from its number alone: a run that was interrupted makes the one that it was in again, and skips what
it has computed. Not here: what conversations say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from training.chat import Chat
from training.conversations import BEGINNING, FAR, FINISHING, KINDS, long, sample
from training.draw import Draw

if TYPE_CHECKING:
    from tokenizers import Tokenizer

POOL = 400
"""Conversations that are sorted by length together."""
MOST_TOKENS, MOST_LONG_TOKENS = 2_600, 4_090
"""Of a conversation; a longer one is not used."""
BATCH_TOKENS = 3_072
ANSWER, OTHER, OTHER_SHARE = 1.0, 0.2, 0.3
"""Weights: of what the model says; and of a part of what others say, which teaches it words."""
FINISHING_POOL = 1_000_000
"""From this number on, pools have the mix `FINISHING`."""
BEGINNING_SHARE = 0.04
"""The first part of a run has the mix `BEGINNING`."""
LONG_SHARES = ((0.4, 0.03), (0.7, 0.10), (1.01, 0.20))
"""Up to which part of the run, how many of its conversations are long."""
FINISHING_LONG_SHARE = 0.12
SHIFTED_SHARE = 0.25
"""Of the conversations begin at a position far from 0."""


class Row(NamedTuple):
    ids: list[int]
    positions: list[int]
    weights: list[float]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of about the same length, those that are shorter filled up with zeros of weight 0."""

    rows: list[Row]

    @property
    def n_tokens(self) -> int:
        """What it costs: with the filling."""
        return len(self.rows) * max(len(row.ids) for row in self.rows)


def encode(chat: Chat, encoder: Tokenizer, draw: Draw, start: int | None = None) -> Row:
    """`start`: the first position; None = often 0, sometimes far."""
    ids, positions, weights = list[int](), list[int](), list[float]()
    if start is None:
        start = draw.whole(0, max(0, FAR - sum(chat.jumps.values()))) if draw.often(SHIFTED_SHARE) else 0
    position, last = start, -1
    for text, is_answer, at in chat.pieces():
        if at != last:
            position, last = position + chat.jumps.get(at, 0), at
        new = encoder.encode(text).ids
        ids += new
        positions += range(position, position + len(new))
        position += len(new)
        if is_answer:
            weights += [ANSWER] * len(new)
        else:
            weights += [OTHER * (at >= 0 and draw.often(OTHER_SHARE)) for _ in new]
    return Row(ids, positions, weights)


def pool(seed: int, share: int, number: int, progress: float, encoder: Tokenizer, *, n: int = POOL) -> list[Batch]:
    """The batches of one pool. `share`: of which process. `progress`: of the run, 0 to 1."""
    draw = Draw(f"{seed} {share} {number}")
    if number >= FINISHING_POOL:
        kinds, n_long = FINISHING, FINISHING_LONG_SHARE
    else:
        kinds = BEGINNING if progress < BEGINNING_SHARE else KINDS
        n_long = next(n for end, n in LONG_SHARES if progress < end)
    rows = list[Row]()
    for _ in range(n):
        is_long = draw.often(n_long)
        row = encode(long(draw) if is_long else sample(draw, kinds), encoder, draw)
        if len(row.ids) <= (MOST_LONG_TOKENS if is_long else MOST_TOKENS):
            rows.append(row)
    return draw.shuffled(list(batched(sorted(rows, key=lambda row: len(row.ids)))))


def batched(rows: list[Row]) -> Iterator[Batch]:
    """`rows`: the shortest first."""
    held = list[Row]()
    for row in rows:
        if held and (len(held) + 1) * len(row.ids) > BATCH_TOKENS:
            yield Batch(held)
            held = []
        held.append(row)
    if held:
        yield Batch(held)
