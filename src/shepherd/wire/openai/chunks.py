"""What the streams of chat and of completions share: chunks that are constant but for their middle.

head of the choice + middle + tail      ...      last chunk of each choice, token counts, [DONE]

The last object also says how long the answer took (llama-server's `timings`), for clients that show the speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from json.encoder import encode_basestring_ascii as quote

from shepherd.core import Event, Reply, StopReason, Usage
from shepherd.core.dataclasses import dataclass
from shepherd.wire.base import Json, compact
from shepherd.wire.openai.shapes import encode_usage, with_own
from shepherd.wire.sse import DONE
from shepherd.wire.watch import Watch

EMPTY_JSON: Json = {}


FINISH_REASONS: dict[StopReason, str] = {"length": "length", "filtered": "content_filter"}
"""All others are `stop`."""


@dataclass(frozen=True, slots=True)
class ChunkOptions:
    include_usage: bool = False
    """Send the token counts in a chunk of their own before the end of a stream."""
    n: int = 1
    """Choices of each prompt."""
    logprobs: bool = False
    return_progress: bool = False
    timings_per_token: bool = False


class Chunks:
    """The frame of one answer, with `n_choices` of all prompts together."""

    def __init__(self, options: ChunkOptions, n_choices: int, *, kind: str, id: str, created: int, model: str) -> None:
        self._options = options
        self.heads = [b""] * n_choices
        """Of the chunks of each choice, up to the middle."""
        self.tail = (b',"usage":null' if options.include_usage else b"") + b"}\n\n"
        self.watch = Watch()
        self._kind, self._id, self._created, self._model = kind, id, created, model
        self._usages: dict[int, Usage] = {}
        """Of the choices that have ended."""

    def begin(self, choice: int, model: str, opening: str) -> None:
        """Set the head of a choice; `opening` begins the middle."""
        self._model = self._model or model
        self.heads[choice] = self._head() + f'"choices":[{{"index":{choice},{opening}'.encode("ascii")

    def progress(self, choice: int, event: Event, middle: bytes) -> bytes:
        """A chunk that says how much of the prompt is read, where that is wanted and has changed. `middle`: of a chunk
        that adds nothing."""
        if not self._options.return_progress or (found := self.watch.progress(event)) is None:
            return b""
        return self.heads[choice] + middle + b',"prompt_progress":' + compact(found) + self.tail

    def timed_tail(self, event: Event) -> bytes:
        """The tail of the chunk with this event: with the times so far, where they are wanted."""
        if not self._options.timings_per_token or (found := self.watch.timings_so_far(event)) is None:
            return self.tail
        return b',"timings":' + compact(found) + self.tail

    def end(self, choice: int, middle: bytes, usage: Usage, own: Json = EMPTY_JSON) -> bytes:
        """The last chunk of a choice, with its `middle`; behind the last one to end, the end of the stream. `own`: what
        a provider of the protocol reports."""
        self._usages[choice] = usage
        given = {key: value for key, value in own.items() if key != "usage"}
        rest = b"," + compact(given)[1:-1] if given else b""
        last = self.heads[choice] + middle + rest
        if len(self._usages) < len(self.heads):
            return last + self.tail
        total = sum_usage([self._usages[at] for at in range(len(self.heads))], self._options.n)
        timings = b',"timings":' + compact(self.watch.timings(total))
        if not self._options.include_usage:
            return last + timings + self.tail + DONE
        counts = compact(self._counts(total, own))
        return last + self.tail + self._head() + b'"choices":[],"usage":' + counts + rest + timings + b"}\n\n" + DONE

    def whole(self, choices: Sequence[Json], replies: Sequence[Reply], own: Json = EMPTY_JSON) -> Json:
        """The answer as one object; `own` as for `end`."""
        usage = sum_usage([reply.usage for reply in replies], self._options.n)
        return {
            "id": self._id,
            "object": self._kind.removesuffix(".chunk"),
            "created": self._created,
            "model": self._model or replies[0].model,
            "system_fingerprint": fingerprint(),
            "choices": choices,
            "timings": self.watch.timings(usage),
            **own,
            "usage": self._counts(usage, own),
        }

    def _counts(self, total: Usage, own: Json) -> Json:
        """Token counts, and with one choice what the provider counts besides."""
        return with_own(encode_usage(total), own.get("usage") if len(self.heads) == 1 else None)

    def _head(self) -> bytes:
        return (
            f'data: {{"id":{quote(self._id)},"object":"{self._kind}","created":{self._created},'
            f'"model":{quote(self._model)},"system_fingerprint":"{fingerprint()}",'
        ).encode("ascii")


@cache
def fingerprint() -> str:
    """The build that answers: with another one, equal seeds may give other answers."""
    return f"b{version('llama-cpp-python')}-shepherd-{version('shepherd')}"


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
        drafted=sum(usage.drafted for usage in usages),
        accepted=sum(usage.accepted for usage in usages),
    )
