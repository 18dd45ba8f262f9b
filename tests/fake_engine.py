"""A fake runtime and a fake vocabulary: real implementations of the seams with a made-up model behind them.

The cells hold real tokens under the real rules (positions that go on from the highest, a bounded pool, shared cells,
memories that cannot roll back); only the model is a function from the tokens that a sequence holds to the next one.
Tests drive the engine, the back end and the server with it and know every answer beforehand.
"""

from __future__ import annotations

import math
import pickle
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from shepherd.core import EngineError, Sampling
from shepherd.engine.base import (
    Adapters,
    Chunk,
    Copy,
    Decoded,
    Engine,
    Forget,
    Mask,
    Media,
    Memory,
    Op,
    Remove,
    Runtime,
    Saved,
    Scored,
    Shift,
    Special,
)
from shepherd.engine.draft_model import DraftModel
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.media import tokens_of
from shepherd.engine.prefill import SpeedEstimate
from shepherd.engine.scheduler import EngineOptions, Scheduler
from shepherd.engine.speculation import DecodeCost

BYTES = 256
"""Tokens 0..255 are the bytes themselves; specials follow."""
PLAIN = Memory(hole=True, rollback="any", share=True, shift=True, checkpoint=False)
"""Attention in every layer."""
RECURRENT = Memory(hole=False, rollback="none", share=False, shift=False, checkpoint=True)
"""A state that has read everything and cannot unread it."""


def in_process(engine: Engine) -> InProcessEngine:
    """An engine whose insides a test may look at."""
    assert isinstance(engine, InProcessEngine)
    return engine


class SilentLoop:
    """Takes wake-ups and does nothing: a test that steps a scheduler reads its tickets itself."""

    def call_soon_threadsafe(self, call: Callable[..., Any], *arguments: object) -> None:
        pass


class SteadySpeed(SpeedEstimate):
    """A machine whose speed no decode changes: a fake one has none."""

    def observe(self, seconds: float, *, n_prompt: int, n_running: int) -> None:
        pass


SLOW = SteadySpeed(decode_s=0.01, token_s=0.005)


class SteadyCost(DecodeCost):
    """A machine on which each further token of a decode costs the same part of the first one."""

    def __init__(self, part: float) -> None:
        super().__init__()
        self._part = part

    @property
    def is_known(self) -> bool:
        return True

    def seconds(self, n: int) -> float:
        return 0.01 * (1 + self._part * (n - 1))

    def observe(self, n: int, seconds: float, token_s: float) -> None:
        pass


class Ticking:
    """A clock by which a decode of a draft model takes so long, for it looks before and behind."""

    def __init__(self, seconds: float) -> None:
        self.now_s, self._seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now_s += self._seconds / 2
        return self.now_s


def check_lines(model: DraftModel, runtime: FakeRuntime) -> None:
    """Assert that the lines of a draft model know what its cells hold, and what of that is their conversation."""
    for line in model._lines.values():
        assert runtime.tokens(line.seq) == [*line.held], "the line equals the cells"
        assert 0 <= line.n_read <= len(line.held)
        assert line.held[: line.n_read] == line.known[line.base : line.base + line.n_read]


