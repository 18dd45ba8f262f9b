"""A system prompt that changes a little within a conversation stays as it is cached; a reminder says what is different.

    first      S S S │ u1 │ a │                           the text that is cached
    changed    S T S │ u1 │ a │ u2                        as the client sends it
    prompt     S S S │ u1 │ a │ u2 (S ─▶ T)               the reminder at the end of the newest message
    later      S S S │ u1 │ a │ u2 (S ─▶ T) │ a │ u3      it stays at its place: only u3 is new

A client changes a line about its model, the date, the state of a repository; the same line often stands in the
description of a tool. Nearly all templates write both first, so without this the whole history behind them would be
computed again. The reminder names the lines that hold no longer and quotes the new ones. The next change is compared
with the cached text again, and replaces the reminder before it.

Only where a request continues a conversation that its session has had here: a new one begins with its own text. A
change beyond the limits (`Limits`) is computed as it stands, and is the cached text from then on.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from shepherd.backends.local.offload import weight_of
from shepherd.backends.local.prefix_hash import prefix_hashes, text_hash
from shepherd.core import Message, Request, Text, ToolSpec
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.edits import WHOLE
from shepherd.core.lru import ENTRY_BYTES, LruCache
from shepherd.core.messages import leading_systems, with_aside
from shepherd.dialects.render.conversation import REMINDER

logger = logging.getLogger(__name__)

MOST_LINES = 1_000
"""Between the first and the last line that differ; comparing more takes too long."""
LONGEST_HINT = 80
"""Characters of a line that only says where a change is."""
CHANGED = (
    "The system prompt and the tools at the beginning of this conversation have changed since then. They hold but for "
    "these changes, which replace those of every earlier reminder of this kind."
)
AGAIN = (
    "The system prompt and the tools at the beginning of this conversation hold again as they stand there. The changes "
    "in earlier reminders of this kind hold no longer."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Which changes of a system prompt a reminder at the end of the prompt may name."""

    share: float = 0.25
    """Largest part of the system prompt, in characters of whole lines, removed and added ones together; 0 = none."""
    tokens: int = 1024
    """Of all reminders in one prompt together, where no turn leaves the context."""
    again: int = 8192
    """Where turns leave the context, a reminder is repeated behind text of this weight: the last one may have left."""


@dataclass(frozen=True, slots=True)
class Place:
    """What is kept of a conversation at one of its messages."""

    cached: bytes
    """A hash of the system prompt and the tools that are cached."""
    holds: bytes
    """A hash of those that are valid from here on."""
    n_lines: int = 0
    """In which they differ."""
    reminder: str = ""
    """At the end of this message."""
    n_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Head:
    system: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]

    def name(self) -> bytes:
        """A hash of all of it."""
        shapes = [(tool.name, tool.description, tool.parameters, tool.strict) for tool in self.tools]
        return text_hash(repr(([message.text for message in self.system], shapes)))

    def of(self, request: Request) -> Request:
        behind = request.messages[leading_systems(request.messages) :]
        return replace(request, messages=(*self.system, *behind), tools=self.tools)

    def fits(self, other: Head) -> bool:
        """Whether nothing but texts is different, each of which has a name of its own."""
        mine, theirs = ([replace(tool, description="") for tool in each.tools] for each in (self, other))
        is_clear = len(self.texts()) == 1 + len(self.tools)
        return is_clear and len(self.system) == len(other.system) and mine == theirs

    def texts(self) -> dict[str, str]:
        """By what they are."""
        system = "\n\n".join(message.text for message in self.system)
        tools = {f"the description of the tool {tool.name}": tool.description for tool in self.tools}
        return {"the system prompt": system, **tools}


