"""A draft model: a small model of the same vocabulary guesses on, token by token, in cells of its own.

    conversation   t0 t1 t2 t3 ... t8 | t9     what its line knows; t9 was drawn last
    cells                t2 t3 ... t8   └ read t9, guess d1; read d1, guess d2; read d2, guess d3
                         base                 several lines read and guess in the same decodes

What the large model draws is compared with the guesses in the cells: equal ones stay, the others are cut before the
line reads on. What a line has not read is read in pieces, between the decodes of the large model. A line need not begin
at the beginning: where the way from there is too long (a new conversation, a full context), it begins near the end.
What is evicted from the large model's cells may stay in these: it is of the same conversation.

A sequence that no answer follows any more keeps its cells for the next turn of the same owner. Not here: whether a
draft pays, and how long it is (`speculation.py`), how much is read in one step (`drafting.py`). Engine thread only.
"""

from __future__ import annotations

import logging
import math
import time
from array import array
from collections.abc import Callable, Collection, Sequence

from shepherd.core import EngineError, Sampling
from shepherd.core.dataclasses import dataclass, field
from shepherd.engine.base import Chunk, Forget, Remove, Runtime
from shepherd.engine.draft import Odds
from shepherd.engine.kv.ledger import common_prefix
from shepherd.engine.prefill import SMALLEST, SpeedEstimate

logger = logging.getLogger(__name__)

AT_FIRST = 0.8
"""How often a guess holds, until that has been seen. With less, nothing is tried where several tokens take much longer
than one, and so nothing learnt; where it is too much, an answer loses its loan."""

FADE = 0.001
"""How much of that is forgotten with each token: two models do not begin to agree, as texts begin to repeat."""


