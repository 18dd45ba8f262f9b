"""What is kept of earlier requests, so that the prompt of the next one begins with the same tokens (K7, K8).

    prepare     before rendering: what earlier requests fixed        Request ─▶ Prepared
    compile     rendering, and the prompt is kept for later ones     Prepared ─▶ Compiled
    learn       after an answer: how the model wrote it
    recognise   a conversation of another process: what is kept of it is read out of the saved tokens

A request carries its whole history, but clients drop or rewrite parts of it, and so do templates:

    what would break the cache                                 what is kept
    the model's own spelling, reasoning that clients drop      KeptAnswers
    reasoning that a template shows in the newest turn only    KeptPrompts
    tools in another order, or their keys in another order     KeptTools
    the date                                                   KeptDays
    how much room is left, stated at the front                 nothing: it is left out (`without_volatile`)
    what we have quoted of what had left                       KeptQuotes
    a line of the system prompt                                KeptSystems (`kept_system.py`)

All of it is found by a hash of the messages (`prefix_hash.py`), and by the session where a client names one; what is of
another owner is never found. All of it is bounded: the least recently used leaves first, which costs a prefill and
nothing else.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from operator import ne

from shepherd.backends.local.compile import Compiled, Compiler, Prepared
from shepherd.backends.local.kept_system import Head, KeptSystems, Limits
from shepherd.backends.local.prefix_hash import calls_hash, prefix_hashes, tool_hash
from shepherd.backends.local.quotes import with_quotes
from shepherd.backends.local.recognition import Recognised, find_blocks, find_head
from shepherd.backends.local.splice import Earlier
from shepherd.core import Message, OnFull, Request, Text, ToolSpec
from shepherd.core.lru import ENTRY_BYTES, LruCache
from shepherd.core.messages import leading_systems
from shepherd.dialects import Piece, Prompt
from shepherd.dialects.render.replay import WrittenAnswer, means, spelled, with_thoughts, written_answer
from shepherd.engine.kv.ledger import common_prefix
from shepherd.engine.kv.pool import start_of

PIECE_BYTES = 120
"""What a piece of a prompt takes besides its text: itself, and its part of the segments."""


MOST_SAVED, MOST_COMPILED, MOST_OF_BLOCK = 4, 10_000_000, 8_192
"""Saved sequences with which a conversation of another process is compared; tokens of prompts that are made for each;
and those of a reminder or of quotes."""


MOST_SEEN = 10_000
"""Conversations of which it is known that they need not be recognised."""


class KeptPrefix:
    """What one cache keeps of its conversations. Any thread."""

    def __init__(
        self,
        compiler: Compiler,
        *,
        limits: Limits | None = None,
        on_full: OnFull = "error",
        limit_bytes: int = 8_000_000,
        keeps: bool = True,
    ) -> None:
        """`limits`: which changes of a system prompt a reminder names. `on_full`: of requests that leave it open.
        `limit_bytes`: memory for answers, and for prompts. `keeps`: False where answers are repeatable: then a prompt
        is what its request says, whatever was asked before."""
        self._keeps = keeps
        self._compiler = compiler
        self._on_full = on_full
        self._count: Callable[[str], int] = lambda text: len(compiler.vocabulary.tokenize(text))
        self._systems = KeptSystems(limits or Limits(), self._count)
        self._answers = KeptAnswers(limit_bytes)
        self._prompts = KeptPrompts(limit_bytes)
        self._tools = KeptTools()
        self._days = KeptDays()
        self._quotes = KeptQuotes()
        self._seen = LruCache[bool](MOST_SEEN)

    def prepare(self, request: Request) -> Prepared:
        """The request, with what is kept of its conversation."""
        if not self._keeps:
            return Prepared(request)
        request, n_changed = self._settled(request)
        if request.completion is not None:
            return Prepared(request)
        unquoted, (request, n_quoted) = request, self._quotes.restored(request)
        return replace(self._prepared(request), n_quoted=n_quoted, unquoted=unquoted, n_changed=n_changed)

    def _prepared(self, request: Request) -> Prepared:
        template = self._compiler.template_for(request)
        day = self._days.day_of(request, template.clock()) if template.is_dated else None
        return self._prompts.find(Prepared(request, self._answers.find(request.messages, request.owner), day))

    def _settled(self, request: Request) -> tuple[Request, int]:
        """The request with its front as it is cached, and how many lines of that are different now."""
        evicts = (request.on_full or self._on_full) == "evict"
        return self._systems.settled(self._tools.settled(request), evicts=evicts)

    def compile(self, prepared: Prepared) -> Compiled:
        """The request in tokens; its prompt is kept. Raises: as `Compiler.compile`."""
        compiled = self._compiler.compile(prepared)
        if self._keeps:
            self._prompts.keep(prepared, compiled.prompt)
        return compiled

    def learn(self, compiled: Compiled, tokens: Sequence[int], message: Message | None) -> bool:
        """Keep how the model wrote the answer `message`; whether the tokens spell the message."""
        if compiled.bare is not None or not self._keeps:
            return False  # a prompt that continues it is tokenised as a whole
        encoder, request = self._compiler.encoder, compiled.request
        encoder.remember(compiled.encoded, tokens, request.owner)
        written = encoder.spell(tokens)
        if written is None or message is None:
            return False
        answer = written_answer(compiled.prompt, written, message, self._compiler.dialect, request.tools)
        if answer is not None:
            self._answers.keep(request, answer)
        return answer is not None

    def is_new(self, request: Request) -> bool:
        """Whether it continues a conversation of which this process has seen nothing; True once for each."""
        if not self._keeps:
            return False
        n, stop = leading_systems(request.messages), first_answer(request.messages)
        hashes = prefix_hashes(request.messages[n:stop], apart(request))
        return bool(hashes) and not self._seen.keep(hashes[-1], True) and stop < len(request.messages)

    def recognise(self, request: Request, known: Sequence[array[int]]) -> None:
        """Learn from saved token sequences of the conversation how the model wrote its answers, and what stood in its
        prompts besides what the client sends: an earlier system prompt, reminders and quotes."""
        request, best = self._tools.settled(request), 0
        for tokens in sorted(known, key=len, reverse=True)[:MOST_SAVED]:
            head = self._systems.head_of(request)
            if head is not None and (head := self._head_in(tokens, request, head)) is None:
                continue
            found = Recognised(request if head is None else head.of(request))
            if (n := self._walk(found, tokens)) <= best:
                continue
            best = n
            if head is not None:
                self._systems.restore(request, head, found.reminders)
            for at, block in found.quotes.items():
                self._quotes.keep(found.until(at + 1, quoted=False), block, self._count(block))

    def _head_in(self, tokens: array[int], request: Request, head: Head) -> Head | None:
        """The system prompt and the tools with which a saved sequence begins."""
        begun = replace(request, messages=request.messages[: first_answer(request.messages)])
        compiled = self.compile(self._prepared(begun))
        n = start_of(compiled.spans, len(head.system))
        tail = beginning_of(compiled)[n:]
        places = (at for at in range(len(tokens)) if tokens[at : at + 1] == tail[:1])
        at = next((at for at in places if tokens[at : at + len(tail)] == tail), 0)
        saved = self._compiler.spell([*tokens[:at], *compiled.encoded.tokens[n:]])
        return find_head(compiled.prompt.pieces, head, saved)

    def _walk(self, found: Recognised, tokens: array[int]) -> int:
        """Find what the sequence holds besides the request; how many of its tokens the prompt has then."""
        messages, n_left, n = found.request.messages, MOST_COMPILED, 0
        answers = [at for at, message in enumerate(messages) if message.role == "assistant"]
        while n_left > 0:
            whole = self._compiler.compile(self._prepared(found.until(len(messages))))
            n_left -= len(whole.encoded.tokens)
            before, n = n, common_prefix(whole.encoded.tokens, tokens)
            at = message_at(whole, n)
            if n in (before, len(tokens)) or at is None:
                break
            for stop in (*(each for each in answers if each >= at - 1), len(messages)):
                prepared = self._prepared(found.until(stop))
                compiled = self._compiler.compile(prepared)
                n_left -= len(compiled.encoded.tokens)
                n_same = common_prefix(compiled.encoded.tokens, tokens)
                if message_at(compiled, n_same) is not None:
                    if self._add_block(found, compiled, tokens, n_same):
                        break
                    return n_same
                self._prompts.keep(prepared, compiled.prompt)
                if n_same == len(compiled.encoded.tokens) and stop < len(messages) and n_left > 0:
                    _, end = self._compiler.ends(compiled.prompt)
                    self.learn(compiled, list(takewhile(partial(ne, end), tokens[n_same:])), messages[stop])
        return n

    def _add_block(self, found: Recognised, compiled: Compiled, tokens: array[int], n: int) -> bool:
        """Whether the sequence has a block of ours at this token, where the prompt differs; it is found then."""
        if (near := message_at(compiled, n)) is None:
            return False
        for is_quotes, block in find_blocks(self._compiler.spell(tokens[max(0, n - 4) : n + MOST_OF_BLOCK])):
            own = found.quotes if is_quotes else found.reminders
            for at in (near, near - 1):
                if at in own or found.request.messages[at].role not in ("user", "tool"):
                    continue
                own[at] = block
                longer = self._compiler.compile(self._prepared(found.until(len(compiled.request.messages))))
                if common_prefix(longer.encoded.tokens, tokens) > n + self._count(block) // 2:
                    return True
                del own[at]
        return False

    def is_quoted(self, compiled: Compiled) -> bool:
        """Whether it is decided what is quoted for the last message, be it nothing."""
        return compiled.unquoted is None or self._quotes.has(compiled.unquoted)

    def quote(self, compiled: Compiled, block: str, n_tokens: int) -> None:
        """From now on, this block of so many tokens stands with the last message of the request."""
        if compiled.unquoted is not None:
            self._quotes.keep(compiled.unquoted, block, n_tokens)

    def unquote(self, compiled: Compiled) -> bool:
        """From now on, nothing stands with the messages of the newest turn; whether something did."""
        return compiled.unquoted is not None and self._quotes.drop(compiled.unquoted)

    def begin(self, request: Request, day: datetime) -> None:
        """The conversation of this request began on that day."""
        self._days.begin(self._tools.settled(request), day)

    def clear(self) -> None:
        self._systems.clear()
        self._answers.clear()
        self._prompts.clear()
        self._quotes.clear()


def first_answer(messages: Sequence[Message]) -> int:
    """The index of the first answer; behind the last message without one."""
    return next((at for at, message in enumerate(messages) if message.role == "assistant"), len(messages))


def beginning_of(compiled: Compiled) -> array[int]:
    """The tokens up to the end of the last message."""
    return compiled.encoded.tokens[: max((span.stop for span in compiled.spans), default=0)]


def message_at(compiled: Compiled, n: int) -> int | None:
    """The message of the nth token, or the one behind it; None where there is none."""
    return next((span.message for span in compiled.spans if span.stop > n), None)


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
        apart = (owner, prepared.day, request.reasoning, request.shows_tools, kwargs)
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


class KeptQuotes:
    """What was quoted for each message, so that it stands there in every later prompt. Any thread."""

    def __init__(self, limit_bytes: int = 8_000_000) -> None:
        self._blocks = LruCache[tuple[str, int]](limit_bytes)

    def restored(self, request: Request) -> tuple[Request, int]:
        """The request with the quotes that its messages had, and how many tokens these are."""
        if not self._blocks:
            return request, 0
        hashes = prefix_hashes(request.messages, apart(request))
        found = {at: known for at, key in enumerate(hashes) if (known := self._blocks.find(key)) and known[0]}
        if not found:
            return request, 0
        messages = (with_quotes(m, found[at][0]) if at in found else m for at, m in enumerate(request.messages))
        return replace(request, messages=tuple(messages)), sum(n_tokens for _, n_tokens in found.values())

    def has(self, request: Request) -> bool:
        return self._blocks.find(prefix_hashes(request.messages, apart(request))[-1]) is not None

    def keep(self, request: Request, block: str, n_tokens: int) -> None:
        key = prefix_hashes(request.messages, apart(request))[-1]
        self._blocks.keep(key, (block, n_tokens), ENTRY_BYTES + sys.getsizeof(block))

    def drop(self, request: Request) -> bool:
        """Keep that nothing is quoted from the newest question on; whether something was."""
        messages, dropped = request.messages, False
        newest = max((at for at, message in enumerate(messages) if message.is_input), default=0)
        for key in prefix_hashes(messages, apart(request))[newest:]:
            if (known := self._blocks.find(key)) and known[0]:
                self._blocks.keep(key, ("", 0), ENTRY_BYTES)
                dropped = True
        return dropped

    def clear(self) -> None:
        self._blocks.clear()


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
    """The day on which each conversation began. Any thread. A request that begins with all messages of an earlier one
    keeps its day; another one begins today."""

    def __init__(self, limit: int = 10_000) -> None:
        self._days = LruCache[datetime](limit)

    def begin(self, request: Request, day: datetime) -> None:
        for prefix in prefix_hashes(request.messages[:2], apart(request)):
            self._days.keep(prefix, day)

    def day_of(self, request: Request, today: datetime) -> datetime:
        seen = prefix_hashes(request.messages, apart(request))
        if not seen:
            return today
        known = seen if request.session else seen[:-1]
        day = next((day for prefix in reversed(known) if (day := self._days.find(prefix))), today)
        self._days.keep(seen[-1], day)
        return day
