"""Outputs of any dialect, made of what it writes and of what looks like it, and what must hold for all of them.

Shared by the properties (`test_every_dialect`) and the fuzzer (`tests/search/fuzz/dialects.py`).
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from tests.unit.dialects.streams import counted, events_of

from shepherd.core import CallEnded, Event, ReasoningDelta, TextDelta, ToolCall, ToolSpec, fold
from shepherd.core.events import Finished, Started
from shepherd.dialects.base import Keep
from shepherd.dialects.families import DIALECTS, PLAIN
from shepherd.dialects.grammar import written as literals_of
from shepherd.dialects.parse.markup import Block, Markup
from shepherd.dialects.parse.spelling import Closer, Json, Maybe, OneOf, Part, Pattern, Until
from shepherd.dialects.parse.tags import TagDialect

ALL: dict[str, TagDialect] = {dialect.name: dialect for dialect in (*DIALECTS, PLAIN)}
TOOLS = (
    ToolSpec(
        "weather",
        "",
        {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}},
            "required": ["city"],
        },
    ),
    ToolSpec("now"),
)
WORDS = (
    *("Hello", "Zebra.", "é", "🎉", "日本", "a < b", "x", "Rome", "3", "weather", "now", "city", "days"),
    *("thought", "final", "analysis", "commentary", "assistant", "name", "tools", "call", "argument", "json"),
    "function",
    *("\n", "\n\n", " ", "  ", "\t", "\r\n", "\u2028", "```json\n", "<b>", "&amp;", "? ", "/>"),
    *["<", ">", "<|", "|>", "</", "{", "}", "[", "]", "(", ")", '"', "'", "\\", "`", "```", ",", ":", ";", "=", "]]"],
)
INSIDES = (
    *('{"name": "weather", "arguments": {"city": "Rome"}}', '{"name": "now"}', '[{"name": "now", "arguments": {}}]'),
    *('{"city": "Rome", "days": 12345678901234567890}', "{}", "{'name': 'now'}", '{"city": "Ro', '[{{"name": "now"}}]'),
    *("weather(city='Rome')", "[now()]", "call:now{}", "call:weather{city:Rome}", "now\n", "weather\n"),
    '{"s": "</b>"}',
    *("<function=now>", "</function>", "<parameter=city>", "</parameter>", '<invoke name="now">', "</invoke>"),
    *('<parameter name="city">', '<param name="city">', "</param>", "<![CDATA[", "]]>", '{"s": "</tool_call>"}'),
    *("<arg_key>", "</arg_key>", "<arg_key>city</arg_key>", "<arg_value>", "</arg_value>", "<tool_sep>"),
    *("</tool_call>", "<tool_call>", "<think>", "</think>", "<co>", "</co: 0>", 'tool="now"', "<item>", "</item>"),
    *(" to=functions.now", "to=", "functions.now:0", "all\n", "python\n", "Action:", '<now city="Rome"/>', "<weather"),
)


@cache
def markers(name: str) -> tuple[str, ...]:
    """All markers of a dialect, those for declared tools aside."""
    return markers_of(ALL[name].markup)


def markers_of(markup: Markup) -> tuple[str, ...]:
    blocks = (*markup.blocks, *markup.spelled)
    tags = (tag for thought in (*markup.thoughts, *markup.headed) for tag in (thought.opener, *thought.closers))
    named = (*tags, *(tag for block in blocks for tag in (block.opener, *block.closers)), *markup.skips, *markup.answer)
    return tuple(dict.fromkeys(marker for marker in named if marker))


@cache
def declared_markers(name: str) -> tuple[str, ...]:
    """The markers that a dialect has for the tools."""
    blocks = ALL[name].markup.declared(TOOLS)
    return tuple(dict.fromkeys(tag for block in blocks for tag in (block.opener, *block.closers) if tag))


@cache
def pieces(name: str) -> tuple[str, ...]:
    """What outputs are put together from; markers weigh most."""
    own = (*markers(name), *declared_markers(name))
    near = [
        piece for marker in own if len(marker) > 2 for piece in (marker[:-1], marker[1:], marker[: len(marker) // 2])
    ]
    blocks = spelled_blocks(ALL[name])
    calls = [written for block in blocks for written in itertools.islice(calls_of(block), 4)]
    fixed = [part for block in blocks if block.spelling for part in literals_of(block.spelling.call(TOOLS[0]))]
    return (*own, *own, *markers(name), *calls, *calls, *fixed, *near, *INSIDES, *WORDS, *WORDS)


def spelled_blocks(dialect: TagDialect) -> list[Block]:
    """The blocks that say how a call of theirs is written."""
    markup = dialect.markup
    blocks = (*(markup.spelled or markup.blocks), *markup.declared(TOOLS))
    return [block for block in blocks if block.spelling and block.where != "never"]


def calls_of(block: Block) -> Iterator[str]:
    """Calls of both tools, with and without what is optional, as the block spells them."""
    spelling = block.spelling
    assert spelling is not None
    for tool, full in itertools.product(TOOLS, (True, False)):
        inside = "".join(written(part, full) for part in spelling.call(tool))
        closer = block.closers[0] if block.closers else ""
        yield (
            HEADED.get(block.opener, "").format(tool.name)
            + f"{block.opener}{spelling.before}{inside}{spelling.after}{closer}"
        )


HEADED = {"<atem:function_calls>": " to={}<|message|>"}
"""Headers that must stand before a block for it to be one."""
PATTERNS = ("Rome", "'Rome'", "1", "abc123def", "a1b2c3d4e5")


def written(part: Part, full: bool) -> str:
    match part:
        case str():
            return part
        case Json(schema):
            return json.dumps(sample(schema, full))
        case Until(marker, ends):
            return f"Rome{marker}" + one(ends, full)
        case Closer():
            return ""
        case Maybe(parts):
            return "".join(written(inner, full) for inner in parts) if full else ""
        case OneOf(options):
            return one(options, full)
        case Pattern(regex):
            return next(text for text in PATTERNS if re.fullmatch(regex, text))


def one(options: Sequence[Sequence[Part]], full: bool) -> str:
    """The first of the options, or the last, which lacks what may be left out."""
    return "".join(written(inner, full) for inner in options[0 if full else -1]) if options else ""


def sample(schema: Any, full: bool) -> Any:
    """A value of a schema such as those above."""
    match schema.get("type"):
        case "string":
            return "Rome"
        case "integer":
            return 12345678901234567890
        case "array":
            return ["a </x> {", None]
        case _:
            wanted = (
                schema.get("properties", {})
                if full
                else {key: schema["properties"][key] for key in schema.get("required", ())}
            )
            return {key: sample(value, full) for key, value in wanted.items()}


def random_output(name: str, chance: random.Random, length: int = 12) -> str:
    """Some of the pieces in a row."""
    return "".join(chance.choices(pieces(name), k=chance.randint(1, length)))


def chopped(text: str, places: Iterable[int]) -> list[str]:
    """The text cut at these places."""
    bounds = [0, *sorted(place for place in places if 0 < place < len(text)), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(bounds)]


def squeezed(text: str) -> str:
    return "".join(text.split())


HEADER = (
    r"(?:<\|(?:start|channel|constrain|end|eom|eot|call|return)\|>|to=)(?:[^<]|<(?!\|\w+\|>)){0,160}(?=<|\Z)"
    r"|assistant|analysis|commentary|final"
)
OUTPUT = r"<[|｜]tool\W*outputs?\W*begin[|｜]>.*"
"""What a tool is made to say is nobody's."""
HEADERS = {
    "cohere": r"</?co:?(?:[^<>]*>|[\d,:\[\]]*)",
    "cohere-2": r"</?co:?(?:[^<>]*>|[\d,:\[\]]*)",
    "deepseek-r1": OUTPUT,
    "deepseek-v3.1": OUTPUT,
    "gemma4": "thought|final",
    "gigachat": "assistant|functioncall",
    "gigachat-3.1": "assistant|functioncall",
    "granite-3": "</?response>",
    "harmony": HEADER,
    "hunyuan-a13b": "</?answer>|助手：",
    "kimi-k3": r"<\|(?:open|close)\|>\w+(?:<\|sep\|>)?|<\|(?:open|close|sep)\|>|<\|s",
    "minimax-m3": r"\]<\]minimax\[>\[</?\w*>?",
    "muse": HEADER,
    "plain": OUTPUT,
}
"""What else is markup and in no event, where a family writes headers or markers with something in them; no blanks."""


