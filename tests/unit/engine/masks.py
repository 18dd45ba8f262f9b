"""A small vocabulary of any pieces, and texts read by the masks of its grammars."""

from __future__ import annotations

import functools
import json
from array import array
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from shepherd.core import EngineError
from shepherd.dialects.grammar import BLANKS
from shepherd.engine.base import Mask, Special, Vocabulary
from shepherd.engine.grammar.mask import Constrainer

BYTES = 256


class Pieces:
    """Tokens 0..255 are the bytes, then `pieces`, then control tokens; satisfies `Vocabulary`.

    Text becomes the longest pieces that fit, from the left; with `spaced` it gets a space before its beginning, as
    many real tokenizers do it.
    """

    def __init__(
        self,
        pieces: Sequence[bytes] = (),
        control: Sequence[str] = ("<end>",),
        *,
        user_defined: Sequence[str] = (),
        spaced: bool = False,
    ) -> None:
        self.pieces = [*(bytes([byte]) for byte in range(BYTES)), *pieces]
        self.specials = tuple(
            Special(len(self.pieces) + n, text, control=n < len(control))
            for n, text in enumerate([*control, *user_defined])
        )
        self.ids = {special.text: special.id for special in self.specials}
        self.pieces += [special.text.encode() for special in self.specials]
        self.n_vocab = len(self.pieces)
        self.bos: int | None = None
        self.fim: tuple[int, int, int] | None = None
        self.end_tokens: frozenset[int] = frozenset()
        control_ids = {special.id for special in self.specials if special.control}
        self._plain = {raw: t for t, raw in reversed([*enumerate(self.pieces)]) if raw and t not in control_ids}
        self._longest = max(map(len, self._plain))
        self._spaced = spaced

    def tokenize(self, text: str) -> list[int]:
        raw, tokens = (" " * self._spaced + text).encode(), list[int]()
        while raw:
            fitting = next(raw[:n] for n in range(self._longest, 0, -1) if raw[:n] in self._plain)
            tokens.append(self._plain[fitting])
            raw = raw[len(fitting) :]
        return tokens

    def piece(self, token: int) -> bytes:
        return self.pieces[token]

    def id(self, piece: bytes | str) -> int:
        """The last token with this text."""
        raw = piece.encode() if isinstance(piece, str) else piece
        return max(token for token, other in enumerate(self.pieces) if other == raw)


_proof: type[Vocabulary] = Pieces


def constrainer(
    vocabulary: Pieces | None = None, *, ends: Iterable[str] = ("<end>",), spelled: Iterable[str] = ()
) -> Constrainer:
    vocabulary = vocabulary or Pieces()
    return Constrainer(vocabulary, frozenset(vocabulary.ids[end] for end in ends), tuple(spelled))


def allowed(mask: Mask, n: int) -> set[int]:
    """Tokens that may come next, by what happens to `n` logits; asking for each one must say the same."""
    logits = array("f", range(1, n + 1))
    mask.allow(memoryview(logits))
    left = {token for token, logit in enumerate(logits) if logit != float("-inf")}
    assert all(logits[token] == token + 1 for token in left), "the logits of the others stay as they are"
    return left


def reads(made: Constrainer, lark: str, text: str | bytes) -> str:
    """`whole` when a grammar accepts a text, read byte by byte; `part` when more must come; else where it stops."""
    mask, raw = made.mask(lark), text.encode() if isinstance(text, str) else text
    for at, byte in enumerate(raw):
        if not mask.allows(byte):
            return f"stops at {at}"
        mask.accept(byte)
    end = min(made._end_tokens)
    try:
        return "whole" if mask.allows(end) else "part"
    except EngineError:
        return "error"


# -- answers to a schema, a byte at a time

QUICK = 60
"""Bytes after which a random answer goes to its end."""
LONGEST = 600


@functools.cache
def _bytes() -> Constrainer:
    return constrainer(Pieces())


def lark_of(schema: Any) -> str:
    whole = {**schema, "x-guidance": {"whitespace_pattern": BLANKS}} if isinstance(schema, dict) else schema
    return f"start: %json {json.dumps(whole)}"


def reads_json(schema: Any, answer: Any) -> bool:
    """Whether an answer to the schema may be this value."""
    return reads(_bytes(), lark_of(schema), json.dumps(answer, ensure_ascii=False)) == "whole"


def random_answer(schema: Any, draw: Random) -> Any:
    """The value of an answer that the grammar of the schema allows; None if it is not whole within `LONGEST` bytes."""
    mask, end, text = _bytes().mask(lark_of(schema)), Pieces().ids["<end>"], b""
    for n in range(LONGEST):
        tokens = allowed(mask, Pieces().n_vocab)
        usual = tokens & ({*map(ord, '"]}:,foabr1e.')} | {end})
        closing = tokens & ({*b'"]}'} | {end})
        plain = {token for token in tokens if 32 < token < 127 and token != 92}
        wanted = closing if n > QUICK else usual if draw.random() < 0.5 else plain
        token = draw.choice(sorted(wanted or plain or tokens))
        if token == end:
            return json.loads(text)
        mask.accept(token)
        text += bytes([token])
    return None
