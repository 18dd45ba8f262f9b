"""What has left a conversation and is named again: quoted in front of its newest message. Pure.

    newest message ─ cues ─▶ paths, symbols, quoted phrases, error lines, rare words
    what has left ─ lines that hold them ─▶ the best ones, within a budget ─▶ one block of quotes

An agent's client sends its whole history, so what has left the context is at hand; no archive is asked. A line counts
by the cues in it, a cue by its kind and by how few texts hold it. What the context still holds is not quoted.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from shepherd.backends.local.compile import Compiled
from shepherd.backends.local.leaving import QUOTED, stale_results, text_of
from shepherd.core import Message, Part, Request, Text, ToolCall, ToolResult
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.edits import WHOLE, Place
from shepherd.core.messages import with_aside
from shepherd.engine.base import CachedPrefix
from shepherd.engine.kv.ledger import SINK
from shepherd.engine.kv.plan import counting, evictable_turns, remaining, size
from shepherd.memory.recall.quotation import escape_quote
from shepherd.memory.search.words import STOP
from shepherd.wire.values import object_of

CLOSING = "[END OF QUOTES]"
MOST_CUES = 40
MOST_QUOTES = 6
MOST_MISSES = 8
"""Lines that may be too long for what is left of the budget: each of them is tokenised with the whole block."""
AROUND = 2
"""Lines before and behind a line that are quoted with it."""
LINE_CHARS = 400
READ_CHARS = 4_000
"""Of a newest message that is longer, so many at each end are read for cues."""
ENOUGH = 2.5
"""The least score of a quote: one name, one very rare word, or several rare ones."""
FEW = 3
"""Up to so many texts, a word that all of them hold may be a name; of more, a word that half of them hold is none."""
ANY = 0.1
"""The least score where every line with a word of the query counts."""

_PATH = re.compile(r"(?<![\w./-])(?:[\w.~-]*/)+[\w.-]*\w|(?<![\w./-])[\w-]+\.[a-z][a-z0-9]{0,4}\b")
_PHRASE = re.compile(r"`([^`\n]{3,80})`|\"([^\"\n]{3,80})\"|“([^”\n]{3,80})”|'([^'\n]{3,80})'(?!\w)")
_SYMBOL = re.compile(r"\b(?:[A-Za-z]\w*_\w+|[a-z]+[A-Z]\w+|[A-Z]\w*[a-z][A-Z]\w*|[A-Z][A-Z0-9]+-\d+|\w+(?=\(\)))")
_ERROR = re.compile(
    r"^.*(?:\b\w*(?:Error|Exception)\b|\berror(?:\[\w+\])?:|\bFAILED\b|\bfatal:|\bpanic\b).*$", re.MULTILINE
)
_WORD = re.compile(r"[^\W_]{4,}")
_UNSPACED = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\u0e00-\u0e7f]{2,}"
)
_STOP = frozenset().union(*STOP.values())
_PATH_WEIGHT, _PHRASE_WEIGHT, _ERROR_WEIGHT, _SYMBOL_WEIGHT, _WORD_WEIGHT = 3.0, 3.0, 3.0, 2.5, 0.7


QuoteKind = Literal["said", "result", "replaced"]


@dataclass(frozen=True, slots=True)
class Departed:
    """A text that has left the context."""

    label: str
    """Whose it is: a role, or a call."""
    text: str
    kind: QuoteKind = "said"
    """`replaced`: a newer result stands for this one, which is quoted only for what no other result names."""


def cues(messages: Sequence[Message]) -> dict[str, float]:
    """What the newest messages name, in lower case, with its weight: a user's message, or the newest calls and the
    errors in their results."""
    newest = messages[-1]
    found: dict[str, float] = {}

    def add(texts: Iterable[str], weight: float) -> None:
        for text in texts:
            word = text.strip().casefold()
            if len(word) > 2 or not word.isascii():
                found.setdefault(word, weight)

    def names(text: str) -> None:
        add(_PATH.findall(text), _PATH_WEIGHT)
        add(("".join(groups) for groups in _PHRASE.findall(text)), _PHRASE_WEIGHT)
        add(_SYMBOL.findall(text), _SYMBOL_WEIGHT)

    if newest.is_input:
        text = _ends(newest.own_text)
        names(text)
        words = [word for word in _WORD.findall(text) if word.casefold() not in _STOP]
        add((_stem(word) for word in words), _WORD_WEIGHT)
        add((run[at : at + 2] for run in _UNSPACED.findall(text) for at in range(len(run) - 1)), _WORD_WEIGHT)
    else:
        for part in newest.parts:
            if isinstance(part, ToolResult):
                errors = [line[:LINE_CHARS] for line in _ERROR.findall(_ends(text_of(part)))[:4]]
                add(errors, _ERROR_WEIGHT)
                names("\n".join(errors))
        for call in next((message.calls for message in reversed(messages) if message.calls), ()):
            names(_ends("\n".join(each for each in object_of(call.arguments).values() if isinstance(each, str))))
    return dict(list(found.items())[:MOST_CUES])


def quoted(
    messages: Sequence[Message],
    left: Sequence[Departed],
    held: str,
    fits: Callable[[str], bool],
    *,
    known: str = "",
    least: float = ENOUGH,
) -> tuple[str, int]:
    """The block of quotes for the newest message, empty without any, and how many there are.

    `held`: the text that the context still holds, `known`: that of the results in it. `fits`: whether a block is
    within the budget. `least`: score of a line.
    """
    wanted = cues(messages)
    texts = [f"{' '.join(each.label.split())}\n{each.text}".casefold() for each in left]  # a label is one line
    holders = {cue: [at for at, text in enumerate(texts) if cue in text] for cue in wanted}
    # A folder is in every call; a question means what it names.
    most = len(left) if messages[-1].is_input else max(FEW, len(left) // 2)
    weights = {
        cue: wanted[cue] * math.log(2 + len(left) / len(where))
        for cue, where in holders.items()
        if 0 < len(where) <= most
    }
    named: dict[int, list[str]] = {}
    known = known.casefold()
    for cue in weights:
        is_known = cue in known or any(left[at].kind == "result" for at in holders[cue])
        for at in holders[cue]:
            if not (is_known and left[at].kind == "replaced"):
                named.setdefault(at, []).append(cue)
    lines: list[tuple[float, int, int]] = []
    for at, own in named.items():
        label, *rest = texts[at].split("\n")
        by_label = sum(weights[cue] for cue in own if cue in label)
        for number, line in enumerate(rest):
            score = sum(weights[cue] for cue in own if cue in line and cue not in label)
            # A call that is named stands for the beginning of its result.
            score += by_label if score or not number else 0.0
            if score >= least:
                lines.append((score, at, number))
    block, seen = "", Counter[str]()
    taken: set[tuple[int, int]] = set()
    by_line: dict[int, list[str]] = {}
    n = n_missed = 0
    # Of equal lines the newest counts: it is the likeliest to be still so.
    for _, at, number in sorted(lines, key=lambda each: (-each[0], -each[1], each[2])):
        if n == MOST_QUOTES or n_missed == MOST_MISSES:
            break
        if at not in by_line:  # one text may have thousands of such lines
            by_line[at] = left[at].text.split("\n")
        all_lines = by_line[at]
        line = all_lines[number].strip()
        if (at, number) in taken or seen[line] or (line and line in held):
            continue
        for around in (AROUND, 0):
            near = range(max(0, number - around), min(len(all_lines), number + around + 1))
            text = escape_quote("\n".join(all_lines[near.start : near.stop]))[: LINE_CHARS * 2]
            longer = f'{block}- {escape_quote(left[at].label)[:120]}: "{text}"\n'
            if text and fits(f"{QUOTED}\n{longer}{CLOSING}\n\n"):
                block, n = longer, n + 1
                taken.update((at, each) for each in near)
                seen[line] += 1
                break
        else:
            n_missed += 1
    return (f"{QUOTED}\n{block}{CLOSING}\n\n", n) if n else ("", 0)


def takes_quotes(request: Request) -> bool:
    """Whether its newest message is one that quotes can stand with: a user's, or the result of a call."""
    newest = request.messages[-1] if request.messages else None
    return newest is not None and (newest.is_input or any(isinstance(part, ToolResult) for part in newest.parts))


