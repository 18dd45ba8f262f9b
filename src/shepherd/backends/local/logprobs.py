"""The log probabilities of visible tokens: scores go in with the raw text, and come out with the text that is shown.

    written   <think> h m </think> \\n\\n H ello !        tokens, each with the characters that it adds
    thought           - -
    shown                              - ---- -         found again, behind all that was shown before

The shown text is the written text without markup: in the same order, and almost always in one piece. So it is searched
from where the last of it ended. A token that is shown in part counts as shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from shepherd.core import TokenScore
from shepherd.engine.base import Scored, Vocabulary


def score_of(scored: Scored, vocabulary: Vocabulary) -> TokenScore:
    """A token with its bytes, and those of its alternatives."""
    top = tuple((token, vocabulary.piece(token), logprob) for token, logprob in scored.top)
    return TokenScore(scored.token, vocabulary.piece(scored.token), scored.logprob, top)


class Scores:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._waiting: deque[tuple[int, int, Scored]] = deque()
        """Tokens that are neither shown nor hidden yet, each with the characters that it has a part in."""
        self._text = ""
        """Written behind `_at`, and neither shown nor hidden yet."""
        self._at = 0
        self._newest = 0
        """Where the newest token begins."""

    def write(self, scored: Scored, text: str, *, is_open: bool) -> None:
        """One more token, which adds `text`; if it `is_open`, it begins a character that another token ends."""
        self._newest = self._at + len(self._text)
        self._text += text
        self._waiting.append((self._newest, self._newest + len(text) + is_open, scored))

    def close(self, text: str) -> None:
        """Characters that no more tokens end, as they are shown in the end."""
        self._text += text

    def mark(self) -> None:
        """The newest token is markup if it has not been shown yet: its letters are not text."""
        if self._waiting and self._waiting[-1][0] == self._newest:
            n = self._waiting.pop()[1] - self._newest
            self._text = self._text[: len(self._text) - n] + "\0" * n

    def hide(self, text: str) -> None:
        """Thoughts: `text` is not shown, nor what stands before it."""
        found = self._text.find(text)
        self._drop(self._at + found + len(text) if found >= 0 else self._newest)

    def hide_old(self) -> None:
        """A call has ended: nothing before the newest token is shown."""
        self._drop(self._newest)

    def show(self, text: str) -> tuple[TokenScore, ...]:
        """The scores of the tokens that `text`, shown now, has made visible."""
        places = self._places(text)
        if not places:
            return ()
        end = places[-1] + 1
        visible: list[TokenScore] = []
        while self._waiting and self._waiting[0][0] < end:
            start, stop, scored = self._waiting.popleft()
            if any(start <= place < stop for place in places):
                visible.append(score_of(scored, self._vocabulary))
        self._cut(end)
        return tuple(visible)

    def _places(self, text: str) -> Sequence[int]:
        found = self._text.find(text)
        if found >= 0:
            return range(self._at + found, self._at + found + len(text))
        places, at = [], 0
        for char in text:  # markup within was left out
            found = self._text.find(char, at)
            if found >= 0:
                places.append(self._at + found)
                at = found + 1
        return places

    def _drop(self, end: int) -> None:
        while self._waiting and self._waiting[0][1] <= end:
            self._waiting.popleft()
        self._cut(end)

    def _cut(self, end: int) -> None:
        if end > self._at:
            self._text, self._at = self._text[end - self._at :], end
