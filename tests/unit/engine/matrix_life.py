"""One conversation's whole life on one model, and the faults that a cache can have; run by `test_matrix.py`.

    echo '{"kind": "plain"}' | python -m tests.unit.engine.matrix_life   # {"memory": ..., "facts": ..., "errors": ...}

Everything that an engine does to a cache is done here as the gate allows it: append, roll back, edit, evict, share a
prefix, decode interleaved, save, forget, restore elsewhere, rebase. After each step the next-token logits are compared
with those of a *cold* run: a fresh context that decoded the same tokens at the same positions, each removed range taken
out when it was. The error is the normalised mean square over the vocabulary.

Other stories plant one fault each, and show that it would be noticed. One request per line, one answer per line; a
crash ends this process and not the one that asks.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import traceback
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.unit.engine import matrix_scheduler
from tests.unit.engine.tiny_gguf import RECIPES, amplified, write

from shepherd.core import EngineError, Sampling
from shepherd.engine.base import Chunk, Copy, Forget, Mask, Remove, Shift
from shepherd.engine.llamacpp.library import FAST
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.sampler import LlamaSampler
from shepherd.engine.llamacpp.weights import Weights

N_CTX, N_SEQ, N_BATCH = 1024, 4, 64


@dataclass(slots=True)
class Track:
    """What a sequence should hold: every token that was decoded, and when ranges of positions were taken out."""

    tokens: list[int] = field(default_factory=list)
    """By position."""
    holes: list[tuple[int, int, int]] = field(default_factory=list)
    """`(when, start, stop)`: positions `[start, stop)` left when the sequence had `when` tokens."""
    start: int = 0
    """Position of the first token; only positions relative to each other matter to the model."""

    def resident(self) -> list[int]:
        """Positions that are still held."""
        gone = {position for _, start, stop in self.holes for position in range(start, stop)}
        return [position for position in range(len(self.tokens)) if position not in gone]

    def cut(self, length: int) -> Track:
        """The same without the tokens from position `length` on."""
        holes = [(min(when, length), start, min(stop, length)) for when, start, stop in self.holes if start < length]
        return Track(self.tokens[:length], holes)


class Life:
    """A runtime, and what its sequences should hold."""

    def __init__(self, weights: Weights, options: ContextOptions, n: int) -> None:
        self.weights = weights
        self.options = options
        self.n = n
        self.runtime = LlamaRuntime(weights, options)
        self.random = random.Random(5)
        self.tracks: dict[int, Track] = {}
        self.checkpoints: dict[int, list[tuple[int, bytes]]] = {}
        self.errors: dict[str, float] = {}
        self.facts: dict[str, object] = {}
        self.logits: dict[int, array[float]] = {}
        """Per sequence, after its last token."""

    def tokens(self, n: int) -> list[int]:
        return [self.random.randrange(self.weights.n_vocab) for _ in range(n)]

    # -- what an engine does ---------------------------------------------------------------------------------------

    def append(self, seq: int, tokens: Sequence[int]) -> None:
        """Decode behind what the sequence holds, and checkpoint where the memory needs it."""
        for at in range(0, len(tokens), N_BATCH):
            self.step({seq: tokens[at : at + N_BATCH]})

    def step(self, parts: dict[int, Sequence[int]]) -> None:
        """One decode of all `parts`."""
        batch = []
        for seq, tokens in parts.items():
            track = self.tracks.setdefault(seq, Track())
            if self.runtime.memory.checkpoint and len(track.tokens) % N_BATCH < len(tokens):
                self.checkpoint(seq)
            batch.append(Chunk(seq, array("i", tokens), len(track.tokens) - track.start, logits=True))
            track.tokens += tokens
        done = self.runtime.decode(batch)
        assert done == "ok", done
        self.logits |= {chunk.seq: self.runtime.logits(number) for number, chunk in enumerate(batch)}

    def checkpoint(self, seq: int) -> None:
        state = self.runtime.save(seq, partial=True)
        if state:
            self.checkpoints.setdefault(seq, []).append((len(self.tracks[seq].tokens), state))

    def roll_back(self, seq: int, length: int) -> None:
        """Drop the tokens from position `length` on: removed, or behind a checkpoint, or computed anew."""
        wanted = self.tracks[seq].cut(length)
        kept = [(n, state) for n, state in self.checkpoints.get(seq, ()) if n <= length]
        if self.runtime.apply(Remove(seq, length)):
            self.tracks[seq] = wanted
        elif kept and self.runtime.load(seq, kept[-1][1], partial=True):
            n = kept[-1][0]
            assert self.runtime.apply(Remove(seq, n))
            self.tracks[seq] = wanted.cut(n)
            self.append(seq, wanted.tokens[n:])
        else:
            self.restart(seq, wanted)
        self.checkpoints[seq] = kept

    def restart(self, seq: int, wanted: Track) -> None:
        """Compute what `wanted` still holds anew, at positions from 0 on."""
        assert self.runtime.apply(Forget(seq))
        self.tracks[seq] = Track()
        self.checkpoints[seq] = []
        self.append(seq, [wanted.tokens[position] for position in wanted.resident()])

    def evict(self, seq: int, start: int, stop: int) -> None:
        """Take positions `[start, stop)` out: a hole, or everything else computed anew."""
        track = self.tracks[seq]
        holes = [*track.holes, (len(track.tokens), start, stop)]
        if self.runtime.memory.hole:
            assert self.runtime.apply(Remove(seq, start, stop))
            track.holes = holes
        else:
            self.restart(seq, Track(track.tokens, holes))

    def share(self, source: int, target: int, length: int) -> None:
        """Give `target` the first `length` positions of `source`: shared, or computed anew."""
        wanted = self.tracks[source].cut(length)
        if self.runtime.memory.share:
            assert self.runtime.apply(Copy(source, target, 0, length))
            self.tracks[target] = wanted
        else:
            self.restart(target, wanted)

    def rebase(self, seq: int, length: int) -> None:
        """The first `length` positions leave and the others move down: shifted, or computed anew."""
        self.evict(seq, 0, length)
        if self.runtime.memory.shift:
            assert self.runtime.apply(Shift(seq, length, -length))
            self.tracks[seq].start = length
        else:
            self.restart(seq, self.tracks[seq])

    # -- and what it is compared with ------------------------------------------------------------------------------

    def check(self, name: str, *seqs: int) -> None:
        for seq in seqs:
            cold = self.cold(self.tracks[seq])
            self.errors[name] = max(self.errors.get(name, 0.0), nmse(self.logits[seq], cold))

    def cold(self, track: Track) -> array[float]:
        """Logits after the last token, by a context that has seen nothing else."""
        runtime = LlamaRuntime(self.weights, replace(self.options, n_seq=1, swa_full=True))
        at = 0
        for when, start, stop in [*track.holes, (len(track.tokens), 0, 0)]:
            while at < when:
                piece = array("i", track.tokens[at : min(at + N_BATCH, when)])
                assert runtime.decode([Chunk(0, piece, at, logits=True)]) == "ok"
                at += len(piece)
            if start < stop:
                assert FAST.seq_rm(runtime._kv, 0, start, stop)
        logits = runtime.logits(0)
        runtime.close()
        return logits


def nmse(found: Sequence[float], wanted: Sequence[float]) -> float:
    """Squared error of `found`, as a part of the spread of `wanted`."""
    mean = sum(wanted) / len(wanted)
    spread = sum((value - mean) ** 2 for value in wanted)
    return sum((a - b) ** 2 for a, b in zip(found, wanted, strict=True)) / spread


def live(life: Life) -> None:
    """Everything, in an order in which each step has something to break."""
    runtime = life.runtime
    life.append(0, life.tokens(300))
    life.check("append", 0)
    for token in life.tokens(12):
        life.append(0, [token])
    life.check("generate", 0)
    life.roll_back(0, len(life.tracks[0].tokens) - 6)
    life.append(0, life.tokens(5))
    life.check("roll back", 0)
    life.roll_back(0, 150)
    life.append(0, life.tokens(20))
    life.check("edit", 0)
    life.evict(0, 40, 90)
    life.append(0, life.tokens(8))
    life.check("evict", 0)
    life.evict(0, 100, 110)
    life.append(0, life.tokens(3))
    life.check("evict again", 0)

    life.share(0, 1, 60 if not runtime.memory.hole else 130)
    life.append(1, life.tokens(10))
    life.append(0, life.tokens(2))
    life.check("share", 0, 1)
    for _ in range(6):
        life.step({1: life.tokens(1), 0: life.tokens(1), 2: life.tokens(9)})
    life.check("interleaved", 0, 1, 2)
    life.evict(1, 20, 30)
    life.append(1, life.tokens(1))
    life.append(0, life.tokens(1))
    life.check("evict what another shares", 0, 1)

    state = runtime.save(0)
    assert state
    assert runtime.apply(Forget(0))
    life.tracks[3] = life.tracks.pop(0)
    life.append(0, life.tokens(150))  # the freed cells are used by others meanwhile
    assert runtime.load(3, state)
    assert runtime.held(3)[1] == len(life.tracks[3].tokens) - 1
    life.append(3, life.tokens(4))
    life.append(1, life.tokens(1))
    life.check("restore", 0, 1, 3)
    life.roll_back(3, len(life.tracks[3].tokens) - 3)
    life.append(3, life.tokens(5))
    life.check("roll back what was restored", 3)

    life.rebase(3, 30)
    life.append(3, life.tokens(3))
    life.append(0, life.tokens(1))
    life.check("rebase", 0, 3)
    life.rebase(0, 100)
    life.append(0, life.tokens(40))
    life.check("rebase", 0)


# -- planted faults ------------------------------------------------------------------------------------------------


def shift_anyway(life: Life) -> None:
    """The gate is overruled: the runtime itself refuses only what would end the process."""
    life.append(0, life.tokens(80))
    life.runtime.memory = replace(life.runtime.memory, shift=True, hole=True)
    assert life.runtime.apply(Remove(0, 0, 30))
    life.facts["done"] = life.runtime.apply(Shift(0, 30, -30))
    if life.facts["done"]:
        track = life.tracks[0]
        track.holes, track.start = [(80, 0, 30)], 30
        life.append(0, life.tokens(3))
        life.check("shift", 0)


def hole_anyway(life: Life) -> None:
    """The library says yes, but a recurrent state remembers what was removed."""
    life.append(0, life.tokens(80))
    life.facts["done"] = life.runtime.apply(Remove(0, 60, 75))
    assert FAST.seq_rm(life.runtime._kv, 0, 60, 75)
    tokens = life.tracks[0].tokens
    without = Track(tokens[:60] + tokens[75:])
    last = life.tokens(1)
    life.append(0, last)
    life.errors["evict"] = nmse(life.logits[0], life.cold(Track(without.tokens + last)))


def roll_back_anyway(life: Life) -> None:
    """The library says yes, but the cells behind the window are gone."""
    life.append(0, life.tokens(400))
    life.facts["done"] = life.runtime.apply(Remove(0, 100))
    assert FAST.seq_rm(life.runtime._kv, 0, 100, -1)
    life.tracks[0] = life.tracks[0].cut(100)
    life.append(0, life.tokens(2))
    life.check("roll back", 0)


def roll_back_over_reused_cells(life: Life) -> None:
    """As before, where windowed layers have all the cells they could want: filling a hole, they reused others."""
    life.append(0, life.tokens(600))
    life.evict(0, 100, 200)
    life.append(0, life.tokens(300))
    life.check("evict", 0)
    life.facts["copied"] = life.runtime.apply(Copy(0, 1, 0, 300))
    life.facts["done"] = life.runtime.apply(Remove(0, 300))
    assert FAST.seq_rm(life.runtime._kv, 0, 300, -1)
    life.tracks[0] = life.tracks[0].cut(300)
    life.append(0, life.tokens(2))
    life.check("roll back", 0)


def share_anyway(life: Life) -> None:
    """Two sequences with one start, but the state or the window is that of the other's end."""
    life.append(0, life.tokens(400))
    FAST.seq_cp(life.runtime._kv, 0, 1, 0, 100)
    life.tracks[1] = life.tracks[0].cut(100)
    life.append(1, life.tokens(2))
    life.check("share", 1)


