"""The thoughts of an answer as one text, for protocols that have one place for all of them: a blank line between two.

A proof of the provider ends a thought, and so does what its own tools do.
"""

from __future__ import annotations

from shepherd.core import OpaqueBlock, ReasoningDelta


class JoinedThoughts:
    def __init__(self) -> None:
        self._has_text = self._is_over = False

    def feed(self, event: ReasoningDelta | OpaqueBlock) -> str:
        if isinstance(event, OpaqueBlock):
            self._is_over = True
            return ""
        text = event.text
        if text and self._has_text and self._is_over:
            text = f"\n\n{text}"
        if text:
            self._has_text, self._is_over = True, False
        self._is_over |= event.signature is not None or event.redacted
        return text
