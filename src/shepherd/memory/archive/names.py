"""Names for the messages of a history, by which it is known again. Pure.

Each has a `sha` for what it says, and a `chain` for that and all that was said before it. System prompts are no part
of the chain, because many clients write the time into them: what follows one is named as if it were not there.
"""

from __future__ import annotations

from dataclasses import dataclass

from shepherd.memory.records import Entry, digest


@dataclass(frozen=True, slots=True)
class NamedHistory:
    """A history, the names of its messages, and their ids as far as they are known."""

    entries: tuple[Entry, ...]
    n_deletions: int
    """The file's count of deleted messages at the time. Another count makes the ids worthless."""
    shas: list[bytes]
    chains: list[bytes]
    ids: list[int]
    """0 = not stored."""
    systems: list[int]
    """Where the system prompts are."""

    @classmethod
    def of(
        cls, entries: tuple[Entry, ...], seed: str, n_deletions: int = 0, old: NamedHistory | None = None
    ) -> NamedHistory:
        """Names for all messages. The prefix shared with `old` keeps its own, unless messages were deleted since."""
        if old is not None and old.n_deletions != n_deletions:
            old = None
        n = _n_common(old.entries, entries) if old else 0
        made = cls(entries, n_deletions, [], [], [], [])
        if old:
            made.shas[:], made.chains[:], made.ids[:] = old.shas[:n], old.chains[:n], old.ids[:n]
            for i in (i for i in old.systems if i < n):
                made._name(i, made._link(i, seed))
        link = made._link(n, seed)
        for i in range(n, len(entries)):
            link = made._name(i, link)
        return made

    def _link(self, i: int, seed: str) -> bytes:
        """What the chain of the message at `i` goes on from."""
        said = (self.chains[j] for j in reversed(range(i)) if self.entries[j].role != "system")
        return next(said, None) or digest(seed.encode("utf-8", "replace"))

    def _name(self, i: int, link: bytes) -> bytes:
        """Name the message at `i`; what the chain of the next one goes on from."""
        sha = self.entries[i].sha
        chain = digest(link + sha)
        self.shas[i : i + 1], self.chains[i : i + 1], self.ids[i : i + 1] = [sha], [chain], [0]
        if self.entries[i].role != "system":
            return chain
        self.systems.append(i)
        return link


def _n_common(old: tuple[Entry, ...], new: tuple[Entry, ...]) -> int:
    """Length of the longest prefix that says the same in both, whatever the system prompts say."""
    if old == new[: len(old)]:  # at the speed of C, where most are the same objects
        return len(old)
    for i, (a, b) in enumerate(zip(old, new, strict=False)):
        if a is b or (a.role == b.role == "system"):
            continue
        if a.body != b.body or a.role != b.role or a.calls != b.calls or a.call_id != b.call_id:
            return i
    return min(len(old), len(new))