def abort_anyway(life: Life) -> None:
    """An interrupt is not for memories that cannot go back: they would claim tokens that were never computed."""
    life.append(0, life.tokens(50))
    life.runtime.interrupt(True)
    tokens = life.tokens(20)
    life.facts["done"] = life.runtime.decode([Chunk(0, array("i", tokens), 50, logits=True)])
    life.runtime.interrupt(False)
    kept = life.runtime.held(0)[1] + 1 - 50
    life.tracks[0].tokens += tokens[:kept]
    life.append(0, life.tokens(1))
    life.check("abort", 0)


def hole_elsewhere(life: Life) -> None:
    """One token more is removed than was meant."""
    life.append(0, life.tokens(80))
    life.evict(0, 30, 50)
    assert FAST.seq_rm(life.runtime._kv, 0, 50, 51)
    life.append(0, life.tokens(1))
    life.check("evict", 0)


# -- and more of what is right -------------------------------------------------------------------------------------


def share_by_checkpoint(life: Life) -> None:
    """What cannot be shared as it is: attention cells shared, the rest from a checkpoint of the source."""
    life.append(0, life.tokens(40))
    state = life.runtime.save(0, partial=True)
    life.append(0, life.tokens(300))
    assert life.runtime.apply(Copy(0, 1, 0, 40))
    try:
        life.runtime.decode([Chunk(1, array("i", [1]), 40, logits=False)])
        life.facts["decodes before"] = True
    except AssertionError:
        life.facts["decodes before"] = False
    assert life.runtime.load(1, state, partial=True)
    life.tracks[1] = life.tracks[0].cut(40)
    life.append(1, life.tokens(20))
    life.append(0, life.tokens(2))
    life.check("share", 0, 1)
    for _ in range(4):
        life.step({0: life.tokens(1), 1: life.tokens(1)})
    life.check("interleaved", 0, 1)