@cache
def droppable(name: str, tools: bool) -> tuple[tuple[str, ...], re.Pattern[str], frozenset[str]]:
    """What may be in no event: words, a pattern, and at the very end of an output the beginnings of markers."""
    words = {squeezed(word) for word in (*markers(name), *(declared_markers(name) if tools else ()))} - {""}
    begun = frozenset(word[:length] for word in words for length in range(1, len(word)))
    words |= {f"{word}[]" for word in words}  # an empty list of calls says nothing
    return tuple(words), re.compile(HEADERS.get(name, "(?!)")), begun


def lost(text: str, events: Sequence[Event], name: str, tools: bool) -> str:
    """What is in no event and no markup: the text from the first such character on; empty when there is none.

    Every way to tell markup from text is tried at once, since a marker may be either.
    """
    told = squeezed("".join(said(event) for event in events))
    text = squeezed(text)
    words, header, beginnings = droppable(name, tools)
    reached: list[set[int]] = [set() for _ in range(len(text) + 1)]
    reached[0].add(0)
    far = 0
    for at in range(len(text)):
        if not reached[at]:
            continue
        far = at
        reached[at + 1] |= {done + 1 for done in reached[at] if told[done : done + 1] == text[at]}
        for word in words:
            if text.startswith(word, at):
                reached[at + len(word)] |= reached[at]
        found = header.match(text, at)
        while found and found.end() > at:
            reached[found.end()] |= reached[at]
            found = header.match(text, at, found.end() - 1)
        if text[at:] in beginnings:
            reached[-1] |= reached[at]
    return "" if len(told) in reached[-1] else text[far:] or "<more than was written>"