class KeptSystems:
    """The system prompts of conversations, in the words with which each began. Any thread."""

    def __init__(self, limits: Limits, count: Callable[[str], int], limit_bytes: int = 8_000_000) -> None:
        """`count`: how many tokens a text has."""
        self._limits = limits
        self._count = count
        self._heads = LruCache[Head](limit_bytes)
        """Those that are cached, by their hash."""
        self._places = LruCache[Place](limit_bytes)
        """By the hash of the messages behind the system's, up to the newest of a request."""

    def clear(self) -> None:
        self._heads.clear()
        self._places.clear()

    def settled(self, request: Request, *, evicts: bool) -> tuple[Request, int]:
        """The request with its system prompt and tools as they are cached and the reminders at their places, and how
        many lines are different now. `evicts`: turns may leave its context.
        """
        messages, newest = request.messages, newest_input(request)
        if (head := self.head_of(request)) is None:
            return request, 0
        n = len(head.system)
        hashes = names_of(request, newest)
        known = {at: place for at, key in enumerate(hashes[:-1], n) if (place := self._places.find(key))}
        place = self._place(request, head, newest, known, evicts)
        if place.cached == place.holds and self._heads.find(place.cached) is None:
            self._heads.keep(place.cached, head, weight_of(replace(request, messages=head.system)))
        before = self._keep(hashes[-1], place)
        if place.reminder and before != place:
            logger.info(
                "%d lines of the system prompt and the tools have changed within a conversation: a reminder of %d "
                "tokens behind its newest message says so, and what is cached stays valid",
                place.n_lines,
                place.n_tokens,
            )
        known[newest] = place
        told = {at: each.reminder for at, each in known.items() if each.reminder and each.cached == place.cached}
        if not told:
            return request, 0
        head = self._heads.find(place.cached) or head
        behind = (with_aside(m, told[at]) if at in told else m for at, m in enumerate(messages[n:], n))
        return head.of(replace(request, messages=(*messages[:n], *behind))), place.n_lines

    def head_of(self, request: Request) -> Head | None:
        """What stands before the messages; None where it is not kept."""
        n = leading_systems(request.messages)
        is_named = request.session and request.session != request.user
        if not (self._limits.share and is_named and 0 < n <= newest_input(request)):
            return None
        system = request.messages[:n]
        is_text = all(isinstance(part, Text) for message in system for part in message.parts)
        return Head(system, request.tools) if is_text else None

    def restore(self, request: Request, head: Head, reminders: Mapping[int, str]) -> None:
        """This head is cached for the conversation, with the reminders at these messages."""
        n, name = len(head.system), head.name()
        self._heads.keep(name, head, weight_of(replace(request, messages=head.system)))
        first = next(at for at, message in enumerate(request.messages) if message.role == "assistant") - 1
        names = names_of(request, max((first, *reminders)))
        self._keep(names[first - n], Place(name, name))
        for at, text in reminders.items():
            self._keep(names[at - n], Place(name, b"", reminder=text, n_tokens=self._count(text)))

    def _keep(self, key: bytes, place: Place) -> Place | None:
        return self._places.keep(key, place, ENTRY_BYTES + sys.getsizeof(place.reminder))

    def _place(self, request: Request, head: Head, newest: int, known: Mapping[int, Place], evicts: bool) -> Place:
        """What holds at the newest message, and the reminder that it needs."""
        last = known[max(known)] if known else Place(b"", b"")
        cached = self._heads.find(last.cached)
        holds = last.cached if cached == head else head.name()
        fresh = Place(holds, holds)
        if cached is None or not cached.fits(head):
            return fresh
        own = {at: each for at, each in known.items() if each.reminder and each.cached == last.cached}
        said_at = max(own, default=newest)
        is_far = evicts and weight_of(Request("", request.messages[said_at + 1 : newest])) > self._limits.again
        has_left = is_far or (said_at, WHOLE) in request.cleared
        if holds == last.holds and not (has_left and last.n_lines):
            return replace(last, reminder="", n_tokens=0)
        found = find_changes(cached.texts(), head.texts(), self._limits.share)
        if found is None:
            return fresh
        n_lines = sum(len(each.old) + len(each.new) for each in found)
        n_tokens = self._count(text := reminder(found))
        if not has_left and said_at in own and own[said_at].reminder == text:  # recognised in saved tokens
            return Place(last.cached, holds, n_lines)
        if found and not evicts and sum(each.n_tokens for each in own.values()) + n_tokens > self._limits.tokens:
            return fresh
        return Place(last.cached, holds, n_lines, text, n_tokens)


# -- the difference ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """Lines that have taken the place of others."""

    where: str
    """What text they are in."""
    behind: str
    """The line before them; empty at the beginning."""
    old: tuple[str, ...]
    new: tuple[str, ...]


def find_changes(before: Mapping[str, str], now: Mapping[str, str], share: float) -> list[Change] | None:
    """The changes of all texts, which have the same names in both; None where they are more than this share of the
    first text, or too many to compare."""
    most = share * len(next(iter(before.values())))
    found: list[Change] = []
    for name, text in before.items():
        if text == now[name]:
            continue
        old, new = text.split("\n"), now[name].split("\n")
        counts, others = Counter(old), Counter(new)
        n_different = sum(len(line) * n for line, n in ((counts - others) + (others - counts)).items())
        same = list(zip(old, new, strict=False))
        head = next((at for at, (a, b) in enumerate(same) if a != b), len(same))
        tail = next((at for at in range(len(same) - head) if old[-1 - at] != new[-1 - at]), len(same) - head)
        if n_different > most or max(len(old), len(new)) - head - tail > MOST_LINES:
            return None
        matcher = SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail])
        for kind, start, stop, begin, end in matcher.get_opcodes():
            if kind != "equal":
                behind = next((line.strip() for line in reversed(old[: head + start]) if line.strip()), "")
                lines = old[head + start : head + stop], new[head + begin : head + end]
                found.append(Change(name, behind, *map(tuple, lines)))
    return found if sum(len(line) for each in found for line in (*each.old, *each.new)) <= most else None


def reminder(changes: Sequence[Change]) -> str:
    """What the model reads of these changes."""
    lines = [CHANGED, *(line for change in changes for line in described(change))] if changes else [AGAIN]
    return "\n".join(("", "", REMINDER[0], *lines, REMINDER[1]))


def described(change: Change) -> Iterator[str]:
    shown = change.behind if len(change.behind) <= LONGEST_HINT else f"{change.behind[:LONGEST_HINT]}…"
    place = f'in {change.where}, behind "{shown}"' if shown else f"at the beginning of {change.where}"
    if change.old:
        yield f"No longer valid, {place}:"
        yield from (f"> {line}" for line in change.old)
    if change.new:
        yield "Valid instead:" if change.old else f"New, {place}:"
        yield from (f"> {line}" for line in change.new)


def newest_input(request: Request) -> int:
    """The index of the newest message that is not an answer."""
    return max((at for at, message in enumerate(request.messages) if message.role in ("user", "tool")), default=0)


def names_of(request: Request, newest: int) -> list[bytes]:
    """The hashes of the messages behind the system's, up to the newest."""
    behind = request.messages[leading_systems(request.messages) : newest + 1]
    return prefix_hashes(behind, repr((request.owner, request.user, request.session)))