def close_holes(life: Life) -> None:
    """With one layer, keys depend on nothing but token and position, so a shift is as good as computing anew."""
    life.append(0, life.tokens(80))
    life.evict(0, 30, 50)
    assert life.runtime.apply(Shift(0, 50, -20))
    life.tracks[0] = Track(life.tracks[0].tokens[:30] + life.tracks[0].tokens[50:])
    life.append(0, life.tokens(3))
    life.check("shift", 0)


def fill(life: Life) -> None:
    """A full pool refuses a batch and changes nothing."""
    life.append(0, life.tokens(300))
    life.append(1, life.tokens(300))
    done, last, other = "ok", array("i"), Chunk(2, array("i", life.tokens(1)), 0, logits=False)
    while done == "ok":
        life.tracks[1].tokens += last
        last = array("i", life.tokens(1))
        mine = Chunk(1, last, len(life.tracks[1].tokens), logits=True)
        done = life.runtime.decode([mine, other] if other.position < 100 else [mine])
        other = other._replace(position=other.position + 1)
    life.facts["done"] = done
    life.facts["held"] = life.runtime.held(1)[1] + 1 == len(life.tracks[1].tokens)
    assert life.runtime.apply(Forget(2))
    life.append(1, life.tokens(1))
    life.check("full", 1)