def said(event: Event) -> str:
    """The characters of the output that an event holds."""
    match event:
        case TextDelta(text) | ReasoningDelta(text):
            return text
        case CallEnded(call):
            return call.raw or ""
        case _:
            return ""


Options = dict[str, Any]
"""Arguments for `events_of`."""
Check = Callable[[str, TagDialect, Options, random.Random], str]
"""What is wrong with the reading of a text; empty when nothing is. May raise what the parser raises."""


def cut_alike(text: str, dialect: TagDialect, options: Options, chance: random.Random) -> str:
    whole = events_of([text], dialect, **options)
    places = chance.sample(range(len(text) + 1), min(len(text), 4))
    for chunks in (chopped(text, places), list(text)):
        if events_of(chunks, dialect, **options) != whole:
            return f"differs when cut into {chunks}"
    return ""


def makes_sense(text: str, dialect: TagDialect, options: Options, chance: random.Random) -> str:
    events = events_of([text], dialect, **options)
    message = fold([Started("test"), *events, Finished("end")]).message  # raises on any wrong order
    for part in message.parts:
        if isinstance(part, ToolCall) and not isinstance(json.loads(part.arguments), dict):
            return f"the arguments are no object: {part.arguments}"
        if getattr(part, "text", "x") == "":
            return "an empty text"
    if "Zebra." in text and not message.parts:
        return "an empty message"
    return ""


def accounts(text: str, dialect: TagDialect, options: Options, chance: random.Random) -> str:
    if options.get("reasoning") == "keep" and dialect.markup.headed:
        return ""  # a kept thought is given the whole header that it should have had
    events = events_of([text], dialect, **{**options, "truncated": False})
    missing = lost(text, events, dialect.name, bool(options.get("tools")))
    return f"lost from {missing!r} on: {events}" if missing else ""


CHECKS: tuple[Check, ...] = (cut_alike, makes_sense, accounts)


def random_options(chance: random.Random) -> Options:
    mode: Keep = chance.choice(("split", "split", "keep"))
    return {"reasoning": mode, "tools": chance.choice(((), TOOLS)), "truncated": chance.random() < 0.3}


def held_back(text: str, dialect: TagDialect, tools: Sequence[ToolSpec] = ()) -> int:
    """The most characters of a plain text that were ever held back, blanks beside them not counted."""
    parser = dialect.parser(tools=tools, ids=counted())
    told, most = "", 0
    for at, char in enumerate(text):
        told += "".join(said(event) for event in parser.feed(char))
        most = max(most, len(text[len(told) : at + 1].strip()))
    return most
