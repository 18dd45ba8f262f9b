"""Logs cache decisions: how much of a prompt was cached, why not more, and which turns were evicted.

Counts and message indexes go to this module's logger. Text of messages goes only to the logger `shepherd.content`,
which is silent unless it is enabled by name, as `--debug` does. Indexes of messages count from 0.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from shepherd.engine.base import Job, Span
from shepherd.engine.kv.ledger import Match, Resident, TurnEviction, common_prefix, find_last
from shepherd.engine.kv.plan import Plan
from shepherd.engine.window import Left, Miss

logger = logging.getLogger(__name__)
content_logger = logging.getLogger("shepherd.content")
if content_logger.level == logging.NOTSET:  # else `--debug` has enabled it already
    content_logger.setLevel(logging.WARNING)

TRAILER = 2
"""Tokens that a template writes behind a message's closing tag; they arrive with the next turn."""

_PARTS = {"thought": "a thought", "result": "a long result", "call": "a long call", "image": "an image"}
"""Why a part of a message leaves, by its kind."""
Show = Callable[[int], bytes]


def log_match(
    cache: str,
    tokens: array[int],
    job: Job,
    match: Match | None,
    plan: Plan,
    *,
    n_source: int,
    diverged: int | None,
    show: Show,
) -> None:
    """Log how much of a prompt the cache has, and what the plan does about the rest. `n_source`: tokens of the matching
    sequence before the plan was carried out."""
    source = match.resident if match else None
    matched = _whole(job, plan.length)
    if diverged is not None:
        logger.warning("Conversation diverged at message %d", diverged)
    if plan.replaced is not None or (diverged is not None and plan.length == 0):
        logger.warning("Conversation diverged - clearing cache")
    if not logger.isEnabledFor(logging.DEBUG):
        return
    n_held = len(source.spans) if source is not None else 0
    logger.debug("KV cache contains %d messages, session has %d messages", n_held, len(job.spans))
    logger.debug("Prefix match: %d messages already cached", len(matched))
    logger.debug("Adding %d new messages to KV cache", len(job.spans) - len(matched))
    if plan.n_new == 1 and plan.n_cached:
        logger.debug("Prompt already cached, skipping tokenization/decoding")
    n = len(tokens)
    if match is None or source is None:
        logger.debug("cache %r: miss: nothing of these %d tokens is cached", cache, n)
        return
    if match.length >= n - 1 or match.length >= n_source:
        logger.debug("cache %r: hit, %d of %d prompt tokens are cached", cache, plan.n_cached, n)
    else:
        logger.debug("cache %r: miss: token %d of %d differs", cache, match.length, n)
        if content_logger.isEnabledFor(logging.DEBUG):
            mine, theirs = (_around(of, match.length, show) for of in (tokens, source.tokens))
            content_logger.debug("cache %r: miss: token %d, %r != %r", cache, match.length, theirs, mine)
    if content_logger.isEnabledFor(logging.DEBUG):
        _dump(source, show)


def log_eviction(turns: Sequence[TurnEviction], n_kept: int) -> None:
    """Log evicted turns in the original project's wording. Only indexes shift; positions stay, see docs/adr/0003."""
    stretches: list[tuple[int, int, int, int]] = []
    for turn in turns:
        first, start, stop = turn.first, turn.ranges[0][0], turn.ranges[-1][1]
        if turn.part_of is not None:
            logger.info("Evicting a part of message %d (tokens %d-%d)", first, start, stop)
            continue
        if stretches and stretches[-1][3] == start:
            first, _, start, _ = stretches.pop()
        stretches.append((first, turn.last, start, stop))
    for first, last, start, stop in stretches:
        logger.info("Evicting messages %d-%d (tokens %d-%d)", first, last, start, stop)
        logger.info("Shifting remaining tokens by -%d (their indexes; positions stay)", stop - start)
    logger.info("New KV cache size: %d tokens", n_kept)


