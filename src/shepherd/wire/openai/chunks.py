"""What the streams of chat and of completions share: chunks that are constant but for their middle.

head of the choice + middle + tail      ...      last chunk of each choice, token counts, [DONE]
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quote

from shepherd.core import Reply, Usage
from shepherd.wire.base import Json, compact
from shepherd.wire.openai.shapes import encode_usage
from shepherd.wire.sse import DONE


class Chunks:
    """The frame of one answer: `n` choices of each prompt, `n_choices` of all of them."""

    def __init__(
        self, n: int, n_choices: int, include_usage: bool, *, kind: str, id: str, created: int, model: str
    ) -> None:
        self.heads = [b""] * n_choices
        """Of the chunks of each choice, up to the middle."""
        self.tail = (b',"usage":null' if include_usage else b"") + b"}\n\n"
        self._n, self._include_usage = n, include_usage
        self._kind, self._id, self._created, self._model = kind, id, created, model
        self._usages: dict[int, Usage] = {}
        """Of the choices that have ended."""

    def begin(self, choice: int, model: str, opening: str) -> None:
        """Set the head of a choice; `opening` begins the middle."""
        self._model = self._model or model
        self.heads[choice] = self._head() + f'"choices":[{{"index":{choice},{opening}'.encode("ascii")

    def end(self, choice: int, usage: Usage) -> bytes:
        """The bytes that follow the last chunk of a choice: none but for the last one to end."""
        self._usages[choice] = usage
        if len(self._usages) < len(self.heads):
            return b""
        if not self._include_usage:
            return DONE
        usages = [self._usages[at] for at in range(len(self.heads))]
        counts = compact(encode_usage(sum_usage(usages, self._n)))
        return self._head() + b'"choices":[],"usage":' + counts + b"}\n\n" + DONE

    def whole(self, choices: Sequence[Json], replies: Sequence[Reply]) -> Json:
        """The answer as one object."""
        return {
            "id": self._id,
            "object": self._kind.removesuffix(".chunk"),
            "created": self._created,
            "model": self._model or replies[0].model,
            "choices": choices,
            "usage": encode_usage(sum_usage([reply.usage for reply in replies], self._n)),
        }

    def _head(self) -> bytes:
        return (
            f'data: {{"id":{quote(self._id)},"object":"{self._kind}","created":{self._created},'
            f'"model":{quote(self._model)},'
        ).encode("ascii")


def sum_usage(usages: Sequence[Usage], n: int) -> Usage:
    """Of all choices together, `n` to each prompt, one after the other: a prompt counts once."""
    prompts = usages[::n]
    return Usage(
        input=sum(usage.input for usage in prompts),
        cache_read=sum(usage.cache_read for usage in prompts),
        cache_write=sum(usage.cache_write for usage in prompts),
        output=sum(usage.output for usage in usages),
        reasoning=sum(usage.reasoning for usage in usages),
        recalled=sum(usage.recalled for usage in prompts),
    )
