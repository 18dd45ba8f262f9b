"""An earlier prompt becomes the beginning of a later one, character for character. Pure.

    earlier  ... text of the nth │ trailer │
    prompt   ... text of the nth │ trailer │ further markup, text of others ...
    spliced  ═ earlier ═════════════════════ prompt ═══════════════════════════

Some templates write an old message in another way than a new one: without its reasoning, or without empty tags. The
cache holds the earlier prompt, so the later one keeps its characters. Not here: which
earlier prompt (`kept_prefix.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shepherd.dialects import Piece, Prompt, Stretch
from shepherd.dialects.render.replay import joined


@dataclass(frozen=True, slots=True)
class Earlier:
    """A prompt without its generation prompt."""

    pieces: tuple[Piece, ...]
    stretches: tuple[Stretch, ...]

    @classmethod
    def of(cls, prompt: Prompt) -> Earlier:
        """`prompt` must have a stretch."""
        return cls(_before(prompt.pieces, prompt.stretches[-1].stop), prompt.stretches)


def spliced(earlier: Earlier, prompt: Prompt, n: int) -> Prompt | None:
    """The prompt with `earlier` in place of its first `n` messages.

    None where the prompt cannot be cut behind them: text of those messages or of the tools stands further behind, or
    the last of them ends in another way than in `earlier`, as with two results in one turn.
    """
    own = [at for at, piece in enumerate(prompt.pieces) if piece.origin is not None and piece.origin < n]
    trailer = earlier.pieces[-1].text if earlier.pieces[-1].origin is None else ""
    text = earlier.pieces[-2:-1] if trailer else earlier.pieces[-1:]
    if not own or prompt.pieces[own[-1] :][:1] != text:
        return None
    head, rest = prompt.pieces[: own[-1] + 1], prompt.pieces[own[-1] + 1 :]
    is_mixed = any(piece.origin is not None and piece.origin >= n for piece in head)
    if is_mixed or (trailer and not (rest and rest[0].origin is None and rest[0].text.startswith(trailer))):
        return None
    cut = sum(len(piece.text) for piece in head) + len(trailer)
    moved = earlier.stretches[-1].stop - cut
    new = [stretch for stretch in prompt.stretches if stretch.message >= n]
    if any(other < n for stretch in new for other in stretch.others):
        return None
    # Where a question's stretch takes in the head of the answer behind it, it does so in both.
    last = max((stretch.stop for stretch in prompt.stretches if stretch.message < n), default=0)
    joint = replace(earlier.stretches[-1], stop=max(cut, last) + moved)
    stretches = (replace(each, start=max(each.start, cut) + moved, stop=each.stop + moved) for each in new)
    pieces = joined(earlier.pieces, *_behind(rest, len(trailer)))
    return replace(prompt, pieces=pieces, stretches=(*earlier.stretches[:-1], joint, *stretches))


def _before(pieces: Sequence[Piece], stop: int) -> tuple[Piece, ...]:
    """The first `stop` characters."""
    made: list[Piece] = []
    for piece in pieces:
        if stop <= 0:
            break
        made.append(piece if len(piece.text) <= stop else replace(piece, text=piece.text[:stop]))
        stop -= len(piece.text)
    return tuple(made)


def _behind(pieces: Sequence[Piece], start: int) -> tuple[Piece, ...]:
    """All but the first `start` characters."""
    made: list[Piece] = []
    for piece in pieces:
        if len(piece.text) > start:
            made.append(piece if start <= 0 else replace(piece, text=piece.text[start:]))
        start -= len(piece.text)
    return tuple(made)
