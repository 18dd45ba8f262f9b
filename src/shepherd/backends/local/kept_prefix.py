"""What is kept of earlier requests, so that the prompt of the next one begins with the same tokens (K7, K8).

    prepare     before rendering: what earlier requests fixed        Request ─▶ Prepared
    compile     rendering, and the prompt is kept for later ones     Prepared ─▶ Compiled
    learn       after an answer: how the model wrote it
    recognise   a conversation of another process: its answers are read out of the saved tokens

A request carries its whole history, but clients drop or rewrite parts of it, and so do templates:

    what would break the cache                                 what is kept
    the model's own spelling, reasoning that clients drop      KeptAnswers
    reasoning that a template shows in the newest turn only    KeptPrompts
    tools in another order, or their keys in another order     KeptTools
    the date                                                   KeptDays
    how much room is left, stated at the front                 nothing: it is left out (`without_volatile`)

All of it is found by a hash of the messages (`prefix_hash.py`), and by the session where a client names one; what is of
another owner is never found. All of it is bounded: the least recently used leaves first, which costs a prefill and
nothing else.

Not here: how kept characters get into a prompt (`splice.py`, `dialects.render.replay`).
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from operator import ne

from shepherd.backends.local.compile import Compiled, Compiler, Prepared
from shepherd.backends.local.prefix_hash import calls_hash, prefix_hashes, tool_hash
from shepherd.backends.local.splice import Earlier
from shepherd.core import Message, Request, Text, ToolSpec
from shepherd.core.lru import LruCache
from shepherd.dialects import Piece, Prompt
from shepherd.dialects.render.replay import WrittenAnswer, means, spelled, with_thoughts, written_answer

ENTRY_BYTES = 400
"""What an entry takes besides the texts of its value: its key, its links, and the objects around the texts."""
PIECE_BYTES = 120
"""What a piece of a prompt takes besides its text: itself, and its part of the segments."""


class KeptPrefix:
    """What one cache keeps of its conversations. Any thread."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._answers = KeptAnswers()
        self._prompts = KeptPrompts()
        self._tools = KeptTools()
        self._days = KeptDays()

    def prepare(self, request: Request) -> Prepared:
        """The request, with what is kept of its conversation."""
        request = self._tools.settled(request)
        if request.completion is not None:
            return Prepared(request)
        template = self._compiler.template_for(request)
        day = self._days.day_of(request, template.clock()) if template.is_dated else None
        return self._prompts.find(Prepared(request, self._answers.find(request.messages, request.owner), day))

    def compile(self, prepared: Prepared) -> Compiled:
        """The request in tokens; its prompt is kept. Raises: as `Compiler.compile`."""
        compiled = self._compiler.compile(prepared)
        self._prompts.keep(prepared, compiled.prompt)
        return compiled

    def learn(self, compiled: Compiled, tokens: Sequence[int], message: Message | None) -> bool:
        """Keep how the model wrote the answer `message`; whether the tokens spell the message."""
        if compiled.bare is not None:
            return False  # a prompt that continues it is tokenised as a whole
        encoder, request = self._compiler.encoder, compiled.request
        encoder.remember(compiled.encoded.tail, tokens, request.owner)
        written = encoder.spell(tokens)
        if written is None or message is None:
            return False
        answer = written_answer(compiled.prompt, written, message, self._compiler.dialect, request.tools)
        if answer is not None:
            self._answers.keep(request, answer)
        return answer is not None

    def recognise(self, request: Request, known: Sequence[array[int]]) -> None:
        """Learn from saved token sequences, which begin with the first prompt, how the model wrote its answers."""
        for at, message in enumerate(request.messages):
            if message.role != "assistant":
                continue
            compiled = self.compile(self.prepare(replace(request, messages=request.messages[:at])))
            prompt, (_, end) = compiled.encoded.tokens, self._compiler.ends(compiled.prompt)
            answers = (tokens[len(prompt) :] for tokens in known if tokens[: len(prompt)] == prompt)
            for rest in answers:
                if self.learn(compiled, list(takewhile(partial(ne, end), rest)), message):
                    break

    def begin(self, request: Request, day: datetime) -> None:
        """The conversation of this request began on that day."""
        self._days.begin(self._tools.settled(request), day)

    def clear(self) -> None:
        """Drop the answers and the prompts."""
        self._answers.clear()
        self._prompts.clear()


def weight(pieces: Sequence[Piece], *texts: str) -> int:
    """Bytes of memory that an entry with these pieces and texts takes, about."""
    held = sum(sys.getsizeof(text) for text in texts)
    return ENTRY_BYTES + held + sum(sys.getsizeof(piece.text) + PIECE_BYTES for piece in pieces)


class KeptAnswers:
    """Answers, each as the model wrote it. Any thread."""

    def __init__(self, limit_bytes: int = 8_000_000) -> None:
        self._by_calls = LruCache[WrittenAnswer](limit_bytes)
        self._by_prefix = LruCache[WrittenAnswer](limit_bytes)

    def keep(self, request: Request, answer: WrittenAnswer) -> None:
        """Keep the answer to the request."""
        calls = answer.message.calls
        written = spelled(answer.pieces)
        n_bytes = weight(answer.pieces, written)
        # Another client can guess an id that the model wrote: such a call is found in its own conversation only.
        if calls and not any(call.id in written for call in calls):
            self._by_calls.keep((request.owner, calls_hash(calls)), answer, n_bytes)
        self._by_prefix.keep(prefix_hashes((*request.messages, answer.message), request.owner)[-1], answer, n_bytes)

    def clear(self) -> None:
        self._by_calls.clear()
        self._by_prefix.clear()

    def find(self, messages: Sequence[Message], owner: str = "") -> dict[int, WrittenAnswer]:
        """The kept answers among the messages, by their index; none for a message that the client has changed."""
        found: dict[int, WrittenAnswer] = {}
        if not self._by_prefix:
            return found
        for index, (message, prefix) in enumerate(zip(messages, prefix_hashes(messages, owner), strict=True)):
            if message.role != "assistant":
                continue
            answer = self._by_calls.find((owner, calls_hash(message.calls))) if message.calls else None
            if answer is None and (there := self._by_prefix.find(prefix)) is not None and knows(message, there):
                answer = there
            if answer is not None and means(message, answer):
                found[index] = answer
        return found