def find_quotes(
    compiled: Compiled,
    held: CachedPrefix,
    *,
    room: int,
    n_low: int,
    fits: Callable[[str], bool],
    query: str | None = None,
) -> str:
    """The block of quotes for the newest message of a prompt, of which the cache has `held`; empty without any.

    What the engine will evict for this prompt counts as left, too. `room`: tokens that the context has for the prompt,
    beside the answer and the quotes; `n_low`: those that an eviction leaves. `query`: what is looked for in place of
    what the newest message names; every line that has some of it counts.
    """
    messages, spans = compiled.request.messages, compiled.spans
    gone = remaining(0, held.length, held.ranges) + [(span.start, span.stop) for span in spans if span.cleared]
    n = size(remaining(0, len(compiled.encoded.tokens), gone))
    if n > room:
        going = evictable_turns(spans, gone, excess=n - room, wish=n - n_low)
        gone += [range_ for turn in (going if isinstance(going, list) else ()) for range_ in turn.ranges]
    present, parts, left_of = set[int](), set[Place](), counting(gone)
    for span, mark in zip(spans, compiled.marks, strict=True):
        is_gone = not left_of(max(span.start, SINK), span.stop)
        if mark.place is not None and mark.place[1] != WHOLE:
            parts |= {mark.place} if is_gone else set()
        elif not is_gone:
            present.add(span.message)
    shown = {span.message for span in spans}
    replaced = stale_results(messages, replaced=True)
    called = {
        call.id: " ".join(f"{call.name} {call.arguments}".split()) for message in messages for call in message.calls
    }
    left: list[Departed] = []
    staying: list[str] = []
    known: list[str] = []
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if text := _text(part):
                if at in shown and (at not in present or (at, number) in parts):
                    of_result: QuoteKind = "replaced" if (at, number) in replaced else "result"
                    kind = of_result if isinstance(part, ToolResult) else "said"
                    left.append(Departed(_label(part, message, called), text, kind))
                else:
                    staying.append(text)
                    known += [text] if isinstance(part, ToolResult) else []
    held_text = "\n".join(staying)
    if query is not None:
        return quoted((Message.user(query),), left, held_text, fits, known="\n".join(known), least=ANY)[0]
    return quoted(messages, left, held_text, fits, known="\n".join(known))[0]


def _text(part: Part) -> str:
    match part:
        case Text(text=text, aside=False):
            return text
        case ToolCall(name=name, arguments=arguments):
            return f"{name} {arguments}"
        case ToolResult():
            return text_of(part)
        case _:
            return ""


def _label(part: Part, message: Message, called: Mapping[str, str]) -> str:
    match part:
        case ToolResult(call_id=id, name=name):
            return called.get(id, name)
        case ToolCall():
            return "call"
        case _:
            return message.role


def with_quotes(message: Message, block: str) -> Message:
    """The message with a block of quotes: in front of a user's words, behind the result of a call."""
    if not message.is_input:
        return with_aside(message, f"\n\n{block.strip()}")
    at = next((n for n, part in enumerate(message.parts) if not (isinstance(part, Text) and part.aside)), 0)
    return replace(message, parts=(*message.parts[:at], Text(block, aside=True), *message.parts[at:]))


def _ends(text: str) -> str:
    return text if len(text) <= 2 * READ_CHARS else f"{text[:READ_CHARS]}\n{text[-READ_CHARS:]}"


def _stem(word: str) -> str:
    """The beginning that the forms of a word share, about."""
    return word[: max(4, len(word) - 2)] if len(word) > 5 else word