def scheduler_on(
    runtime: Runtime,
    *,
    show: Callable[[int], bytes] = lambda token: b"%d " % token,
    on_ready: Callable[[], None] = lambda: None,
    draft_model: DraftModel | None = None,
    drafting: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Scheduler:
    """A scheduler that a test steps; `options` are those of `EngineOptions`, `drafting` those of `drafts_by`."""
    made = Scheduler(
        runtime, EngineOptions(**options), name="test", show=show, is_urgent=lambda: False, on_ready=on_ready,
        draft_model=draft_model,
    )  # fmt: skip
    drafts_by(made, **drafting)
    return made


def drafts_by(scheduler: Scheduler, **fields: Any) -> None:
    """Let a scheduler draft in another way: `fields` of `Drafting`."""
    scheduler._decode = replace(scheduler._decode, drafting=replace(scheduler._decode.drafting, **fields))


class FakeVocabulary:
    """One token per byte, and whatever control tokens are wanted; satisfies `Vocabulary`."""

    def __init__(
        self,
        control: Sequence[str] = ("<|im_start|>", "<|im_end|>"),
        user_defined: Sequence[str] = (),
        fim: tuple[str, str, str] | None = None,
    ) -> None:
        """`fim` are three of the control tokens."""
        texts = [(text, True) for text in control] + [(text, False) for text in user_defined]
        self.specials = tuple(Special(BYTES + i, text, is_control) for i, (text, is_control) in enumerate(texts))
        self.ids: Mapping[str, int] = {special.text: special.id for special in self.specials}
        self.n_vocab = BYTES + len(self.specials)
        self.bos: int | None = None
        self.end_tokens = frozenset({BYTES + 1}) if len(self.specials) > 1 else frozenset[int]()
        self.fim = fim and (self.ids[fim[0]], self.ids[fim[1]], self.ids[fim[2]])
        self._user_defined = {special.text: special.id for special in self.specials if not special.control}

    def tokenize(self, text: str) -> list[int]:
        # As llama.cpp does: user-defined tokens match in any text, control tokens never.
        for marker, token in self._user_defined.items():
            before, found, after = text.partition(marker)
            if found:
                return [*self.tokenize(before), token, *self.tokenize(after)]
        return list(text.encode("utf-8", "replace"))

    def piece(self, token: int) -> bytes:
        if 0 <= token < BYTES:
            return bytes([token])
        for special in self.specials:
            if special.id == token:
                return special.text.encode()
        raise EngineError(f"token {token} is outside the vocabulary")


def say(vocabulary: FakeVocabulary, *answers: str, end: str = "<|im_end|>") -> Callable[[Sequence[int]], int]:
    """A model that gives `answers` in turn, one per assistant turn, each followed by the end token.

    The turn is counted by the assistant headers that it sees, so a resent history gets the same answers again; beyond
    the last answer it repeats that one.
    """
    end_id = vocabulary.ids[end]
    start_id = vocabulary.ids["<|im_start|>"]
    header = vocabulary.tokenize("assistant\n")

    def next_token(tokens: Sequence[int]) -> int:
        tokens = list(tokens)
        starts = [i for i, t in enumerate(tokens) if t == start_id and tokens[i + 1 : i + 1 + len(header)] == header]
        body = tokens[starts[-1] + 1 + len(header) :] if starts else []
        answer = vocabulary.tokenize(answers[min(max(len(starts), 1), len(answers)) - 1])
        return answer[len(body)] if len(body) < len(answer) else end_id

    return next_token


@dataclass
class Faults:
    """What is to go wrong, for tests of the engine's manners."""

    decode_error_at: int | None = None
    """Position whose decode fails, once."""
    poison: int | None = None
    """A token that no decode survives."""
    crash_at: int | None = None
    """Position whose decode raises something that is not an `EngineError`: a bug."""
    full_at: int | None = None
    """Tokens of one sequence that the library has room for, whatever the ledger says."""
    stops_at: int | None = None
    """Position at which a decode is interrupted, once; what is before it is computed."""
    can_remove: bool = True
    lies_about_length: int = 0
    """Added to the true highest position."""
    can_load: bool = True
    gate: threading.Semaphore | None = None
    """Every decode takes one; without any left it waits, until it is interrupted."""


@dataclass
class FakeRuntime:
    """A pool of cells with a function for a model; satisfies `Runtime`."""

    next_token: Callable[[Sequence[int]], int]
    end_tokens: frozenset[int] = frozenset({BYTES + 1})
    n_ctx: int = 4096
    n_seq: int = 8
    n_batch: int = 16
    n_outputs: int = 8
    n_vocab: int = BYTES + 64
    """Logits that a mask sees."""
    memory: Memory = PLAIN
    faults: Faults = field(default_factory=Faults)
    fingerprint: str = "fake"
    pays_for_idle: bool = False

    def __post_init__(self) -> None:
        self.cells: dict[int, int] = {}
        """Cell -> token."""
        self.places: dict[int, dict[int, int]] = {seq: {} for seq in range(self.n_seq)}
        """Sequence -> position -> cell."""
        self.added: dict[int, Adapters] = {}
        """Cell -> the adapters with which it was computed."""
        self.read: dict[int, list[int]] = {seq: [] for seq in range(self.n_seq)}
        """Sequence -> all that its recurrent state has read."""
        self.read_with: dict[int, Adapters] = {}
        """Sequence -> the adapters with which its recurrent state was computed."""
        self.decoded: list[tuple[int, int, int]] = []
        """Every chunk as (sequence, position, tokens): what work was really done."""
        self.batches: list[tuple[Chunk, ...]] = []
        self.ops: list[Op] = []
        self.samplings: list[Sampling] = []
        """The sampling of every job, in order."""
        self.closed = False
        self.encoded: set[bytes] = set()
        """The keys of the images that can be computed at once."""
        self._n_cells_made = 0
        self._interrupted = threading.Event()
        self._last: tuple[Chunk, ...] = ()

    def tokens(self, seq: int) -> list[int]:
        """What a sequence holds, by position."""
        return [self.cells[cell] for _, cell in sorted(self.places[seq].items())]

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        assert not self.closed
        n = sum(len(chunk.tokens) for chunk in batch)
        n_text = sum(len(chunk.tokens) for chunk in batch if chunk.media is None)
        assert n > 0
        assert n_text <= self.n_batch, f"{n_text} tokens in a batch of at most {self.n_batch}"
        for chunk in batch:
            assert chunk.tokens == tokens_of(chunk.media) if chunk.media is not None else min(chunk.tokens) >= 0
        assert sum(len(chunk.tokens) if chunk.each else chunk.logits for chunk in batch) <= self.n_outputs
        ends = {seq: max(places, default=-1) for seq, places in self.places.items()}
        faults = self.faults
        for chunk in batch:
            start, stop = chunk.position, chunk.position + len(chunk.tokens)
            if start != ends[chunk.seq] + 1 and ends[chunk.seq] >= 0:
                raise EngineError(f"sequence {chunk.seq} ends at {ends[chunk.seq]}, the batch goes on at {start}")
            ends[chunk.seq] = stop - 1
            if faults.crash_at is not None and start <= faults.crash_at < stop:
                raise RuntimeError("a planted bug")
            if faults.poison is not None and faults.poison in chunk.tokens:
                raise EngineError("a planted failure")
            if faults.decode_error_at is not None and start <= faults.decode_error_at < stop:
                faults.decode_error_at = None
                raise EngineError("a planted failure")
            if faults.full_at is not None and len(self.places[chunk.seq]) + len(chunk.tokens) > faults.full_at:
                return "full"
        if len(self.cells) + n > self.n_ctx:
            return "full"
        if faults.gate is not None:
            while not faults.gate.acquire(timeout=0.01):
                if self._interrupted.is_set():
                    return "aborted"
        if self._interrupted.is_set():
            return "aborted"
        is_whole = faults.stops_at is None or not any(
            chunk.position < faults.stops_at < chunk.position + len(chunk.tokens) for chunk in batch
        )
        if faults.stops_at is not None and not is_whole:
            parts = [chunk._replace(tokens=chunk.tokens[: max(0, faults.stops_at - chunk.position)]) for chunk in batch]
            batch, faults.stops_at = [chunk for chunk in parts if chunk.tokens], None
        self.batches.append(tuple(batch))
        assert len({chunk.adapters for chunk in batch}) == 1, "one decode has one set of adapters"
        for chunk in batch:
            self.decoded.append((chunk.seq, chunk.position, len(chunk.tokens)))
            held = {self.added[cell] for cell in self.places[chunk.seq].values()}
            held |= {self.read_with[chunk.seq]} if self.read[chunk.seq] else set()
            assert held <= {chunk.adapters}, f"cells of {held} are used with {chunk.adapters}"
            self.read[chunk.seq].extend(chunk.tokens)
            self.read_with[chunk.seq] = chunk.adapters
            for at, token in enumerate(chunk.tokens, chunk.position):
                self.places[chunk.seq][at] = self._new_cell(token, chunk.adapters)
        self._last = tuple(batch)
        return "ok" if is_whole else "aborted"

    def prepare(self, media: Sequence[Media], on_ready: Callable[[], None]) -> bool:
        """Every image is encoded when it is asked for the second time."""
        new = {each.key for each in media} - self.encoded
        self.encoded |= new
        if new:
            threading.Thread(target=on_ready).start()
        return not new

    def release(self, media: Sequence[Media]) -> bool:
        return False

    def waits(self) -> tuple[int, float]:
        return 0, 0.0

    def scorer(self, chunk: int, n_top: int, behind: int = 0) -> Callable[[int], Scored]:
        """What the made-up model says has nine tenths of the probability; all others share the rest."""
        likeliest = self.next_token(self.seen(chunk, behind))
        rest = math.log(0.1 / (self.n_vocab - 1))
        order = [likeliest, *(token for token in range(min(n_top + 1, self.n_vocab)) if token != likeliest)]
        top = tuple((token, math.log(0.9) if token == likeliest else rest) for token in order[:n_top])
        return lambda token: Scored(token, math.log(0.9) if token == likeliest else rest, top)

    def seen(self, chunk: int, behind: int) -> list[int]:
        """What the model has read where it computed these logits."""
        last = self._last[chunk]
        assert behind == 0 or (last.each and behind < len(last.tokens)), "there are no logits"
        assert last.logits or last.each, "there are no logits"
        tokens = self.read[last.seq] if self.memory.rollback == "none" else self.tokens(last.seq)
        return tokens[: len(tokens) - behind]

    def sampler(self, sampling: Sampling, history: Sequence[int], mask: Mask | None = None) -> FakeSampler:
        self.samplings.append(sampling)
        return FakeSampler(self, mask)

    def apply(self, op: Op) -> bool:
        self.ops.append(op)
        match op:
            case Forget(seq):
                self.places[seq].clear()
                self.read[seq].clear()
            case Remove(seq, start, stop):
                places = self.places[seq]
                end = max(places, default=-1) + 1
                stop = end if stop < 0 else stop
                if not self.faults.can_remove or (self.memory.rollback == "none" and len(self.read[seq]) > start):
                    return False
                for at in [at for at in places if start <= at < stop]:
                    del places[at]
            case Copy(source, target, start, stop):
                assert self.memory.share or (self.memory.checkpoint and start == 0 and not self.places[target])
                self.read[target] = list(self.read[source])  # a state is copied whole; `load` completes it
                self.read_with[target] = self.read_with.get(source, ())
                stop = max(self.places[source], default=-1) + 1 if stop < 0 else stop
                self.places[target].update({at: c for at, c in self.places[source].items() if start <= at < stop})
            case Shift(seq, start, delta):
                assert self.memory.shift
                places = self.places[seq]
                moved = {at + delta: cell for at, cell in places.items() if at >= start}
                rest = {at: cell for at, cell in places.items() if at < start}
                assert not rest.keys() & moved.keys(), "two tokens at one position"
                shared = {c for other, p in self.places.items() if other != seq for c in p.values()}
                assert not shared & set(moved.values()), "a shared cell was moved"
                self.places[seq] = rest | moved
        self._free()
        return True

    def held(self, seq: int) -> tuple[int, int]:
        places = self.places[seq]
        if not places:
            return -1, -1
        return min(places), max(places) + self.faults.lies_about_length

    def save(self, seq: int, *, partial: bool = False) -> bytes:
        held = {} if partial else self.places[seq]
        places = {at: (self.cells[cell], self.added[cell]) for at, cell in held.items()}
        return pickle.dumps((places, self.read[seq], self.read_with.get(seq, ())))

    def load(self, seq: int, state: Saved, *, partial: bool = False) -> bool:
        places, read, self.read_with[seq] = pickle.loads(state)
        self.read[seq] = list(read)
        if partial:
            return True
        self.places[seq].clear()
        self._free()
        if not self.faults.can_load or len(self.cells) + len(places) > self.n_ctx:
            return False
        self.places[seq] = {at: self._new_cell(*cell) for at, cell in places.items()}
        return True

    def is_end(self, token: int) -> bool:
        return token in self.end_tokens

    def interrupt(self, on: bool) -> None:
        if on:
            self._interrupted.set()
        else:
            self._interrupted.clear()

    def close(self) -> None:
        self.closed = True

    def _new_cell(self, token: int, adapters: Adapters) -> int:
        self._n_cells_made += 1
        self.cells[self._n_cells_made] = token
        self.added[self._n_cells_made] = adapters
        return self._n_cells_made

    def _free(self) -> None:
        held = {cell for places in self.places.values() for cell in places.values()}
        self.cells = {cell: token for cell, token in self.cells.items() if cell in held}


class FakeSampler:
    """Asks the made-up model; satisfies `TokenSampler`.

    Under a grammar that does not allow what the model says, it ends the answer if it can, and says the lowest token
    that may come if it cannot.
    """

    def __init__(self, runtime: FakeRuntime, mask: Mask | None) -> None:
        self._runtime = runtime
        self._mask = mask

    def n_possible(self, draft: Sequence[int]) -> int:
        return len(draft) if self._mask is None else self._mask.n_allowed(draft)

    def sample_scored(self, chunk: int, n_top: int, behind: int = 0) -> Scored:
        return Scored(token := self.sample(chunk, behind), 0.0, ((token, 0.0),)[:n_top])

    def sample(self, chunk: int, behind: int = 0) -> int:
        runtime, mask = self._runtime, self._mask
        token = runtime.next_token(runtime.seen(chunk, behind))
        if mask is None:
            return token
        if not mask.allows(token):
            logits = array("f", [0.0] * runtime.n_vocab)
            for end in runtime.end_tokens:
                logits[end] = 1.0
            mask.allow(memoryview(logits))
            token = max(range(len(logits)), key=logits.__getitem__)
            if logits[token] == -math.inf:
                raise EngineError("no token may come")
        mask.accept(token)
        return token

    def close(self) -> None:
        pass
