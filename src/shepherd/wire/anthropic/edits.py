"""What a client asks to leave its context (`context_management`), and what has left.

    {"edits": [clear_thinking_20251015?, clear_tool_uses_20250919*, compact_20260112*]}   ─▶ `core.edits.Edit`
    `AppliedEdit` ─▶ {"applied_edits": [...]}

The names and their defaults are those of the vendor's library (`anthropic.types.beta`). A trigger that is left out is a
share of the window here: the vendor's own defaults are larger than most local contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shepherd.core import InvalidRequest
from shepherd.core.dataclasses import dataclass
from shepherd.core.edits import AppliedEdit, Edit, EditKind
from shepherd.wire.base import Fields, Json, Range, field_error, shown, wrong

MAX_EDITS = 16
MAX_INSTRUCTIONS = 8_000
"""Characters of the instructions for a digest."""
KEPT_RESULTS = 3
KEPT_THOUGHTS = 1


@dataclass(frozen=True, slots=True)
class DecodedEdits:
    edits: tuple[Edit, ...] = ()
    unknown: InvalidRequest | None = None
    """The error for every model but the vendor's own, which may know edits of a newer kind."""


def decode_edits(body: Fields, key: str) -> DecodedEdits:
    management = body.find_object(key)
    if management is None or management.find_any("edits") is None:
        return DecodedEdits()
    found = [(entry, entry.get_string("type")) for entry in management.objects("edits", MAX_EDITS)]
    for entry, kind in found:
        if kind not in _KINDS:
            return DecodedEdits(unknown=entry.error("type", f"is {shown(kind)}; the types are {', '.join(_KINDS)}"))
    for entry, kind in found[1:]:
        if kind == _THOUGHTS:
            raise field_error(entry.path, f"is {_THOUGHTS}, which must be the first of the edits")
    edits = tuple(_KINDS[kind](entry) for entry, kind in found)
    for edit, (entry, _) in zip(edits, found, strict=True):
        if (n := len(edit.instructions)) > MAX_INSTRUCTIONS:
            why = f"has {n} characters; a digest takes at most {MAX_INSTRUCTIONS}: shorten it"
            return DecodedEdits(unknown=entry.error("instructions", why))
    return DecodedEdits(edits)


def encode_edits(applied: Sequence[AppliedEdit]) -> Json:
    """What has left; a compaction shows as a block of the answer."""
    return {
        "applied_edits": [
            {"type": kind, count: each.count, "cleared_input_tokens": each.tokens}
            for each in applied
            for kind, (own, count) in _APPLIED.items()
            if own == each.kind
        ]
    }


def _results(entry: Fields) -> Edit:
    trigger = entry.find_object("trigger")
    inputs = entry.find_any("clear_tool_inputs")
    by_calls = trigger is not None and _typed(trigger, "input_tokens", "tool_uses") == "tool_uses"
    value = trigger.find_integer("value", _COUNT) if trigger is not None else None
    keep, least = entry.find_object("keep"), entry.find_object("clear_at_least")
    if keep is not None:
        _typed(keep, "tool_uses")
    if least is not None:
        _typed(least, "input_tokens")
    return Edit(
        "results",
        trigger_tokens=None if by_calls else value,
        trigger_calls=value if by_calls else None,
        keep=_value(keep, KEPT_RESULTS),
        least_tokens=_value(least, 0),
        excluded=_names(entry, "exclude_tools"),
        inputs=inputs if isinstance(inputs, bool) else _names(entry, "clear_tool_inputs") or False,
    )


def _thoughts(entry: Fields) -> Edit:
    keep = entry.find_any("keep")
    if keep == "all":
        return Edit("thoughts", trigger_tokens=0, keep=None)
    if isinstance(keep, str):
        raise wrong(entry.at("keep"), 'an object or "all"', keep)
    turns = entry.find_object("keep")
    if turns is not None and _typed(turns, "thinking_turns", "all") == "all":
        return Edit("thoughts", trigger_tokens=0, keep=None)
    return Edit("thoughts", trigger_tokens=0, keep=_value(turns, KEPT_THOUGHTS, least=1))


def _compact(entry: Fields) -> Edit:
    trigger = entry.find_object("trigger")
    if trigger is not None:
        _typed(trigger, "input_tokens")
    return Edit(
        "compact",
        trigger_tokens=trigger.find_integer("value", _COUNT) if trigger is not None else None,
        is_capped=True,  # the vendor's least trigger is larger than most local windows
        pause=entry.find_boolean("pause_after_compaction") or False,
        instructions=entry.find_string("instructions") or "",
    )


def _typed(entry: Fields, *known: str) -> str:
    kind = entry.get_string("type")
    if kind not in known:
        raise wrong(entry.at("type"), " or ".join(f'"{each}"' for each in known), kind)
    return kind


def _value(entry: Fields | None, default: int, least: int = 0) -> int:
    value = entry.find_integer("value", Range(low=least)) if entry is not None else None
    return default if value is None else value


def _names(entry: Fields, key: str) -> frozenset[str]:
    return frozenset(entry.find_strings(key) or ())


_COUNT = Range(low=0)
_RESULTS, _THOUGHTS, _COMPACT = "clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"
_APPLIED: Mapping[str, tuple[EditKind, str]] = {
    _RESULTS: ("results", "cleared_tool_uses"),
    _THOUGHTS: ("thoughts", "cleared_thinking_turns"),
}
_KINDS: Mapping[str, Callable[[Fields], Edit]] = {_RESULTS: _results, _THOUGHTS: _thoughts, _COMPACT: _compact}
EDITS_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "edits": {
            "type": "array",
            "maxItems": MAX_EDITS,
            "items": {"type": "object", "properties": {"type": {"enum": [*_KINDS]}}, "required": ["type"]},
        }
    },
    "default": {"edits": []},
}