def knows(message: Message, answer: WrittenAnswer) -> bool:
    """Whether the client that sends the message has received that answer: a client that guesses the calls must not read
    the reasoning of another one. Ollama's protocol has no ids; then the reasoning itself must have come back."""
    own = answer.message
    same_ids = [call.id for call in message.calls] == [call.id for call in own.calls]
    return same_ids or message.reasoning.strip() == own.reasoning.strip()


class KeptPrompts:
    """Prompts, each up to the end of its last message: one that continues another begins with its very characters,
    although some templates write an old message in another way than a new one. What a client has changed since, a
    thought included, is no continuation. Any thread.
    """

    def __init__(self, limit_bytes: int = 8_000_000) -> None:
        self._earlier = LruCache[Earlier](limit_bytes)

    def clear(self) -> None:
        self._earlier.clear()

    def find(self, prepared: Prepared) -> Prepared:
        """The same, with the longest earlier prompt that it continues, and the key of its own."""
        request = prepared.request
        if not request.messages:
            return prepared
        # The prompt may hold reasoning, so only the same user and session may continue it.
        owner = (request.owner, request.user, request.session)
        kwargs = request.extra.get("chat_template_kwargs")
        apart = (owner, prepared.day, request.reasoning, request.tool_choice == "none", kwargs)
        messages = with_thoughts(request.messages, prepared.answers)
        hashes = prefix_hashes(messages, repr((apart, *map(tool_hash, request.tools))), exact=True)
        for n in range(len(hashes), 0, -1):
            if (earlier := self._earlier.find(hashes[n - 1])) is not None:
                return replace(prepared, earlier=earlier, n_earlier=n, key=hashes[-1])
        return replace(prepared, key=hashes[-1])

    def keep(self, prepared: Prepared, prompt: Prompt) -> None:
        """Keep the prompt of a request that `find` has returned."""
        messages = prepared.request.messages
        if prepared.key is None or not prompt.segments or messages[-1].role == "assistant":
            return  # an answer that is being continued has no end yet
        earlier = Earlier.of(prompt)
        self._earlier.keep(prepared.key, earlier, weight(earlier.pieces))


class KeptTools:
    """The tools of conversations, in the order and the spelling in which each came first; new tools come last. Nearly
    all templates write the tools at the front. Any thread.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._orders = LruCache[tuple[str, ...]](limit)
        """Names in their order, by session or else by prefix."""
        self._specs = LruCache[ToolSpec](limit)

    def settled(self, request: Request) -> Request:
        """The request with its system messages and tools in the form that they had before, where they mean the same."""
        messages = without_volatile(request.messages)
        if not request.tools:
            return request if messages is request.messages else replace(request, messages=messages)
        place = apart(request)
        keys: list[object] = [place] if request.session else [*prefix_hashes(messages, place)]
        order = next((known for key in reversed(keys) if (known := self._orders.find(key))), ())
        rank = {name: at for at, name in enumerate(order)}
        first = (self._first(tool, request.owner) for tool in request.tools)
        tools = sorted(first, key=lambda tool: rank.get(tool.name, len(rank)))
        new = dict.fromkeys(tool.name for tool in tools if tool.name not in rank)
        self._orders.keep(keys[-1] if keys else None, (*order, *new))
        return replace(request, messages=messages, tools=tuple(tools))

    def _first(self, tool: ToolSpec, owner: str) -> ToolSpec:
        key = (owner, tool_hash(tool))
        if (known := self._specs.find(key)) is None:
            self._specs.keep(key, tool)
        return known or tool


def apart(request: Request) -> str:
    """What keeps equal conversations of different owners and sessions apart."""
    return repr((request.owner, request.session))


VOLATILE = re.compile(r"\s*<total_tokens>[^<>]{0,80}</total_tokens>")
"""How much room is left, as Claude Code states it."""


def without_volatile(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages, the leading system messages without notes that change with every request. Among the turns such a
    note stays: it does not change there.
    """
    leading = tuple(takewhile(lambda message: message.role == "system", messages))
    if not any(VOLATILE.search(message.text) for message in leading):
        return messages
    steady = (
        replace(
            message, parts=tuple(replace(p, text=VOLATILE.sub("", p.text)) for p in message.parts if type(p) is Text)
        )
        for message in leading
    )
    return (*steady, *messages[len(leading) :])


class KeptDays:
    """The day on which each conversation began. Any thread.

    A request that begins with all messages of an earlier one keeps its day; another one begins today.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._days = LruCache[datetime](limit)

    def begin(self, request: Request, day: datetime) -> None:
        for prefix in prefix_hashes(request.messages[:2], apart(request)):
            self._days.keep(prefix, day)

    def day_of(self, request: Request, today: datetime) -> datetime:
        """When the conversation of this request began."""
        seen = prefix_hashes(request.messages, apart(request))
        if not seen:
            return today
        known = seen if request.session else seen[:-1]
        day = next((day for prefix in reversed(known) if (day := self._days.find(prefix))), today)
        self._days.keep(seen[-1], day)
        return day