def find_miss(
    tokens: array[int], job: Job, match: Match | None, *, n_source: int, show: Show, at_s: float
) -> Miss | None:
    """Where a prompt differs from the sequence that has most of it; None where it only goes on, or nothing is alike."""
    if match is None or match.length >= min(len(tokens) - 1, n_source):
        return None
    at = common_prefix(match.resident.tokens, tokens) if match.resident.n_pure else match.length
    was, now = (_around(of, at, show) for of in (match.resident.tokens, tokens))
    message = next((span.message for span in job.spans if span.start <= at < span.stop), None)
    return Miss(job.session, job.owner.name, at_s, at, len(tokens), was, now, message)


def departures(job: Job, turns: Sequence[TurnEviction], seconds: float, at_s: float) -> Iterator[Left]:
    """What is shown of turns that leave for a job: one notice for each reason."""
    for reason, group in groupby(turns, lambda turn: _reason(job, turn)):
        alike = list(group)
        messages = tuple(dict.fromkeys(at for turn in alike for at in (turn.gone or (turn.first,))))
        n = sum(turn.tokens for turn in alike)
        yield Left(job.session, job.owner.name, at_s, messages, n, seconds * 1000, reason)


def _reason(job: Job, turn: TurnEviction) -> str:
    if job.n_turns_to_evict:
        return "asked"
    if turn.part_of is not None:
        span = next((span for span in job.spans if span.start <= turn.ranges[0][0] < span.stop), None)
        kind = span.kinds[-1][1] if span is not None and span.kinds else None
        return _PARTS.get(kind or "", "a part of a message")
    is_late = any(span.early < 0 and span.message in turn.gone for span in job.spans)
    return "nothing else was left" if is_late else "oldest exchange"


def find_divergence(residents: Iterable[Resident], tokens: array[int], job: Job, match: Match | None) -> int | None:
    """The first message that is not as in the sequence of the same conversation; None if that is continued, or unknown.

    A conversation is the same if its session is; without a session, if a user's message is, or a message behind the one
    that differs.
    """
    if match is not None and match.length >= _n_fixed(match.resident, tokens):
        return None
    candidates = [one for one in residents if one.tokens and not one.aside and one.background == job.background]
    named = [one for one in candidates if job.session and one.session == job.session]
    found = None
    for resident in named or candidates:
        n_same = common_prefix(resident.tokens, tokens)
        if n_same >= _n_fixed(resident, tokens):
            return None
        whole = _whole(job, n_same)
        differing, *behind = job.spans[len(whole) :] or (None,)
        if differing is None:
            continue
        next_one = tokens[behind[0].start : behind[0].stop - TRAILER] if behind else None
        is_known = next_one and find_last(next_one, resident.tokens) is not None
        if named or any(span.label == "user" for span in whole) or is_known:
            found = max(found or 0, differing.message)
    return found


def _n_fixed(resident: Resident, tokens: array[int]) -> int:
    """How many tokens a prompt shares at least with a sequence that it continues; the answer may be another."""
    return min(resident.n_prompt, len(resident), len(tokens)) - 1


def _whole(job: Job, length: int) -> list[Span]:
    return [span for span in job.spans if span.stop - TRAILER <= length and span.start < length]


def _around(tokens: array[int], at: int, show: Show) -> str:
    return f"...{_text(tokens[max(0, at - 4) : at + 6], show)}..."


def _text(tokens: array[int], show: Show) -> str:
    return b"".join(show(token) if token >= 0 else b"[media]" for token in tokens).decode("utf-8", "replace")


def _dump(resident: Resident, show: Show) -> None:
    content_logger.debug("=== MESSAGES IN KV CACHE ===")
    for span in resident.spans:
        if resident.n_resident_in(span.start, span.stop):
            text = _text(resident.tokens[span.start : span.stop], show)
            content_logger.debug("[%s] %s", span.label, " ".join(text.split()))
    content_logger.debug("=== END KV CACHE ===")
