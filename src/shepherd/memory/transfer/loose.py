"""Messages on lines of their own, gathered into conversations by the name that each line gives."""

from __future__ import annotations

from collections.abc import Iterator

from shepherd.memory.records import Entry
from shepherd.memory.transfer.items import PART, ImportedConversation, LooseMessage, digest_name


class LooseMessages:
    """Yields a part of a conversation as soon as it is full, and the rest at the end."""

    def __init__(self) -> None:
        self._entries: dict[str | None, list[Entry]] = {}
        self._first: dict[str | None, LooseMessage] = {}
        self._names: dict[str | None, str] = {}
        """Of the conversations with a part that was yielded."""

    def add(self, message: LooseMessage) -> Iterator[ImportedConversation]:
        entries = self._entries.setdefault(message.conversation, [])
        self._first.setdefault(message.conversation, message)
        entries.extend(message.entries)
        if len(entries) >= PART:
            yield self._part(message.conversation)

    def close(self) -> Iterator[ImportedConversation]:
        for key in [key for key, entries in self._entries.items() if entries]:
            yield self._part(key)

    def _part(self, key: str | None) -> ImportedConversation:
        entries = tuple(self._entries.pop(key))
        known, first = self._names.get(key), self._first[key]
        self._names[key] = name = known or (digest_name(entries) if key is None else key)
        return ImportedConversation("jsonl", name, entries, known is not None, first.title, None, first.model)
