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

from shepherd.core.dataclasses import dataclass, replace
from shepherd.dialects import Piece, Prompt, Segment
from shepherd.dialects.render.replay import joined


@dataclass(frozen=True, slots=True)
class Earlier:
    """A prompt without its generation prompt."""

    pieces: tuple[Piece, ...]
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, prompt: Prompt) -> Earlier:
        """`prompt` must have a segment."""
        return cls(_before(prompt.pieces, prompt.segments[-1].stop), prompt.segments)


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
    moved = earlier.segments[-1].stop - cut
    new = [segment for segment in prompt.segments if segment.message >= n]
    if any(other < n for segment in new for other in segment.others):
        return None
    # Where a question's segment takes in the head of the answer behind it, it does so in both.
    last = max((segment.stop for segment in prompt.segments if segment.message < n), default=0)
    joint = replace(earlier.segments[-1], stop=max(cut, last) + moved)
    segments = (replace(each, start=max(each.start, cut) + moved, stop=each.stop + moved) for each in new)
    pieces = joined(earlier.pieces, *_behind(rest, len(trailer)))
    return replace(prompt, pieces=pieces, segments=(*earlier.segments[:-1], joint, *segments))


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
    made: list[Piece] = []
    for piece in pieces:
        if len(piece.text) > start:
            made.append(piece if start <= 0 else replace(piece, text=piece.text[start:]))
        start -= len(piece.text)
    return tuple(made)
