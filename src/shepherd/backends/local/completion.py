"""Bare prompts: a text to continue, a gap to fill, or tokens as they are. No messages, no template, no markup.

    prompt            [BOS] p p p p ▸
    prompt, suffix    [BOS] <pre> p p p p <suf> s s s <mid> ▸

Models with such tokens expect this order: prefix, suffix, then they write the middle. Nothing in a client's text
becomes a control token unless the completion is `special`; token ids, which `/tokenize` makes, may be any. Texts may
stand between token ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from shepherd.backends.local.prompt import Encoder
from shepherd.core import Completion, Event, InvalidRequest, TextDelta, Unsupported
from shepherd.core.dataclasses import dataclass
from shepherd.engine.base import Span, Vocabulary


@dataclass(frozen=True, slots=True)
class BarePrompt:
    tokens: array[int]
    start: int
    stop: int
    """Which of the tokens are the client's prompt: neither BOS, nor a suffix."""

    def spans(self, n_ctx: int) -> tuple[Span, ...]:
        """Pieces of the client's prompt, which can leave a full context one by one, as turns do; the last one stays."""
        size = max(16, n_ctx // 16)
        starts = range(self.start, self.stop, size)
        return tuple(
            Span(start, min(start + size, self.stop), at, at, keep=at == len(starts) - 1, label="text")
            for at, start in enumerate(starts)
        )


@dataclass(frozen=True, slots=True)
class Echo:
    """The prompt, repeated before the answer."""

    text: str
    start: int
    stop: int
    """Which of the job's prompt tokens spell it."""


class PlainTextParser:
    """The parser for the answer to a bare prompt: all of it is text; satisfies `Parser`."""

    def feed(self, text: str) -> list[Event]:
        return [TextDelta(text)]

    def close(self, *, truncated: bool = False) -> list[Event]:
        return []


def encode(completion: Completion, encoder: Encoder, vocabulary: Vocabulary, *, model: str) -> BarePrompt:
    """The tokens of a prompt. Raises: `InvalidRequest` for tokens or a gap that the model cannot take."""
    given = (completion.prompt,) if isinstance(completion.prompt, str) else completion.prompt
    prompt: list[int] = []
    for part in given:
        if isinstance(part, str):
            prompt += encoder.tokenize(part, special=completion.special)
        else:
            prompt.append(part)
    check_tokens(prompt, vocabulary, "prompt")
    # A client that begins with a token sends the first one, too.
    has_head = (given and isinstance(given[0], int)) or prompt[:1] == [vocabulary.bos]
    head = [] if vocabulary.bos is None or has_head else [vocabulary.bos]
    tail: list[int] = []
    if completion.suffix is not None:
        if vocabulary.fim is None:
            raise Unsupported(
                f"model {model!r} cannot fill gaps: its vocabulary has no tokens for that; "
                "leave suffix out, or use a coder model",
                field="suffix",
            )
        before, behind, middle = vocabulary.fim
        head, tail = [*head, before], [behind, *vocabulary.tokenize(completion.suffix), middle]
    tokens = array("i", [*head, *prompt, *tail])
    if not tokens:
        raise InvalidRequest(
            f"prompt is empty, and model {model!r} has no token to begin with; send at least one character",
            field="prompt",
        )
    return BarePrompt(tokens, len(head), len(head) + len(prompt))


def check_tokens(tokens: Sequence[int], vocabulary: Vocabulary, field: str) -> None:
    """Raises: `InvalidRequest` that names `field`, if something is no token of the vocabulary."""
    for token in tokens:
        if not 0 <= token < vocabulary.n_vocab:
            raise InvalidRequest(
                f"{field}: token {token} is outside this model's vocabulary (0 to {vocabulary.n_vocab - 1})",
                field=field,
            )


def pieces(tokens: Sequence[int], vocabulary: Vocabulary) -> list[bytes]:
    """The bytes of each token. Raises: `InvalidRequest`."""
    check_tokens(tokens, vocabulary, "tokens")
    return [vocabulary.piece(token) for token in tokens]
