"""What text leaves behind after it has gone: kept keys and values were computed while it was in view.

`canary`: a random string stands in an evicted message only. How does the model rank it among 99 others when it is asked
for it? `tails`: a message in the middle is edited, and what stands behind it is kept (`kv.reuse_tail`). What does that
cost the next turns, and does the model still answer with the old value?
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from bench.engine.lives import Cache, Logits, log_softmax, surprise
from bench.engine.talk import Talk, Turn, Writer
from bench.rig.paired import Estimate, Numbers, mean, perplexity
from training.chat import says, user

from shepherd.engine.base import UNOWNED, Chunk, Copy, Forget, Job, Remove, Shift
from shepherd.engine.kv.plan import Limits, Plan, plan
from shepherd.engine.kv.pool import Pool, Tiers
from shepherd.engine.llamacpp.weights import Weights

N_CANDIDATES = 100
"""The canary and 99 that no message has."""
BEFORE, AFTER = 120, 360
"""Tokens of the conversation before the message that goes, and behind it."""
PROBE = 96
N_CTX_TRACES = 1536
"""Cells: a conversation of two system prompts' length, and the candidates' 500 tokens."""


@dataclass(frozen=True, slots=True)
class Told:
    """A message with the code of something, and the question for it."""

    turn: Turn
    question: array[int]
    """Up to where the model would say the code, its first space included."""


def told(writer: Writer, thing: str, code: str) -> Told:
    said, answer = f"Remember that the {thing} code is {code}.", f"The {thing} code is"
    question = writer.message("user", f"What is the {thing} code?") + writer.header("assistant")
    return Told(
        turn=writer.turn([user(said), says(f"Got it. {answer} {code}.")]),
        question=question + writer.plain(answer) + writer.plain(" "),
    )


# -- the canary ----------------------------------------------------------------------------------------------------


def canary(weights: Weights, seeds: Sequence[int]) -> dict[str, dict[str, Estimate]]:
    """By where the canary stood: its mean rank, how often it is first or among ten, and its advantage over the others.

    Chance is a rank of 50.5, 1 % and 10 %, and an advantage of 0 nats. `leak` is the advantage over that of the same
    string after a re-prefill: what the others differ by cancels.
    """
    writer = Writer(weights)
    cache = Cache(weights, N_CTX_TRACES, n_seq=N_CANDIDATES + 2)
    seen: dict[str, list[Numbers]] = {}
    for seed in seeds:
        talk = Talk(writer, seed)
        thing, codes = talk.thing(), talk.secrets(N_CANDIDATES + 1)
        message = told(writer, thing, codes[0])
        before, after = talk.system + joined(talk.turns(BEFORE)), joined(talk.turns(AFTER))
        n_system, start = len(talk.system), len(before) + len(message.turn.tokens)
        end, hole = start + len(after), start - n_system
        # From one to the next; the name behind it tells what is in the cache.
        cache.apply([Forget(0)])
        cache.read(before + message.turn.tokens + after, 0)
        scores = {"in view": _candidates(cache, writer, message.question, end, codes)}
        cache.apply([Remove(0, n_system, start)])
        scores["evicted, gap"] = _candidates(cache, writer, message.question, end, codes)
        cache.apply([Shift(0, start, -hole)])
        scores["evicted, shift"] = _candidates(cache, writer, message.question, end - hole, codes)
        cache.apply([Forget(0)])
        cache.read(talk.system + after, 0)
        scores["re-prefill"] = _candidates(cache, writer, message.question, end - hole, codes)
        standings = {name: _standing(values[:N_CANDIDATES]) for name, values in scores.items()}
        # Another string in the canary's place, which no message ever had.
        standings["never seen, gap"] = _standing(scores["evicted, gap"][1:])
        for name, standing in standings.items():
            base = _standing(scores["re-prefill"][1:] if name == "never seen, gap" else scores["re-prefill"][:-1])
            seen.setdefault(name, []).append(np.append(standing, standing[-1] - base[-1]))
    cache.runtime.close()
    names = ("rank", "first", "among_ten", "advantage", "leak")
    return {
        case: {name: mean(np.array(values)[:, column]) for column, name in enumerate(names)}
        for case, values in seen.items()
    }


def _candidates(cache: Cache, writer: Writer, question: array[int], end: int, codes: Sequence[str]) -> Numbers:
    """The log-probability of each code as the answer to a question at position `end`, which is taken out again."""
    cache.read(question[:-1], end)
    at = end + len(question) - 1
    first = log_softmax(cache.score_all([Chunk(0, question[-1:], at, True)]))[0]
    texts = [writer.plain(code) for code in codes]
    scores = np.array([first[text[0]] for text in texts])
    # All go on from the same cells, each in a sequence of its own; the last token of a code need not be computed.
    for low in range(0, len(texts), N_CANDIDATES):
        batch = texts[low : low + N_CANDIDATES]
        cache.apply([Copy(0, n + 1, 0, -1) for n in range(len(batch))])
        chunks = [
            Chunk(n + 1, text[i : i + 1], at + 1 + i, True)
            for n, text in enumerate(batch)
            for i in range(len(text) - 1)
        ]
        rows = log_softmax(cache.score_all(chunks)).reshape(len(batch), -1, first.size)
        for n, text in enumerate(batch):
            scores[low + n] += sum(rows[n, i, token] for i, token in enumerate(text[1:]))
        cache.apply([Forget(n + 1) for n in range(len(batch))])
    cache.apply([Remove(0, end)])
    return scores


def _standing(scores: Numbers) -> Numbers:
    """Of the first score among all: rank, whether the best, whether among ten (per cent), and advantage in nats."""
    first, others = scores[0], scores[1:]
    rank = 1 + (others > first).sum() + (others == first).sum() / 2
    return np.array([rank, 100.0 * (rank < 2), 100.0 * (rank < 11), first - others.mean()])


# -- tails ---------------------------------------------------------------------------------------------------------


def tails(weights: Weights, seeds: Sequence[int]) -> dict[str, dict[str, Estimate]]:
    """By kind of edit, the kept tail against a cold run of the edited conversation.

    The perplexity of the next turns in per cent more, of all tokens and of the answers; KL in nats; agreement in per
    cent. For a changed value also how often the model prefers the old one, cold and with the kept tail, in per cent.
    """
    writer = Writer(weights)
    cold, warm = Cache(weights, N_CTX_TRACES), Cache(weights, N_CTX_TRACES, n_seq=4)
    rows: dict[str, list[Numbers]] = {"value changed": [], "turn dropped": []}
    stale: list[Numbers] = []
    for seed in seeds:
        talk = Talk(writer, seed)
        thing, codes = talk.thing(), talk.secrets(2)
        old, new = (told(writer, thing, code) for code in codes)
        before, after = talk.system + joined(talk.turns(BEFORE)), joined(talk.turns(AFTER))
        probe, is_answer = probe_of(talk.turns(PROBE))
        for name, middle in (("value changed", new.turn.tokens), ("turn dropped", array("i"))):
            edited = before + middle + after
            end = _splice(warm, before + old.turn.tokens + after, edited)
            cold.apply([Forget(0)])
            cold.read(edited, 0)
            runs = [cold.score(probe, len(edited)), warm.score(probe, end)]
            rows[name].append(_compared(runs, probe, is_answer))
            if middle:
                preferred = [_prefers(cold, len(edited), new, writer, codes), _prefers(warm, end, new, writer, codes)]
                stale.append(np.array(preferred))
    for cache in (cold, warm):
        cache.runtime.close()
    result = {name: _summary(np.array(values)) for name, values in rows.items()}
    answers = 100 * np.array(stale, dtype=np.float64)
    result["value changed"] |= {"old value, cold": mean(answers[:, 0]), "old value, kept tail": mean(answers[:, 1])}
    return result


def _splice(cache: Cache, old: array[int], new: array[int]) -> int:
    """Make sequence 0 hold `new`, from one that holds `old`, as the engine would; the position behind it.

    The last token of `new` is always computed, as in the engine.
    """
    runtime = cache.runtime
    for seq in range(runtime.n_seq):
        runtime.apply(Forget(seq))
    pool = Pool(runtime, Tiers(), name="bench", on_ready=lambda: None)
    ledger = pool.ledger
    source = ledger.new()
    cache.read(old, 0, source.id)
    ledger.extend(source, old)
    job = Job(new, 1)
    limits = Limits(runtime.n_ctx, 0.75, 0)
    planned = plan(ledger, new, job, ledger.find(new, holes=False), limits=limits, reserve=1, reuse_tail=True)
    assert isinstance(planned, Plan), "there is room"
    tail = planned.tail
    assert tail is not None, "the tail is not kept"
    resident = pool.carry_out(planned, planned.n_new + 1, UNOWNED)
    assert resident.id == 0
    for start, stop in planned.todo:
        cache.read(new[start:stop], resident.end)
        ledger.extend(resident, new[start:stop])
        if len(resident) == tail.at:
            pool.splice(resident, tail)
    assert resident.tokens == new
    ledger.check_self()
    pool.close()
    return resident.end


def _compared(runs: Sequence[Logits], probe: array[int], is_answer: npt.NDArray[np.bool_]) -> Numbers:
    """Sums over a probe: surprise, answers' surprise (cold, warm each), KL, agreement, tokens, answers' tokens."""
    (cold, warm), (cold_p, warm_p) = ([surprise(run, probe) for run in runs], [log_softmax(run[:-1]) for run in runs])
    kl = (np.exp(cold_p) * (cold_p - warm_p)).sum()
    agreed = (cold_p.argmax(-1) == warm_p.argmax(-1)).sum()
    answers = cold[is_answer].sum(), warm[is_answer].sum()
    return np.array([cold.sum(), warm.sum(), *answers, kl, agreed, len(cold), is_answer.sum()])


def _summary(rows: Numbers) -> dict[str, Estimate]:
    cold, warm, cold_answers, warm_answers, kl, agreed, n, n_answers = rows.T
    return {
        "all": perplexity(warm, cold, n),
        "answers": perplexity(warm_answers, cold_answers, n_answers),
        "kl": mean(kl, n),
        "agreed": mean(100 * agreed, n),
    }


def _prefers(cache: Cache, end: int, message: Told, writer: Writer, codes: Sequence[str]) -> bool:
    """Whether the first of two codes is the likelier answer."""
    texts = [writer.plain(code) for code in codes]
    at = len(message.question) - 1
    scores = []
    for text in texts:
        logits = cache.score(message.question + text, end)
        scores.append(surprise(logits[at:], message.question[at:] + text).sum())
    return bool(scores[0] < scores[1])


def joined(turns: Sequence[Turn]) -> array[int]:
    tokens = array("i")
    for turn in turns:
        tokens += turn.tokens
    return tokens


def probe_of(turns: Sequence[Turn]) -> tuple[array[int], npt.NDArray[np.bool_]]:
    """The tokens of these turns, and for each but the first whether it is of an answer."""
    tokens = joined(turns)
    is_answer = np.zeros(len(tokens), np.bool_)
    at = 0
    for turn in turns:
        for start, stop in turn.answers:
            is_answer[at + start : at + stop] = True
        at += len(turn.tokens)
    return tokens, is_answer[1:]
