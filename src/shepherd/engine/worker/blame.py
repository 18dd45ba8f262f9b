"""What a child computed when it died, or stood still: what has ended two children is not given to a third. Pure.

    suspects of a death ─ note ─▶ shares by name ─▶ is_deadly: a prompt, or an input, is refused
    suspects of a stall ─ stall ─┘                  clear: it was answered, and is innocent

What was computed alone is to blame; what was computed together is blamed by half. Names are hashes of what is computed,
whoever asks: a prompt that comes again in another request has the same name.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from shepherd.core.lru import LruCache
from shepherd.engine.base import Job

DEADLY = 2.0
"""Deaths until what is to blame for them is refused."""
_MOST = 1024
"""Names that are kept."""

Name = Callable[[], bytes]
"""Made where it is needed: a hash of a long prompt takes time, and most servers never lose a child."""


class Suspect(NamedTuple):
    name: bytes
    is_computed: bool
    """Not: it waited."""


class Blame:
    """Of one model. `is_deadly` and `clear`: any thread; the rest one at a time."""

    def __init__(self) -> None:
        self._shares: LruCache[float] = LruCache(_MOST)
        self._stalled: list[Suspect] = []

    def is_deadly(self, name: Name) -> bool:
        return bool(len(self._shares)) and (self._shares.find(name()) or 0.0) >= DEADLY

    def clear(self, name: Name) -> None:
        if len(self._shares):
            self._shares.keep(name(), 0.0)

    def stall(self, suspects: Sequence[Suspect]) -> None:
        """One of its engines stands still, with this to do: that is to blame if it is killed, not what came later."""
        self._stalled += suspects

    def freeze(self, suspects: Sequence[Suspect]) -> None:
        """All of it stands still."""
        self._stalled = self._stalled or [*suspects]

    def recover(self) -> None:
        """It moves again, and will not be killed for that."""
        self._stalled = []

    def note(self, suspects: Sequence[Suspect]) -> bool:
        """It has died, with this to do; whether that was anything."""
        suspects = self._stalled or suspects
        self._stalled = []
        # Where none has begun, one of them had, and its first step has not come.
        computed = [each for each in suspects if each.is_computed] or suspects
        for name, _ in computed:
            share = 1.0 if len(computed) == 1 else 0.5
            self._shares.keep(name, (self._shares.find(name) or 0.0) + share)
        return bool(computed)


def name_of_prompt(job: Job) -> bytes:
    name = hashlib.sha256(job.tokens.tobytes())
    for at, media in sorted(job.media.items()):
        name.update(b"%d " % at + media.key)
    return name.digest()


def name_of_call(method: str, arguments: tuple[object, ...], keywords: Mapping[str, object]) -> bytes:
    """Of a function of the model with its texts, tokens and files of images."""
    return hashlib.sha256(pickle.dumps((method, arguments, dict(keywords)))).digest()