@dataclass(slots=True, eq=False)
class Line:
    """The guesses for one answer; satisfies `Drafter`."""

    model: DraftModel
    seq: int
    owner: str
    known: array[int]
    """The conversation's tokens, those of its prompt included."""
    first: int
    """The first of these behind all that the model cannot read."""
    base: int
    """The first of these that its cells hold."""
    held: array[int] = field(default_factory=lambda: array("i"))
    """What its cells hold, by position: tokens of the conversation, then guesses."""
    n_read: int = 0
    """Leading tokens of `held` that are the conversation's."""
    guessed: array[int] = field(default_factory=lambda: array("i"))
    """What it has proposed behind the newest token."""
    is_lost: bool = False
    """It has no sequence any more."""

    @property
    def odds(self) -> Odds:
        return self.model.odds

    @property
    def n_matched(self) -> int:
        return int(not self.is_lost and self.base < len(self.known))

    @property
    def size_bytes(self) -> int:
        return self.known.itemsize * (len(self.known) + len(self.held))

    @property
    def n_missing(self) -> int:
        """Tokens that it has to read before it can guess; at least the newest, but for what was guessed."""
        return len(self.known) - self.base - self.n_read

    @property
    def is_behind(self) -> bool:
        """Whether it must read before it can guess."""
        return self.n_missing >= SMALLEST

    @property
    def is_too_long(self) -> bool:
        """Whether its cells have no room for what it would read and guess."""
        return len(self.known) - self.base > self.model.n_most

    def seconds(self, n: int) -> float:
        return self.model.seconds(n)

    def extend(self, tokens: Sequence[int]) -> None:
        if not self.guessed and self.n_matched:
            self.odds.forget(FADE)
        for n_held, (token, guess) in enumerate(zip(tokens, self.guessed, strict=False)):
            self.odds.observe(1 + n_held, token == guess)
            if token != guess:
                break
        self.guessed = array("i")
        for token in tokens:
            # Without a token that is read, there is no guess behind it: what is in the cells is of something else.
            is_guessed = not self.n_missing and 0 < self.n_read < len(self.held) and self.held[self.n_read] == token
            self.known.append(token)
            self.n_read += is_guessed
        if not self.model.can_read(tokens):
            self.first = len(self.known)
            self.begin(self.first)

    def begin(self, at: int) -> None:
        """Read from this token on; what is in the cells is of no use."""
        self.base, self.n_read = at, 0

    def aim(self, n: int) -> None:
        """Begin where no more than `n` tokens have to be read, if there are more, and where there is room to go on."""
        if self.is_too_long or self.n_missing > n:
            self.begin(len(self.known) - min(n, self.model.n_most // 2))

    def propose(self, n: int) -> array[int]:
        (draft,) = self.model.propose([(self, n, 0.0)])
        return draft


class DraftModel:
    def __init__(
        self,
        runtime: Runtime,
        n_vocab: int,
        *,
        speed: SpeedEstimate | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`n_vocab`: the tokens that both models have, from 0 on. `close` closes the runtime. It computes some tokens,
        and so knows its speed. Raises: `EngineError` if it cannot compute."""
        self.speed = speed or SpeedEstimate()
        self.clock = clock
        self.odds = Odds(AT_FIRST)
        """Of all answers: how far two models agree is soon seen, and changes little."""
        self.is_broken = False
        self._runtime = runtime
        self._n_vocab = n_vocab
        self._sampler = runtime.sampler(Sampling(temperature=0), ())
        self._lines: dict[int, Line] = {}
        """By sequence, the line made last at the end."""
        self._n_busy = 1
        """Answers that had a line when the last one was made."""
        for is_cold in (True, False):
            for n in (SMALLEST, 1):
                begun = clock()
                if runtime.decode([Chunk(0, array("i", bytes(4 * n)), 0, n == 1)]) != "ok":
                    raise EngineError("the draft model has no room for its first tokens")
                if not is_cold:  # the first decodes read the weights
                    self.speed.observe(clock() - begun, n_prompt=n if n > 1 else 0, n_running=0)
                runtime.apply(Forget(0))

    @property
    def n_most(self) -> int:
        """Tokens of a conversation that a line holds: its share of the cells, but for the room that guesses need."""
        return (self._runtime.n_ctx - self._runtime.n_ctx // 8) // self._n_busy

    def can_read(self, tokens: Sequence[int]) -> bool:
        """Whether none of these is an image, or a token of the large model alone."""
        return not tokens or 0 <= min(tokens) <= max(tokens) < self._n_vocab

    def line(self, tokens: array[int], owner: str, busy: Collection[Line]) -> Line | None:
        """A line for an answer, with the sequence that holds most of its conversation; None if all are `busy`. The line
        that had the sequence before has lost it."""
        if self.is_broken:
            return None
        unused = [seq for seq in range(self._runtime.n_seq) if seq not in self._lines]
        free = [*unused, *(seq for seq, line in self._lines.items() if line not in busy)]
        if not free:
            return None
        self._n_busy = len(busy) + 1
        kept = {seq: self._n_kept(seq, tokens, owner) for seq in free}
        seq = max(free, key=lambda seq: kept[seq])
        last = -1
        if not self.can_read(tokens):
            last = max(at for at, token in enumerate(tokens) if not 0 <= token < self._n_vocab)
        made = Line(self, seq, owner, tokens[:], last + 1, last + 1)
        if (old := self._lines.pop(seq, None)) is not None:
            old.is_lost = True
            made.held = old.held
            if kept[seq] > 0 and old.base + kept[seq] > last + 1:
                made.base, made.n_read = old.base, kept[seq]
        self._lines[seq] = made
        return made

    def _n_kept(self, seq: int, tokens: array[int], owner: str) -> int:
        """Tokens in the cells of a sequence that a conversation can go on from; -1 for those of another owner."""
        line = self._lines.get(seq)
        if line is None:
            return 0
        return common_prefix(line.held, tokens[line.base :]) if line.owner == owner else -1

    def clear(self, busy: Collection[Line]) -> None:
        """Forget all conversations but those of answers that are being made."""
        for line in [line for line in self._lines.values() if line not in busy]:
            self._drop(line)
            del self._lines[line.seq]

    def seconds(self, n: int) -> float:
        """What it takes to guess `n` tokens, for one line or for several."""
        return n * self.speed.decode_s

    # -- computing -----------------------------------------------------------------------------------------------------

    def read(self, lines: Sequence[Line], n: int) -> None:
        """Let these lines, which are behind, read `n` tokens in all at most, in one decode."""
        share = max(1, min(n, self._runtime.n_batch) // len(lines))
        wanted = [(line, min(share, line.n_missing - 1)) for line in lines]
        self._make_room(sum(n for _, n in wanted), lines)
        self._decode([self._read(line, n, guesses=False) for line, n in wanted])

    def propose(self, asked: Sequence[tuple[Line, int, float]]) -> list[array[int]]:
        """For each line at most so many tokens. A draft ends where all of it holds with less than this chance, by the
        probabilities of the draft model, and where the answer ends."""
        drafts = [array("i") for _ in asked]
        lines = [line for line, _, _ in asked]
        self._make_room(sum(line.n_missing + n for line, n, _ in asked), lines)
        most = self._runtime.n_batch // len(lines) if lines else 0  # tokens that one decode has for each
        chances = {at: 1.0 for at, line in enumerate(lines) if line.n_missing < min(SMALLEST, most + 1)}
        while chances:
            going = [*chances]
            chunks = [
                self._next(lines[at], drafts[at][-1:]) if drafts[at] else self._read(lines[at], SMALLEST, guesses=True)
                for at in going
            ]
            if not self._decode(chunks):
                break
            for index, at in enumerate(going):
                _, n, least = asked[at]
                score = self._runtime.scorer(index, 0)  # before the draw, which may overwrite the logits
                token = self._sampler.sample(index)
                chances[at] *= math.exp(score(token).logprob)
                is_possible = self.can_read([token]) and not self._runtime.is_end(token)
                if is_possible and chances[at] >= least:
                    drafts[at].append(token)
                    if len(drafts[at]) < n:
                        continue
                del chances[at]
        for line, draft in zip(lines, drafts, strict=True):
            line.guessed = draft
        return drafts

    def _read(self, line: Line, n: int, *, guesses: bool) -> Chunk:
        """The next `n` tokens of its conversation."""
        if not line.n_missing:  # it was guessed, and a guess needs something that is read
            line.n_read -= 1
        self._cut(line)
        at = line.base + line.n_read
        tokens = line.known[at : at + n]
        line.n_read += len(tokens)
        return self._next(line, tokens, guesses=guesses)

    @staticmethod
    def _next(line: Line, tokens: array[int], *, guesses: bool = True) -> Chunk:
        chunk = Chunk(line.seq, tokens, len(line.held), guesses)
        line.held.extend(tokens)
        return chunk

    def _decode(self, chunks: Sequence[Chunk]) -> bool:
        n = sum(len(chunk.tokens) for chunk in chunks)
        is_reading = not chunks[0].logits
        begun = self.clock()
        try:
            is_done = self._runtime.decode(chunks) == "ok"
        except EngineError as error:
            logger.warning("there are no more drafts by the draft model, which has failed: %s", error)
            is_done, self.is_broken = False, True
        if is_done:
            self.speed.observe(self.clock() - begun, n_prompt=n if is_reading else 0, n_running=0)
            return True
        for line in self._lines.values():  # what the cells hold is not known
            self._drop(line)
        return False

    def _make_room(self, n: int, users: Collection[Line]) -> None:
        """Free cells for `n` tokens: those of sequences that this step does not use first, of these the oldest."""
        n_free = self._runtime.n_ctx - sum(len(line.held) for line in self._lines.values())
        others = [line for line in self._lines.values() if line not in users]
        for line in (*others, *sorted(users, key=lambda line: -len(line.held))):
            if n <= n_free:
                return
            n_free += len(line.held)
            self._drop(line)

    def _drop(self, line: Line) -> None:
        """Forget what a line has read; it is behind then."""
        line.begin(line.first)
        self._cut(line)
        line.is_lost |= self.is_broken

    def _cut(self, line: Line) -> None:
        """Let the cells of a line hold what it has read, and no more."""
        if len(line.held) <= line.n_read:
            return
        if not line.n_read or not self._runtime.apply(Remove(line.seq, line.n_read)):
            self._runtime.apply(Forget(line.seq))
            line.base, line.n_read = line.base + line.n_read, 0
        del line.held[line.n_read :]

    def close(self) -> None:
        self._sampler.close()
        self._runtime.close()