def refuse(life: Life) -> None:
    """Whatever would end the process, with a gate that allows everything."""
    runtime = life.runtime
    runtime.memory = replace(runtime.memory, hole=True, rollback="any", share=True, shift=True)
    life.append(0, life.tokens(50))
    life.append(1, life.tokens(10))
    for name, op in (
        ("copy onto itself", Copy(0, 0, 0, -1)),
        ("copy onto held positions", Copy(0, 1, 5, -1)),
        ("shift up", Shift(0, 10, 5)),
        ("shift below zero", Shift(0, 10, -11)),
    ):
        life.facts[name] = runtime.apply(op)
    for name, what in (
        ("sequence", lambda: runtime.apply(Forget(N_SEQ))),
        ("negative sequence", lambda: runtime.held(-1)),
        ("sequence in a batch", lambda: runtime.decode([Chunk(N_SEQ, array("i", [1]), 0, logits=False)])),
        ("batch", lambda: runtime.decode([Chunk(2, array("i", [1]) * (N_BATCH + 1), 0, logits=False)])),
        ("outputs", lambda: runtime.decode([Chunk(2, array("i", [1]), at, True) for at in range(N_SEQ + 1)])),
        ("token", lambda: runtime.decode([Chunk(2, array("i", [life.weights.n_vocab]), 0, logits=True)])),
        ("gap", lambda: runtime.decode([Chunk(0, array("i", [1]), 40, logits=True)])),
        ("no tokens", lambda: runtime.decode([])),
        ("text", lambda: life.weights.tokenize("a")),
        ("piece", lambda: life.weights.piece(1)),
    ):
        try:
            life.facts[name] = what()
        except (AssertionError, EngineError, IndexError):
            life.facts[name] = False
    assert runtime.decode([Chunk(2, array("i", [1]), 0, logits=False)]) == "ok"
    sampler = runtime.sampler(Sampling(temperature=0), [])
    for name, ask in (("logits", runtime.logits), ("sample", sampler.sample)):
        try:
            life.facts[name] = bool(ask(0))
        except EngineError:
            life.facts[name] = False
    sampler.close()
    state = runtime.save(0)
    for name, damaged in (("empty", b""), ("cut", state[:-1]), ("foreign", b"x" * 100), ("long", state + b"x")):
        life.facts[f"{name} state"] = runtime.load(3, damaged)
        assert runtime.held(3) == (-1, -1)
    life.append(0, life.tokens(1))
    life.check("after all that", 0)


