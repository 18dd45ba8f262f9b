"""Characters whose two halves come in two pieces of an answer.

    TextDelta("a\\ud83d")  TextDelta("\\ude00b")     ─ Halves ─▶     TextDelta("a")  TextDelta("😀b")

A server that cuts its texts by UTF-16 sends the halves of an emoji (surrogates) in two records; each alone is no
character, and no text can hold it. A half waits for the next piece of the same kind; one that stays alone is U+FFFD.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from shepherd.core import CallDelta, Event, Opaque, ReasoningDelta, TextDelta
from shepherd.wire.base import compact_json, without_surrogates

_PAIR = re.compile("([\ud800-\udbff])([\udc00-\udfff])")
_BYTES = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def may_have_halves(data: bytes) -> bool:
    """Whether a JSON text has surrogates: as escapes, or as bytes that are no UTF-8 (CESU-8)."""
    return _BYTES.search(data) is not None


def paired(text: str) -> str:
    """The text with its pairs of halves as characters, and U+FFFD in the place of every other half."""
    whole = _PAIR.sub(lambda pair: (pair[1] + pair[2]).encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return str(without_surrogates(whole))


class Halves:
    """The events of one answer with whole characters."""

    def __init__(self) -> None:
        self._waiting: TextDelta | ReasoningDelta | CallDelta | None = None
        """A piece of which only the first half of a character is left."""

    def joined(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            before, self._waiting = self._waiting, None
            if before is not None and type(before) is type(event):
                event = _behind(before, event)
            elif before is not None:
                yield replace(before, text="\ufffd")
            if not isinstance(event, TextDelta | ReasoningDelta | CallDelta):
                yield _cleaned(event)
                continue
            text = event.text
            if "\ud800" <= text[-1:] <= "\udbff" and getattr(event, "signature", None) is None:
                self._waiting, text = replace(event, text=text[-1]), text[:-1]
                if not text:
                    continue
                if isinstance(self._waiting, TextDelta):
                    self._waiting = replace(self._waiting, scores=())
            yield replace(event, text=paired(text))


def _behind(before: Any, event: Any) -> Any:
    """The event with what waited in front of it."""
    made = replace(event, text=before.text + event.text)
    return replace(made, scores=before.scores + event.scores) if isinstance(event, TextDelta) else made


def _cleaned(value: Any) -> Any:
    """A value of `core` with whole characters in all its texts."""
    match value:
        case str():
            return paired(value)
        case tuple():
            return tuple(map(_cleaned, value))
        case Opaque(body=body) if _ESCAPE.search(body):
            value = replace(value, body=compact_json(without_surrogates(json.loads(body))))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    changed = {name: new for name, old in fields.items() if (new := _cleaned(old)) != old}
    return replace(value, **changed) if changed else value
