"""How the tests of this package follow a grammar: byte by byte, with the library that will do so for real."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from shepherd.core import ToolSpec

END = 256


class Bytes:
    """A vocabulary of all bytes and an end token."""

    eos_token_id = END
    bos_token_id = None
    tokens: Sequence[bytes] = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (END,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


@cache
def tokenizer() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(Bytes()), eos_token=[END], slices=[])


@cache
def compiled(lark: str) -> LLMatcher:
    made = LLMatcher(tokenizer(), lark, log_level=0)
    assert not made.is_error(), f"{made.get_error()}\n{lark}"
    return made


def begun(lark: str, text: str = "") -> LLMatcher:
    """The state behind a text, which must be possible."""
    matcher = compiled(lark).deep_copy()
    written = text.encode()
    n = matcher.try_consume_tokens(list(written))
    assert n == len(written), f"after {written[:n].decode(errors='replace')!r}: {written[n:][:20]!r} is refused"
    return matcher


def allows(lark: str, text: str) -> bool:
    """Whether a whole output may be this text."""
    return compiled(lark).validate_tokens([*text.encode(), END]) == len(text.encode()) + 1


def allows_beginning(lark: str, text: str) -> bool:
    """Whether an output may begin like this."""
    return compiled(lark).validate_tokens(list(text.encode())) == len(text.encode())


def walk(lark: str, seed: int, hints: Sequence[str], *, limit: int = 1500) -> str | None:
    """A text that the grammar allows, chosen at random; `None` when none is found within `limit` bytes.

    `hints` are texts that are written where they end a string and nowhere else: chance alone would hardly ever do so.
    """
    chance = random.Random(seed)
    matcher = begun(lark)
    written = bytearray()
    while len(written) < limit:
        if matcher.is_accepting() and (matcher.is_stopped() or chance.random() < 0.3):
            return written.decode()
        possible = [word for word in WORDS if matcher.validate_tokens(list(word)) == len(word)]
        if ends := [hint.encode() for hint in hints if not is_text(matcher, hint)]:
            possible += ends * (3 + len(written) // 50)
        if closing := [word for word in possible if word in (b'"', b"}", b"]")]:
            possible += closing * (len(written) // 100)
        if possible and chance.random() < 0.9:
            chosen = chance.choice(possible)
        else:
            mask = matcher.compute_bitmask()
            chosen = bytes([chance.choice([byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1])])
        assert matcher.consume_tokens(list(chosen)), matcher.get_error()
        written += chosen
    return None


def is_text(matcher: LLMatcher, text: str) -> bool:
    """Whether a text may stand here as a part of some string, or not at all."""
    written = list(text.encode())
    return matcher.validate_tokens(written) < len(written) or matcher.validate_tokens([*written, *ODD]) > len(written)


ODD = "é\U0001f40f".encode()
"""What stands in strings only."""
WORDS = tuple(
    word.encode()
    for word in ('"', '"', "}", "}", "]", ":", ",", "{", "[", "0", "17", "-1.5e3", "true", "null", "é\U0001f40f", "\n",
                 " ", "\\", "\\n", '\\"', "x y", "<", "`", "'")
)  # fmt: skip


def objects(*properties: tuple[str, Any], required: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required), **more}


NODE = objects(("value", {"type": "integer"}), ("next", {"$ref": "#/$defs/node"}), required=["value"])
TOOLS: dict[str, ToolSpec] = {
    name.replace(" ", "_"): ToolSpec(name.replace(" ", "_"), "", parameters)
    for name, parameters in {
        "nothing": objects(),
        "anything": {},
        "say": objects(("text", {"type": "string"}), required=["text"]),
        "write": objects(
            ("path", {"type": "string"}), ("content", {"type": "string"}), ("mode", {"type": "integer"}),
            required=["path", "content"],
        ),
        "typed": objects(
            ("a", {"type": "integer", "minimum": -3}), ("b", {"type": "number"}), ("c", {"type": "boolean"}),
            ("d", {"type": "null"}), required=["a", "b", "c", "d"],
        ),
        "optional": objects(("a", {"type": "integer"}), ("b", {"type": "string"}), ("c", {"type": "boolean"})),
        "chosen": objects(
            ("word", {"enum": ["fast", "faster", 'very "fast"', "ü"]}), ("mixed", {"enum": [1, "one", None, True]}),
            ("fixed", {"const": "yes"}), required=["word", "mixed", "fixed"],
        ),
        "nested": objects(
            ("list", {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3}),
            ("object", objects(("deep", objects(("x", {"type": "string"}), required=["x"])), required=["deep"])),
            required=["list", "object"],
        ),
        "referring": objects(("node", {"$ref": "#/$defs/node"}), required=["node"], **{"$defs": {"node": NODE}}),
        "pointing": objects(("a", {"type": "integer"}), ("b", {"$ref": "#/properties/a"}), required=["b"]),
        "either": objects(
            ("id", {"anyOf": [{"type": "integer"}, {"type": "string"}]}), ("note", {"type": ["string", "null"]}),
            required=["id", "note"],
        ),
        "say_more": objects(("größe", {"type": "integer"}), ("with space", {"type": "string"}), required=["größe"]),
        "open": objects(("a", {"type": "integer"}), additionalProperties={"type": "boolean"}),
    }.items()
}  # fmt: skip
"""Tools whose parameters are awkward in one way each; some names begin like others."""


def sampled(lark: str, hints: Sequence[str], n: int) -> Iterator[str]:
    """At most `n` different texts that the grammar allows."""
    yield from {text for seed in range(n) if (text := walk(lark, seed, hints)) is not None}