def schedule(life: Life) -> None:
    """The scheduler on a real cache; see `matrix_scheduler.py`."""
    options = replace(life.options, n_ctx=matrix_scheduler.N_CTX, n_seq=8)
    life.errors["choices"], life.facts = matrix_scheduler.tell(life.weights, options)


def draft(life: Life) -> None:
    """Answers with and without drafts on a real cache; see `matrix_scheduler.py`."""
    options = replace(life.options, n_ctx=matrix_scheduler.N_CTX, n_seq=8, n_outputs=40)
    life.errors["choices"], life.facts = matrix_scheduler.tell_drafts(life.weights, options, life.n)


def draft_from_another_row(life: Life) -> None:
    """Each token of a draft is compared with what the model says one token later."""

    class Late(LlamaRuntime):
        def sampler(self, sampling: Sampling, history: Sequence[int], mask: Mask | None = None) -> LlamaSampler:
            made = super().sampler(sampling, history, mask)
            draw = made.sample
            made.sample = lambda chunk, behind=0: draw(chunk, max(0, behind - 1))  # type: ignore[method-assign]
            return made

    options = replace(life.options, n_ctx=matrix_scheduler.N_CTX, n_seq=8, n_outputs=40)
    runtime = Late(life.weights, options)
    life.errors["choices"], life.facts = matrix_scheduler.tell_drafts(life.weights, options, life.n, runtime)


STORIES = {
    story.__name__: story
    for story in (
        live, shift_anyway, hole_anyway, roll_back_anyway, roll_back_over_reused_cells, share_anyway, abort_anyway,
        hole_elsewhere, share_by_checkpoint, close_holes, fill, refuse, schedule, draft, draft_from_another_row,
    )
}  # fmt: skip


def answer(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`kind` or `path`, `story`, how many times (`n`), and fields of `ContextOptions` as `options`."""
    path = folder / (f"{request['kind']}.gguf" if "kind" in request else Path(request["path"]).name)
    if not path.exists():
        if "kind" in request:
            write(RECIPES[request["kind"]], path)
        else:
            amplified(Path(request["path"]), path)
    weights = Weights.load(path)
    options = ContextOptions(
        n_ctx=N_CTX, n_seq=N_SEQ, n_batch=N_BATCH, n_ubatch=N_BATCH, n_threads=1, **request.get("options", {})
    )
    life = Life(weights, options, request.get("n", 1))
    STORIES[request.get("story", "live")](life)
    life.runtime.close()
    weights.close()
    return {"memory": asdict(life.runtime.memory), "facts": life.facts, "errors": life.errors}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="shepherd-matrix-") as folder:
        for line in sys.stdin:
            try:
                told = answer(json.loads(line), Path(folder))
            except Exception:
                told = {"failed": traceback.format_exc()}
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
