"""Proofs of providers as chat completions carry them: of thoughts, and of calls.

reasoning_details: [{"type": "reasoning.text", "signature": "EvsC...", ...}]        OpenRouter's, kept as they are
tool_calls[].extra_content: {"google": {"thought_signature": "CiQB..."}}           Gemini's, of a call
extra_content: {"google": {"thought_signature": "CiQB..."}}                        the same, of a message
"""

from __future__ import annotations

from typing import Any

from shepherd.wire.base import Json, compact_json, parse_json, parse_object
from shepherd.wire.signature import Protocol, raw_for, received, sent, signed
from shepherd.wire.values import object_at, objects_in

PROTOCOL: Protocol = "openai.chat"


def encode_details(details: Any) -> str | None:
    """The signature of thoughts with these details; None where nothing in them is a proof."""
    found = objects_in(details)
    has_proof = any(each.get("signature") or each.get("data") for each in found)
    return signed(PROTOCOL, compact_json(found)) if has_proof else None


def decode_details(signature: str | None) -> list[Json]:
    """The details in a signature; none in one of another protocol."""
    return objects_in(parse_json(raw_for(PROTOCOL, signature) or ""))


def encode_extra(signature: str) -> Json:
    """The field `extra_content` of a call that is signed."""
    found = parse_object(raw_for(PROTOCOL, signature))
    return found if found is not None else {"google": {"thought_signature": sent("gemini", signature)}}


def decode_extra(extra: Json) -> str | None:
    """The signature of a call with this `extra_content`."""
    match extra:
        case {"google": {"thought_signature": str() as signature, **also}, **more} if not also and not more:
            return received("gemini", signature)
        case _:
            return signed(PROTOCOL, compact_json(extra)) if extra else None


def encode_beside(extra: Json) -> str:
    """The signature of an answer whose message has this `extra_content`."""
    return signed(PROTOCOL, compact_json({"extra_content": extra}))


def decode_beside(signature: str | None) -> Json:
    """The `extra_content` of a message in a signature; empty in any other."""
    return object_at(parse_object(raw_for(PROTOCOL, signature)) or {}, "extra_content")
