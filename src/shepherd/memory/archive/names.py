"""The digests of a history, by which its messages are recognised. Pure.

Each message has a `sha` of its content, and a `chain` of its content and of everything before it. System prompts are
not part of the chain, because many clients write the time into them: the messages after one have the same chains
without it.
"""

from __future__ import annotations

from shepherd.core.dataclasses import dataclass
from shepherd.memory.records import Entry, digest


@dataclass(frozen=True, slots=True)
class NamedHistory:
    entries: tuple[Entry, ...]
    n_deletions: int
    """The number of deleted messages of the file, at the time. With another number the ids are invalid."""
    shas: list[bytes]
    chains: list[bytes]
    ids: list[int]
    """0 = not stored."""
    systems: list[int]

    @classmethod
    def of(
        cls, entries: tuple[Entry, ...], seed: str, n_deletions: int = 0, old: NamedHistory | None = None
    ) -> NamedHistory:
        """Digests of all messages. The prefix shared with `old` is copied, unless messages were deleted since."""
        n, made = 0, cls(entries, n_deletions, [], [], [], [])
        if old and old.n_deletions == n_deletions:
            n = _n_common(old.entries, entries)
            made.shas[:], made.chains[:], made.ids[:] = old.shas[:n], old.chains[:n], old.ids[:n]
            for i in (i for i in old.systems if i < n):
                made._name(i, made._link(i, seed))
        link = made._link(n, seed)
        for i in range(n, len(entries)):
            link = made._name(i, link)
        return made

    def _link(self, i: int, seed: str) -> bytes:
        chains = (self.chains[j] for j in reversed(range(i)) if self.entries[j].role != "system")
        return next(chains, None) or digest(seed.encode("utf-8", "replace"))

    def _name(self, i: int, link: bytes) -> bytes:
        """Digest the message at `i`; the chain before the next one."""
        sha = self.entries[i].sha
        chain = digest(link + sha)
        self.shas[i : i + 1], self.chains[i : i + 1], self.ids[i : i + 1] = [sha], [chain], [0]
        if self.entries[i].role != "system":
            return chain
        self.systems.append(i)
        return link


def _n_common(old: tuple[Entry, ...], new: tuple[Entry, ...]) -> int:
    """All system prompts count as equal."""
    if old == new[: len(old)]:  # fast in C: most are the same objects
        return len(old)
    for i, (a, b) in enumerate(zip(old, new, strict=False)):
        if a is b or (a.role == b.role == "system"):
            continue
        if a.body != b.body or a.role != b.role or a.calls != b.calls or a.call_id != b.call_id:
            return i
    return min(len(old), len(new))
