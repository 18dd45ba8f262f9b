"""Proofs of providers (`Reasoning.signature`, `ToolCall.signature`), each with its protocol in front.

    provider ─▶ "gemini:CiQB..." in core ─▶ a surface of the same protocol: "CiQB..."; any other: the whole text

A client sends a signature back as it got it. One without a protocol in front comes from a client of the surface's own
protocol, which had it from the provider itself.
"""

from __future__ import annotations

from typing import Literal

Protocol = Literal["openai.chat", "openai.responses", "anthropic", "gemini", "ollama"]
_SIGNING: tuple[Protocol, ...] = ("openai.responses", "anthropic", "gemini")
_OURS = "c2hlcGhlcmQv"
"""How our own signatures begin, for clients that drop thoughts without one: `shepherd/` in base64."""


def signed(protocol: Protocol, raw: str) -> str:
    """A signature as `core` keeps it."""
    return f"{protocol}:{raw}"


def raw_for(protocol: Protocol, signature: str | None) -> str | None:
    """The signature in the provider's own form; None where it belongs to another protocol."""
    prefix = f"{protocol}:"
    return signature.removeprefix(prefix) if signature is not None and signature.startswith(prefix) else None


def received(protocol: Protocol, text: str | None) -> str | None:
    """A signature that a client of a surface of `protocol` has sent, as `core` keeps it; None for one of our own."""
    if not text or text.startswith(_OURS):
        return None
    return text if text.startswith(tuple(f"{each}:" for each in _SIGNING)) else signed(protocol, text)


def sent(protocol: Protocol, signature: str) -> str:
    """A signature for a client of a surface of `protocol`."""
    return raw_for(protocol, signature) or signature
